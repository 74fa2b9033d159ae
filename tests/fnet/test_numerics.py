"""Where fp16 is finite and where it is not: the known issue, its cause, its two cures, and what FP8 does."""

import pytest

from fixtures.fnet import STUDY

claim = pytest.mark.claim


@claim("fnet/fp32-is-the-reference")
def test_fp32_graph_is_the_reference_model(fnet, case, expect):
    """The matrix form of the DFT, and all else that was rewritten for ONNX, is Transformers' model."""
    expect(fnet.figure(case, "cls_relative_l2"))


@claim("fnet/fp16-not-finite-at-512")
def test_fp16_is_not_finite_at_512(fnet, case, expect):
    """Known issue. If this passes 512 tokens one day, the documented reason for the scaling is stale."""
    expect(fnet.figure(case, "nonfinite_share"))


@pytest.mark.parametrize("case", [STUDY.case("base-512-b1-fp16")], ids=str)
def test_first_overflow_is_in_the_hidden_axis_dft(fnet, case):
    """The documented cause: the fp16 hidden-axis product passes 65,504, before any other value does."""
    if fnet.figure(case, "nonfinite_share").value == 0:
        pytest.skip("left out: no row is not finite here, which its claim says")
    assert "/hidden_dft/" in fnet.first_nonfinite(case)


@claim("fnet/dft-passes-fp16-at-512", "fnet/dft-fits-fp16-at-256")
def test_cause_is_the_range_of_the_dft(fnet, case, expect):
    """The reference's own DFT output says which windows fit fp16."""
    expect(fnet.dft_abs_max(case))


@claim("fnet/fp16-finite-at-256-and-128")
def test_fp16_is_finite_at_256_and_128(fnet, case, expect):
    """Shorter windows need no cure."""
    expect(fnet.figure(case, "nonfinite_share"), why=lambda: fnet.first_nonfinite(case))


@claim("fnet/fp16-hs-finite-at-512", "fnet/fp16-dft32-finite-at-512")
def test_cures_are_finite_at_512(fnet, case, expect):
    """The 1/64 scaling cures it, and so does the hidden-axis DFT in fp32."""
    expect(fnet.figure(case, "nonfinite_share"), why=lambda: fnet.first_nonfinite(case))


@claim("fnet/fp8-finite")
def test_fp8_is_finite_on_the_whole_scan(fnet, case, expect):
    """Passages, sentences and 22 stress inputs: FP8's loss is accuracy, not range."""
    expect(fnet.figure(case, "nonfinite_share"), why=lambda: fnet.first_nonfinite(case))


@claim("fnet/no-collapsed-rows")
def test_no_row_has_collapsed(fnet, case, expect):
    """An overflow inside a layer norm leaves its bias: finite, constant, wrong."""
    expect(fnet.figure(case, "collapsed_share"))
