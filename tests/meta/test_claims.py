"""Every claim of a study is held by exactly one of its tests, and no test holds a claim that is not there."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from fixtures.conclusions import conclusions

TESTS = Path(__file__).parent.parent

Held = Mapping[str, list[str]]  # study -> the ids in all claim marks of its tests


def in_marks(source: str) -> Iterator[str]:
    """The ids in every claim mark of one test file: `claim(...)` or `pytest.mark.claim(...)`, as a decorator or not."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "claim":
            yield from (ast.literal_eval(each) for each in node.args)


def held() -> Held:
    """The ids that the tests of each study have, for each study that has tests."""
    files = sorted(path for path in TESTS.glob("*/test_*.py") if path.parent != Path(__file__).parent)
    found: dict[str, list[str]] = {}
    for path in files:
        found.setdefault(path.parent.name, []).extend(in_marks(path.read_text(encoding="utf-8")))
    return found


def problems(held: Held, claims: Collection[str]) -> list[str]:
    """What is wrong with how tests hold claims; `claims` are those of conclusions.toml."""
    count = Counter(id for ids in held.values() for id in ids)
    due = {id for id in claims if id.partition("/")[0] in held}
    elsewhere = [id for study, ids in held.items() for id in ids if id.partition("/")[0] != study]
    return [
        *(f"{id}: no such claim in conclusions.toml" for id in sorted(count.keys() - claims)),
        *(f"{id}: no test holds it" for id in sorted(due - count.keys())),
        *(f"{id}: held by {count[id]} marks" for id in sorted(count) if count[id] > 1),
        *(f"{id}: held by a test of another study" for id in sorted(set(elsewhere))),
    ]


def test_every_claim_is_held_once():
    """No claim of a study with tests goes unchecked, and none is checked twice."""
    assert problems(held(), conclusions().claims.keys()) == []


SOUND = {"fnet": ["fnet/a", "fnet/b"]}
CLAIMS = ("fnet/a", "fnet/b", "other/c")


@pytest.mark.parametrize(
    ("held", "claims", "found"),
    [
        (SOUND, CLAIMS, []),  # the other study has no tests yet
        (SOUND, (*CLAIMS, "fnet/d"), ["fnet/d: no test holds it"]),
        (SOUND | {"other": []}, CLAIMS, ["other/c: no test holds it"]),
        ({"fnet": ["fnet/a", "fnet/b", "fnet/a"]}, CLAIMS, ["fnet/a: held by 2 marks"]),
        ({"fnet": ["fnet/a", "fnet/b", "fnet/e"]}, CLAIMS, ["fnet/e: no such claim in conclusions.toml"]),
        ({"fnet": ["fnet/a", "fnet/b", "other/c"]}, CLAIMS, ["other/c: held by a test of another study"]),
    ],
)
def test_fault_is_found(held, claims, found):
    """C21: the check above goes red for each fault that it is there for."""
    assert problems(held, claims) == found


@pytest.mark.parametrize(
    ("source", "ids"),
    [
        ('@claim("fnet/a", "fnet/b")\ndef test(): ...', ["fnet/a", "fnet/b"]),
        ('@pytest.mark.claim("fnet/a")\ndef test(): ...', ["fnet/a"]),
        ('pytestmark = pytest.mark.claim("fnet/a")', ["fnet/a"]),
        ('@every_case("fnet")\ndef test(claim): claims("fnet/a")', []),
    ],
)
def test_marks_are_read(source, ids):
    """Every form of the mark counts, and nothing else does."""
    assert list(in_marks(source)) == ids
