"""MNASNet's weights and preprocessing: from the checkpoint alone, checked, and folded without loss."""

from __future__ import annotations

from dataclasses import replace

import pytest
import timm
import torch

from fixtures.checkpoints import Checkpoint
from fixtures.errors import InputError
from fixtures.mnasnet import STUDY
from fixtures.mnasnet.model import STATED, Layer, Preprocessing, folded, layers, network, tag
from tests.meta import tiny_mnasnet
from tests.meta.tiny import one_line
from tests.meta.tiny_mnasnet import PREPROCESSING, checkpoint


def with_config(**config: object) -> Checkpoint:
    return replace(checkpoint(), config={**checkpoint().config, **config})


def test_preprocessing_is_the_checkpoints_own():
    """C32: crop, filter, mean and std are those of config.json, not timm's defaults for the architecture."""
    found = Preprocessing.of(network(checkpoint()))
    assert (found.crop_pct, found.interpolation, found.input_size) == (0.9, "bilinear", (3, 64, 64))
    assert (list(found.mean), list(found.std)) == (PREPROCESSING["mean"], PREPROCESSING["std"])
    assert timm.create_model("mnasnet_small").pretrained_cfg["crop_pct"] != 0.9
    resize, crop, _, normalize = found.transform().transforms
    assert (resize.size, crop.size, resize.antialias) == (71, (64, 64), True)  # 64 / 0.9
    assert normalize.mean.tolist() == pytest.approx(found.mean)


@pytest.mark.parametrize("missing", STATED)
def test_preprocessing_is_never_guessed(missing):
    """C32: what config.json leaves out is named; timm would fill in its default without a word."""
    kept = {name: value for name, value in PREPROCESSING.items() if name != missing}
    with one_line(InputError, "pretrained_cfg", missing):
        network(with_config(pretrained_cfg=kept))


def test_tag_is_told():
    """C32: which training of the architecture this is; the pin of the study is of one with a tag."""
    assert tag(checkpoint()) == "tiny"
    assert tag(with_config(pretrained_cfg={**PREPROCESSING, "tag": ""})) == "no tag"
    assert STUDY.checkpoints["mnasnet_100"].repo.endswith(".rmsp_in1k")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"architecture": "mnasnet_99"}, ("'mnasnet_99'", "timm does not have")),
        ({"architecture": None}, ("None", "timm's hub form")),
        ({"architecture": "mnasnet_050"}, ("not mnasnet_050's",)),
        ({"num_classes": None}, ("does not say num_classes",)),
        ({"num_classes": 21}, ("not mnasnet_small's", "classifier")),
    ],
)
def test_checkpoint_that_does_not_fit_is_one_line(config, words):
    """An unknown architecture, or tensors of another, is named; no weight is left at its random start."""
    with one_line(InputError, "tiny mnasnet_small", *words):
        network(with_config(**config))


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("efficientnet_es", ("blocks.0.0", "EdgeResidual")),
        ("mobilenetv3_small_050", ("conv_stem", "Hardswish")),
        ("efficientnet_lite0", ("conv_stem", "ReLU6")),
        ("mixnet_s", ("conv_pw", "MixedConv2d")),
    ],
)
def test_part_that_no_mnasnet_has_is_refused_by_name(architecture, words):
    """Nothing of a relative of MNASNet is left out unseen."""
    model = timm.create_model(architecture, num_classes=2).requires_grad_(False)
    with one_line(InputError, *words):
        tiny_mnasnet.graph(model)


def test_folding_changes_nothing():
    """Every convolution with its batch norm is one convolution, to the last digits of fp32."""
    model = network(checkpoint())
    assert len(layers(model)) == 1 + 1 + 2 + 14 * 3  # stem, head, one block of two convolutions and 14 of three
    for layer in layers(model).values():
        conv, bn = (model.get_submodule(name) for name in layer)
        rows = torch.randn(2, conv.in_channels, 7, 7, generator=torch.Generator().manual_seed(0))
        kernel, bias = folded(model, layer)
        found = torch.nn.functional.conv2d(rows, kernel, bias, conv.stride, conv.padding, groups=conv.groups)
        expected = torch.nn.functional.batch_norm(conv(rows), bn.running_mean, bn.running_var, bn.weight, bn.bias)
        assert torch.allclose(found, expected, atol=3e-6 * float(expected.abs().max())), layer


def test_folding_keeps_digits_that_fp32_loses():
    """The arithmetic is float64: a mean and a bias of a million that cancel leave what they should."""
    model = torch.nn.ModuleDict({"conv": torch.nn.Conv2d(1, 1, 1), "bn": torch.nn.BatchNorm2d(1, eps=0.0)})
    conv, bn = model.requires_grad_(False).values()
    conv.weight.data.fill_(1.0)
    conv.bias.data.fill_(1e6)
    bn.running_mean.fill_(1e6)
    bn.running_var.fill_(3.0)
    bn.bias.data.fill_(0.125)
    assert folded(model, Layer("conv", "bn"))[1].item() == 0.125
