"""The studies' tests that hold no claim: what they cannot judge is no finding, and what they can is as red as one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.cases import Case
from fixtures.document import Kernels
from fixtures.errors import EngineError
from fixtures.verdicts import Measurement
from tests.fnet import test_kernels as fnet_kernels
from tests.fnet import test_numerics as fnet_numerics
from tests.meta.tiny import one_line
from tests.mnasnet import test_kernels as mnasnet_kernels

CASE = Case("fnet", "base", 512, 1, "fp16")
SPLITS = pytest.mark.parametrize("split", [fnet_kernels.test_kernel_split, mnasnet_kernels.test_kernel_split])


def first_overflow(share: float, found: str) -> None:
    """The test of the first overflow where `share` of the rows are not finite, and `found` is what overflows first."""
    figure = Measurement(share, 300, exact=True)
    lab = SimpleNamespace(figure=lambda *_: figure, first_nonfinite=lambda _: found)
    fnet_numerics.test_first_overflow_is_in_the_hidden_axis_dft(lab, CASE)


def test_cause_of_no_overflow_is_left_out():
    """The claim says that the known issue is gone, with a verdict that can be accepted; this test has none to give."""
    with pytest.raises(pytest.skip.Exception, match="left out: no row is not finite here, which its claim says"):
        first_overflow(0.0, "no row is not finite")


@pytest.mark.parametrize("share", [1.0, 0.25, 1 / 300])
def test_cause_of_an_overflow_is_the_documented_one(share):
    """C08: one row that is not finite is enough to look at, and another cause than the documented one is red."""
    first_overflow(share, "passage 0: layer.3/hidden_dft/cos -> inf")
    for other in ("passage 0: layer.3/output/matmul -> inf", "passage 0: every value is finite on the CPU engine"):
        with pytest.raises(AssertionError):
            first_overflow(share, other)


def kernel_split(split: Any, problems: list[str]) -> list[tuple[str, Kernels]]:
    """What a study's test of a kernel split keeps for the report where the profile has `problems`."""
    found = Kernels(CASE.id, {"other": 1.0}, 0.6, 1.0, problems)
    kept: list[tuple[str, Kernels]] = []
    bench = SimpleNamespace(profiled=lambda _: True, kernels=lambda _: found)
    try:
        split(SimpleNamespace(bench=bench), CASE, lambda *entry: kept.append(entry))
    finally:
        assert kept == [("kernels", found)]
    return kept


@SPLITS
def test_profile_with_gaps_is_no_finding(split):
    """A profiler that missed a part of a call says nothing of the subject: an engine's error with each gap, and the
    profile is in the report all the same."""
    with one_line(EngineError, CASE.id, "incomplete: 60%; incomplete: 19 calls"):
        kernel_split(split, ["incomplete: 60%", "incomplete: 19 calls"])


@SPLITS
def test_whole_profile_passes(split):
    """Nothing is wrong with it, and it is kept."""
    assert kernel_split(split, [])
