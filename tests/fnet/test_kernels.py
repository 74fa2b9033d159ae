"""Kernel time by TensorRT's layer profiler: what FP8 has to win, and what would reopen the conclusion."""

import pytest

pytestmark = pytest.mark.usefixtures("timed")
claim = pytest.mark.claim


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
