"""What a person reads of a run: one line a claim, by its worst case, every figure that moved, and what was compared."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from math import nan
from typing import Any

import pytest

from fixtures import evidence, pages, readings, report
from fixtures.document import Found, LeftOut
from fixtures.verdicts import AS_PRINTED, UNDRIFTED, UNMOVED, Interval, Limits, Outcome, Verdict
from tests.meta import documents
from tests.meta.setups import B200, NONE, made

HOLDS = Verdict(
    claim="made/up",
    case="base-512-b1-fp8",
    figure="agreement",
    unit="share",
    measured=0.95,
    interval=None,
    limits=Limits(0.9, 0.99, "made up"),
    documented="94%",
    baseline=None,
    samples=8,
    outcome=Outcome.HOLDS,
)


def record(outcome: Outcome = Outcome.HOLDS, waiver: str | None = None, **changes: Any) -> Found:
    return evidence.found(replace(HOLDS, outcome=outcome, **changes), test="", waiver=waiver)


def cells(*records: Found) -> list[list[str]]:
    """The table's rows under its head, cell by cell."""
    return [line.split("  ") for line in compact(report.table(records))[1:]]


def compact(lines: list[str]) -> list[str]:
    """Columns apart by two blanks, however wide they are."""
    return ["  ".join(cell.strip() for cell in line.split("  ") if cell.strip()) for line in lines]


@pytest.fixture
def setup(tmp_path):
    return made(tmp_path)


# ---- the table of claims


@pytest.mark.parametrize(
    ("outcomes", "worst"),
    [
        ("holds holds", "holds"),
        ("holds inconclusive holds", "inconclusive"),
        ("inconclusive invalid", "invalid"),
        ("invalid moved", "moved"),
        ("holds moved inconclusive invalid flipped", "flipped"),
        ("flipped holds", "flipped"),
    ],
)
def test_worst_case_decides(outcomes, worst):
    """One flipped case makes the claim flipped, wherever it comes and whatever the others say."""
    (row,) = cells(*(record(Outcome(outcome)) for outcome in outcomes.split()))
    assert row[-1] == worst


def test_a_claim_is_one_line():
    """Its print, the span of its cases and the smallest of their margins, in the order in which claims came."""
    values = [record(), record(measured=0.97), record(claim="made/second"), record(measured=0.92)]
    assert compact(report.table(values)) == [
        "claim  documented  measured  margin  verdict",
        "made/up  94%  92% to 97%  2 points to spare  holds",
        "made/second  94%  95%  4 points to spare  holds",
    ]


def test_waived_is_said():
    """A waived flip is still a flip, and nobody takes it for one that nobody knew of."""
    assert cells(record(), record(Outcome.FLIPPED, waiver="known"))[0][-1] == "flipped (waived)"


@pytest.mark.parametrize("outcome", [Outcome.FLIPPED, Outcome.MOVED, Outcome.INVALID, Outcome.INCONCLUSIVE])
def test_waived_hides_nothing(outcome):
    """Beside a waived flip, whatever is not waived and not well decides, wherever it comes."""
    found = [record(Outcome.FLIPPED, waiver="known"), record(outcome), record(Outcome.MOVED, waiver="known")]
    assert {cells(*order)[0][-1] for order in permutations(found)} == {outcome.value}


def test_margin_outside_is_negative():
    """How far a flipped claim is from holding."""
    (row,) = cells(record(), record(Outcome.FLIPPED, measured=0.85))
    assert row[3] == "5 points past it"


@pytest.mark.parametrize(("unit", "shown"), [("ms", "0.95 ms"), ("", "0.95"), ("share", "95%"), ("count", "0.95")])
def test_unit_is_shown(unit, shown):
    """A number that needs a unit has one."""
    assert cells(record(unit=unit))[0][2] == shown


@pytest.mark.parametrize("bad", [nan, float("inf")])
def test_measured_that_is_not_finite_is_shown(bad):
    """C23: one such case of two is what the line says first, and it is neither left out of the span nor a crash."""
    (row,) = cells(record(), record(Outcome.INVALID, measured=bad))
    assert row[2:] == [f"not finite ({bad}) in 1 of 2, 95%", "unknown", "invalid"]


def test_nothing_measured_is_shown():
    """Where nothing could be compared there is no margin, and still a line."""
    (row,) = cells(record(Outcome.INVALID, measured=None, limits=None))
    assert row[2:] == ["not measured", "unknown", "invalid"]


def test_columns_stand_under_their_heads():
    """Long texts are cut, and the verdict stays in its column."""
    texts = ["94%", "x" * 46, "x" * 47 + " and so on"]
    lines = report.table(record(claim=f"made/{'long' * index}", documented=text) for index, text in enumerate(texts, 1))
    column = lines[0].index("verdict")
    assert [line[column:] for line in lines[1:]] == ["holds"] * 3
    assert [row[1] for row in (line.split() for line in lines[1:])] == ["94%", "x" * 46, "x" * 45 + "…"]


# ---- the sections of the summary


def figure(outcome: Outcome, claim: str = UNMOVED, **changes: Any) -> Found:
    baseline = None if claim == AS_PRINTED else "0.951 share (onnxruntime 1.31.1 on cpu)"
    return record(outcome, claim=claim, **{"baseline": baseline, "documented": "93.99%"} | changes)


def test_moved_figures_are_listed(setup):
    """Each once, with what it is and all that it is not as, be that recorded, pinned or printed."""
    found = report.sections(
        [
            figure(Outcome.MOVED, UNDRIFTED, measured=0.8765432),
            figure(Outcome.MOVED, AS_PRINTED, measured=0.8765432),
            figure(Outcome.MOVED, measured=0.8765432),
            figure(Outcome.HOLDS, case="base-256-b1-fp8"),
            figure(Outcome.MOVED, AS_PRINTED, case="base-256-b1-fp8"),
            figure(Outcome.MOVED, figure="latency", unit="ms", baseline="0.9 ms", waiver="known"),
            figure(Outcome.HOLDS, AS_PRINTED, figure="latency"),
            figure(Outcome.HOLDS, figure="plan_size"),
        ],
        setup,
        [],
    )
    assert found == {
        "baseline": [
            "4 figures compared, 3 outside their tolerance",
            "base-512-b1-fp8: agreement 87.65%, was 0.951 share (onnxruntime 1.31.1 on cpu), "
            "was pinned at 0.951 share (onnxruntime 1.31.1 on cpu), the study prints 93.99%",
            "base-256-b1-fp8: agreement 95%, the study prints 93.99%",
            "base-512-b1-fp8: latency 0.95 ms, was 0.9 ms (waived)",
        ]
    }


def test_figures_that_could_not_be_judged_did_not_move(setup):
    """C37: they are counted by their reason, apart from what is outside its tolerance."""
    found = report.sections(
        [
            figure(Outcome.INVALID, note="throttled"),
            figure(Outcome.INVALID, UNDRIFTED, note="throttled"),
            figure(Outcome.INVALID, case="base-256-b1-fp8", note="throttled"),
            figure(Outcome.INVALID, figure="kl_mean", measured=nan),
            figure(Outcome.INCONCLUSIVE, AS_PRINTED, figure="top1", interval=Interval(0.8, 0.9, 0.95, "by hand")),
            figure(Outcome.HOLDS, figure="plan_size"),
        ],
        setup,
        [],
    )
    assert found["baseline"] == [
        "5 figures compared, 0 outside their tolerance",
        "2 figures could not be judged: throttled (base-512-b1-fp8 and base-256-b1-fp8)",
        "1 figure could not be judged: not finite (nan) (base-512-b1-fp8)",
        "1 figure could not be judged: its interval reaches across a limit (base-512-b1-fp8)",
    ]


def test_claims_and_figures_are_apart(setup):
    """A figure is no claim, and is one however often it was compared; a run of claims alone speaks of no figure."""
    found = report.sections([record(), figure(Outcome.HOLDS), figure(Outcome.HOLDS, AS_PRINTED)], setup, [])
    assert len(found["claims"]) == 2
    assert found["baseline"] == ["1 figure compared, 0 outside their tolerance"]
    assert "baseline" not in report.sections([record()], setup, [])


def test_what_was_not_compared_is_said(setup):
    """C21: cases without a baseline stand beside the figures that were compared, with the reason; other tests that were
    left out do not."""
    left_out = [LeftOut("no baseline: recorded for other inputs; --record writes one", 22), LeftOut("not timed", 3)]
    line = "22 cases not compared, no baseline: recorded for other inputs; --record writes one"
    assert report.sections([record()], setup, [], {}, left_out)["baseline"] == ["0 figures compared", line]
    found = report.sections([figure(Outcome.HOLDS)], setup, [], {}, left_out)
    assert found["baseline"] == ["1 figure compared, 0 outside their tolerance", line]


def test_terminal_and_pages_count_alike(setup):
    """One count of figures, and one worst verdict of a claim, wherever a run is shown."""
    for document in (documents.upgrade(), documents.throttled()):
        found = report.sections(document.verdicts, setup, [])
        off, html = pages.off_figures(document), pages.html(document)
        whole = readings.compared(document.verdicts)
        assert found["baseline"][0] == f"{whole.total} figures compared, {len(off)} outside their tolerance"
        assert [reason for reason in whole.reasons() if reason not in html or reason not in found["baseline"]] == []
        worst = {claim.id: claim.outcome for claim in pages.stated(document)}
        assert {line.split()[0]: line.split()[-1] for line in found["claims"][1:]} == worst


def test_nothing_to_say_is_no_section(setup):
    """A run without verdicts, inference or recording ends as pytest ends it."""
    assert report.sections([], setup, []) == {}


def test_cost_and_record(setup):
    """Seconds a row where something ran, and what became of recording."""
    setup.stopwatch.seconds["reference"], setup.stopwatch.rows["reference"] = 2.0, 4
    found = report.sections([], setup, ["recorded cpu/fnet.json"])
    assert found["notes"] == ["recorded cpu/fnet.json"]
    assert found["cost"][0] == "reference: 0.500 s a row, 4 rows"


# ---- the header


def test_header(setup):
    """Engine, device, checkpoints, data, samples, cache and versions, each with the reason where it was chosen."""
    engine, inputs, cache, versions = report.header(setup)
    assert engine == "engine: onnxruntime (no TensorRT with a GPU), device: cpu (no CUDA GPU)"
    assert inputs.startswith(
        "checkpoints: synthetic (default without a GPU), datasets: embedded (default without a GPU), "
        "samples: default (few"
    )
    assert cache == f"cache: {setup.cache.folder}"
    assert {name.split()[0] for name in versions.removeprefix("versions: ").split(", ")} >= {"python", "torch", "onnx"}


@pytest.mark.parametrize(
    ("found", "given", "shown"),
    [
        (B200, {}, "samples: default (each study's own for its inputs)"),
        (NONE, {"samples": "40"}, "samples: 40"),
    ],
)
def test_header_says_how_many_samples(monkeypatch, tmp_path, found, given, shown):
    """The studies' own on a GPU, and any number that was asked for."""
    monkeypatch.setattr(report, "environment", lambda _: {})
    assert report.header(made(tmp_path, found, **given))[1].endswith(shown)
