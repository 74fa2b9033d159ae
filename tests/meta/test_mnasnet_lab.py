"""The MNASNet study as a session runs it, on a few digits: what it measures, on what, and the faults that go red."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fixtures import metrics
from fixtures.cases import Case
from fixtures.checkpoints import state_sha256
from fixtures.conclusions import claims, conclusions
from fixtures.errors import InputError
from fixtures.mnasnet import DIGITS, STUDY, images, synthetic, tasks
from fixtures.mnasnet.figures import kl_ratio, top1_loss
from fixtures.mnasnet.lab import Lab
from fixtures.mnasnet.model import DIGITS_FOLDER, network
from fixtures.mnasnet.reference import Reference
from fixtures.mnasnet.tasks import Quality
from fixtures.movement import QUALITY
from fixtures.verdicts import Outcome
from tests.meta.tiny import one_line
from tests.meta.tiny_mnasnet import checkpoint, digits, lab
from tests.meta.tiny_mnasnet import images as blotches

FP32, FP16, FP8 = (STUDY.case(f"digits-b1-{variant}") for variant in ("fp32", "fp16", "fp8"))
SAMPLES = 40


def outcome(lab: Lab, claim: str, case: Case) -> Outcome:
    wanted = conclusions().claims[claim]
    return lab.figures(case)[wanted.figure].judged(wanted.limits, Outcome.FLIPPED)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def study(cache: Path) -> Lab:
    """The digits part of the study on 40 images."""
    return lab(cache, samples=SAMPLES)


def test_figures_of_a_case(study):
    """What each precision is asked for; top-1 is there since the digits are the model's classes."""
    common = {"nonfinite_share", "kl_mean", "kl_p99", "agreement", "top1"}
    graph = {"fp8_convolutions", "depthwise_convolutions", "fp8_weights", "constant_bytes_change"}
    assert set(study.figures(FP16)) == common
    assert set(study.figures(FP8)) == common | graph | {"top1_loss", "kl_ratio"}
    assert study.figures(FP8)["nonfinite_share"].samples == 2 * SAMPLES + 29
    assert study.record(FP8).graph_sha256 == study.bench.facts(FP8).sha256
    assert common - {"nonfinite_share"} <= set(QUALITY)  # what a comparison may find missing where rows are not finite
    known = conclusions().tolerances
    assert set(study.figures(FP8)) <= set(known)  # each can be held against a baseline


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("mnasnet/fp32-is-the-reference", FP32),
        ("mnasnet/digits-are-read", FP32),
        ("mnasnet/digits-are-read", FP16),
        ("mnasnet/finite", FP8),
        ("mnasnet/fp16-predicts-as-pytorch", FP16),
        ("mnasnet/fp8-convolutions", FP8),
        ("mnasnet/depthwise-stay-fp16", FP8),
    ],
)
def test_claims_hold_on_few_digits(study, name, of):
    """What needs neither the study's inputs nor many images is true of any 40 of them."""
    assert outcome(study, name, of) is Outcome.HOLDS


def test_fake_quantization_is_the_engines_arithmetic(study):
    """The recipe in PyTorch and in the engine: equal classes, and as far from PyTorch, image by image."""
    reference, scales = study.reference(DIGITS), study.scales(DIGITS)
    rows = study.inputs(DIGITS).held_out
    fake, engine = reference.fake_quantized(scales)(rows), study.run(FP8).held_out
    assert torch.equal(fake.argmax(1), engine.argmax(1))
    apart, lost = (metrics.relative_l2(expected, engine) for expected in (fake, study.expected(DIGITS)))
    assert apart.mean() < lost.mean()  # the two differ by fp16 rounding, both differ from fp32 by FP8


def test_fake_quantization_rounds_what_the_recipe_names():
    """With no convolution named it is the reference; a scale that clips is seen."""
    model, rows = digits(), blotches(4)
    reference = Reference(model)
    assert torch.equal(reference.fake_quantized({})(rows), reference.logits(rows))
    apart = partial(metrics.relative_l2, reference.logits(rows))
    close, clipped = (apart(reference.fake_quantized({"conv_head": scale})(rows)).max() for scale in (0.02, 1e-4))
    assert 0 < close < 0.1 < clipped
    assert torch.equal(reference.logits(rows), Reference(model).logits(rows))  # nothing of it was changed


def test_scales_are_of_every_quantized_convolution(study):
    """34 of them, each the largest input over the calibration images / 448; no rule for outliers takes one away."""
    scales, model = study.scales(DIGITS), study.network(DIGITS)
    assert list(scales) == list(study.quantized(DIGITS))
    inputs: dict[str, torch.Tensor] = {}
    hooks = [
        model.get_submodule(name).register_forward_pre_hook(lambda _, given, name=name: inputs.update({name: given[0]}))
        for name in scales
    ]
    model(study.inputs(DIGITS).calibration)
    for hook in hooks:
        hook.remove()
    assert scales == pytest.approx({name: float(each.abs().max()) / 448 for name, each in inputs.items()}, rel=1e-3)


# ---- faults


def test_labels_shifted_by_one_are_red(cache, monkeypatch):
    """Classes that count from one leave agreement and KL as they are; the floor on accuracy sees them."""
    right = images.all_digits()
    shifted = tuple(replace(each, label=(each.label + 1) % 10) for each in right)
    monkeypatch.setattr(images, "all_digits", lambda: shifted)
    found = lab(cache, samples=SAMPLES)
    assert outcome(found, "mnasnet/digits-are-read", FP32) is Outcome.FLIPPED
    assert outcome(found, "mnasnet/fp32-is-the-reference", FP32) is Outcome.HOLDS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the digits model that a test may change, in the place of the committed one."""
    copy = tmp_path / "digits"
    shutil.copytree(DIGITS_FOLDER, copy)
    monkeypatch.setattr("fixtures.mnasnet.lab.DIGITS_FOLDER", copy)
    return copy


def test_other_crop_is_another_input(cache, folder, study):
    """C32: it is said to be other rows, with both crops, and is no figure that moved."""
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"]["crop_pct"] = 0.9
    (folder / "config.json").write_text(json.dumps(config))
    reason = lab(cache, samples=SAMPLES).origins(FP8).difference(study.origins(FP8))
    assert reason is not None
    assert reason.startswith("encoded rows 'digits'")
    assert "crop 1.0" in reason
    assert "crop 0.9" in reason


def test_weights_of_another_tag_are_another_input(cache, folder, study):
    """C32: the same name with other weights, and another tag, is said to be another checkpoint."""
    state = load_file(folder / "model.safetensors")
    state["classifier.bias"][0] += 1e-3
    save_file(state, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"]["tag"] = "other"
    (folder / "config.json").write_text(json.dumps(config))
    reason = lab(cache, samples=SAMPLES).origins(FP8).difference(study.origins(FP8))
    assert reason is not None
    assert reason.startswith("checkpoint 'digits'")
    assert "tag sklearn_digits" in reason
    assert "tag other" in reason
    assert study.origins(FP8).difference(lab(cache, samples=SAMPLES).origins(FP8)) is not None


def test_other_model_arguments_are_another_input(cache, folder, study):
    """C32: what timm builds around the same tensors is part of a model too."""
    config = json.loads((folder / "config.json").read_text())
    config["model_args"] = {"bn_eps": 1e-3}
    (folder / "config.json").write_text(json.dumps(config))
    reason = lab(cache, samples=SAMPLES).origins(FP8).difference(study.origins(FP8))
    assert reason is not None
    assert reason.startswith("checkpoint 'digits'")


def test_folder_of_another_architecture_is_refused(cache, tmp_path):
    """C32: the study's case is never recorded for a relative of its model."""
    (tmp_path / "config.json").write_text(json.dumps(dict(checkpoint().config)))
    save_file(dict(checkpoint().state), tmp_path / "model.safetensors")
    with one_line(InputError, "mnasnet_small", "mnasnet_100"):
        lab(cache, checkpoints=str(tmp_path)).checkpoint("mnasnet_100")


def test_larger_batch_takes_one_batch(study):
    """A batch of 32 takes the first 32 images and no scan; with fewer it is an error, not a smaller batch."""
    case = Case("mnasnet", DIGITS, None, 32, "fp16")
    found = study.run(case)
    assert found.scan is None
    assert torch.allclose(found.held_out, study.run(FP16).held_out[:32], atol=1e-2)
    with one_line(InputError, "digits-b64-fp16", "40 images do not fill a batch", "at least 64"):
        study.run(replace(case, batch=64))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_optimization_levels_are_tensorrts_alone(device):
    """On another engine a level would be the same engine under another name."""
    assert not any(case.variant.endswith("-opt3") for case in STUDY.cases_on(device, "onnxruntime"))
    assert STUDY.cases_on("cuda", "tensorrt") == STUDY.cases


# ---- paired figures


def quality(right: list[bool]) -> Quality:
    flags = torch.tensor(right).numpy()
    return Quality(len(right), 0, torch.zeros(len(right)).double().numpy(), flags, flags)


def test_top1_loss_is_paired():
    """1,500 images of which each engine gets some that the other does not: the difference and a bound of a point."""
    both = [True] * 1100
    half, fp8 = quality(both + [True] * 33 + [False] * 367), quality(both + [False] * 33 + [True] * 22 + [False] * 345)
    found = top1_loss(half, fp8)["top1_loss"]
    assert found.value == pytest.approx(11 / 1500)
    assert -0.01 < found.interval.low < 0 < found.interval.high < 0.02
    wanted = conclusions().claims["mnasnet/fp8-top1-not-better"]
    assert found.judged(wanted.limits, Outcome.FLIPPED) is Outcome.HOLDS
    worse = top1_loss(fp8, quality(both + [True] * 70 + [False] * 330))["top1_loss"]
    assert worse.judged(wanted.limits, Outcome.FLIPPED) is not Outcome.HOLDS
    assert top1_loss(half, replace(fp8, right=None)) == {}


@pytest.mark.parametrize("which", [0, 1])
def test_images_that_are_not_finite_are_no_loss_of_top1(which):
    """C23: they are never right, so that FP8 of nothing but NaN would hold its claim; it is judged as no loss."""
    sides = [quality([True] * 9), quality([True] * 9)]
    sides[which] = replace(quality([False] * 9), nonfinite=9)
    found = top1_loss(*sides)["top1_loss"]
    assert found.problems == ("9 of 9 rows are not finite",)
    wanted = conclusions().claims["mnasnet/fp8-top1-not-better"]
    assert found.judged(wanted.limits, Outcome.FLIPPED) is Outcome.INVALID


def test_kl_ratio_is_of_means():
    """Twice as far on every image is 2, whatever the images."""
    whole = torch.rand(20, generator=torch.Generator().manual_seed(0)).double().numpy()
    found = kl_ratio(2 * whole, whole)
    assert found.value == pytest.approx(2)
    assert found.interval is None  # no spread


def test_row_that_is_not_finite_is_no_figure(study):
    """NaN among the logits is counted, is never right, and leaves no quality figure to be misread."""
    expected, labels = study.expected(DIGITS), study.inputs(DIGITS).labels
    broken = expected.clone()
    broken[3, 2] = float("nan")
    found = tasks.quality(expected, broken, labels)
    assert (found.nonfinite, bool(found.right[3]), bool(found.agrees[3])) == (1, False, False)


def test_reference_that_is_not_finite_is_refused():
    """Figures against NaN would say nothing; the image is named."""
    rows = blotches(3)
    rows[1] = float("nan")
    with one_line(InputError, "not finite for image 1"):
        Reference(digits()).logits(rows)


# ---- weights


def test_digits_model_is_small_and_finite():
    """At most 4 MB are committed, and they are the weights that the recorded hash is of."""
    assert (DIGITS_FOLDER / "model.safetensors").stat().st_size <= 4e6
    assert json.loads((DIGITS_FOLDER / "config.json").read_text())["pretrained_cfg"]["tag"] == "sklearn_digits"


def test_synthetic_weights_do_not_depend_on_the_machine():
    """Full size, dead channels planted, and the same bits however many threads sum."""
    found = synthetic.checkpoint("mnasnet_100")
    assert (
        found.sha256 == state_sha256(found.state) == "c94dd80b026b1fce7c9bab686daea3e8c27db7caf946232ec7f823b3ad48bd5a"
    )
    assert sum(tensor.numel() for tensor in found.state.values() if tensor.is_floating_point()) > 4.3e6
    assert network(found).classifier.out_features == 1000
    for norm, channels in synthetic.DEAD.items():
        assert not found.state[f"{norm}.weight"][list(channels)].any()


def test_dead_activation_is_said(tmp_path, monkeypatch):
    """C26: an input that calibration saw nothing of gets the smallest scale, by name."""
    dead = "blocks.1.1.conv_pw"
    monkeypatch.setattr(Reference, "amax", lambda _, layers, __: dict.fromkeys(layers, 7.0) | {dead: 0.0})
    said: list[str] = []
    scales = lab(tmp_path, said.append, samples=4).scales(DIGITS)
    assert scales[dead] == 2**-14
    (line,) = (line for line in said if line.startswith(f"mnasnet: digits: {dead} has its scale"))
    assert line.endswith(f"raised to {2**-14:g}: its input reaches only 0")


def test_every_claim_that_needs_no_gpu_has_a_test():
    """A claim that no test takes up would never be checked."""
    source = "".join(path.read_text() for path in (Path(__file__).parents[1] / "mnasnet").glob("test_*.py"))
    assert not [id for id, claim in claims("mnasnet").items() if claim.needs == "any" and f'"{id}"' not in source]
