"""The grid is the study's, its ids are unique, and a selection of nothing is an error."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fixtures import cases
from fixtures.cases import Case, studies
from fixtures.errors import InputError
from tests.meta.tiny import one_line

FNET = studies()["fnet"]
CASE = Case("fnet", "base", 512, 1, "fp16+hs")


def test_id_and_group():
    """The names used in test ids, records and files; a case without a window has none in its name."""
    assert (CASE.id, str(CASE), CASE.group) == ("base-512-b1-fp16+hs", "base-512-b1-fp16+hs", "base-512-b1")
    assert Case("mnasnet", "mnasnet_100", None, 32, "fp8").id == "mnasnet_100-b32-fp8"
    assert CASE.at("fp8").id == "base-512-b1-fp8"


def test_grid_is_the_studys():
    """Models, windows and batches are those it printed, each in the variants it timed, and each model is pinned."""
    wide = {"fp32", "fp16", "fp16+hs", "fp16+dft32", "fp8", "fp8-no-output-dense"}
    narrow, at_batch_8 = wide - {"fp16+hs", "fp16+dft32"}, wide - {"fp16", "fp16+dft32"}
    found: dict[str, set[str]] = {}
    for case in FNET.cases:
        found.setdefault(case.group, set()).add(case.variant)
    assert found == {
        "base-512-b1": wide,
        "base-256-b1": narrow,
        "base-128-b1": narrow,
        "large-512-b1": wide,
        "large-256-b1": narrow,
        "base-512-b8": at_batch_8,
        "large-512-b8": at_batch_8,
    }
    assert {case.model for case in FNET.cases} == FNET.checkpoints.keys()


@pytest.mark.parametrize("study", studies().values(), ids=studies())
def test_every_study_is_whole(study):
    """Each study found has its own name on every case, ids that differ, and pins that are full commits."""
    assert {case.study for case in study.cases} == {study.name}
    assert len({case.id for case in study.cases}) == len(study.cases)
    for pin in (*study.checkpoints.values(), *study.datasets.values()):
        assert re.fullmatch(r"[0-9a-f]{40}", pin.revision), pin


def test_select_takes_values_and_tuples():
    """Fields that are given must match; a tuple allows any of its values."""
    assert [case.id for case in FNET.select(model="base", window=512, batch=1, variant=("fp16", "fp8"))] == [
        "base-512-b1-fp16",
        "base-512-b1-fp8",
    ]
    assert len(FNET.select()) == len(FNET.cases)


def test_selecting_nothing_is_an_error():
    """C21: a test over no cases would pass by saying nothing."""
    with pytest.raises(LookupError, match=r"no case of study 'fnet' has .*'fp16\+hs'.*256"):
        FNET.select(variant="fp16+hs", window=256)


def test_two_studies_share_no_case(monkeypatch):
    """A case's id stands for it in records, reports and files: one id of two studies is refused."""
    other = replace(FNET, name="other", cases=(replace(CASE, study="other"),), cpu_cases=())
    modules = iter([SimpleNamespace(STUDY=FNET), SimpleNamespace(STUDY=other)])
    monkeypatch.setattr(cases.importlib, "import_module", lambda _: next(modules, SimpleNamespace()))
    with one_line(InputError, f"case {CASE} is in fnet and other", "rename one's model"):
        studies.__wrapped__()
