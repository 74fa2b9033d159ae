"""Kernel time by a profiler of layers: what FP8 has to win, and what would reopen the conclusion."""

import pytest

from fixtures.errors import EngineError
from fixtures.fnet import STUDY

pytestmark = pytest.mark.usefixtures("timed")
claim = pytest.mark.claim
profiled = pytest.mark.parametrize("case", STUDY.select(variant=("fp16", "fp16+hs", "fp8")), ids=str)


@claim("fnet/sequence-dft-dominates-at-batch-1", "fnet/sequence-dft-dominates-at-batch-8")
def test_sequence_dft_dominates(fnet, case, expect):
    """FP8 touches none of it. If it shrinks, the feed-forward share grows."""
    expect(fnet.kernels(case)["sequence_dft_share"])


@claim("fnet/look-again-1")
def test_feed_forward_is_a_small_share(fnet, case, expect):
    """The study's first reason to look again."""
    expect(fnet.kernels(case)["ffn_share"])


@claim("fnet/ffn-barely-shorter")
def test_fp8_makes_feed_forward_barely_shorter(fnet, case, expect):
    """What FP8 wins where it is used."""
    expect(fnet.kernels(case)["ffn_shorter"])


@claim("fnet/free-dft-not-enough")
def test_a_free_dft_is_not_enough(fnet, case, expect):
    """The bound on FP8's speed-up if the sequence-axis DFT took no time at all."""
    expect(fnet.kernels(case)["free_dft_speedup"])


@profiled
@pytest.mark.usefixtures("tensorrt")
def test_kernel_times_are_as_printed(fnet, case, as_documented):
    """Every printed kernel time of a call, by the columns of the study's table."""
    as_documented(fnet.kernel_times(case))


@profiled
def test_kernel_split(fnet, case, evidence):
    """A call's kernel time, nearly all of it in layers of a known group: DFTs, feed-forward, projection, other."""
    if not fnet.bench.profiled(case):
        pytest.skip("left out: no claim is on this case's kernels")
    evidence("kernels", found := fnet.bench.kernels(case))
    if found.problems:
        raise EngineError(f"{case}: no kernel time is known: {'; '.join(found.problems)}")
