"""Kernel time by a profiler of layers, which is never a latency: whether FP8's kernels are shorter anywhere."""

import pytest

from fixtures.errors import EngineError
from fixtures.mnasnet import STUDY

pytestmark = pytest.mark.usefixtures("timed")
claim = pytest.mark.claim
profiled = pytest.mark.parametrize("case", STUDY.select(variant=("fp16", "fp8")), ids=str)


@claim("mnasnet/fp8-kernels-not-shorter")
def test_fp8_kernels_are_not_shorter(mnasnet, case, expect):
    """The study's first reason to look again is FP8 convolutions that are faster at few channels."""
    expect(mnasnet.kernels(case)["kernel_ratio"])


@profiled
@pytest.mark.usefixtures("tensorrt")
def test_kernel_times_are_as_printed(mnasnet, case, as_documented):
    """The printed kernel time of a call on this GPU."""
    as_documented(mnasnet.kernel_times(case))


@profiled
def test_kernel_split(mnasnet, case, evidence):
    """A call's kernel time, nearly all of it in layers of a known group: pointwise, depthwise, other."""
    if not mnasnet.bench.profiled(case):
        pytest.skip("left out: no claim is on this case's kernels")
    evidence("kernels", found := mnasnet.bench.kernels(case))
    if found.problems:
        raise EngineError(f"{case}: no kernel time is known: {'; '.join(found.problems)}")
