"""Two recorded runs side by side: an upgrade that changes the decision, one that changes nothing, and what cannot be
compared."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from fixtures import baselines, compare, document, waivers
from fixtures.baselines import Figure, Inputs, Measured, Origin
from fixtures.cases import Case, studies
from fixtures.conclusions import Claim, conclusions
from fixtures.errors import InputError
from fixtures.fnet import lab as fnet
from fixtures.fnet import tasks, weights
from fixtures.fnet.reference import Reference
from fixtures.mnasnet import reference as mnasnet
from fixtures.verdicts import Interval, Measurement, Outcome
from fixtures.waivers import Waiver
from tests.meta import tiny, tiny_mnasnet
from tests.meta.printed_runs import invented, printed
from tests.meta.setups import made
from tests.meta.tiny import one_line

pytest_plugins = "pytester"  # pytest within a test

ROOT = Path(__file__).parents[2]
BEFORE = printed()


def written(folder: Path, run: Measured) -> Path:
    """A record's folder: the one of its engine version."""
    return baselines.record(folder, run).parent


@pytest.fixture
def upgrade(tmp_path, capsys):
    """Exit status, printed text and report of the comparison with an invented 11.5 in which FP8 is worth shipping."""
    folder = tmp_path / "report"
    sides = [str(written(tmp_path, run)) for run in (BEFORE, invented(BEFORE))]
    status = compare.main([*sides, "--report", str(folder)])
    return status, capsys.readouterr().out, folder


# ---- an upgrade that reverses the decision


def test_decision_is_reversed_in_one_screen(upgrade):
    """C05: nothing got worse, and it is red; the first screen has both versions, the decision, its figures and what to
    do."""
    status, output, _ = upgrade
    screen = "\n".join(output.splitlines()[:12])
    assert status == 1
    assert "before: tensorrt 11.4.0.106 on NVIDIA B200" in screen
    assert "here:   tensorrt 11.5.0.10 on NVIDIA B200" in screen
    assert (
        "REVERSED: FP8 is worth shipping for FNet: speedup 1.22x (limit 1.15x), agreement 99.4% (limit 99%)." in screen
    )
    assert "Confirm with a second run" in screen


def test_claims_flip_and_the_others_hold(upgrade):
    """C05: those of FP8's speed and quality alone."""
    flipped = {line.split()[0] for line in upgrade[1].splitlines() if line.endswith("flipped")}
    assert flipped == {
        "fnet/fp8-loses-agreement",
        "fnet/fp8-agreement-below-97",
        "fnet/look-again-2",
        "fnet/fp8-barely-faster",
        "fnet/fp8-barely-faster-at-batch-8",
    }


def test_cause_is_named(upgrade):
    """C03 a: the one thing that changed, and that engines were built differently."""
    assert "TensorRT: 11.4.0.106 -> 11.5.0.10" in upgrade[1]
    assert "base-512-b1-fp8: layers: 412 -> 396" in upgrade[1]
    assert "agreement of all 4 fp8 cases was 83.52% to 95.55% and is 99.4%" in upgrade[1]
    causes = upgrade[1].partition("\nwhat may be the cause:\n")[2]
    assert "TensorRT 11.4.0.106 to 11.5.0.10 is the only recorded change that could do this" in causes


def test_report_is_written(upgrade):
    """The same comparison as a page, a summary and strict JSON."""
    folder = upgrade[2]
    document = json.loads((folder / "verdicts.json").read_text(), parse_constant=pytest.fail)
    assert (document["kind"], document["version"]) == ("compare", "11.5.0.10")
    for name in ("report.html", "report.md"):
        assert "FP8 is worth shipping for FNet" in (folder / name).read_text(), name


# ---- an upgrade that changes nothing


def test_same_figures_are_green(tmp_path, capsys):
    """Another version with the same figures holds every claim and moves nothing."""
    sides = [str(written(tmp_path, run)) for run in (BEFORE, replace(BEFORE, version="11.5.0.10"))]
    assert compare.main(sides) == 0
    assert re.search(r"^\d{3} figures compared, 0 outside their tolerance$", capsys.readouterr().out, re.MULTILINE)


def test_everything_faster_by_one_factor_moves_and_flips_nothing():
    """C05 d: a faster machine is reported as moved; claims are ratios, and hold."""
    figures = {
        case: {
            name: replace(each, value=0.8 * each.value) if name == "latency" else each for name, each in found.items()
        }
        for case, found in BEFORE.figures.items()
    }
    verdicts = compare.Pair(BEFORE, replace(BEFORE, figures=figures)).verdicts()
    assert {verdict.figure for verdict in verdicts if verdict.outcome is not Outcome.HOLDS} == {"latency"}


# ---- waivers

FLIPPED, CASE = "fnet/fp8-agreement-below-97", "base-512-b1-fp8"


def waiver(**changed: Any) -> Waiver:
    """One of FLIPPED, as it is written for the B200 with TensorRT."""
    fields = {
        "id": "known",
        "claim": FLIPPED,
        "cases": None,
        "figure": None,
        "gpu": "b200",
        "engine": "tensorrt",
        "versions": SpecifierSet(">=1"),
        "issue": "https://example.com/tracker/1",
        "reason": "a fix is announced",
        "expires": date(9999, 12, 31),
    }
    return Waiver(**fields | changed)


@pytest.fixture
def flipped(tmp_path) -> list[str]:
    """The folders of two records of which nothing is to be said but that both flip FLIPPED in CASE."""
    figures = {case: dict(found) for case, found in BEFORE.figures.items()}
    figures[CASE] |= {"agreement": replace(figures[CASE]["agreement"], value=0.98)}
    runs = [replace(BEFORE, figures=figures), replace(BEFORE, figures=figures, version="11.5.0.10")]
    return [str(written(tmp_path, run)) for run in runs]


ELSEWHERE = [{"gpu": "cpu", "engine": "onnxruntime"}, {"gpu": "b300"}, {"versions": SpecifierSet("==11.4.*")}]


def test_waived_flip_does_not_fail(flipped, monkeypatch, capsys, tmp_path):
    """A waiver for the second record's GPU, engine and version: the flip is shown as waived, and by which."""
    monkeypatch.setattr(waivers, "read", lambda: (waiver(),))
    assert compare.main([*flipped, "--report", str(tmp_path / "report")]) == 0
    output = capsys.readouterr().out
    assert re.search(rf"^{FLIPPED} .* flipped \(waived\)$", output, re.MULTILINE)
    assert "known, until 9999-12-31: covered 1 of 4 verdicts" in output
    whole = document.read(tmp_path / "report" / "verdicts.json")
    assert [(each.id, each.covered) for each in whole.waivers] == [("known", 1)]
    assert {each.waiver for each in whole.verdicts if each.outcome is Outcome.FLIPPED} == {"known"}
    assert (whole.passed, whole.failed) == (len(whole.verdicts), 0)


@pytest.mark.parametrize("given", ELSEWHERE, ids=["machine", "gpu", "version"])
def test_waiver_of_another_run_does_not_cover(flipped, monkeypatch, capsys, tmp_path, given):
    """C39: neither that of the machine that compares, nor of another GPU or version."""
    monkeypatch.setattr(waivers, "read", lambda: (waiver(**given),))
    assert compare.main([*flipped, "--report", str(tmp_path / "report")]) == 1
    output = capsys.readouterr().out
    assert re.search(rf"^{FLIPPED} .* flipped$", output, re.MULTILINE)
    assert "(waived)" not in output
    assert "known, until" not in output
    whole = document.read(tmp_path / "report" / "verdicts.json")
    assert (whole.waivers, whole.failed, whole.passed) == ([], 1, len(whole.verdicts) - 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"expires": date(2020, 1, 1)}, "expired on 2020-01-01"),
        ({"claim": "fnet/fp8-agreement-below-98"}, "there is no claim"),
    ],
    ids=["expired", "dead"],
)
def test_waiver_that_is_out_of_date_fails(tmp_path, monkeypatch, capsys, given, said):
    """As it fails a run, with its line, though every verdict holds."""
    monkeypatch.setattr(waivers, "read", lambda: (waiver(**given),))
    sides = [str(written(tmp_path, run)) for run in (BEFORE, replace(BEFORE, version="11.5.0.10"))]
    assert compare.main(sides) == 1
    assert f"failed: waiver known: {said}" in capsys.readouterr().out


@pytest.mark.parametrize(("given", "red"), [({}, 0), (ELSEWHERE[0], 1)], ids=["records", "machine"])
def test_pytest_takes_the_waivers_of_the_records(flipped, monkeypatch, pytester, given, red):
    """`pytest tests/compare` decides as the command does, on this machine, which is neither."""
    monkeypatch.setattr(waivers, "read", lambda: (waiver(**given),))
    before, here = flipped
    chosen = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider", "-k", FLIPPED]
    run = pytester.inline_run(*chosen, str(ROOT / "tests/compare"), f"--before={before}", f"--here={here}")
    passed, skipped, failed = run.countoutcomes()
    assert (passed, skipped, failed) == (4 - red, 0, red)


# ---- builds, and two releases


def test_builds_that_straddle_a_limit_are_inconclusive():
    """C05 c: three builds on both sides of a limit neither confirm nor flip a claim."""
    seen = Figure(1.149, "x", 9, low=1.14, high=1.16)
    figures = {case: dict(found) for case, found in BEFORE.figures.items()}
    figures["base-512-b1-fp8"]["speedup"] = seen
    run = replace(BEFORE, figures=figures, builds=3)
    (verdict,) = (
        each
        for each in compare.Pair(BEFORE, run).claims()
        if (each.claim, each.case) == ("fnet/fp8-barely-faster", "base-512-b1-fp8")
    )
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert str(verdict.interval) == "1.14 to 1.16 (75%, 3 builds)"


def test_claim_about_two_releases():
    """What the study printed for 11.1 and 11.4 holds, 4% more does not, and other releases say nothing of it."""
    claim, first = "fnet/tensorrt-11-1-as-11-4", printed(release="11.1")
    case = "base-512-b1-fp8"

    def outcomes(first: Measured, second: Measured) -> dict[str, Outcome]:
        return {each.case: each.outcome for each in compare.Pair(first, second).claims() if each.claim == claim}

    assert outcomes(first, BEFORE)[case] is Outcome.HOLDS
    latency = first.figures[case]["latency"]
    slower = {**first.figures, case: {**first.figures[case], "latency": replace(latency, value=1.04 * latency.value)}}
    assert outcomes(replace(first, figures=slower), BEFORE)[case] is Outcome.FLIPPED
    assert outcomes(BEFORE, invented(BEFORE)) == {}


def test_two_releases_from_this_gpus_records(tmp_path, monkeypatch):
    """Both recorded on the same inputs, or there is nothing to say."""
    monkeypatch.setattr(baselines, "MEASURED", tmp_path)
    case, device = studies()["fnet"].case("base-512-b1-fp8"), "NVIDIA B200"
    written(tmp_path, BEFORE)
    assert compare.recorded_releases(device, case, BEFORE.inputs) is None
    written(tmp_path, printed(release="11.1"))
    measured = compare.recorded_releases(device, case, BEFORE.inputs)
    assert measured is not None
    assert measured.value == pytest.approx(0.714 / 0.715)
    assert compare.recorded_releases("NVIDIA B300", case, BEFORE.inputs) is None
    other = replace(BEFORE.inputs, encoded={"base-512": Origin("other rows", "f" * 64)})
    assert compare.recorded_releases(device, case, other) is None


def test_accepted_flips_are_printed(tmp_path, capsys):
    """A record that was made although a claim flipped says so, and why."""
    run = replace(BEFORE, version="11.5.0.10", accepted={FLIPPED: "seen on two machines"})
    assert compare.main([str(written(tmp_path, each)) for each in (BEFORE, run)]) == 0
    assert f"accepted flip {FLIPPED}: seen on two machines" in capsys.readouterr().out


# ---- what cannot be compared


def test_claims_of_another_engine_or_input_are_not_judged():
    """A record of ONNX Runtime on made-up weights says nothing of TensorRT, nor of the study's own weights."""
    inputs = Inputs({"base": Origin("synthetic seed 0", "a" * 64)}, BEFORE.inputs.encoded)
    run = replace(BEFORE, engine="onnxruntime", version="1.31.1", inputs=inputs)
    judged = {verdict.claim for verdict in compare.Pair(run, run).claims()}
    assert "fnet/fp16-not-finite-at-512" in judged
    assert judged.isdisjoint({"fnet/fp8-barely-faster", "fnet/fp16-kl"})


HUB = "hub a/repository@0123456"


@pytest.mark.parametrize(
    ("weights", "rows", "decided"),
    [
        (HUB, f"{HUB}, 300 passages", True),
        (HUB, "embedded pydoc_data.topics", False),
        (HUB, "folder /data, 300 passages", False),
        ("folder /hub", f"{HUB}, 300 passages", False),
        (HUB, None, False),
    ],
)
@pytest.mark.parametrize(
    ("study", "model", "rows_of", "claim"),
    [
        ("fnet", "base", "base-512", "fnet/fp8-base-misses-quality-bar"),
        ("mnasnet", "mnasnet_100", "mnasnet_100", "mnasnet/fp8-changes-predictions"),
    ],
)
def test_claims_of_the_studies_own_inputs(study, model, rows_of, claim, weights, rows, decided):
    """A claim that rests on the hub's weights and data is decided on both alone, whatever another model of the record
    was run on."""
    checkpoints = {model: Origin(weights, "a" * 64), "digits": Origin("the suite's own digits model", "d" * 64)}
    encoded = {"digits": Origin("embedded digits", "e" * 64)} | ({rows_of: Origin(rows, "b" * 64)} if rows else {})
    run = replace(printed(study), inputs=Inputs(checkpoints, encoded))
    assert (claim in {verdict.claim for verdict in compare.Pair(run, run).claims()}) is decided


def test_rows_that_are_not_finite_flip_their_claim(tmp_path, capsys):
    """A record has the whole scan of an FP8 case, so that its claim is judged of it."""
    runs = [replace(BEFORE, figures=not_finite(BEFORE), version=version) for version in ("11.4.0.106", "11.5.0.10")]
    assert compare.main([str(written(tmp_path, run)) for run in runs]) == 1
    assert re.search(r"^fnet/fp8-finite .* flipped$", capsys.readouterr().out, re.MULTILINE)


def not_finite(run: Measured) -> dict[str, dict[str, Figure]]:
    """The run's figures with FP8 rows that are not finite."""
    figures = {case: dict(found) for case, found in run.figures.items()}
    figures[CASE] |= {"nonfinite_share": Figure(0.5, "share", 300)}
    return figures


def test_record_and_itself(tmp_path):
    """A comparison that cannot fail is none: one path twice, or a file beside its folder. Two runs may be alike."""
    folder = written(tmp_path, BEFORE)
    for other in (folder, folder / "fnet.json", folder / ".." / folder.name):
        with one_line(InputError, "the same record twice", "name two runs"):
            compare.pairs(folder, other)
    alike = shutil.copytree(folder, tmp_path / "another day" / Path(*folder.parts[-2:]))
    (pair,), problems = compare.pairs(folder, alike)
    assert (pair.before, pair.here, problems) == (BEFORE, BEFORE, [])


def test_report_folders_are_compared(tmp_path):
    """Yesterday against today: a run's report is named as it was written, or the folder of records in it."""
    days = {"yesterday": BEFORE, "today": replace(BEFORE, recorded=date(2026, 11, 2))}
    for day, run in days.items():
        written(tmp_path / day / "records", run)
        (tmp_path / day / "verdicts.json").write_text("{}")
    found = compare.pairs(tmp_path / "yesterday", tmp_path / "today")
    (pair,), _ = found
    assert [pair.before, pair.here] == list(days.values())
    assert compare.pairs(tmp_path / "yesterday", written(tmp_path / "today/records", days["today"])) == found
    assert compare.pairs(tmp_path / "yesterday" / "verdicts.json", tmp_path / "today") == found


def test_report_folder_of_several_versions_or_none(tmp_path):
    """Which one is meant is for its user to say, and a report without records is named as that."""
    written(tmp_path / "records", BEFORE)
    written(tmp_path / "records", invented(BEFORE))
    with one_line(InputError, str(tmp_path), "tensorrt-11.4.0.106, records/nvidia-b200/tensorrt-11.5.0.10"):
        compare.pairs(tmp_path, tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "verdicts.json").write_text("{}")
    with one_line(InputError, "other: a report has to hold one folder of records, here: none"):
        compare.pairs(tmp_path / "other", tmp_path)


def test_other_inputs_are_not_compared(tmp_path, capsys):
    """C32, C34: which input differs is said, with exit status 2, which is no verdict."""
    inputs = Inputs({"base": Origin("hub google/fnet-base@0123456", "f" * 64)}, BEFORE.inputs.encoded)
    sides = [written(tmp_path, run) for run in (BEFORE, replace(BEFORE, version="11.5.0.10", inputs=inputs))]
    assert compare.main([str(side) for side in sides]) == 2
    assert "fnet: recorded on other inputs: checkpoint 'base'" in capsys.readouterr().err


def test_studies_on_one_side_alone(tmp_path):
    """C21: a study that vanished is no green comparison."""
    first, second = (written(tmp_path, run) for run in (BEFORE, invented(BEFORE)))
    baselines.record(tmp_path, replace(BEFORE, study="mnasnet"))
    (pair,), (problem,) = compare.pairs(first, second)
    assert pair.here == invented(BEFORE)
    assert problem.startswith("mnasnet is in one of")


def test_builds_that_differ_leave_the_interval_open():
    """Three builds within a hair of each other say nothing of the masked words that were drawn."""
    wide = Figure(0.968, "share", 2000, low=0.9679999, high=0.9680001, interval=Interval(0.955, 0.98, 0.95, "made up"))
    found = compare.as_measurement(wide, 3).interval
    assert found is not None
    assert (found.low, found.high) == (0.955, 0.98)
    far = compare.as_measurement(replace(wide, low=0.9, high=0.99), 3).interval
    assert far is not None
    assert (far.low, far.high, far.confidence) == (0.9, 0.99, 0.75)


def test_comparison_is_as_sure_as_the_runs(tmp_path):
    """C15: what was unsound in a run, and what its interval left open, is so in the comparison of its report."""
    case = "base-512-b1-fp8"
    agreement = replace(BEFORE.figures[case]["agreement"], value=0.968, interval=Interval(0.955, 0.98, 0.95, "made up"))
    here = replace(
        BEFORE,
        version="11.5.0.10",
        figures={**BEFORE.figures, case: {**BEFORE.figures[case], "agreement": agreement}},
        problems={case: {"speedup": "throttled: hw_slowdown"}},
    )
    (pair,), _ = compare.pairs(written(tmp_path, BEFORE), written(tmp_path, here))
    found = {(each.claim, each.figure): each for each in pair.verdicts() if each.case == case}
    assert found["fnet/fp8-agreement-below-97", "agreement"].outcome is Outcome.INCONCLUSIVE
    for claim in ("fnet/fp8-barely-faster", "unmoved"):
        verdict = found[claim, "speedup"]
        assert (verdict.outcome, verdict.note) == (Outcome.INVALID, "throttled: hw_slowdown")


@pytest.mark.parametrize("side", [0, 1])
def test_bad_file_hides_no_other(tmp_path, capsys, side):
    """C25: a file that was cut, on either side: the other study is compared, and the status says that not all was."""
    sides = []
    for run in (BEFORE, replace(BEFORE, version="11.5.0.10")):
        sides.append(written(tmp_path, run))
        written(tmp_path, replace(run, study="mnasnet"))
    bad = sides[side] / "mnasnet.json"
    bad.write_text(bad.read_text()[:-40])
    assert compare.main([str(folder) for folder in sides]) == 2
    output = capsys.readouterr().out
    assert re.search(r"^fnet/fp8-barely-faster .* holds$", output, re.MULTILINE)
    (line,) = (line for line in output.splitlines() if line.startswith("failed: "))
    assert "mnasnet.json: not sound JSON" in line


@pytest.mark.parametrize("name", ["absent.json", "README.md"])
def test_path_that_is_no_record(tmp_path, name):
    """What is there and is something else, or is not there, is not told to be removed."""
    (tmp_path / "README.md").touch()
    with one_line(InputError, name, "no measured file there; name one such as"):
        compare.pairs(tmp_path / name, written(tmp_path, BEFORE))


def test_folder_without_records(tmp_path):
    """Names the folder and what to name instead."""
    with one_line(InputError, str(tmp_path), "no measured file there"):
        compare.pairs(tmp_path, tmp_path)


def test_case_that_vanished(tmp_path):
    """C21: it is named, on whichever side it is missing."""
    run = invented(BEFORE)
    figures = {case: found for case, found in run.figures.items() if case != "base-512-b1-fp8"}
    run = replace(run, figures=figures, graphs=dict.fromkeys(figures, "c" * 64), canaries={})
    sides = written(tmp_path, run), written(tmp_path, BEFORE)
    for first, second in (sides, sides[::-1]):
        with one_line(InputError, "fnet: base-512-b1-fp8 is in one of the two records alone"):
            compare.pairs(first, second)


def test_two_engines(tmp_path):
    """A comparison of two engines is no upgrade."""
    run = replace(BEFORE, engine="onnxruntime", version="1.31.1")
    with one_line(InputError, "records of tensorrt and onnxruntime"):
        compare.pairs(written(tmp_path, BEFORE), written(tmp_path, run))


# ---- a record has what a run judges


@pytest.fixture
def tiny_fnet(tmp_path, monkeypatch) -> fnet.Lab:
    """The study on a tiny model, with all that a case can be fed."""
    group = Case("fnet", "tiny", tiny.OVERFLOW_WINDOW, 1, "fp8").group
    monkeypatch.setitem(weights.SIZES, "tiny", {})
    monkeypatch.setitem(fnet.CPU_SAMPLES, "tiny", tasks.Samples(passages=8, calibration=6, pairs=8))
    monkeypatch.setitem(fnet.SCANNED_ON_CPU, group, ("fp8",))
    monkeypatch.setattr(tasks, "PROMPT_WINDOW", tiny.OVERFLOW_WINDOW)
    monkeypatch.setattr(fnet, "open_datasets", lambda *_: tiny.text())
    monkeypatch.setattr(fnet.synthetic, "checkpoint", lambda _: tiny.plain())
    monkeypatch.setattr(Reference, "amax", lambda *given: dict.fromkeys(given[1], 7.0))
    return fnet.Lab(made(tmp_path, checkpoints="synthetic", datasets="embedded"))


def deciding(study: str) -> Iterator[tuple[Any, Claim]]:
    """A study's tests with each claim that they decide, but for what needs a GPU or two recorded runs."""
    for path in sorted((ROOT / "tests" / study).glob("test_*.py")):
        for test in vars(importlib.import_module(f"tests.{study}.{path.stem}")).values():
            marks = [each for each in getattr(test, "pytestmark", []) if each.name == "claim"]
            for claim in (conclusions().claims[id] for mark in marks for id in mark.args):
                if claim.needs == "any" and set(inspect.signature(test).parameters) == {study, "case", "expect"}:
                    yield test, claim


def judged_otherwise(study: str, lab: Any, case: Case) -> set[str]:
    """The claims whose tests judge, on `case` in each variant, another measurement than `lab` records as the figure."""
    found = set()
    for test, claim in deciding(study):
        for variant in {studies()[study].case(id).variant for id in claim.cases}:
            taken: list[Measurement] = []
            test(**{study: lab}, case=case.at(variant), expect=lambda each, *_, taken=taken, **__: taken.append(each))
            if taken != [lab.figures(case.at(variant))[claim.figure]]:
                found.add(claim.id)
    return found


def test_records_have_what_fnet_judges(tiny_fnet):
    """No claim is decided on other rows of a record than of a run."""
    case = Case("fnet", "tiny", tiny.OVERFLOW_WINDOW, 1, "fp16")
    assert judged_otherwise("fnet", tiny_fnet, case) == set()


def test_records_have_what_mnasnet_judges(tmp_path, monkeypatch):
    """No claim is decided on other images of a record than of a run."""
    monkeypatch.setattr(mnasnet.Reference, "amax", lambda *given: dict.fromkeys(given[1], 7.0))
    lab = tiny_mnasnet.lab(tmp_path, samples=2)
    assert judged_otherwise("mnasnet", lab, studies()["mnasnet"].case("digits-b1-fp16")) == set()
