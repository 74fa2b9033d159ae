"""MNASNet's graph is timm's model, and quantizes what the recipe says: each rule with the fault that breaks it."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest
import timm
import torch

from fixtures import calibration, metrics
from fixtures.cases import studies
from fixtures.conclusions import conclusions
from fixtures.errors import InputError
from fixtures.graphs import ELEMENT_TYPES
from fixtures.mnasnet import figures, graph, model, recipe, tasks
from fixtures.mnasnet.model import network
from fixtures.mnasnet.recipe import RECIPES, channel_notes, check_quantized, quantized_layers
from fixtures.mnasnet.reference import Reference
from fixtures.verdicts import Outcome
from tests.meta import tiny_mnasnet as tiny
from tests.meta.tiny import one_line

SIZE = (3, tiny.SIZE, tiny.SIZE)
STUDY_SIZE = (3, 224, 224)
SQUEEZED = ("mnasnet_small", "semnasnet_075")


@cache
def mnasnet_100() -> torch.nn.Module:
    """The study's architecture, its shapes alone."""
    with torch.device("meta"):
        return timm.create_model("mnasnet_100").eval()


def depthwise_convolutions(built: torch.nn.Module) -> list[str]:
    """The convolutions of which each channel has its own kernel, by module name."""
    parts = built.named_modules()
    return [name for name, part in parts if isinstance(part, torch.nn.Conv2d) and part.groups > 1]


def outcome(claim: str, found: torch.Tensor, expected: torch.Tensor) -> Outcome:
    """A claim's verdict on an engine's logits against the reference's."""
    wanted = conclusions().claims[claim]
    measured = figures.of_quality(tasks.quality(expected, found, None))[wanted.figure]
    return measured.judged(wanted.limits, Outcome.FLIPPED)


# ---- the graph is the model


@pytest.mark.parametrize("architecture", ["mnasnet_050", *SQUEEZED])
def test_graph_is_timms_model(architecture):
    """Strides, paddings, residuals, batch norms, squeeze-and-excite and the head, from the modules alone."""
    built = network(tiny.checkpoint(architecture))
    rows = tiny.images(8)
    found = tiny.logits(tiny.graph(built), rows)
    assert metrics.relative_l2(built(rows), found).max() < 1e-4
    assert outcome("mnasnet/fp32-is-the-reference", found, built(rows)) is Outcome.HOLDS


def test_dropped_squeeze_and_excite_is_seen(monkeypatch):
    """1x1 convolutions on 1x1 maps are easily taken for nothing: without them the graph is another model."""
    monkeypatch.setattr(graph._MnasnetBuilder, "squeeze_excite", lambda _self, _name, value: value)
    built = network(tiny.checkpoint())
    rows = tiny.images(8)
    found = tiny.logits(tiny.graph(built), rows)
    assert outcome("mnasnet/fp32-is-the-reference", found, built(rows)) is Outcome.FLIPPED
    assert metrics.agreement(built(rows), found).mean() < 0.9


def test_folding_in_fp16_is_seen(monkeypatch):
    """Batch norm folded with fp16 arithmetic is not the model any more, in a graph that is fp32 otherwise."""

    def halved(network, layer):
        conv, norm = (network.get_submodule(name) for name in layer)
        factor = norm.weight.half() / (norm.running_var.half() + norm.eps).sqrt()
        bias = norm.bias.half() - norm.running_mean.half() * factor
        return (conv.weight.half() * factor.reshape(-1, 1, 1, 1)).float(), bias.float()

    monkeypatch.setattr(graph, "folded", halved)
    built = tiny.digits()
    rows = tiny.images(8)
    assert (
        outcome("mnasnet/fp32-is-the-reference", tiny.logits(tiny.graph(built), rows), built(rows)) is Outcome.FLIPPED
    )


def test_rows_do_not_depend_on_their_batch():
    """An image alone and the same image among others give the same logits, in each precision."""
    built = tiny.digits()
    rows = tiny.images(4)
    for variant in ("fp32", "fp8"):
        alone, together = (tiny.logits(tiny.graph(built, variant, batch), rows) for batch in (1, 4))
        assert torch.allclose(alone, together, atol=1e-4)


def test_fp8_graph_as_it_is_written():
    """The file itself, without what half.py makes of it, computes the recipe: Dequantize along the right axis, no part
    missing. ONNX Runtime's rewrites are off: they take every Quantize for int8, and drop a Relu before an FP8 one.
    """
    built, rows = tiny.digits(), tiny.images(8)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    written = tiny.graph(built, "fp8", batch=8)
    session = onnxruntime.InferenceSession(written.to_proto().SerializeToString(), options, ["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(["logits"], {"image": rows.numpy()})[0])
    scales = dict.fromkeys(quantized_layers(built, SIZE), 0.02)
    fake, exact = Reference(built).fake_quantized(scales)(rows), built(rows)
    assert metrics.relative_l2(fake, found).mean() < metrics.relative_l2(exact, found).mean() < 0.2


@pytest.mark.parametrize("variant", RECIPES)
def test_every_type_is_in_the_graph(variant):
    """Strongly typed: fp32 at the ends, and in between fp16 and FP8 where the variant has them, no engine's choice."""
    built = tiny.graph(tiny.digits(), variant).proto.graph
    types = {value.name: value.type.tensor_type.elem_type for value in built.value_info}
    ends = {value.type.tensor_type.elem_type for value in (*built.input, *built.output)}
    assert ends == {onnx.TensorProto.FLOAT}
    convolutions = {types[node.output[0]] for node in built.node if node.op_type == "Conv"}
    assert convolutions == {onnx.TensorProto.FLOAT if variant == "fp32" else onnx.TensorProto.FLOAT16}
    codes = {types[node.output[0]] for node in built.node if node.op_type == "QuantizeLinear"}
    assert codes == ({onnx.TensorProto.FLOAT8E4M3FN} if "fp8" in variant else set())


def test_optimization_level_is_not_in_the_graph():
    """`-opt3` is the same nodes and arrays, built at level 3; the study builds at 1."""
    built = tiny.digits()
    for variant in ("fp16", "fp8"):
        plain, third = (tiny.graph(built, name) for name in (variant, f"{variant}-opt3"))
        assert list(plain.proto.graph.node) == list(third.proto.graph.node)
        assert all(np.array_equal(array, third.weights[name]) for name, array in plain.weights.items())
        assert (plain.case.optimization_level, third.case.optimization_level) == (1, 3)


def test_unknown_variant_names_the_known_ones():
    """The grid and the recipes name the same variants, and a misspelt one is one line."""
    assert {case.variant for case in studies()["mnasnet"].cases} == set(RECIPES)
    with one_line(InputError, "'fp4'", *RECIPES):
        recipe.recipe("fp4")


# ---- what is quantized


def test_the_studys_34_convolutions_by_name():
    """C28: all pointwise convolutions of mnasnet_100, in the order they run, and none of the 17 depthwise ones."""
    found = quantized_layers(mnasnet_100(), STUDY_SIZE)
    names = [name for name, part in mnasnet_100().named_modules() if isinstance(part, torch.nn.Conv2d)]
    assert list(found) == [name for name in names if re.fullmatch(r"blocks\.\d\.\d\.conv_pwl?|conv_head", name)]
    assert (len(found), len(depthwise_convolutions(mnasnet_100()))) == (34, 17)
    assert set(names) == {"conv_stem", *found, *depthwise_convolutions(mnasnet_100())}


def test_digits_model_has_the_same_convolutions():
    """What holds of the digits model's recipe holds of the study's: same names, same count."""
    assert quantized_layers(tiny.digits(), SIZE) == quantized_layers(mnasnet_100(), STUDY_SIZE)
    assert depthwise_convolutions(tiny.digits()) == depthwise_convolutions(mnasnet_100())


@pytest.mark.parametrize("architecture", SQUEEZED)
def test_map_of_1x1_is_not_quantized(architecture):
    """Squeeze-and-excite is pointwise too, on maps of 1x1; so is the end of the network when the input is small."""
    with torch.device("meta"):
        built = timm.create_model(architecture).eval()
    found = quantized_layers(built, STUDY_SIZE)
    assert not [name for name in found if ".se." in name]
    assert "conv_head" in found
    assert "conv_head" not in quantized_layers(built, (3, 32, 32))


@pytest.mark.parametrize("architecture", ["mnasnet_050", "mnasnet_small"])
def test_graph_quantizes_the_recipe_and_nothing_else(architecture):
    """C28: by name and by count, one Quantize node each; depthwise convolutions and the stem stay fp16."""
    built = network(tiny.checkpoint(architecture))
    names = quantized_layers(built, SIZE)
    found = tiny.graph(built, "fp8")
    check_quantized(found, names)
    facts = figures.facts(found)
    assert (facts.fp8_convolutions, facts.depthwise_convolutions) == (len(names), len(depthwise_convolutions(built)))
    assert sum(node.op_type == "QuantizeLinear" for node in found.proto.graph.node) == len(names)
    assert facts.fp8_bytes == 1 + sum(found.weights[f"{name}.weight"].size for name in names)  # and the zero point
    check_quantized(tiny.graph(built, "fp16"), ())


def test_wrong_set_is_red():
    """C28: depthwise convolutions quantized too, or one convolution left out, is named and flips its claim."""
    built = tiny.digits()
    names, depthwise = quantized_layers(built, SIZE), depthwise_convolutions(built)
    wider = tiny.graph(built, "fp8", names=(*names, *depthwise))
    with one_line(InputError, "quantizes 51", "recipe 34", "quantized besides: blocks.0.0.conv_dw"):
        check_quantized(wider, names)
    with one_line(InputError, "quantizes 33", "not quantized: conv_head"):
        check_quantized(tiny.graph(built, "fp8", names=names[:-1]), names)
    facts = figures.of_graph(figures.facts(wider), figures.facts(tiny.graph(built, "fp16")))
    for claim in ("mnasnet/fp8-convolutions", "mnasnet/depthwise-stay-fp16"):
        wanted = conclusions().claims[claim]
        assert facts[wanted.figure].judged(wanted.limits, Outcome.FLIPPED) is Outcome.FLIPPED


def test_kernel_has_a_scale_for_each_output_channel():
    """amax / 448 of the folded kernel, channel by channel, and codes that come back within half an E4M3 step."""
    built = tiny.digits()
    found = tiny.graph(built, "fp8")
    for name in ("conv_head", "blocks.3.1.conv_pwl"):
        kernel = model.folded(built, model.layers(built)[name])[0].numpy()
        codes, scale = found.weights[f"{name}.weight"], found.weights[f"{name}.weight_scale"]
        top = np.abs(kernel).max(axis=(1, 2, 3))
        assert (scale.dtype, scale.shape) == (np.float16, (len(kernel),))
        assert np.array_equal(scale, np.maximum((top / 448).astype(np.float16), np.float16(2**-14)))
        wide = scale.astype(np.float32).reshape(-1, 1, 1, 1)
        assert np.all(
            np.abs(codes.astype(np.float32) * wide - kernel) <= np.maximum(np.abs(kernel) / 16, wide * 2**-10)
        )


@pytest.mark.parametrize("shape", ["scalar", "repeated"])
def test_scale_per_tensor_is_red(monkeypatch, shape):
    """One scale for the whole kernel is another recipe, even where it is written once for each channel."""

    def per_tensor(kernel, name):
        codes, scale, raised = calibration.fp8_weight(kernel, name)
        return calibration.FP8Weight(codes, scale if shape == "scalar" else np.full(len(kernel), scale), raised)

    monkeypatch.setattr(graph, "fp8_weight", per_tensor)
    built = tiny.digits()
    with one_line(InputError, "conv_pw", "amax / 448 of each of its", "output channels"):
        check_quantized(tiny.graph(built, "fp8"), quantized_layers(built, SIZE))


def test_dead_channels_are_reported():
    """C26: a channel whose batch norm has gain 0 gets the smallest scale and a line; a kernel of such is refused."""
    built = network(tiny.checkpoint())
    name = "blocks.1.0.conv_pw"
    norm = built.get_submodule(model.layers(built)[name].norm)
    norm.weight = torch.nn.Parameter(norm.weight.clone(), requires_grad=False)
    norm.weight[[2, 5]] = 0.0
    notes = channel_notes(built, quantized_layers(built, SIZE))
    assert f"{name} has dead output channels, given scale 6.10352e-05: 2, 5" in notes
    found = tiny.graph(built, "fp8")
    check_quantized(found, quantized_layers(built, SIZE))
    assert found.weights[f"{name}.weight_scale"][[2, 5]].tolist() == [2**-14] * 2
    norm.weight.zero_()
    with one_line(InputError, f"{name}.weight is all zeros"):
        tiny.graph(built, "fp8")


def test_constants_have_known_types():
    """Every array of every variant is of a type that a graph may hold."""
    assert {array.dtype for array in tiny.graph(tiny.digits(), "fp8").weights.values()} <= set(ELEMENT_TYPES)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), 1e-9])
def test_scale_that_no_graph_can_hold_is_refused_by_name(bad):
    """C26: the error is at the convolution whose scale it is, not in a parser far from it."""
    built, case = tiny.digits(), studies()["mnasnet"].case("digits-b1-fp8")
    scales = dict.fromkeys(quantized_layers(built, SIZE), 0.02)
    name = next(iter(scales))
    with one_line(InputError, f"a scale of the input of {name}", "calibrate again"):
        graph.build(case, built, SIZE, RECIPES["fp8"], scales | {name: bad})
