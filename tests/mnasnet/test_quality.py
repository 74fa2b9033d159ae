"""How far engines are from PyTorch: fp16 hardly, FP8 more than its speed is worth."""

import pytest

claim = pytest.mark.claim
PRINTED = ("top1", "agreement")


@claim("mnasnet/fp16-predicts-as-pytorch", "mnasnet/fp8-changes-logits")
def test_distance_from_pytorch(mnasnet, case, expect):
    """KL of the predicted distribution from PyTorch's."""
    expect(mnasnet.figure(case, "kl_mean"))


@claim("mnasnet/fp16-agrees-with-pytorch", "mnasnet/fp8-changes-predictions")
def test_agreement_with_pytorch(mnasnet, case, expect):
    """Images whose first class is PyTorch's."""
    expect(mnasnet.figure(case, "agreement"))


@claim("mnasnet/fp16-top1")
def test_fp16_classifies_as_pytorch(mnasnet, case, expect):
    """Top-1 of fp16 is PyTorch's but for chance."""
    expect(mnasnet.figure(case, "top1"))


@claim("mnasnet/fp8-top1-not-better")
def test_fp8_does_not_classify_better(mnasnet, case, expect):
    """Top-1 of fp16 less that of FP8, paired on the same images."""
    expect(mnasnet.figure(case, "top1_loss"))


@claim("mnasnet/fake-quantization-as-engine")
def test_fake_quantization_loses_as_much(mnasnet, case, expect):
    """The same recipe in PyTorch is as far from PyTorch, so the loss is the recipe's and not an engine's."""
    expect(mnasnet.figure(case, "kl_ratio"))


@pytest.mark.every_case("mnasnet")
def test_quality_is_as_printed(mnasnet, case, as_documented):
    """Every printed quality figure, on whatever engine."""
    as_documented({name: each for name, each in mnasnet.figures(case).items() if name in PRINTED})
