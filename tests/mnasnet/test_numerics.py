"""Whether the graph is the model, and whether anything is not finite. What fails here says nothing of precision."""

import pytest

claim = pytest.mark.claim


@claim("mnasnet/fp32-is-the-reference")
def test_fp32_graph_is_the_reference_model(mnasnet, case, expect):
    """Batch norm folded in, squeeze-and-excite, residuals: all that was rewritten for ONNX is timm's model."""
    expect(mnasnet.figure(case, "kl_mean"))


@claim("mnasnet/digits-are-read", "mnasnet/fp32-top1")
def test_classes_are_in_order(mnasnet, case, expect):
    """A floor on accuracy: logits and labels that count differently agree with themselves on every engine."""
    expect(mnasnet.figure(case, "top1"))


@claim("mnasnet/finite")
def test_all_is_finite_on_the_whole_scan(mnasnet, case, expect):
    """Calibration and held-out images and 29 stress inputs: FP8's loss is accuracy, not range."""
    expect(mnasnet.figure(case, "nonfinite_share"))
