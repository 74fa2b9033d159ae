"""What becomes a baseline: a run that was whole, sound, and in which every claim held or its flip was accepted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from fixtures import baselines, evidence, recording
from fixtures.baselines import Figure
from fixtures.cases import studies
from fixtures.conclusions import Claim, claims
from fixtures.document import Failure, Found, Rounds
from fixtures.errors import InputError
from fixtures.evidence import Evidence
from fixtures.movement import CaseFigures, of_claim
from fixtures.recording import accepted, complete, record
from fixtures.setup import Setup
from fixtures.verdicts import UNMOVED, Limits, Measurement, Outcome, Verdict
from tests.meta.setups import H200, made
from tests.meta.test_movement import FP8, THROTTLED, case_figures, inputs, on, sha
from tests.meta.tiny import one_line


def whole_run(study: str) -> list[tuple[str, CaseFigures]]:
    """What a CPU run of a study keeps for recording."""
    return [
        (study, case_figures(case.id, of=inputs(case.model, case.window or 0))) for case in studies()[study].cpu_cases
    ]


def left_by(*of: str, without: str = "", unchecked: str = "", setup: Setup | None = None, **left: Any) -> Evidence:
    """What a whole CPU run of some studies leaves, every claim of theirs checked; but for one case or one claim."""
    setup = setup or made(Path("unused"))
    figures = [(study, each) for name in of for study, each in whole_run(name) if each.case != without]
    verdicts = [
        held(claim, case)
        for study in of
        for claim in claims(study).values()
        for case in claim.cases
        if claim.id != unchecked and setup.cannot_check(claim, studies()[study].case(case)) is None
    ]
    return Evidence(verdicts, figures, **left)


def held(claim: Claim, case: str) -> Found:
    inside = claim.limits.high if claim.limits.low is None else claim.limits.low
    return evidence.found(of_claim(claim, case, Measurement(inside, 8, exact=True)), "a test", None)


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
    run, setup = left_by("fnet"), made(folders / "cache")
    assert [note.split()[0] for note in record(run, setup, 0, None)] == ["recorded", "pinned"]
    moved = [(study, replace(each, graph_sha256=sha("d"))) for study, each in run.figures]
    assert [note.split()[0] for note in record(replace(run, figures=moved), setup, 0, None)] == ["recorded"]
    newest, pinned = (
        baselines.read(folders / root / "cpu" / f"onnxruntime-{onnxruntime.__version__}" / "fnet.json")[0]
        for root in ("measured", "pinned")
    )
    assert {*newest.graphs.values()} == {sha("d")}
    assert {*pinned.graphs.values()} == {sha("c")}


def test_record_keeps_what_was_seen_of_the_gpu(folders):
    """Clocks and temperatures by group, of the groups that it has; canaries of engines that can be looked into."""
    run = left_by("fnet")
    (study, first), *others = run.figures
    rounds = [
        Rounds(group, {}, {}, 50, 111, "3f" * 32, "made up", 1, {"SM clock": "1980 MHz"}, [], [])
        for group in ("base-512-b1", "elsewhere")
    ]
    run = replace(run, figures=[(study, replace(first, canaries={"layers": 412})), *others], rounds=rounds)
    record(run, made(folders / "cache"), 0, None)
    (found,) = baselines.read(folders / "measured" / "cpu" / f"onnxruntime-{onnxruntime.__version__}" / "fnet.json")
    assert found.telemetry == {"base-512-b1": {"SM clock": "1980 MHz"}}
    assert found.canaries == {first.case: {"layers": 412}}
    assert found.builds == 1


def test_accepted_flip_is_kept_with_its_reason(folders):
    """The next reader of the baseline sees that a claim did not hold in it, and why that was taken."""
    run = left_by("fnet", failed=[[red(Outcome.FLIPPED)]])
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
    "interrupted": ({}, 2, None, ("the run was interrupted", "from a whole run only")),
    "collection error": ({}, 1, None, ("a test failed",)),
    "no test": ({}, 5, None, ("no test ran",)),
    "reason without a flip": ({}, 0, "why", ("--accept-flip: no claim flipped",)),
}


@pytest.mark.parametrize(("left", "status", "why", "words"), RED_RUNS.values(), ids=RED_RUNS)
def test_red_run_leaves_every_baseline_as_it_was(folders, left, status, why, words):
    """C21: what failed or was stopped half-way writes nothing; only a flipped claim is accepted, with a reason."""
    with one_line(InputError, *words):
        record(left_by("fnet", **left), made(folders / "cache"), status, why)
    assert not (folders / "measured").exists()
    assert not (folders / "pinned").exists()


def test_rows_that_are_not_finite_are_no_baseline(folders):
    """C23: a case that no claim knows to overflow is refused by name; the known issue is recorded as it is."""
    share = Figure(0.5, "share", 12)
    for case, known in (("base-512-b1-fp16+hs", False), ("base-512-b1-fp16", True)):
        run = left_by("fnet")
        run = replace(
            run,
            figures=[
                (study, replace(each, figures={"nonfinite_share": share}) if each.case == case else each)
                for study, each in run.figures
            ],
        )
        if known:
            assert record(run, made(folders / "cache"), 0, None)
        else:
            with one_line(InputError, case, "50.00% of 12 rows are not finite", "no claim says"):
                record(run, made(folders / "cache"), 0, None)
            assert not (folders / "measured").exists()


def test_accepted_overflow_is_recorded(folders):
    """A claim that rows are finite may flip, and be accepted as any other."""
    run = left_by("fnet", failed=[[red(Outcome.FLIPPED, "fnet/fp8-finite")]])
    case, share = "base-512-b1-fp8", {"nonfinite_share": Figure(0.5, "share", 12)}
    figures = [(study, replace(each, figures=share) if each.case == case else each) for study, each in run.figures]
    assert record(replace(run, figures=figures), made(folders / "cache"), 1, "confirmed on two machines")


@pytest.mark.parametrize("root", ["measured", "pinned"])
@pytest.mark.parametrize("study", ["fnet", "mnasnet"])
def test_bad_file_stops_a_recording_before_it_starts(folders, root, study):
    """C25: what the record would be written beside is read first, of either kind, and the file is named with its
    folder."""
    setup = made(folders / "cache")
    record(left_by("fnet", "mnasnet"), setup, 0, None)
    recording.check_recorded(setup)
    (path,) = (folders / root).glob(f"cpu/*/{study}.json")
    path.write_text(path.read_text().replace('"schema": 2', '"schema": 1'))
    with one_line(InputError, f"{root}/cpu/onnxruntime-{onnxruntime.__version__}/{study}.json: schema 1", "remove it"):
        recording.check_recorded(setup)


def test_waived_flip_needs_no_other_acceptance():
    """Its test did not fail, and its waiver says why."""
    assert accepted([[red(Outcome.FLIPPED, waiver="known")]], None) == {}


def test_whole_green_run_is_recorded(tmp_path):
    """Every case with its graph, the inputs of all of them, and versions; and it can be written and read back."""
    (found,) = complete(left_by("fnet"), made(tmp_path / "cache"), {})
    assert found.figures.keys() == found.graphs.keys() == {case.id for case in studies()["fnet"].cpu_cases}
    assert (found.study, found.engine, found.device) == ("fnet", "onnxruntime", "cpu")
    assert found.version == onnxruntime.__version__
    assert found.inputs.checkpoints.keys() == {"base", "large"}
    assert found.inputs.encoded.keys() == {"base-512", "base-256", "base-128", "large-512", "large-256"}
    assert baselines.read(baselines.record(tmp_path, found)) == (found,)


def test_each_study_has_its_own_record(tmp_path):
    """Two studies in one run are two records."""
    found = complete(left_by("fnet", "mnasnet"), made(tmp_path), {})
    assert [each.study for each in found] == ["fnet", "mnasnet"]


REFUSED: dict[str, tuple[Any, ...]] = {
    "nothing measured": (Evidence(), ("no case was measured",)),
    "partial": (left_by("fnet", without=FP8.id), (f"{FP8.id} did not run", "without -k or -m")),
    "partial second study": (
        left_by("fnet", "mnasnet", without="mnasnet_100-b1-fp16"),
        ("mnasnet_100-b1-fp16 did not run",),
    ),
    "claim unchecked": (
        left_by("fnet", unchecked="fnet/fp16-not-finite-at-512"),
        ("fnet/fp16-not-finite-at-512 was not checked", "without -k or -m"),
    ),
    "no claim checked": (replace(left_by("fnet"), verdicts=[]), ("fnet/fp32-is-the-reference", "was not checked")),
}


@pytest.mark.parametrize(("found", "words"), REFUSED.values(), ids=REFUSED)
def test_not_recorded(tmp_path, found, words):
    """C21: a baseline of a part, or one in which a flip would go unseen, is none; the line says what is missing."""
    with one_line(InputError, *words):
        complete(found, made(tmp_path), {})


def test_gpu_run_has_more_cases(monkeypatch, tmp_path):
    """The cases of a CPU run are not all of a GPU's."""
    with one_line(InputError, "large-512-b8-fp8", "did not run"):
        complete(left_by("fnet"), on(tmp_path, monkeypatch, H200, "11.4"), {})


def test_run_with_a_problem_is_not_recorded(tmp_path):
    """C15: nor does it become a baseline, though every test was green."""
    run = left_by("fnet")
    (study, first), *others = run.figures
    found = replace(run, figures=[(study, replace(first, problems={"latency": THROTTLED})), *others])
    with one_line(InputError, first.case, "latency is not sound", THROTTLED, "record again"):
        complete(found, made(tmp_path), {})


def test_one_bad_file_leaves_all_as_they_were(folders):
    """C25: everything is read and checked before the first file is written, be the bad one of the last study."""
    bad = folders / "measured" / "cpu" / f"onnxruntime-{onnxruntime.__version__}" / "mnasnet.json"
    bad.parent.mkdir(parents=True)
    bad.write_text("{")
    with one_line(InputError, "mnasnet.json: not sound JSON"):
        record(left_by("fnet", "mnasnet"), made(folders / "cache"), 0, None)
    assert [path for path in folders.rglob("*.json*") if path != bad] == []


def test_folder_that_cannot_be_written(folders):
    """One line with the file, and nothing half-written."""
    (folders / "measured").write_text("a file in the folder's place")
    with one_line(InputError, "fnet.json cannot be written", "it is as it was"):
        record(left_by("fnet"), made(folders / "cache"), 0, None)
    assert not (folders / "pinned").exists()
