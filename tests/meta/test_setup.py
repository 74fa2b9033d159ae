"""What a run compares: what is chosen and why, what marks imply, and every request that ends before anything runs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures import setup
from fixtures.baselines import MEASURED, choose, read
from fixtures.cases import Case
from fixtures.conclusions import Claim, conclusions
from fixtures.errors import InputError
from fixtures.gpus import Probe
from fixtures.setup import Decision, Stopwatch, asked_gpus, decide
from tests.meta.setups import B200, B300, BROKEN, H200, NO_DRIVER, NONE, Given, having
from tests.meta.tiny import one_line

OPTIONS = ("engine", "device", "checkpoints", "datasets")


def described(found: Probe, tensorrt: bool, **given: str) -> tuple[str, ...]:
    """Engine, device, checkpoints and datasets as the header has them."""
    decision = decide(Given(**given), found, tensorrt)
    return tuple(decision.described(option) for option in OPTIONS)


# ---- what is chosen


@pytest.mark.parametrize("tensorrt", [False, True])
def test_without_a_gpu(tensorrt):
    """The embedded default, each with its reason, whether or not the TensorRT package is there."""
    assert described(NONE, tensorrt) == (
        "onnxruntime (no TensorRT with a GPU)",
        "cpu (no CUDA GPU)",
        "synthetic (default without a GPU)",
        "embedded (default without a GPU)",
    )


@pytest.mark.parametrize(
    ("tensorrt", "engine"),
    [(True, "tensorrt (TensorRT on a GPU)"), (False, "onnxruntime (no TensorRT with a GPU)")],
)
def test_with_a_gpu(tensorrt, engine):
    """The study's inputs on the GPU that is there, through TensorRT where it is installed."""
    hub = "hub (default on a GPU)"
    assert described(H200, tensorrt) == (engine, "cuda (found a CUDA GPU)", hub, hub)


def test_given_options_are_taken(tmp_path):
    """What was asked for stands as it is, without a reason, and `auto` is what it is to leave an option out."""
    folder = str(tmp_path)
    given = {"engine": "onnxruntime", "device": "cpu", "checkpoints": folder, "datasets": folder}
    assert described(H200, True, **given) == tuple(given.values())
    assert described(H200, True, engine="auto", device="auto") == described(H200, True)


def test_device_name_is_what_baselines_are_kept_under():
    """C21: the GPU's part where it is used, and "cpu" where it is not, even if there is one."""
    assert decide(Given(), B300, True).device_name == "NVIDIA B300"
    on_cpu = decide(Given(device="cpu"), B300, True)
    assert (on_cpu.device_name, on_cpu.gpu) == ("cpu", None)


@pytest.mark.parametrize(
    ("found", "served"),
    [
        (H200, True),
        (having("nvidia  h200\n", (9, 0), 132), True),
        (having("NVIDIA H200", (9, 0), 66), False),
        (having("NVIDIA H200", (10, 0), 132), False),
        (having("NVIDIA H200", (9, 0), 16, mig=True), False),
        (having("NVIDIA H200", (9, 0), 132, mig=True), False),
        (having("NVIDIA H200 MIG 1g.18gb", (9, 0), 16, mig=True), False),
        (having("NVIDIA H200 MIG 7g.141gb", (9, 0), 132), False),
        (having("NVIDIA H200 NVL", (9, 0), 132), False),
        (having("NVIDIA H200 MAX", (9, 0), 132), False),
        (having("", (9, 0), 132), False),
        (B200, False),
        (NONE, False),
    ],
)
def test_recorded_h200_serves_an_h200_alone(found, served):
    """C39: the committed record is chosen for that part however its name is spelt, and neither for a slice of it, nor
    for what contradicts it or is not known; nor would a record of those be written where it lies."""
    (file,) = MEASURED.glob("nvidia-h200/*/fnet.json")
    (recorded, *_) = read(file)
    name = decide(Given(), found, False).device_name
    choice = choose(MEASURED, name, recorded.engine, recorded.version, recorded.study, recorded.inputs)
    assert (choice.measured == recorded) is served
    assert (replace(recorded, device=name).file == recorded.file) is served
    if not served and name != "cpu":
        assert f"nothing is recorded on {name} " in choice.why


def test_cpu_of_a_broken_gpu():
    """Asked for by name, the CPU serves on a machine whose GPU does not."""
    assert described(BROKEN, True, device="cpu")[:2] == ("onnxruntime (no TensorRT with a GPU)", "cpu")


@pytest.mark.parametrize(("samples", "count"), [(None, None), ("1", 1), ("300", 300)])
def test_samples(samples, count):
    """A count is a number; without the option there is none, which is not 0."""
    assert decide(Given(samples=samples), NONE, False).samples == count


def test_folder_in_the_home_directory(monkeypatch, tmp_path):
    """A folder may be named as a shell names it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "weights").mkdir()
    assert decide(Given(checkpoints="~/weights"), NONE, False).checkpoints == "~/weights"


# ---- marks


@pytest.mark.parametrize(("mark", "found"), [("b200", B200), ("b300", B300)])
def test_study_gate_implies_the_studys_setup(mark, found):
    """The GPUs of the study: TensorRT and the study's own inputs, because of the mark."""
    because = f"(-m {mark})"
    assert described(found, True, markexpr=mark) == (
        f"tensorrt {because}",
        f"cuda {because}",
        f"hub {because}",
        f"hub {because}",
    )
    assert decide(Given(markexpr=mark), found, True).asked == {mark}


def test_h200_gate_implies_the_recorded_setup():
    """No study was measured there: the inputs of the recorded baseline, and whichever engine there is."""
    assert described(H200, False, markexpr="h200") == (
        "onnxruntime (no TensorRT with a GPU)",
        "cuda (-m h200)",
        "synthetic (-m h200)",
        "embedded (-m h200)",
    )


def test_given_option_beats_an_implied_one(tmp_path):
    """A mark fills in what was left out and overrides nothing."""
    given = {"engine": "onnxruntime", "checkpoints": "synthetic", "datasets": str(tmp_path)}
    assert described(B200, True, markexpr="b200", **given) == (
        "onnxruntime",
        "cuda (-m b200)",
        "synthetic",
        str(tmp_path),
    )


@pytest.mark.parametrize(
    ("expression", "asked"),
    [
        ("", set()),
        ("b200", {"b200"}),
        ("b200 and not slow", {"b200"}),
        ("not slow and b200", {"b200"}),
        ("b200 or h200", {"b200", "h200"}),
        ("not b200", set()),
        ("not b200 and h200", {"h200"}),
        ("not (b200 or b300 or h200)", set()),
        ("not(b200)", set()),
        ("not (b200 or (b300))", set()),
        ("not (slow or (b200 and (b300 or not slow)))", set()),
        ("not (slow or not (b200))", {"b200"}),
        ("not not b200", {"b200"}),
        ("(b200 and not (slow or b300))", {"b200"}),
        (" b200 ", {"b200"}),
        ("b200-x or h200.x or +b300", set()),
        ("b2000 or gb200 or slow", set()),
    ],
)
def test_mark_expression(expression, asked):
    """A GPU is asked for by its whole name and where it is not negated."""
    assert asked_gpus(expression) == asked


@pytest.mark.parametrize("expression", ["b200 and", "(b200", "b200 slow", "b200:x"])
def test_mark_expression_that_cannot_be_read(expression):
    """C37: a GPU in it must not be overlooked, so the run ends there, whatever pytest makes of it."""
    with one_line(InputError, f"-m {expression}: ", "and, or, not and parentheses"):
        asked_gpus(expression)


def test_negated_mark_implies_nothing():
    """`-m "not b200"` is a plain run, on any machine."""
    assert described(NONE, False, markexpr="not b200") == described(NONE, False)


# ---- what ends the run before it starts

REFUSED = {
    "asked and absent": ({"markexpr": "b200"}, NONE, True, ("asked for B200, found none", NO_DRIVER)),
    "asked and another": ({"markexpr": "b200"}, H200, True, ("asked for B200, found NVIDIA H200",)),
    "asked and broken": ({"markexpr": "b200"}, BROKEN, True, ("asked for B200", "present but broken", BROKEN.reason)),
    "asked without TensorRT": (
        {"markexpr": "b200"},
        B200,
        False,
        ("asked for B200", "TensorRT cannot be used", "not installed"),
    ),
    "two GPUs asked": ({"markexpr": "b200 or b300"}, B200, True, ("asked for B200 and B300, found NVIDIA B200",)),
    "gate on a CPU": (
        {"markexpr": "b200", "device": "cpu", "engine": "onnxruntime"},
        B200,
        True,
        ("-m b200 is for a GPU", "leave --device cpu out"),
    ),
    "absent": ({"device": "cuda"}, NONE, True, ("--device cuda", NO_DRIVER, "take --device cpu")),
    "broken": ({}, BROKEN, False, ("present but broken", BROKEN.reason, "take --device cpu")),
    "broken and wanted": ({"device": "cuda"}, BROKEN, False, ("present but broken", BROKEN.reason)),
    "no TensorRT": ({"engine": "tensorrt"}, H200, False, ("--engine tensorrt", "not installed", "pip install")),
    "TensorRT on a CPU": ({"engine": "tensorrt"}, NONE, True, ("--engine tensorrt", "no CPU device", "onnxruntime")),
    "no checkpoints": (
        {"checkpoints": "/no/weights"},
        NONE,
        False,
        ("--checkpoints /no/weights: no such folder", "give hub, synthetic or a folder"),
    ),
    "no datasets": (
        {"datasets": "synthetic"},
        NONE,
        False,
        ("--datasets synthetic: no such folder", "give hub, embedded or a folder"),
    ),
} | {
    f"--samples {count!r}": ({"samples": count}, NONE, False, (f"--samples {count}: give a whole number from 1 up",))
    for count in ("0", "-1", "x", "1.5")
}


@pytest.mark.parametrize(("given", "found", "tensorrt", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(given, found, tensorrt, words):
    """C37: one line that names the thing and the way out; absent, broken and without TensorRT are three endings, and
    none of them becomes a run on something else."""
    with one_line(InputError, *words):
        decide(Given(**given), found, tensorrt)


# ---- which claims a run can check

FP16 = Case("fnet", "base", 512, 1, "fp16")
BASE_CLAIM = conclusions().claims["fnet/fp16-not-finite-at-512"]


def cannot(decision: Decision, case: Case = FP16, **changes: Any) -> str | None:
    claim: Claim = replace(BASE_CLAIM, **{"inputs": "any", "needs": "any"} | changes)
    return decision.cannot_check(claim, case)


CPU = decide(Given(), NONE, False)
CPU_ON_HUB = decide(Given(checkpoints="hub", datasets="hub"), NONE, False)
CONTROL = decide(Given(checkpoints="synthetic", datasets="embedded"), H200, False)
STUDY = decide(Given(), B200, True)


@pytest.mark.parametrize(
    ("claim", "decision", "reason"),
    [
        ({}, CPU, None),
        ({"needs": "gpu"}, CPU, "a GPU"),
        ({"needs": "tensorrt"}, CPU, "TensorRT"),
        ({"inputs": "hub"}, CPU, "--checkpoints hub --datasets hub"),
        ({"inputs": "hub"}, CPU_ON_HUB, None),
        ({"needs": "gpu"}, CONTROL, None),
        ({"needs": "tensorrt"}, CONTROL, "TensorRT"),
        ({"inputs": "hub"}, CONTROL, "--checkpoints hub --datasets hub"),
        ({"inputs": "hub"}, decide(Given(checkpoints="hub"), NONE, False), "--checkpoints hub --datasets hub"),
        ({"inputs": "hub"}, decide(Given(datasets="hub"), NONE, False), "--checkpoints hub --datasets hub"),
        ({"inputs": "hub", "needs": "tensorrt"}, STUDY, None),
    ],
)
def test_claim_that_cannot_be_checked(claim, decision, reason):
    """A claim is left out for a reason that says what it would take, and held wherever it can be."""
    found = cannot(decision, **claim)
    assert (found is None) if reason is None else (reason in found)


def test_case_that_a_cpu_is_not_given():
    """The grid of a CPU is smaller, and what it leaves out says so."""
    large = Case("fnet", "large", 512, 1, "fp16+dft32")
    assert cannot(CPU, large) == "large-512-b1-fp16+dft32 is not run on cpu with onnxruntime"
    assert cannot(CONTROL, large) is None


# ---- what a run costs


def test_stopwatch(monkeypatch):
    """Seconds a row by what ran, and the share of the run that was not inference."""
    ticks = iter([1.0, 2.0, 2.0, 5.0, 5.0, 6.0, 10.0])
    monkeypatch.setattr(setup, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    watch = Stopwatch(started=0.0)
    for what, rows in (("reference", 4), ("fp16", 2), ("reference", 6)):
        with watch.inference(what, rows):
            pass
    assert watch.lines() == [
        "reference: 0.200 s a row, 10 rows",
        "fp16: 1.500 s a row, 2 rows",
        "inference 5 s of 10 s; 50% of the run outside inference",
    ]


def test_claim_on_a_sample_needs_all_of_it():
    """Spearman of 20 pairs is anything, and no interval says so: such a claim is left out under --samples, and no other
    is."""
    spearman = {"inputs": "hub", "figure": "sts_spearman_loss"}
    fewer, whole = (replace(CPU_ON_HUB, samples=samples) for samples in (20, 1500))
    assert cannot(whole, **spearman) is None
    assert cannot(STUDY, **spearman) is None
    for few in (fewer, CPU_ON_HUB):
        assert "all of the study's rows: --samples 1500" in cannot(few, **spearman)
    assert cannot(fewer, inputs="hub", figure="agreement") is None
    assert cannot(fewer, figure="top1") is None
