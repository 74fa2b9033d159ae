"""Calibration through ModelOpt, and the rules of scales and FP8 weights, with faults fed in."""

from __future__ import annotations

import json
import logging
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from fixtures import calibration
from fixtures.calibration import (
    SMALLEST_SCALE,
    SUPPORTED_MODELOPT,
    activation_amax,
    cached_scales,
    check_codes,
    check_scale,
    fp8_scale,
    fp8_weight,
    scales,
    to_e4m3,
)
from fixtures.engines.cache import Cache
from fixtures.errors import InputError
from fixtures.fnet.recipe import quantized_layers, recipe

ROOT = Path(__file__).parents[2]
LAYERS = quantized_layers(recipe("fp8", 512), 2)
WINDOW = 16
NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def pretraining():
    """A tiny FNet with random weights, as the reference has it; no test may change it."""
    from transformers import FNetConfig, FNetForPreTraining

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads of so small a product only wait for each other
    torch.manual_seed(0)
    config = FNetConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, intermediate_size=64, max_position_embeddings=WINDOW
    )
    yield FNetForPreTraining(config).eval()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model(pretraining) -> torch.nn.Module:
    """The encoder, whose layer names the recipe uses."""
    return pretraining.fnet


@pytest.fixture(scope="module")
def ids() -> torch.Tensor:
    """Twelve encoded passages."""
    return torch.randint(0, 50, (12, WINDOW), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def preset(monkeypatch) -> Iterator:
    """Puts another FP8_DEFAULT_CFG into ModelOpt."""
    mtq = calibration._modelopt()
    return lambda **changed: monkeypatch.setattr(mtq, "FP8_DEFAULT_CFG", {**mtq.FP8_DEFAULT_CFG, **changed})


def forward(model: torch.nn.Module, ids: torch.Tensor) -> object:
    return model(ids)


def amax_of(model, ids, layers=LAYERS) -> dict[str, float]:
    return activation_amax(model, layers, ids.split(1), forward)


def watched_amax(model, ids) -> dict[str, float]:
    """The same maxima without ModelOpt."""
    found = dict.fromkeys(LAYERS, 0.0)

    def watch(layer):
        def hook(_, inputs):
            found[layer] = max(found[layer], float(inputs[0].abs().max()))

        return hook

    hooks = [model.get_submodule(layer).register_forward_pre_hook(watch(layer)) for layer in LAYERS]
    with torch.no_grad():
        for row in ids.split(1):
            model(row)
    for hook in hooks:
        hook.remove()
    return found


# ---- activations


def test_amax_is_the_fp32_models(model, ids):
    """ModelOpt's max calibration gives the largest inputs of the unquantized model, to the bit, in recipe order."""
    amax = amax_of(model, ids)
    assert amax == watched_amax(model, ids)
    assert tuple(amax) == LAYERS


def test_model_is_left_as_it_was(pretraining, ids):
    """The reference goes on to be the reference: same modules, same tensors, bit-identical outputs, no hooks."""

    def state() -> list:
        return [
            *((name, type(part), len(part._forward_pre_hooks)) for name, part in pretraining.named_modules()),
            *((name, tensor.data_ptr()) for name, tensor in pretraining.state_dict().items()),
        ]

    with torch.no_grad():
        before, outputs = state(), pretraining(ids)
        amax_of(pretraining.fnet, ids)
        again = pretraining(ids)
    assert state() == before
    assert torch.equal(outputs.prediction_logits, again.prediction_logits)
    assert torch.equal(outputs.seq_relationship_logits, again.seq_relationship_logits)


@pytest.mark.parametrize("batches", [lambda ids: [ids], lambda ids: ids.split(5), lambda ids: ids.flip(0).split(1)])
def test_batch_and_order_do_not_matter(model, ids, batches):
    """Scales are equal, to the bit, for any batch size and order."""
    assert activation_amax(model, LAYERS, batches(ids), forward) == amax_of(model, ids)


def test_only_some_layers(model, ids):
    """`fp8-no-output-dense` calibrates half the layers, with the same result for those."""
    layers = quantized_layers(recipe("fp8-no-output-dense", 512), 2)
    assert amax_of(model, ids, layers) == {layer: top for layer, top in amax_of(model, ids).items() if layer in layers}


def test_no_rows_fail(model):
    """C26: no samples seen is an error, never a default scale."""
    with pytest.raises(InputError, match="no rows to calibrate with"):
        activation_amax(model, LAYERS, [], forward)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_bad_calibration_data_is_named(model, ids, bad):
    """C26: one bad value in the data is found before it is used, by row."""
    rows = ids.float()
    rows[7, 3] = bad
    with pytest.raises(InputError, match="calibration row 7 holds NaN or infinity"):
        activation_amax(model, LAYERS, [rows], lambda model, row: model(row.long()))


@pytest.mark.parametrize("bad", [NAN, INF])
def test_bad_activation_is_named(model, ids, bad):
    """C26: a weight that makes the inputs of a layer NaN or infinite is found at that layer."""
    bias = model.get_submodule("encoder.layer.0.intermediate.dense").bias
    with torch.no_grad():
        kept = bias[5].clone()
        bias[5] = bad
    try:
        with pytest.raises(InputError, match=r"the input of encoder\.layer\.0\.output\.dense holds NaN or infinity"):
            amax_of(model, ids)
    finally:
        with torch.no_grad():
            bias[5] = kept


def test_layer_that_never_ran_is_named(model, ids):
    """C26: a forward that leaves layers out, or runs another model, does not leave them without data unseen."""
    with pytest.raises(InputError, match=r"never ran encoder\.layer\.0\.intermediate\.dense.* and 1 more"):
        activation_amax(model, LAYERS, [ids], lambda _, row: model(row))


@pytest.mark.parametrize("form", ["list", "mapping"])
def test_preset_in_both_forms(model, ids, preset, form):
    """C28: the preset as a list of rules (ModelOpt 0.44 and later) and as a mapping (before) give the same."""
    expected = amax_of(model, ids)
    rule = {"num_bits": (4, 3), "axis": None}
    if form == "list":
        preset(quant_cfg=[{"quantizer_name": "*input_quantizer", "cfg": rule}])
        assert amax_of(model, ids) == expected
    else:
        preset(quant_cfg={"*weight_quantizer": rule, "*input_quantizer": rule, "default": {"enable": False}})
        with pytest.deprecated_call(match="legacy dict format"):
            assert amax_of(model, ids) == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"quant_cfg": [{"quantizer_name": "*", "enable": False}, {"quantizer_name": "*act_quantizer", "cfg": {}}]},
        {"quant_cfg": {"*weight_quantizer": {"num_bits": (4, 3)}, "default": {"enable": False}}},
        {"quant_cfg": []},
        {"algorithm": "smoothquant"},
    ],
    ids=["list", "mapping", "empty", "algorithm"],
)
def test_preset_without_the_rule_names_versions(model, ids, preset, changed):
    """C28: a preset without what is looked for is one line with the supported versions, not a silent no-op."""
    preset(**changed)
    with pytest.raises(InputError, match="FP8_DEFAULT_CFG has no rule") as caught:
        amax_of(model, ids)
    assert SUPPORTED_MODELOPT in str(caught.value)


@pytest.mark.parametrize("rule", [{"num_bits": 8, "axis": None}, {"num_bits": (4, 3), "axis": 0}], ids=str)
def test_preset_of_another_format_is_refused(model, ids, preset, rule):
    """C28: int8, or per-channel activations, under the FP8 preset's name do not pass for FP8 per tensor."""
    preset(quant_cfg=[{"quantizer_name": "*input_quantizer", "cfg": rule}])
    with pytest.raises(InputError, match="not E4M3 per tensor"):
        amax_of(model, ids)


def test_rule_that_matches_nothing(model, ids):
    """C28: a layer name that the model does not have fails by name, and nothing is calibrated."""
    with pytest.raises(InputError, match=r"turned on 1 quantizers, the recipe has 2; not on: encoder\.layer\.9\."):
        amax_of(model, ids, ("encoder.layer.0.output.dense", "encoder.layer.9.output.dense"))


def test_rule_that_matches_everything(model, ids):
    """C28: a rule that turns every layer on names what it turned on besides."""
    with pytest.raises(InputError, match=r"on besides: embeddings\.LayerNorm\.input_quantizer, .* and \d+ more"):
        amax_of(model, ids, ("*",))


def test_disable_rule_that_matches_nothing(model, ids, monkeypatch):
    """C28: when the rule that turns all else off has no effect, the quantizers left on are named."""
    mtq = calibration._modelopt()
    quantize = mtq.quantize
    monkeypatch.setattr(
        mtq, "quantize", lambda model, config: quantize(model, config | {"quant_cfg": config["quant_cfg"][1:]})
    )
    with pytest.raises(InputError, match=r"the recipe has 4; on besides: .*weight_quantizer"):
        amax_of(model, ids)


def test_supported_versions_are_the_required_ones():
    """The versions that messages name are those that the project installs."""
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"nvidia-modelopt{SUPPORTED_MODELOPT}" in required


# ---- the cache of scales


def cached(folder, compute, **changed):
    known = {"weights_sha256": "w", "inputs_sha256": "i", "window": 512, "layers": ("a.0", "a.1")}
    return cached_scales(Cache(folder), **(known | changed), compute=compute)


@pytest.mark.parametrize(
    "changed", [{"weights_sha256": "v"}, {"inputs_sha256": "j"}, {"window": 256}, {"layers": ("a.0", "a.2")}], ids=str
)
def test_scales_are_kept_by_weights_inputs_window_and_layers(tmp_path, changed):
    """C10: each of them changed calibrates anew, nothing changed does not."""
    compute = [{"a.0": 1.0, "a.1": 2.0}].pop  # gives its one answer once
    first, made = cached(tmp_path, compute)
    again, hit = cached(tmp_path, compute)
    assert (made.hit, hit.hit, again) == (False, True, first)
    assert not cached(tmp_path, lambda: {"a.0": 1.0, "a.2": 2.0}, **changed)[1].hit


@pytest.mark.parametrize("package", ["modelopt", "torch"])
def test_scales_of_another_version_are_not_used(tmp_path, monkeypatch, package):
    """C10: scales that another ModelOpt or another PyTorch collected are collected again."""
    cached(tmp_path, lambda: {"a.0": 1.0})
    if package == "torch":
        monkeypatch.setattr(torch, "__version__", "3.0.0")
    else:
        monkeypatch.setattr(calibration, "version", lambda _: "0.48.0")
    assert not cached(tmp_path, lambda: {"a.0": 1.0})[1].hit


def test_kept_scales_are_strict_json_to_the_bit(tmp_path):
    """C23: any JSON reader can read what is kept, and every digit of amax is there."""
    amax = {"a.0": float(np.float32(0.1)), "a.1": 5e-324}
    _, entry = cached(tmp_path, lambda: amax)
    assert json.loads(entry.path.read_text(), parse_constant=pytest.fail) == amax


def test_what_gives_no_scale_is_not_kept(tmp_path):
    """C26: a NaN amax fails by name and leaves nothing in the cache."""
    with pytest.raises(InputError, match=r"the input of a\.1 is nan"):
        cached(tmp_path, lambda: {"a.0": 1.0, "a.1": NAN})
    assert not cached(tmp_path, lambda: {"a.0": 1.0, "a.1": 2.0})[1].hit


def test_a_hit_does_not_import_modelopt(tmp_path, monkeypatch):
    """A second run does not pay seconds for a library that it does not need."""
    cached(tmp_path, lambda: {"a.0": 1.0, "a.1": 2.0})
    monkeypatch.setitem(sys.modules, "modelopt", None)  # importing it raises now
    assert cached(tmp_path, calibration._modelopt)[1].hit
    with pytest.raises(ImportError):
        cached(tmp_path, calibration._modelopt, window=256)


# ---- rules of scales


def test_outlier_stays_fp16_and_is_reported():
    """A scale above 20x the median of its kind stays fp16; kinds do not mix, and exactly 20x is no outlier."""
    amax = {f"layer.{i}.in": 44.8 for i in range(5)} | {f"layer.{i}.out": 4.48 for i in range(3)}
    found = scales(amax | {"layer.5.in": 44.8 * 25, "layer.3.out": 44.8})
    assert set(found.outliers) == {"layer.5.in"}
    assert "layer.5.in" not in found.values
    assert found.outliers["layer.5.in"] == found.largest_ratio == pytest.approx(25, rel=1e-3)
    assert found.notes == ("layer.5.in stays fp16: its scale is 25.0x the median of its kind, above 20x",)
    edge = scales({"layer.0.in": 448.0, "layer.1.in": 448.0, "layer.2.in": 448.0 * 20})
    assert (edge.outliers, edge.largest_ratio) == ({}, 20.0)


@pytest.mark.parametrize("dead", [0.0, -0.0, 1e-45, 0.02])
def test_dead_input_gets_the_smallest_scale_and_is_reported(dead):
    """C26: an input that is always 0, or so small that fp16 has no exact scale for it, is raised to 2^-14 and said."""
    found = scales({"layer.0.in": 1.0, "layer.1.in": dead, "layer.2.in": 1.0})
    assert found.values["layer.1.in"] == SMALLEST_SCALE
    assert found.raised == {"layer.1.in": dead}
    assert "layer.1.in" in found.notes[0]


@pytest.mark.parametrize("amax", [-1.0, -1e-45, NAN, INF, -INF])
def test_impossible_amax_fails_by_name(amax):
    """C26: negative, NaN and infinite always fail, naming the tensor."""
    with pytest.raises(InputError, match=r"layer\.1\.in"):
        scales({"layer.0.in": 1.0, "layer.1.in": amax})


def test_amax_too_large_for_fp16_fails_by_name():
    """A scale that fp16 makes infinite is refused, not written."""
    with pytest.raises(InputError, match=r"conv\.weight is inf"):
        fp8_scale(3e7, "conv.weight")


def test_scale_is_rounded_to_fp16_first():
    """The scale is the number that the graph holds: fp16, nearest to amax / 448."""
    scale = fp8_scale(1.0, "w")
    assert (scale.dtype, float(scale)) == (np.float16, float(np.float16(1 / 448)))


@pytest.mark.parametrize("scale", [0.0, -0.0, -0.01, NAN, INF, 1e-45, 1e-8, 6e-5, 1e5])
def test_bad_scale_is_refused_before_export(scale):
    """C26: zero, negative, NaN, infinite, denormal, zero only in fp16, subnormal in fp16, infinite in fp16."""
    with pytest.raises(InputError, match=r"a scale of encoder\.layer\.0\.output\.dense is"):
        check_scale(scale, "encoder.layer.0.output.dense")
    with pytest.raises(InputError):
        check_scale(np.array([0.01, scale]), "per channel")


@pytest.mark.parametrize("scale", [SMALLEST_SCALE, 0.01, 1.0, 65504.0])
def test_good_scale_passes(scale):
    """The check refuses nothing that a graph can hold."""
    check_scale(scale, "w")


# ---- rules of FP8 values


def boundaries() -> np.ndarray:
    """Every finite fp16 value, and around each E4M3 value and each midpoint of two the neighbouring fp32 numbers."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    grid = np.arange(0x7F, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    edges = np.concatenate([grid, (grid[1:] + grid[:-1]) / 2, np.float32([448, 464, 480, 1e9, 2**-9, 2**-10, 2**-11])])
    around = np.concatenate([edges, np.nextafter(edges, np.float32(0)), np.nextafter(edges, np.float32(INF))])
    return np.concatenate([halves[np.isfinite(halves)], around, -around])


def test_cast_agrees_with_torch_and_ml_dtypes():
    """Bit for bit at every boundary, both libraries' casts after saturation: nearest even, subnormals, signed zeros."""
    values = boundaries()
    held = np.clip(values, -448, 448)
    codes = to_e4m3(values, "w").view(np.uint8)
    assert np.array_equal(codes, torch.from_numpy(held).to(torch.float8_e4m3fn).view(torch.uint8).numpy())
    inside = np.abs(values) <= 448
    assert np.array_equal(codes[inside], values[inside].astype(ml_dtypes.float8_e4m3fn).view(np.uint8))


@pytest.mark.parametrize("value", [448, 464, 464.01, 480, 1e9, INF])
def test_cast_saturates(value):
    """C26: beyond the range is ±448 (bytes 0x7E and 0xFE), never E4M3's NaN."""
    assert to_e4m3(np.float32([value, -value]), "w").view(np.uint8).tolist() == [0x7E, 0xFE]


def test_nan_is_not_cast():
    """C26: NaN has no place among FP8 values."""
    with pytest.raises(InputError, match="conv has 1 NaN among its 2 FP8 bytes"):
        to_e4m3(np.float32([1, NAN]), "conv")


@pytest.mark.parametrize("byte", [0x7F, 0xFF])
def test_nan_byte_is_found(byte):
    """C26: a NaN byte is found in either sign; every other byte passes."""
    codes = np.arange(256, dtype=np.uint8)
    codes[[0x7F, 0xFF]] = 0
    check_codes(codes, "w")
    codes[3] = byte
    with pytest.raises(InputError, match="w has 1 NaN among its 256 FP8 bytes"):
        check_codes(codes.view(ml_dtypes.float8_e4m3fn), "w")


def test_no_weight_becomes_nan_by_rounding():
    """Where fp16 rounds a scale down, the largest weight over it passes 448: it stays the largest code."""
    for amax in np.linspace(0.03, 30, 997, dtype=np.float32):
        weight = np.float32([amax, -amax, amax / 3])
        codes, scale, raised = fp8_weight(weight, "w")
        assert codes.view(np.uint8)[:2].tolist() == [0x7E, 0xFE]
        assert np.float32(scale) * 448 == pytest.approx(amax, rel=2**-11)
        assert raised == {}


@pytest.mark.parametrize("axis", [0, 1])
def test_per_channel_scales(axis):
    """Each channel of the axis has its own scale, as if it were quantized alone."""
    weight = np.random.default_rng(0).normal(0, 1, (6, 4, 3)).astype(np.float32) * np.float32([1, 10, 100])
    codes, scale, _ = fp8_weight(weight, "w", axis)
    assert scale.shape == (weight.shape[axis],)
    for channel in range(weight.shape[axis]):
        alone = fp8_weight(weight.take(channel, axis), "w")
        assert scale[channel] == alone.scale
        assert np.array_equal(codes.take(channel, axis).view(np.uint8), alone.codes.view(np.uint8))


def test_dead_channel_is_raised_and_reported():
    """C26: a channel of zeros gets the smallest scale and zero codes, and shows with its amax of 0."""
    weight = np.ones((3, 2), np.float32)
    weight[1] = 0
    codes, scale, raised = fp8_weight(weight, "w", axis=0)
    assert (float(scale[1]), raised) == (SMALLEST_SCALE, {1: 0.0})
    assert codes[1].astype(np.float32).tolist() == [0, 0]


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("bad", [NAN, INF])
def test_bad_weight_fails_by_name(bad, axis):
    """C26: one NaN or infinity in a weight names the weight, per tensor and per channel."""
    weight = np.ones((3, 2), np.float32)
    weight[1, 1] = bad
    with pytest.raises(InputError, match=r"blocks\.1\.conv_pw\.weight"):
        fp8_weight(weight, "blocks.1.conv_pw.weight", axis)


# ---- what is silenced


def test_only_the_known_import_noise_is_silenced(caplog):
    """Messages about ModelOpt's own import go, every other warning and log line passes, before, during and after."""
    log = logging.getLogger("torch.utils.cpp_extension")
    log.propagate, propagate = True, log.propagate
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            with calibration._without_import_noise():
                warnings.warn("transformers 9.9 is not tested with current version of modelopt and may", stacklevel=1)
                warnings.warn("`torch.jit.script` is deprecated. Please", FutureWarning, stacklevel=1)
                warnings.warn("something else", stacklevel=1)
                log.warning("No CUDA runtime is found, using CUDA_HOME='%s'", "/usr")
                log.warning("ninja is missing")
            log.warning("No CUDA runtime is found, after all")
    finally:
        log.propagate = propagate
    assert [str(warning.message) for warning in heard] == ["something else"]
    assert caplog.messages == ["ninja is missing", "No CUDA runtime is found, after all"]
