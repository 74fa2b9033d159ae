"""How decisions and known issues stand in conclusions.toml, and that every claim of the file bears on something."""

from __future__ import annotations

import pytest

from fixtures.cases import studies
from fixtures.conclusions import conclusions, parse_conclusions
from fixtures.errors import InputError
from tests.meta.tiny import one_line

SMALL = """
[figure]
speedup = { unit = "x", meaning = "a ratio" }
agreement = { unit = "share", meaning = "a share" }
[tolerance]
speedup = { absolute = 0.02, reason = "noise" }
agreement = { absolute = 0.005, reason = "noise" }
[claim.small.faster]
statement = "FP8 is barely faster."
figure = "speedup"
cases = ["m-b1-fp8", "m-b8-fp8"]
min = 1.0
max = 1.15
documented = "1.05x"
reason = "made up"
inputs = "any"
needs = "tensorrt"
[claim.small.worse]
statement = "FP8 is worse."
figure = "agreement"
cases = ["m-b1-fp8"]
max = 0.99
documented = "94%"
reason = "made up"
inputs = "any"
needs = "any"
known_issue = true
[decision.small.no-fp8]
statement = "Do not ship FP8."
reversal = "FP8 is worth shipping"
reversed_by = "all"
reason = "either ground decides"
[[decision.small.no-fp8.ground]]
text = "FP8 saves too little time"
claims = { faster = "above" }
[[decision.small.no-fp8.rests_on]]
text = "It loses."
claims = ["worse"]
"""


def test_small_decision_is_read():
    """A third study's decisions need entries, not code: claims by id, those of grounds first, on every case."""
    found = parse_conclusions(SMALL)
    (decision,) = found.decisions.values()
    assert (decision.id, decision.study, decision.reversed_by) == ("small/no-fp8", "small", "all")
    assert [ground.claims for ground in decision.grounds] == [{"small/faster": "above"}]
    assert decision.claims == {id: found.claims[id] for id in ("small/faster", "small/worse")}
    assert decision.checks == [
        ("small/faster", "m-b1-fp8"), ("small/faster", "m-b8-fp8"), ("small/worse", "m-b1-fp8"),
    ]  # fmt: skip


def test_cases_are_patterns():
    """A claim that several decisions share bears on each by its own cases."""
    text = SMALL.replace('reason = "either', 'cases = ["*-b1-*"]\nreason = "either')
    assert [case for _, case in parse_conclusions(text).decisions["small/no-fp8"].checks] == ["m-b1-fp8"] * 2


def test_known_issue_is_read():
    """Off unless said."""
    assert {id: claim.known_issue for id, claim in parse_conclusions(SMALL).claims.items()} == {
        "small/faster": False,
        "small/worse": True,
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('statement = "Do not ship FP8."', "", "decision.small.no-fp8.statement: .*required"),
        ('reversal = "FP8 is worth shipping"', 'reversal = ""', "decision.small.no-fp8.reversal: .*at least 1"),
        ('reversed_by = "all"', 'reversed_by = "most"', "decision.small.no-fp8.reversed_by: .*'all' or 'any'"),
        ('reason = "either ground decides"', "", "decision.small.no-fp8.reason: .*required"),
        ('reversed_by = "all"', 'reversed_by = "all"\nweight = 1', "decision.small.no-fp8.weight: Unexpected"),
        ('reversed_by = "all"', 'reversed_by = "all"\ncases = []', "decision.small.no-fp8.cases: .*at least 1"),
        ('faster = "above"', 'faster = "up"', r"decision.small.no-fp8.ground.0.claims.faster: .*'above'"),
        ('claims = { faster = "above" }', "claims = {}", "decision.small.no-fp8.ground.0.claims: .*at least 1"),
        ('claims = { faster = "above" }', 'claims = ["faster"]', "decision.small.no-fp8.ground.0.claims"),
        ('claims = ["worse"]', "claims = []", "decision.small.no-fp8.rests_on.0.claims: .*at least 1"),
        ('text = "It loses."', "", "decision.small.no-fp8.rests_on.0.text: .*required"),
        ('faster = "above"', 'fast = "above"', "decision small/no-fp8: no claim small/fast in this file"),
        ('claims = ["worse"]', 'claims = ["faster"]', "decision small/no-fp8: small/faster is there twice"),
        ("max = 1.15", "", "no-fp8: small/faster never leaves its limits on the side 'above': they are at least 1"),
        ('reversed_by = "all"', 'reversed_by = "all"\ncases = ["*-b8-*"]', "no-fp8: small/worse matches none"),
        ('reversed_by = "all"', 'reversed_by = "all"\ncases = ["*", "*-b9-*"]', r"no-fp8: \*-b9-\* matches none"),
        ("[[decision.small.no-fp8.ground]]", "[[decision.small.no-fp8.grounds]]", "decision.small.no-fp8.ground: "),
        ("known_issue = true", 'known_issue = "yes"', "claim.small.worse.known_issue: .*boolean"),
        ("known_issue = true", "known_issue = 1", "claim.small.worse.known_issue: .*boolean"),
    ],
)
def test_odd_decision_is_refused_by_name(old: str, new: str, message: str):
    """C23: an entry that is absent, unknown, empty or of another type, and a claim that cannot decide, is named."""
    text = SMALL.replace(old, new)
    assert text != SMALL
    with pytest.raises(InputError, match=f"conclusions.toml: .*{message}") as caught:
        parse_conclusions(text)
    assert "\n" not in str(caught.value)


# ---- what the file holds

CHECKS = "a check that what runs is the study's graph and recipe: without it no figure means anything"
ALONE = {
    "fnet/fp32-is-the-reference": CHECKS,
    "fnet/fp8-gemms-base": CHECKS,
    "fnet/fp8-gemms-large": CHECKS,
    "fnet/fp8-weights-base": CHECKS,
    "fnet/fp8-weights-large": CHECKS,
    "fnet/fp8-constants-base": CHECKS,
    "fnet/fp8-constants-large": CHECKS,
    "fnet/same-engine-twice": "the noise of the machine: it says whether to believe a time",
    "fnet/prompt-cosine": "another project's bar, which fp16 and FP8 both pass: it decides nothing",
    "fnet/tensorrt-11-1-as-11-4": "it compares two versions, and a decision is on one run",
    "mnasnet/fp32-is-the-reference": CHECKS,
    "mnasnet/fp32-top1": CHECKS,
    "mnasnet/digits-are-read": CHECKS,
    "mnasnet/fp8-convolutions": CHECKS,
    "mnasnet/depthwise-stay-fp16": CHECKS,
    "mnasnet/fp8-weights": CHECKS,
    "mnasnet/fp8-constants": CHECKS,
    "mnasnet/fp16-agrees-with-pytorch": "of the suite's own digits model, which the decision is not about",
    "mnasnet/same-engine-twice": "the noise of the machine: it says whether to believe a time",
}


def test_every_claim_is_in_a_decision_or_alone():
    """A new claim is weighed: some decision rests on it, or a reason here says why none does. No entry here is dead."""
    found = conclusions()
    used = {id for decision in found.decisions.values() for id in decision.claims}
    assert found.claims.keys() - used == ALONE.keys()


@pytest.mark.parametrize("id", conclusions().decisions)
def test_decision_rests_on_its_study(id):
    """Its claims exist, are its study's and have cases that bear on it; it can be checked, and reads as a sentence."""
    decision = conclusions().decisions[id]
    assert decision.study in studies()
    assert {claim.study for claim in decision.claims.values()} == {decision.study}
    assert decision.claims.items() <= conclusions().claims.items()
    assert {case for _, case in decision.checks} <= {case.id for case in studies()[decision.study].cases}
    assert decision.statement.endswith(".")
    assert not decision.reversal.endswith(".")
    assert not any(ground.text.endswith(".") for ground in decision.grounds)


def test_every_study_has_a_decision():
    """A study is there for what it concludes."""
    assert {decision.study for decision in conclusions().decisions.values()} == studies().keys()


@pytest.mark.parametrize(
    ("decision", "claim", "reason"),
    [
        ("fnet/no-fp8", "fnet/look-again-1", "first reason to look again"),
        ("fnet/no-fp8", "fnet/look-again-2", "second reason to look again"),
        ("mnasnet/no-fp8", "mnasnet/fp8-kernels-not-shorter", "first reason to look again"),
    ],
)
def test_reasons_to_look_again_reopen(decision, claim, reason):
    """What the studies name as reasons to look again bears on their decisions, and says that it is one."""
    assert reason in conclusions().decisions[decision].claims[claim].statement


def test_reason_that_nothing_checks_is_said():
    """The one reason to look again that no recipe shows is said where a reader looks for it."""
    statement = conclusions().claims["mnasnet/depthwise-stay-fp16"].statement
    assert "second reason to look again, are not seen" in statement


def test_known_issues():
    """fp16 at 512 tokens and its cause are what is known to be wrong."""
    assert {id for id, claim in conclusions().claims.items() if claim.known_issue} == {
        "fnet/fp16-not-finite-at-512",
        "fnet/dft-passes-fp16-at-512",
    }


def test_file_that_is_not_there(monkeypatch, tmp_path):
    """C25: one line with the file and the way out."""
    monkeypatch.setattr("fixtures.conclusions.FOLDER", tmp_path)
    with one_line(InputError, "baselines/conclusions.toml: cannot be read", "restore it"):
        conclusions.__wrapped__()
