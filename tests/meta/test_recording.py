"""What becomes a baseline: a run that was whole, sound, and in which every claim held or its flip was accepted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import onnxruntime
import pytest

from fixtures import baselines, evidence, recording
from fixtures.cases import studies
from fixtures.document import Failure, Found, Rounds
from fixtures.errors import InputError
from fixtures.evidence import Evidence
from fixtures.movement import UNMOVED, CaseFigures
from fixtures.recording import accepted, complete, record
from fixtures.verdicts import Limits, Outcome, Verdict
from tests.meta.setups import H200, made
from tests.meta.test_movement import FP8, THROTTLED, case_figures, inputs, on, sha
from tests.meta.tiny import one_line


def whole_run(study: str) -> list[tuple[str, CaseFigures]]:
    """What a CPU run of a study keeps for recording."""
    return [
        (study, case_figures(case.id, of=inputs(case.model, case.window or 0))) for case in studies()[study].cpu_cases
    ]


def both_studies() -> list[tuple[str, CaseFigures]]:
    return [*whole_run("fnet"), *whole_run("mnasnet")]


def without(found: Iterable[tuple[str, CaseFigures]], id: str) -> list[tuple[str, CaseFigures]]:
    return [(study, each) for study, each in found if each.case != id]


def red(outcome: Outcome, claim: str = "fnet/fp8-barely-faster", waiver: str | None = None) -> Found:
    """A verdict of a test that failed."""
    limits = Limits(1.0, 1.15, "made up")
    return evidence.found(
        Verdict(claim, FP8.id, "speedup", "x", 1.22, None, limits, "1.05x", None, 9, outcome), "a test", waiver
    )


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Where records go, both empty."""
    monkeypatch.setattr(recording, "MEASURED", tmp_path / "measured")
    monkeypatch.setattr(recording, "PINNED", tmp_path / "pinned")
    return tmp_path


# ---- what is written


def test_first_record_is_pinned_and_later_ones_are_not(folders):
    """Slow drift: each newer record replaces the last one, and the first stays to be held against."""
    run, setup = Evidence(figures=whole_run("fnet")), made(folders / "cache")
    assert [note.split()[0] for note in record(run, setup, 0, None)] == ["recorded", "pinned"]
    moved = [(study, replace(each, graph_sha256=sha("d"))) for study, each in run.figures]
    assert [note.split()[0] for note in record(Evidence(figures=moved), setup, 0, None)] == ["recorded"]
    newest, pinned = (
        baselines.read(folders / root / "cpu" / f"onnxruntime-{onnxruntime.__version__}" / "fnet.json")[0]
        for root in ("measured", "pinned")
    )
    assert {*newest.graphs.values()} == {sha("d")}
    assert {*pinned.graphs.values()} == {sha("c")}


def test_record_keeps_what_was_seen_of_the_gpu(folders):
    """Clocks and temperatures by group, of the groups that it has; canaries of engines that can be looked into."""
    (study, first), *others = whole_run("fnet")
    rounds = [
        Rounds(group, {}, {}, 50, "made up", 1, {"SM clock": "1980 MHz"}, [], [])
        for group in ("base-512-b1", "elsewhere")
    ]
    run = Evidence(figures=[(study, replace(first, canaries={"layers": 412})), *others], rounds=rounds)
    record(run, made(folders / "cache"), 0, None)
    (found,) = baselines.read(folders / "measured" / "cpu" / f"onnxruntime-{onnxruntime.__version__}" / "fnet.json")
    assert found.telemetry == {"base-512-b1": {"SM clock": "1980 MHz"}}
    assert found.canaries == {first.case: {"layers": 412}}
    assert found.builds == 1


def test_accepted_flip_is_kept_with_its_reason(folders):
    """The next reader of the baseline sees that a claim did not hold in it, and why that was taken."""
    run = Evidence(figures=whole_run("fnet"), failed=[[red(Outcome.FLIPPED)]])
    record(run, made(folders / "cache"), 1, "confirmed on two machines")
    (found,) = baselines.read(folders / "measured" / "cpu" / f"onnxruntime-{onnxruntime.__version__}" / "fnet.json")
    assert found.accepted == {"fnet/fp8-barely-faster": "confirmed on two machines"}


# ---- what is refused

FAILURE = Failure("tests/fnet/test_plan.py::test", "assert False", infrastructure=False)
RED_RUNS: dict[str, tuple[Any, ...]] = {
    "flip without a reason": (
        {"failed": [[red(Outcome.FLIPPED)]]},
        1,
        None,
        ("fnet/fp8-barely-faster flipped", "--accept-flip"),
    ),
    "moved": ({"failed": [[red(Outcome.MOVED, UNMOVED)]]}, 1, "why", ("speedup is moved",)),
    "throttled": ({"failed": [[red(Outcome.FLIPPED), red(Outcome.INVALID)]]}, 1, "why", ("speedup is invalid",)),
    "inconclusive": ({"failed": [[red(Outcome.INCONCLUSIVE)]]}, 1, "why", ("speedup is inconclusive",)),
    "assertion": ({"failed": [[]], "failures": [FAILURE]}, 1, "why", ("a test failed",)),
    "interrupted": ({}, 2, "why", ("a test failed",)),
    "collection error": ({}, 1, "why", ("a test failed",)),
    "no test": ({}, 5, None, ("a test failed",)),
}


@pytest.mark.parametrize(("left", "status", "why", "words"), RED_RUNS.values(), ids=RED_RUNS)
def test_red_run_leaves_every_baseline_as_it_was(folders, left, status, why, words):
    """C21: what failed or was stopped half-way writes nothing; only a flipped claim is accepted, with a reason."""
    with one_line(InputError, *words):
        record(Evidence(figures=whole_run("fnet"), **left), made(folders / "cache"), status, why)
    assert not (folders / "measured").exists()
    assert not (folders / "pinned").exists()


def test_waived_flip_needs_no_other_acceptance():
    """Its test did not fail, and its waiver says why."""
    assert accepted([[red(Outcome.FLIPPED, waiver="known")]], None) == {}


def test_whole_green_run_is_recorded(tmp_path):
    """Every case with its graph, the inputs of all of them, and versions; and it can be written and read back."""
    (found,) = complete(whole_run("fnet"), made(tmp_path / "cache"), {}, {})
    assert found.figures.keys() == found.graphs.keys() == {case.id for case in studies()["fnet"].cpu_cases}
    assert (found.study, found.engine, found.device) == ("fnet", "onnxruntime", "cpu")
    assert found.version == onnxruntime.__version__
    assert found.inputs.checkpoints.keys() == {"base", "large"}
    assert found.inputs.encoded.keys() == {"base-512", "base-256", "base-128", "large-512", "large-256"}
    assert baselines.read(baselines.record(tmp_path, found)) == (found,)


def test_each_study_has_its_own_record(tmp_path):
    """Two studies in one run are two records."""
    found = complete(both_studies(), made(tmp_path), {}, {})
    assert [each.study for each in found] == ["fnet", "mnasnet"]


REFUSED: dict[str, tuple[Any, ...]] = {
    "nothing measured": ([], ("no case was measured",)),
    "partial": (without(whole_run("fnet"), FP8.id), (f"{FP8.id} did not run", "without -k or -m")),
    "partial second study": (
        without(both_studies(), "mnasnet_100-b1-fp16"),
        ("mnasnet_100-b1-fp16 did not run",),
    ),
}


@pytest.mark.parametrize(("found", "words"), REFUSED.values(), ids=REFUSED)
def test_not_recorded(tmp_path, found, words):
    """C21: a baseline of a part, or of a run with a failure, would hide what it left out; the line says which."""
    with one_line(InputError, *words):
        complete(found, made(tmp_path), {}, {})


def test_gpu_run_has_more_cases(monkeypatch, tmp_path):
    """The cases of a CPU run are not all of a GPU's."""
    with one_line(InputError, "large-512-b8-fp8", "did not run"):
        complete(whole_run("fnet"), on(tmp_path, monkeypatch, H200, "11.4"), {}, {})


def test_run_with_a_problem_is_not_recorded(tmp_path):
    """C15: nor does it become a baseline, though every test was green."""
    (study, first), *others = whole_run("fnet")
    found = [(study, replace(first, problems={"latency": THROTTLED})), *others]
    with one_line(InputError, first.case, "latency is not sound", THROTTLED, "record again"):
        complete(found, made(tmp_path), {}, {})
