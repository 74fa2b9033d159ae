"""What a run leaves and what is made of it: evidence from pytest's reports, the document, its files, the control."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf, nan
from time import process_time

import pytest

from fixtures import baselines, document, evidence, movement, publish
from fixtures.baselines import Choice, Figure
from fixtures.document import Kernels, Rounds
from fixtures.errors import InputError
from fixtures.evidence import Evidence, as_property, collect, kept, kept_figures
from fixtures.movement import CaseFigures
from fixtures.verdicts import UNDRIFTED, UNMOVED, Interval, Limits, Outcome, Verdict
from tests.meta.printed_runs import invented, printed
from tests.meta.setups import made
from tests.meta.test_movement import case_figures
from tests.meta.tiny import one_line

LIMITS = Limits(0.9, 0.99, "made up")
HOLDS = Verdict(
    "fnet/look-again-2", "base-512-b1-fp8", "agreement", "share", 0.95, None, LIMITS, "94%", None, 8, Outcome.HOLDS
)
FLIPPED = replace(HOLDS, measured=0.85, outcome=Outcome.FLIPPED)
ROUNDS = Rounds("base-512-b1", {"a": [1.0]}, {"a": 1.1}, 50, 111, "3f", "made up", 1, {"SM clock": "1980 MHz"}, [], [])
KERNELS = Kernels("base-512-b1-fp8", {"ffn": 0.2, "other": 0.5}, 1.0, 0.7, [])


def report(outcome="passed", when="call", properties=(), left=(), longrepr=None, infrastructure=False):
    """A test's report as pytest gives it."""
    made_up = pytest.TestReport(
        "tests/x.py::test[a]", ("tests/x.py", 1, "test"), {}, outcome, longrepr, when, user_properties=list(properties)
    )
    setattr(made_up, evidence.KEPT, list(left))
    setattr(made_up, evidence.INFRASTRUCTURE, infrastructure)
    return made_up


# ---- evidence


def test_everything_comes_back_as_it_was_left():
    """Verdict, figures, rounds and kernels, through the plain types that travel between processes."""
    figures = replace(case_figures(), canaries={"layers": 412}, problems={"kl_mean": "made up"})
    left = [kept_figures("fnet", figures), kept("rounds", ROUNDS), kept("kernels", KERNELS)]
    found = collect([report(properties=[as_property(HOLDS, None)], left=left)])
    assert found.figures == [("fnet", figures)]
    assert (found.rounds, found.kernels, found.passed) == ([ROUNDS], [KERNELS], 1)
    (verdict,) = found.verdicts
    assert (verdict.claim, verdict.study, verdict.measured) == ("fnet/look-again-2", "fnet", 0.95)
    assert (verdict.test, verdict.waiver, verdict.limits) == ("tests/x.py::test[a]", None, LIMITS)


def test_verdict_is_strict_json_in_a_junit_file():
    """C23: a number that is none is null there, with its name beside it."""
    name, text = as_property(replace(HOLDS, measured=nan, outcome=Outcome.INVALID), "known")
    stored = json.loads(text, parse_constant=pytest.fail)
    assert (name, stored["measured"], stored["waiver"]) == ("verdict", None, "known")
    assert stored["non_finite"]["measured"] == "nan"


def test_verdict_that_is_not_finite_comes_back_without_numbers():
    """C23: neither its value nor its interval nor its margin can be read as a number."""
    bad = replace(HOLDS, measured=nan, interval=Interval(nan, nan, 0.95, "made up"), outcome=Outcome.INVALID)
    (found,) = collect([report(properties=[as_property(bad, None)])]).verdicts
    assert (found.measured, found.interval, found.margin) == (None, None, None)
    assert found.non_finite.keys() >= {"measured", "interval.low", "interval.high"}


def test_each_verdict_counts_once():
    """pytest gives a test's properties in the reports of its setup and teardown too."""
    properties = [as_property(HOLDS, None)]
    found = collect([report(when=when, properties=properties) for when in ("setup", "call", "teardown")])
    assert (len(found.verdicts), found.passed) == (1, 1)


def test_failure_with_a_verdict_is_a_finding_and_one_without_is_not():
    """C37: what broke stands apart from what was found, and says whether the subject had a part in it."""
    by_verdict = report("failed", properties=[as_property(FLIPPED, None)], longrepr="flipped")
    by_assertion = report("failed", longrepr="    assert 1 == 2\nE   assert 1 == 2")
    by_machine = report("failed", when="setup", longrepr="x: EngineError: no GPU memory", infrastructure=True)
    found = collect([by_verdict, by_assertion, by_machine])
    assert [(each.message, each.infrastructure) for each in found.failures] == [
        ("assert 1 == 2", False),
        ("x: EngineError: no GPU memory", True),
    ]
    assert [[each.outcome for each in verdicts] for verdicts in found.failed] == [["flipped"], [], []]


def test_file_that_cannot_be_collected_is_a_failure():
    """C37: none of its tests ran, so no count of tests shows it."""
    broken = pytest.CollectReport("tests/x.py", "failed", "E   ImportError: no such module", [])
    found = collect([broken, report()])
    assert [(each.test, each.message, each.infrastructure) for each in found.failures] == [
        ("tests/x.py", "ImportError: no such module", True)
    ]
    assert (found.passed, found.failed) == (1, [[]])


def test_what_was_left_out_is_counted_by_reason():
    """Most first, in the words of the skip."""
    skips = ["left out: not timed: made up", "left out: no GPU", "left out: no GPU", "because"]
    found = collect([report("skipped", longrepr=("x.py", 1, f"Skipped: {reason}")) for reason in skips])
    assert [(each.reason, each.tests) for each in found.left_out] == [
        ("no GPU", 2),
        ("not timed: made up", 1),
        ("because", 1),
    ]


# ---- the document


@pytest.fixture
def against(monkeypatch):
    """What a run is held against: UNMOVED 11.4 as printed, UNDRIFTED 11.1."""
    known = {UNMOVED: Choice(printed(), "the newest"), UNDRIFTED: Choice(printed(release="11.1"), "pinned: the first")}
    monkeypatch.setattr(movement, "choices", lambda *_: known)
    return known


def left_by(run, verdicts=()):
    """What a run with a record's figures leaves."""
    figures = [
        (run.study, CaseFigures(case, run.graphs[case], run.inputs, found, canaries=run.canaries[case]))
        for case, found in run.figures.items()
    ]
    return Evidence(list(verdicts), figures, rounds=[ROUNDS], kernels=[KERNELS], passed=3)


def of_run(found, setup, **changed):
    given = {"notes": ["made up"], "command": "pytest -m b200", "against": None, "applied": ()} | changed
    return publish.of_run(found, setup, publish.sides(found, setup), **given)


@pytest.mark.usefixtures("against")
def test_document_holds_the_run(tmp_path):
    """What ran, what it was held against, what changed, what was seen; and it is read back as it was written."""
    verdicts = [evidence.found(each, "a test", None) for each in (HOLDS, FLIPPED)]
    whole = of_run(left_by(invented(printed()), verdicts), made(tmp_path / "cache"))
    assert (whole.kind, whole.engine, whole.device) == ("run", "onnxruntime", "cpu")
    assert [(basis.role, basis.version) for basis in whole.bases] == [
        ("newest", "11.4.0.106"),
        ("pinned", "11.1.0.106"),
    ]
    assert {decided.id for decided in whole.decisions} >= {"fnet/no-fp8"}
    assert whole.claims["fnet/look-again-2"].statement
    assert [each.what for each in whole.canaries] == [f"{case}: layers" for case in sorted(fp8_cases())]
    assert (whole.rounds, whole.kernels, whole.notes) == ([ROUNDS], [KERNELS], ["made up"])
    publish.write(tmp_path / "report", whole)
    assert document.read(tmp_path / "report" / "verdicts.json") == whole


def fp8_cases():
    return [case for case in printed().figures if case.endswith("fp8")]


def test_bad_baseline_costs_no_study_its_figures(tmp_path, monkeypatch):
    """C25: what a run measured is in its report whatever file it was to be held against, and that file is said."""

    def unreadable(*_: object) -> dict[str, Choice]:
        raise InputError("measured/cpu/onnxruntime-1.31.1/fnet.json: schema 1")

    monkeypatch.setattr(movement, "choices", unreadable)
    (found,) = publish.sides(left_by(printed()), made(tmp_path))
    assert found.unreadable == found.choices[UNMOVED].why == "measured/cpu/onnxruntime-1.31.1/fnet.json: schema 1"
    assert found.here.figures == printed().figures


@pytest.mark.usefixtures("against")
def test_graph_that_is_another_is_a_change(tmp_path):
    """C10, C28: a quantizer that writes another graph shows, though TensorRT is the same."""
    run = replace(printed(), graphs=dict.fromkeys(printed().graphs, "d" * 64))
    changed = [each.what for each in of_run(left_by(run), made(tmp_path)).changes]
    assert "base-512-b1-fp8: graph" in changed


@pytest.mark.usefixtures("against")
def test_terminal_tells_causes_from_changes(tmp_path):
    """A version that changed is no cause where nothing moved, and a long list is cut and counted."""
    whole = of_run(left_by(invented(printed())), made(tmp_path))
    many = [*whole.changes, *whole.canaries] * 3
    parts = publish.causes_by_title(replace(whole, causes=[], changes=many, canaries=[]))
    assert parts.keys() == {"changed since the baseline"}
    assert parts["changed since the baseline"][-1] == f"and {len(many) - 12} more changes: see --report"
    assert publish.causes_by_title(replace(whole, causes=["made up"]))["what may be the cause"] == ["made up"]
    assert publish.causes_by_title(replace(whole, causes=[], changes=[], canaries=[])) == {}


def test_run_without_a_baseline(monkeypatch, tmp_path):
    """Nothing is said of what moved, and the document is whole all the same."""
    monkeypatch.setattr(movement, "choices", lambda *_: {UNMOVED: Choice(None, "nothing is recorded")})
    whole = of_run(left_by(printed()), made(tmp_path))
    assert (whole.bases, whole.causes, whole.changes) == ([], [], [])


@pytest.mark.usefixtures("against")
def test_runs_own_records_are_written(tmp_path):
    """Two days of one version can be compared: each report has the run's figures in the form of a baseline."""
    run, setup = left_by(printed()), made(tmp_path / "cache")
    records = [each.here for each in publish.sides(run, setup)]
    publish.write(tmp_path / "report", of_run(run, setup), records)
    (path,) = (tmp_path / "report" / "records").rglob("*.json")
    assert baselines.read(path)[0].figures == printed().figures


@pytest.mark.usefixtures("against")
def test_used_folder_keeps_no_earlier_run(tmp_path):
    """What a report's folder held of another run is not taken for this one's."""
    run, setup = left_by(printed()), made(tmp_path / "cache")
    publish.write(tmp_path / "report", of_run(run, setup), [each.here for each in publish.sides(run, setup)])
    publish.write(tmp_path / "report", of_run(run, setup))
    assert not list((tmp_path / "report").rglob("fnet.json"))


@pytest.mark.usefixtures("against")
def test_report_of_a_comparison_keeps_the_records_beside_it(tmp_path):
    """They may be one of its sides; and nothing but records is ever removed."""
    run, setup = left_by(printed()), made(tmp_path / "cache")
    whole = of_run(run, setup)
    publish.write(tmp_path / "report", whole, [each.here for each in publish.sides(run, setup)])
    (tmp_path / "report" / "records" / "mine.txt").touch()
    publish.write(tmp_path / "report", replace(whole, kind="compare"))
    assert list((tmp_path / "report").rglob("fnet.json"))
    publish.write(tmp_path / "report", whole)
    assert (tmp_path / "report" / "records" / "mine.txt").exists()


@pytest.mark.usefixtures("against")
def test_what_a_record_replaces_is_said(tmp_path):
    """A figure that is recorded anew outside its tolerance is named, with both values; one inside is not."""
    run = printed()
    case = "base-512-b1-fp8"
    figures = {**run.figures[case], "kl_mean": replace(run.figures[case]["kl_mean"], value=0.02)}
    assert publish.replaced(publish.sides(left_by(run), made(tmp_path))) == []
    moved = replace(run, figures={**run.figures, case: figures})
    (line,) = publish.replaced(publish.sides(left_by(moved), made(tmp_path)))
    assert f"had other figures: {case} kl_mean 0.02 nats, was 0.0095 nats" in line
    assert "agreement" not in line


def test_flip_that_the_baseline_accepts_is_said(tmp_path, monkeypatch):
    """A run that is held against such a record says so, with the reason that was given."""
    newest = replace(printed(), accepted={"fnet/fp8-barely-faster": "seen on two machines"})
    monkeypatch.setattr(movement, "choices", lambda *_: {UNMOVED: Choice(newest, "the newest")})
    assert publish.accepted(publish.sides(left_by(printed()), made(tmp_path))) == [
        "accepted in the baseline, fnet/fp8-barely-faster: seen on two machines"
    ]


@pytest.mark.usefixtures("against")
def test_figures_that_are_no_numbers_are_no_record(tmp_path):
    """C23: the page is written all the same, and says why there is no record."""
    run, setup = left_by(printed()), made(tmp_path / "cache")
    study, first = run.figures[0]
    bad = replace(first, figures={**first.figures, "latency": Figure(nan, "ms", 9)})
    run = replace(run, figures=[(study, bad), *run.figures[1:]])
    notes = publish.write(tmp_path / "report", of_run(run, setup), [each.here for each in publish.sides(run, setup)])
    assert any(note.startswith("no record of fnet: ") for note in notes)
    assert (tmp_path / "report" / "report.html").exists()


def test_records_that_do_not_fit_together_are_no_crash(monkeypatch, tmp_path):
    """What moved cannot be told, the page says so, and everything else of it is there."""
    other = {case: {"latency": Figure(1.0, "s", 9)} for case in printed().figures}
    known = {UNMOVED: Choice(replace(printed(), figures=other, version="1.31.1"), "made up")}
    monkeypatch.setattr(movement, "choices", lambda *_: known)
    whole = of_run(left_by(printed()), made(tmp_path))
    assert [cause for cause in whole.causes if "cannot be told" in cause]


@pytest.mark.parametrize("bad", [nan, inf])
@pytest.mark.usefixtures("against")
def test_times_that_are_no_numbers(tmp_path, bad):
    """C14, C23: they are in no file as a number, nor as null to be read as one; what is wrong with them is kept."""
    rounds = replace(ROUNDS, rounds_ms={"a": [1.0, bad]}, problems=["cannot be"])
    kernels = replace(KERNELS, groups_ms={"ffn": bad}, problems=["incomplete"])
    found = replace(left_by(printed()), rounds=[rounds], kernels=[kernels])
    publish.write(tmp_path / "report", of_run(found, made(tmp_path / "cache")))
    stored = json.loads((tmp_path / "report" / "verdicts.json").read_text(), parse_constant=pytest.fail)
    assert (stored["rounds"][0]["rounds_ms"], stored["rounds"][0]["problems"]) == ({}, ["cannot be"])
    assert (stored["kernels"][0]["groups_ms"], stored["kernels"][0]["problems"]) == ({}, ["incomplete"])


@pytest.mark.usefixtures("against")
def test_report_that_cannot_be_written(tmp_path):
    """A file in the folder's place: one line, and the file is as it was."""
    (tmp_path / "report").write_text("mine")
    whole = of_run(left_by(printed()), made(tmp_path / "cache"))
    with one_line(InputError, "--report", "cannot be written"):
        publish.write(tmp_path / "report", whole)
    assert (tmp_path / "report").read_text() == "mine"


# ---- the control


@pytest.fixture
def stored(request, tmp_path):
    """verdicts.json of a run on this CPU, as if of another engine."""
    request.getfixturevalue("against")
    whole = replace(of_run(left_by(printed()), made(tmp_path / "cache")), engine="tensorrt")
    publish.write(tmp_path, whole)
    return tmp_path / "verdicts.json", whole


def test_control_is_read(stored, tmp_path):
    """Another engine on the same device."""
    path, whole = stored
    assert publish.control(path, made(tmp_path / "cache")) == whole


OTHER_DRIVER = {"environment": {"driver": "1.2"}}


@pytest.mark.parametrize(
    "changes", [{"engine": "onnxruntime"}, {"device": "NVIDIA B200"}, {"kind": "compare"}, OTHER_DRIVER]
)
def test_control_that_says_nothing_of_this_run(stored, tmp_path, changes):
    """The engine itself, another device or driver, or a comparison: refused before anything runs."""
    path, whole = stored
    path.write_text(document.dumped(replace(whole, **changes)))
    with one_line(InputError, "--control", "give one of another engine than onnxruntime on cpu"):
        publish.control(path, made(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no verdicts.json of a run"),
        ("[]", "no verdicts.json of a run"),
        ('{"schema": 1}', "schema 1, and this suite reads 2"),
        ('{"schema": 3}', "schema 3, and this suite reads 2"),
        ('{"schema": 2}', "kind: Field required"),
        ('{"schema": 2, "records": {}}', "it is a record of figures; give the verdicts.json"),
    ],
)
def test_odd_control_file(tmp_path, text, words):
    """C25: an empty, foreign, older, newer or cut file is named with its reason."""
    path = tmp_path / "verdicts.json"
    path.write_text(text)
    with one_line(InputError, str(path), words):
        document.read(path)


def test_control_file_that_is_not_there(tmp_path):
    """Likewise."""
    with one_line(InputError, "verdicts.json", "write one with --report DIR"):
        document.read(tmp_path / "verdicts.json")


@pytest.mark.usefixtures("against")
def test_report_of_a_full_run_is_small_and_fast(tmp_path):
    """Three thousand verdicts: at most 2 MB, GitHub's 65,536 characters, and 2 s of this process."""
    verdicts = [evidence.found(replace(HOLDS, claim=UNMOVED, baseline="0.94"), "a test", None)] * 3000
    whole = of_run(replace(left_by(printed()), verdicts=verdicts), made(tmp_path / "cache"))
    start = process_time()
    publish.write(tmp_path / "report", whole)
    assert process_time() - start < 2
    assert (tmp_path / "report" / "report.html").stat().st_size < 2_000_000
    assert (tmp_path / "report" / "report.md").stat().st_size < 65_000


@pytest.mark.usefixtures("against")
def test_figure_of_no_case_is_no_crash(tmp_path):
    """A case that no study has is of no study."""
    odd = replace(HOLDS, claim=UNMOVED, case="größe/[∞]", figure="latency", unit="ms")
    whole = of_run(Evidence([evidence.found(odd, "a test", None)]), made(tmp_path))
    assert whole.verdicts[0].study == ""
