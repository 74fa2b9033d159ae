"""What decisions come to, on made-up verdicts: each state, and what a reader is told."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from fixtures.conclusions import Decision, conclusions, parse_conclusions
from fixtures.decisions import Decided, State, decide, decided_all
from fixtures.verdicts import Outcome, Verdict
from tests.meta.test_conclusions import SMALL

B1, B8, WORSE = ("small/faster", "m-b1-fp8"), ("small/faster", "m-b8-fp8"), ("small/worse", "m-b1-fp8")
# Both claims are grounds, and a third claim is what the decision rests on besides.
TEXT = (
    SMALL[: SMALL.index("[[decision.small.no-fp8.rests_on]]")]
    + """
[[decision.small.no-fp8.ground]]
text = "FP8 loses too much"
claims = { worse = "above" }
[[decision.small.no-fp8.rests_on]]
text = "Nothing else does it."
claims = ["other"]
[claim.small.other]
statement = "The other recipe is slower."
figure = "speedup"
cases = ["m-b1-fp8-other"]
max = 1.0
documented = "0.95x"
reason = "made up"
inputs = "hub"
needs = "any"
"""
)
OTHER = ("small/other", "m-b1-fp8-other")
HOLDING = {B1: 1.05, B8: 1.11, WORSE: 0.94, OTHER: 0.95}


MADE_UP = parse_conclusions(TEXT)
CLAIMS = {**MADE_UP.claims, **conclusions().claims}


def small(**changes: Any) -> Decision:
    return replace(MADE_UP.decisions["small/no-fp8"], **changes)


def verdict(claim: str, case: str, measured: float | None, outcome: Outcome | None = None) -> Verdict:
    """As the suite would find it: with no outcome given, held against the limits of the claim."""
    known = CLAIMS[claim]
    inside = measured is not None and known.limits.lowest <= measured <= known.limits.highest
    return Verdict(
        claim=claim,
        case=case,
        figure=known.figure,
        unit=known.unit,
        measured=measured,
        interval=None,
        limits=known.limits,
        documented=None,
        baseline=None,
        samples=9,
        outcome=outcome or (Outcome.HOLDS if inside else Outcome.FLIPPED),
    )


def decided(changes: dict[tuple[str, str], Any] | None = None, decision: Decision | None = None) -> Decided:
    """The small decision on verdicts that hold, but for `changes`: a value, an outcome, or None for no verdict."""
    found = []
    for check, value in (HOLDING | (changes or {})).items():
        if isinstance(value, Outcome):
            found.append(verdict(*check, 1.02, value))
        elif value is not None:
            found.append(verdict(*check, value))
    return decide(decision or small(), found)


GONE = {B1: 1.22, B8: 1.3, WORSE: 0.994}  # too little gain, too much loss: no longer


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "stands"),
        ({OTHER: None}, "undecided"),
        ({B8: None}, "undecided"),  # its claim was checked, and not in every case
        ({WORSE: Outcome.INCONCLUSIVE}, "undecided"),
        ({WORSE: Outcome.INVALID}, "undecided"),
        (dict.fromkeys(HOLDING), "undecided"),
        ({B1: 1.22}, "reopened"),  # one case
        ({B1: 1.22, B8: None}, "reopened"),
        ({B1: 1.22, B8: 1.3}, "reopened"),  # one ground only
        ({WORSE: 0.994}, "reopened"),
        ({OTHER: 1.3}, "reopened"),
        ({OTHER: 1.3, WORSE: None}, "reopened"),  # what fell weighs more than what is not known
        ({B1: 0.95, B8: 0.9}, "reopened"),  # the other side: slower still
        ({B1: 0.95, B8: 0.9, WORSE: 0.994}, "reopened"),
        ({B1: 0.95, B8: 1.22, WORSE: 0.994}, "reopened"),  # each case on its own side
        ({B1: 1.22, B8: 1.11, WORSE: 0.994}, "reopened"),
        ({B1: 1.22, B8: 1.3, WORSE: None}, "reopened"),  # what was not checked has not fallen
        (GONE, "reversed"),
        (GONE | {OTHER: None}, "reversed"),
        (GONE | {B8: None, OTHER: None}, "reopened"),  # a case of a ground may speak for it yet
        (GONE | {B8: Outcome.INCONCLUSIVE}, "reopened"),
        (GONE | {OTHER: 1.3}, "reversed"),
    ],
)
def test_state(changes, state):
    """C05: reversed only when every ground fell on the side that speaks against the decision; a gain reopens it too."""
    found = decided(changes)
    assert found.state is State(state)
    assert found.headline.startswith(f"{state.upper()}: ")


@pytest.mark.parametrize(
    ("changes", "state"),
    [({WORSE: 0.994}, "reversed"), ({B1: 1.22}, "reopened"), ({OTHER: 1.3}, "reopened"), ({}, "stands")],
)
def test_any_ground_reverses(changes, state):
    """Where each ground alone carries the decision, one that fell is enough, and a case or another claim is not."""
    assert decided(changes, small(reversed_by="any")).state is State(state)


@pytest.mark.parametrize(("b1", "state"), [(0.9, "reversed"), (1.22, "reversed"), (1.05, "reopened")])
def test_either_side_speaks_against(b1, state):
    """A ground that lives inside its limits falls when every case left them, wherever to."""
    decision = small()
    speed = replace(decision.grounds[0], claims={"small/faster": "either"})
    assert decided({B1: b1, B8: 1.22}, replace(decision, grounds=(speed,))).state is State(state)


@pytest.mark.parametrize("value", [nan, inf, -inf, None])
def test_what_is_not_finite_falls_on_no_side(value):
    """C23: NaN or an infinity, flipped by whatever mistake, reopens and counts for no reversal."""
    verdicts = [verdict(*check, measured) for check, measured in (GONE | {OTHER: 0.95}).items() if check != WORSE]
    found = decide(small(), [*verdicts, verdict(*WORSE, value, Outcome.FLIPPED)])
    assert found.state is State.REOPENED
    assert [ground.fallen for ground in found.grounds] == [True, False]
    assert decide(small(), [verdict(*WORSE, value, Outcome.FLIPPED)]).headline.endswith(
        "not finite in m-b1-fp8 (limit 99%)."
    )
    assert decide(small(), [verdict(*WORSE, value, Outcome.INVALID)]).state is State.UNDECIDED


def test_record():
    """A decision carries what a page shows of it: grounds, flipped and unchecked claims."""
    found = decided(GONE | {OTHER: None})
    assert (found.id, found.study, found.statement) == ("small/no-fp8", "small", "Do not ship FP8.")
    assert [(ground.text, ground.claims, ground.fallen, ground.checked) for ground in found.grounds] == [
        ("FP8 saves too little time", ["small/faster"], True, True),
        ("FP8 loses too much", ["small/worse"], True, True),
    ]
    assert (found.flipped, found.unchecked) == (["small/faster", "small/worse"], ["small/other"])
    assert [ground.checked for ground in decided({B1: None, B8: Outcome.INVALID}).grounds] == [False, True]


def test_verdicts_on_other_cases_and_claims_say_nothing():
    """A flip in a case that does not bear on the decision leaves it alone, as does a figure that moved."""
    decision = small(cases=("*-b1-*",))
    assert decided({B8: 1.22}, decision).state is State.STANDS
    moved = replace(verdict(*B1, 1.22, Outcome.MOVED), claim="unmoved")
    assert (
        decide(decision, [*(verdict(*check, value) for check, value in HOLDING.items()), moved]).state is State.STANDS
    )


# ---- what a reader is told

CONFIRM = "Confirm with a second run; then "


@pytest.mark.parametrize(
    ("changes", "headline", "then"),
    [
        (
            {},
            'STANDS: "Do not ship FP8": FP8 saves too little time (speedup 1.11x, limit 1.15x); '
            "FP8 loses too much (agreement 94%, limit 99%).",
            "Nothing to do.",
        ),
        (
            GONE | {OTHER: None},
            "REVERSED: FP8 is worth shipping: speedup 1.22x (limit 1.15x), agreement 99.4% (limit 99%).",
            f"So far 1 of its 3 claims was not checked here. {CONFIRM}"
            "decide anew what ships, and write it into baselines/conclusions.toml.",
        ),
        (
            GONE | {B8: None},
            'REOPENED: "Do not ship FP8" rests on 3 claims, and 2 no longer hold: speedup 1.22x in m-b1-fp8 '
            "(limit 1.15x), agreement 99.4% in m-b1-fp8 (limit 99%).",
            f"So far 1 of the 4 cases of its claims was not checked here. {CONFIRM}"
            "weigh it again without the ground that fell (FP8 loses too much): either ground decides.",
        ),
        (
            {B1: 1.22, B8: 1.3},
            'REOPENED: "Do not ship FP8" rests on 3 claims, and 1 no longer holds: '
            "speedup 1.3x in m-b8-fp8 (limit 1.15x).",
            f"{CONFIRM}weigh it again without the ground that fell (FP8 saves too little time): either ground decides.",
        ),
        (
            {B1: 1.22, OTHER: 1.01},
            'REOPENED: "Do not ship FP8" rests on 3 claims, and 2 no longer hold: '
            "speedup 1.22x in m-b1-fp8 (limit 1.15x), speedup 1.01x in m-b1-fp8-other (limit 1x).",
            f"{CONFIRM}decide for m-b1-fp8 apart: nothing else speaks against it.",
        ),
        (
            {B1: 0.95},
            'REOPENED: "Do not ship FP8" rests on 3 claims, and 1 no longer holds: '
            "speedup 0.95x in m-b1-fp8 (limit 1x).",
            f"{CONFIRM}bring the flipped claims up to date in baselines/conclusions.toml: "
            "no ground of the decision has fallen.",
        ),
        (
            {B1: None, B8: None, OTHER: None},
            'UNDECIDED: "Do not ship FP8": what was checked holds, but 2 of its 3 claims were not checked here.',
            "Run on a B200 with TensorRT (pytest tests/small -m b200): 2 of its 3 claims were not checked here.",
        ),
        (
            {OTHER: None},
            'UNDECIDED: "Do not ship FP8": what was checked holds, but 1 of its 3 claims was not checked here.',
            "Run on the study's own inputs (pytest tests/small --checkpoints hub --datasets hub): "
            "1 of its 3 claims was not checked here.",
        ),
        (
            {WORSE: None, B8: Outcome.INCONCLUSIVE},
            'UNDECIDED: "Do not ship FP8": what was checked holds, but 1 of its 3 claims was not checked here.',
            "Run again what came out invalid or inconclusive: small/faster [m-b8-fp8]. "
            "Run all of pytest tests/small: 1 of its 3 claims was not checked here.",
        ),
        (
            dict.fromkeys(HOLDING),
            'UNDECIDED: "Do not ship FP8": none of its 3 claims was checked here.',
            "Run on a B200 with TensorRT (pytest tests/small -m b200): 3 of its 3 claims were not checked here.",
        ),
    ],
)
def test_sentences(changes, headline, then):
    """The figures that decide, each beside its limit, and what to do: one sentence each for a reader in a hurry."""
    found = decided(changes)
    assert (found.headline, found.next) == (headline, then)


def test_reversal_by_one_ground_says_which():
    """What to do depends on the ground that fell, so the headline names it."""
    assert decided({WORSE: 0.994}, small(reversed_by="any")).headline == (
        "REVERSED: FP8 is worth shipping: no longer true that FP8 loses too much (agreement 99.4%, limit 99%)."
    )


def test_the_weakest_case_speaks_for_a_reversal():
    """Of a ground's cases the headline shows the one that is nearest to the limit, so it never says too much."""
    assert "speedup 1.16x (limit 1.15x)" in decided(GONE | {B8: 1.16}).headline


def test_long_lists_are_counted():
    """A sentence names three flips and counts the rest, those of grounds first."""
    decision = conclusions().decisions["fnet/no-fp8"]
    slow = {"fnet/free-dft-not-enough": 1.3, "fnet/ffn-barely-shorter": 0.9}
    headline = decide(decision, on_the_print(decision, FASTER | slow | {"fnet/fp8-finite": 0.5})).headline
    assert " and 5 no longer hold: speedup 1.22x in base-512-b1-fp8 (limit 1.15x), speedup 1.25x in " in headline
    assert headline.endswith(" and 2 more.")


# ---- the studies' own decisions


def on_the_print(decision: Decision, changes: dict[str, float]) -> list[Verdict]:
    """Verdicts that hold on every check of a decision, but for claims (or claim [case]) with another value."""
    found = []
    for claim, case in decision.checks:
        limits = decision.claims[claim].limits
        inside = limits.low if limits.high is None else limits.high
        found.append(verdict(claim, case, changes.get(f"{claim} [{case}]", changes.get(claim, inside))))
    return found


FASTER = {"fnet/fp8-barely-faster": 1.22, "fnet/fp8-barely-faster-at-batch-8": 1.25}
CLOSER = {"fnet/look-again-2": 0.994, "fnet/fp8-agreement-below-97": 0.994, "fnet/fp8-loses-agreement": 0.004}
PLAIN, SCALED = "fnet/fp16-not-finite-at-512", "fnet/fp16-hs-finite-at-512"


@pytest.mark.parametrize(
    ("id", "changes", "state"),
    [
        *((id, {}, "stands") for id in conclusions().decisions),
        ("fnet/no-fp8", FASTER | CLOSER, "reversed"),
        ("fnet/no-fp8", FASTER, "reopened"),
        ("fnet/no-fp8", CLOSER, "reopened"),
        ("fnet/no-fp8", FASTER | CLOSER | {"fnet/look-again-2": 0.98}, "reopened"),  # better, and under the study's 99%
        ("fnet/no-fp8", FASTER | CLOSER | {"fnet/fp8-barely-faster [base-256-b1-fp8]": 1.1}, "reopened"),
        ("fnet/no-fp8", {"fnet/fp8-barely-faster": 0.9}, "reopened"),
        ("fnet/no-fp8", {"fnet/free-dft-not-enough": 1.2}, "reopened"),
        ("fnet/no-fp8", {"fnet/look-again-1": 0.5}, "reopened"),
        ("fnet/no-fp8", {"fnet/fp8-no-output-dense-slower": 1.2}, "reopened"),
        ("fnet/scale-at-512", {PLAIN: 0.0}, "reversed"),
        ("fnet/scale-at-512", {SCALED: 0.01}, "reversed"),
        ("fnet/scale-at-512", {f"{PLAIN} [base-512-b1-fp16]": 0.0}, "reopened"),
        ("fnet/scale-at-512", {"fnet/dft-passes-fp16-at-512": 60000}, "reopened"),
        ("fnet/scale-at-512", {"fnet/fp16-hs-as-fast-as-fp16": 0.9}, "reopened"),
        ("fnet/scale-at-512", {"fnet/fp16-kl [base-256-b1-fp16]": 0.1}, "stands"),
        ("fnet/plain-fp16-at-256-and-128", {"fnet/fp16-finite-at-256-and-128": 0.5}, "reversed"),
        ("fnet/plain-fp16-at-256-and-128", {"fnet/fp16-finite-at-256-and-128 [large-256-b1-fp16]": 0.5}, "reopened"),
        ("fnet/plain-fp16-at-256-and-128", {"fnet/fp16-kl [base-256-b1-fp16]": 0.1}, "reopened"),
        ("mnasnet/no-fp8", {"mnasnet/fp8-slower": 1.2, "mnasnet/fp8-changes-predictions": 0.99}, "reversed"),
        ("mnasnet/no-fp8", {"mnasnet/fp8-slower": 1.2}, "reopened"),
        ("mnasnet/no-fp8", {"mnasnet/fp8-kernels-not-shorter": 0.9}, "reopened"),
        ("mnasnet/no-fp8", {"mnasnet/fp8-slower-at-level-3": 1.1}, "reopened"),
        ("mnasnet/no-fp8", {"mnasnet/fp8-changes-logits [digits-b1-fp8]": 0.0}, "stands"),  # not about the digits
    ],
)
def test_decisions_of_the_studies(id, changes, state):
    """What each study's decision comes to when a release changes what it rests on."""
    decision = conclusions().decisions[id]
    assert decide(decision, on_the_print(decision, changes)).state is State(state)


def test_invented_release():
    """A TensorRT in which FP8 reaches 1.22x and 99.4%: one sentence says it, with what it took."""
    decision = conclusions().decisions["fnet/no-fp8"]
    assert decide(decision, on_the_print(decision, FASTER | CLOSER)).headline == (
        "REVERSED: FP8 is worth shipping for FNet: speedup 1.22x (limit 1.15x), agreement 99.4% (limit 99%)."
    )


def test_run_without_tensorrt_is_undecided():
    """C37: what an engine without TensorRT can check says what holds and what is left, and is no green light."""
    decision = conclusions().decisions["fnet/no-fp8"]
    able = [each for each in on_the_print(decision, {}) if decision.claims[each.claim].needs == "any"]
    found = decide(decision, able)
    assert found.state is State.UNDECIDED
    assert {claim for claim in decision.claims if decision.claims[claim].needs == "tensorrt"} == set(found.unchecked)
    assert "pytest tests/fnet -m b200" in found.next


def test_all_decisions_of_a_run():
    """Those of each study that has a verdict on a claim, in the file's order, or of the studies that are named."""
    assert decided_all([]) == []
    figures = [replace(verdict("fnet/fp8-finite", "base-512-b1-fp8", 0.0), claim="unmoved")]
    assert decided_all(figures) == []
    fnet = [verdict("fnet/fp8-finite", "base-512-b1-fp8", 0.0)]
    ids = [id for id in conclusions().decisions if id.startswith("fnet/")]
    assert [each.id for each in decided_all(iter(fnet))] == ids
    named = decided_all(fnet, ["mnasnet"])
    assert [(each.id, each.state) for each in named] == [("mnasnet/no-fp8", State.UNDECIDED)]
    assert decided_all([verdict("fnet/fp32-is-the-reference", "base-512-b1-fp32", 0.0)])[0].state is State.UNDECIDED
