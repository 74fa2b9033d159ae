"""Two recorded runs side by side: an upgrade that changes the decision, one that changes nothing, and what cannot be
compared."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures import baselines, compare
from fixtures.baselines import Figure, Inputs, Measured, Origin
from fixtures.cases import studies
from fixtures.errors import InputError
from fixtures.verdicts import Outcome
from tests.meta.printed_runs import invented, printed
from tests.meta.tiny import one_line

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
    assert "TensorRT 11.4.0.106 to 11.5.0.10 is the only recorded change that could do this" in upgrade[1]


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


# ---- what cannot be compared


def test_claims_of_another_engine_or_input_are_not_judged():
    """A record of ONNX Runtime on made-up weights says nothing of TensorRT, nor of the study's own weights."""
    inputs = Inputs({"base": Origin("synthetic seed 0", "a" * 64)}, BEFORE.inputs.encoded)
    run = replace(BEFORE, engine="onnxruntime", version="1.31.1", inputs=inputs)
    judged = {verdict.claim for verdict in compare.Pair(run, run).claims()}
    assert "fnet/fp16-not-finite-at-512" in judged
    assert judged.isdisjoint({"fnet/fp8-barely-faster", "fnet/fp16-kl"})


def test_other_inputs_are_not_compared(tmp_path, capsys):
    """C32, C34: which input differs is said, with exit status 2, which is no verdict."""
    inputs = Inputs({"base": Origin("hub google/fnet-base@0123456", "f" * 64)}, BEFORE.inputs.encoded)
    sides = [written(tmp_path, run) for run in (BEFORE, replace(BEFORE, version="11.5.0.10", inputs=inputs))]
    assert compare.main([str(side) for side in sides]) == 2
    assert "fnet: recorded on other inputs: checkpoint 'base'" in capsys.readouterr().err


def test_studies_on_one_side_alone(tmp_path):
    """C21: a study that vanished is not left out of the comparison."""
    first, second = (written(tmp_path, run) for run in (BEFORE, invented(BEFORE)))
    baselines.record(tmp_path, replace(BEFORE, study="mnasnet"))
    with one_line(InputError, "mnasnet is in one of"):
        compare.pairs(first, second)


def test_folder_without_records(tmp_path):
    """Names the folder and what to name instead."""
    with one_line(InputError, str(tmp_path), "no measured file in it"):
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
