"""Waivers: what is refused, what is expired or dead, which run and verdict one covers, and what is said of it."""

from __future__ import annotations

import re
from datetime import date, timedelta

import pytest
from packaging.specifiers import SpecifierSet

from fixtures.document import Found
from fixtures.errors import InputError
from fixtures.gpus import identify
from fixtures.verdicts import Outcome
from fixtures.waivers import COMPARISONS, FILE, Waiver, applicable, covering, gpu_of, lines, problems, read, used

TODAY = date(2026, 9, 30)
SPEED = "fnet/fp8-barely-faster"
SPEED_CASES = (
    "base-512-b1-fp8",
    "base-256-b1-fp8",
    "base-128-b1-fp8",
    "large-512-b1-fp8",
    "large-256-b1-fp8",
)

WRITTEN = {
    "id": '"slower-11.5"',
    "claim": f'"{SPEED}"',
    "gpu": '"b200"',
    "engine": '"tensorrt"',
    "versions": '">=11.5,<11.6"',
    "issue": '"https://example.com/tracker/1"',
    "reason": '"a fix is announced"',
    "expires": "2026-09-30",
}


def written(**changed: str | None) -> str:
    """A sound waiver as TOML with some fields changed, added, or (None) left out."""
    fields = WRITTEN | changed
    return "\n".join(["[[waiver]]", *(f"{name} = {text}" for name, text in fields.items() if text is not None), ""])


def waiver(**changed: object) -> Waiver:
    """A sound waiver of one claim with some fields changed."""
    fields = {
        "id": "slower-11.5",
        "claim": SPEED,
        "cases": None,
        "figure": None,
        "gpu": "b200",
        "engine": "tensorrt",
        "versions": SpecifierSet(">=11.5,<11.6"),
        "issue": "https://example.com/tracker/1",
        "reason": "a fix is announced",
        "expires": TODAY,
    }
    return Waiver(**fields | changed)


def found(case: str, outcome: Outcome, by: str | None = None, claim: str = SPEED, figure: str = "speedup") -> Found:
    """A verdict as a document has it; `by` is the waiver that covers it."""
    return Found(
        claim=claim,
        study="fnet",
        case=case,
        figure=figure,
        unit="x",
        measured=1.0,
        expected=None,
        interval=None,
        limits=None,
        margin=None,
        documented=None,
        baseline=None,
        samples=9,
        outcome=outcome,
        note="",
        non_finite={},
        test="tests/fnet/test_speed.py::test",
        waiver=by,
    )


@pytest.fixture
def file(tmp_path):
    """Writes a waivers file and gives its path."""

    def write(text: str):
        path = tmp_path / "waivers.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


# ------------------------------------------------------------------------------------------ the committed file


def test_committed_file_is_sound():
    """What is in force can be read, has not expired and is not dead."""
    assert problems(read(), date.today()) == []


def test_committed_example_is_sound(file):
    """The example that people copy is a waiver, once its comment signs are gone."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    example = lines[lines.index("# [[waiver]]") :]
    (copied,) = read(file("\n".join(line.removeprefix("# ") for line in example)))
    assert problems([copied], copied.expires) == []


# ------------------------------------------------------------------------------------------ reading


def test_sound_waiver_is_read(file):
    """Every field arrives, and the file's order is kept."""
    comparison = written(
        id='"moved"', claim='"unmoved"', figure='"latency"', cases='["base-512-b1-fp8", "base-256-b1-fp8"]'
    )
    first, second = read(file(written() + comparison))
    assert first == waiver()
    assert (second.id, second.claim, second.figure) == ("moved", "unmoved", "latency")
    assert second.cases == ("base-512-b1-fp8", "base-256-b1-fp8")


def test_no_waivers(file):
    """A file of comments alone waives nothing."""
    assert read(file("# none\n")) == ()


@pytest.mark.parametrize("field", sorted(WRITTEN.keys() - {"id"}))
def test_absent_field_is_named(file, field):
    """A waiver without one of its fields is refused by its id and the field."""
    with pytest.raises(InputError, match=rf"^waivers\.toml: waiver slower-11\.5: {field}: [^\n]*$"):
        read(file(written(**{field: None})))


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("id", '"Slower 11.5"'),
        ("claim", '""'),
        ("claim", "1"),
        ("gpu", "200"),
        ("engine", '"onnx"'),
        ("versions", '"11.5"'),
        ("versions", '""'),
        ("versions", '","'),
        ("versions", '">=eleven"'),
        ("versions", '"===11.5.0.12"'),
        ("versions", "11.5"),
        ("issue", '"http://example.com/tracker/1"'),
        ("issue", '"https://example.com"'),
        ("issue", '"NVIDIA/TensorRT#1"'),
        ("reason", '" "'),
        ("reason", '"two\\nlines"'),
        ("reason", "2026-09-30"),
        ("cases", "2026-09-30"),
        ("expires", '"2026-09-30"'),
        ("expires", "2026-09-30T00:00:00"),
        ("expires", "2026-09-30T00:00:00Z"),
        ("expires", "12:00:00"),
        ("expires", "20260930"),
        ("cases", "[]"),
        ("cases", '"base-512-b1-fp8"'),
        ("cases", '["base-512-b1-fp8", "base-512-b1-fp8"]'),
        ("figure", '"speedup"'),  # a claim has its own
        ("until", "2026-09-30"),
        ("casess", '["base-512-b1-fp8"]'),
    ],
)
def test_wrong_field_is_named(file, field, text):
    """A field that is unknown or of another form is refused in one line, by the waiver's id and its name."""
    with pytest.raises(InputError, match=r"^waivers\.toml: waiver (slower-11\.5|Slower 11\.5): [^\n]*$") as refused:
        read(file(written(**{field: text})))
    assert f": {field}: " in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (written() + written(), "waiver slower-11.5: id: is there twice"),
        (written(id=None), "waiver number 1: id: "),
        (written() + written(id="1"), "waiver 1: id: "),
        (written().replace("[[waiver]]", "[[waivers]]"), "waivers: unknown"),
        (written().replace("[[waiver]]", "[waiver]"), "waiver: not a list of tables"),
        ("waiver = [1]", "waiver: not a list of tables"),
        ("[[waiver]", "cannot be read"),
    ],
)
def test_wrong_file_is_refused(file, text, said):
    """Ids are unique, and a file that is not a list of waivers is refused, never taken as one without."""
    with pytest.raises(InputError, match=rf"^waivers\.toml: {re.escape(said)}"):
        read(file(text))


def test_absent_file_is_refused(tmp_path):
    """A file that is gone is an error, so that a lost waiver is not met as a new finding."""
    with pytest.raises(InputError, match=r"^waivers\.toml: cannot be read"):
        read(tmp_path / "waivers.toml")


@pytest.mark.parametrize("claim", COMPARISONS)
@pytest.mark.parametrize(
    ("fields", "said"),
    [({"cases": '["base-512-b1-fp8"]'}, "figure"), ({"figure": '"latency"'}, "cases")],
)
def test_comparison_names_figure_and_cases(file, claim, fields, said):
    """A waiver of a comparison can never be one of every figure or case at once."""
    with pytest.raises(InputError, match=f": {said}: {claim} is a comparison"):
        read(file(written(claim=f'"{claim}"', **fields)))


@pytest.mark.parametrize("engine", ["tensorrt", "onnxruntime"])
@pytest.mark.parametrize("versions", ["==11.5", "!=11.5", "<=11.5", ">11.5", ">=11.4,<=11.5"])
def test_short_exact_version_is_refused(file, engine, versions):
    """'==11.5' would miss 11.5.0.12, and '>11.5' take it: refused, with the forms that mean what they look like."""
    with pytest.raises(InputError, match=r"versions: .*11\.5\.0.*==11\.5\.\*"):
        read(file(written(engine=f'"{engine}"', versions=f'"{versions}"')))


# ------------------------------------------------------------------------------------------ expired and dead


@pytest.mark.parametrize(("days", "expired"), [(-1, True), (0, False), (1, False)])
def test_expiry(days, expired):
    """The day of expiry is the last one: from the next on the waiver fails the run and covers nothing."""
    each = waiver(expires=TODAY + timedelta(days=days))
    assert any("expired on 2026-09-29" in line for line in problems([each], TODAY)) is expired
    assert (applicable([each], "b200", "tensorrt", "11.5.0.12", TODAY) == ()) is expired


MOVED = {"claim": "unmoved", "figure": "latency", "cases": ("base-512-b1-fp8",)}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"claim": "fnet/fp8-barely-fast"}, "no claim 'fnet/fp8-barely-fast' (near: fnet/fp8-barely-faster"),
        ({"claim": "unmovd"}, "no claim 'unmovd' (near: unmoved)"),
        (MOVED | {"figure": "latncy"}, "no figure 'latncy' (near: latency"),
        ({"cases": ("base-512-b1-fp9",)}, "no case 'base-512-b1-fp9' (near: base-512-b1-fp8"),
        (MOVED | {"cases": ("nothing",)}, "no case 'nothing'; mend"),
        ({"cases": ("base-512-b1-fp16",)}, f"no {SPEED} verdict for base-512-b1-fp16"),
        ({"cases": ("base-512-b1-fp8", "mnasnet_100-b1-fp8")}, f"no {SPEED} verdict for mnasnet_100-b1-fp8"),
        (MOVED | {"claim": "as-printed", "cases": ("digits-b1-fp8",)}, "no as-printed verdict of latency for digits"),
        ({"gpu": "b100"}, "gpu 'b100' is not known"),
        ({"gpu": "B200"}, "gpu 'B200' is not known"),
        ({"gpu": "NVIDIA B200"}, "gpu 'NVIDIA B200' is not known"),
        ({"gpu": "h100-mig-1g.10gb"}, "gpu 'h100-mig-1g.10gb' is not known"),
        ({"gpu": "cpu"}, "TensorRT has no CPU device"),
        ({"engine": "onnxruntime"}, "is about TensorRT"),
        ({"claim": "fnet/same-engine-twice", "gpu": "cpu", "engine": "onnxruntime"}, "is about a GPU"),
        (MOVED | {"gpu": "cpu", "engine": "onnxruntime", "cases": ("large-512-b8-fp8",)}, "not run on cpu"),
        (MOVED | {"engine": "onnxruntime", "cases": ("mnasnet_100-b1-fp16-opt3",)}, "not run on b200 with onnxruntime"),
        ({"versions": SpecifierSet(">=11.6,<11.5")}, "no version lies in '<11.5,>=11.6'"),
        ({"versions": SpecifierSet(">=11.5,<11.6,==11.4.*")}, "no version lies in"),
    ],
)
def test_dead_waiver_is_found(changed, said):
    """A waiver that no verdict can meet is a problem, named by its id, with the way out."""
    (line,) = problems([waiver(**changed)], TODAY)
    assert line.startswith("waiver slower-11.5: ")
    assert said in line
    assert re.search("; (mend|give|take) |give one of|give a gpu", line)


def test_claim_without_a_case_on_the_device_is_dead(monkeypatch):
    """A waiver of all cases of a claim is dead where its device is given none of them."""
    each = waiver(claim="fnet/fp16-dft32-finite-at-512", gpu="cpu", engine="onnxruntime")
    assert problems([each], TODAY) == []
    monkeypatch.setattr("fixtures.waivers._run", lambda _: frozenset())
    (line,) = problems([each], TODAY)
    assert "no case of fnet/fp16-dft32-finite-at-512 is run on cpu" in line


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"cases": SPEED_CASES[:2]},
        MOVED,
        MOVED | {"claim": "undrifted", "gpu": "h200", "engine": "onnxruntime"},
        MOVED | {"claim": "as-printed"},
        {"claim": "fnet/fp8-finite", "gpu": "cpu", "engine": "onnxruntime"},
        {"versions": SpecifierSet("==11.5.*")},
        {"versions": SpecifierSet("==11.5.0.12")},
    ],
)
def test_live_waiver_has_no_problem(changed):
    """The check above is silent on what can be met."""
    assert problems([waiver(**changed)], TODAY) == []


def test_every_problem_is_listed():
    """Several waivers, and several faults of one, are all said at once."""
    odd = waiver(id="odd", gpu="b100", versions=SpecifierSet(">=2,<1"), cases=("a", "b"), expires=date(2026, 1, 1))
    assert len(problems([waiver(), odd, waiver(id="other", claim="x/y")], TODAY)) == 6


# ------------------------------------------------------------------------------------------ which run


@pytest.mark.parametrize(
    ("versions", "version", "covered"),
    [
        (">=11.5,<11.6", "11.5.0.12", True),
        (">=11.5,<11.6", "11.5.9.999", True),
        (">=11.5,<11.6", "11.5", True),
        (">=11.5,<11.6", "11.4.0.106", False),
        (">=11.5,<11.6", "11.6.0.1", False),
        (">=11.5,<11.6", "11.50.0.1", False),
        (">=11.5,<11.6", "11.5.0rc1", True),
        (">=11.5,<11.6", "11.5.1.dev20260901", True),
        (">=11.5,<11.6", "11.6.0rc1", False),
        (">=11.5,<11.6", "11.6.dev20260901", False),
        (">=11.5rc2,<11.6", "11.5rc1", False),
        (">=11.5rc2,<11.6", "11.5rc2", True),
        ("==11.5rc1", "11.5rc1", True),
        ("==11.5rc1", "11.5", False),
        (">=11.5,!=11.5rc1", "11.5rc1", False),
        ("==11.5.*", "11.5.0.12", True),
        ("==11.5.*", "11.5.0rc1", True),
        ("==11.5.*", "11.51.0.1", False),
        ("==11.5.0.12", "11.5.0.12", True),
        ("==11.5.0.12", "11.5.0.13", False),
        ("~=11.5.0", "11.5.2.1", True),
        ("~=11.5.0", "11.6.0.1", False),
        (">=1.31,<1.32", "1.31.1", True),
        (">=1.31,<1.32", "1.31.1+cu130", True),
        (">=1.31,<1.32", "1.32.0", False),
        (">=1.31,<1.32", "1.32.0.dev20260901001", False),
        (">=1.32", "1.32.0.dev20260901001", True),
    ],
)
def test_version_range(versions, version, covered):
    """A range means what it looks like, for three numbers and four; a pre-release counts as its release."""
    each = waiver(versions=SpecifierSet(versions))
    assert bool(applicable([each], "b200", "tensorrt", version, TODAY)) is covered


@pytest.mark.parametrize(
    ("gpu", "engine", "applies"),
    [
        ("b200", "tensorrt", True),
        ("b200", "onnxruntime", False),
        ("gb200", "tensorrt", False),
        ("b300", "tensorrt", False),
        ("cpu", "tensorrt", False),
        (None, "tensorrt", False),
    ],
)
def test_only_its_gpu_and_engine(gpu, engine, applies):
    """C39: a waiver for a B200 covers neither a GB200, nor another engine, nor a GPU without a slug."""
    assert bool(applicable([waiver()], gpu, engine, "11.5.0.12", TODAY)) is applies


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H100 80GB HBM3"])
def test_a_slice_has_no_waivers(name):
    """C39: a MIG slice is not its GPU, whether or not its name says which slice it is."""
    slice_ = identify(name, (9, 0), 16, mig=True)
    assert applicable([waiver(gpu="h100")], slice_.slug, "tensorrt", "11.5.0.12", TODAY) == ()


@pytest.mark.parametrize(
    ("device", "gpu"),
    [
        ("cpu", "cpu"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        (identify("NVIDIA H100 80GB HBM3", (9, 0), 132, mig=False).device_name, "h100"),
        ("NVIDIA B2000", None),
        (identify("NVIDIA H200", (9, 0), 132, mig=True).device_name, None),
        (identify("NVIDIA H100 80GB HBM3 MIG 1g.10gb", (9, 0), 16, mig=False).device_name, None),
    ],
)
def test_device_of_a_record(device, gpu):
    """C39: a record's GPU is the known part of exactly that name; no other GPU, and no slice of one, has waivers."""
    assert gpu_of(device) == gpu


def test_order_is_kept():
    """The waivers that apply come in the file's order, without the others."""
    many = [waiver(id="a"), waiver(id="b", gpu="b300"), waiver(id="c")]
    assert [each.id for each in applicable(many, "b200", "tensorrt", "11.5.0.12", TODAY)] == ["a", "c"]


# ------------------------------------------------------------------------------------------ which verdict


@pytest.mark.parametrize("outcome", Outcome)
def test_only_findings_are_waived(outcome):
    """C25: what is invalid or inconclusive has to be measured again, and is never waived."""
    covers = covering([waiver()], SPEED, "base-512-b1-fp8", "speedup", outcome) is not None
    assert covers is (outcome in (Outcome.FLIPPED, Outcome.MOVED))


@pytest.mark.parametrize(
    ("changed", "claim", "case", "figure", "covers"),
    [
        ({}, SPEED, "large-256-b1-fp8", "speedup", True),
        ({}, "fnet/fp8-barely-faster-at-batch-8", "base-512-b8-fp8", "speedup", False),
        ({}, "unmoved", "large-256-b1-fp8", "speedup", False),
        ({"cases": SPEED_CASES[:2]}, SPEED, "base-256-b1-fp8", "speedup", True),
        ({"cases": SPEED_CASES[:2]}, SPEED, "base-128-b1-fp8", "speedup", False),
        (MOVED, "unmoved", "base-512-b1-fp8", "latency", True),
        (MOVED, "unmoved", "base-512-b1-fp8", "kl_mean", False),
        (MOVED, "unmoved", "base-512-b1-fp16", "latency", False),
        (MOVED, "undrifted", "base-512-b1-fp8", "latency", False),
        (MOVED, "as-printed", "base-512-b1-fp8", "latency", False),
    ],
)
def test_only_what_it_names(changed, claim, case, figure, covers):
    """A waiver covers its own claim, cases and figure, and nothing beside them."""
    found = covering([waiver(**changed)], claim, case, figure, Outcome.MOVED)
    assert (found is not None) is covers


def test_first_waiver_covers():
    """Of two that name one verdict the first covers it, so that it is counted once."""
    two = [waiver(id="first", cases=("base-512-b1-fp8",)), waiver(id="second")]
    assert covering(two, SPEED, "base-512-b1-fp8", "speedup", Outcome.FLIPPED) == two[0]
    assert covering(two, SPEED, "base-256-b1-fp8", "speedup", Outcome.FLIPPED) == two[1]
    assert covering([], SPEED, "base-256-b1-fp8", "speedup", Outcome.FLIPPED) is None


# ------------------------------------------------------------------------------------------ what it did

HOLDS, FLIPPED = Outcome.HOLDS, Outcome.FLIPPED
ID = "slower-11.5"


@pytest.mark.parametrize(
    ("cases", "founds", "covered", "holds_again", "said"),
    [
        (None, [found(case, FLIPPED, ID) for case in SPEED_CASES], 5, False, "covered 5 of 5 verdicts ("),
        (None, [found(case, HOLDS) for case in SPEED_CASES], 0, True, "0 of 5 verdicts; what it waives holds again: "),
        (None, [], 0, False, "nothing it names was checked ("),
        (None, [found("base-512-b8-fp8", HOLDS, claim="fnet/fp8-finite")], 0, False, "nothing it names was checked ("),
        (
            SPEED_CASES[:2],
            [found(SPEED_CASES[0], FLIPPED, ID), found(SPEED_CASES[1], HOLDS)],
            1,
            False,
            "covered 1 of 2 verdicts; no longer needed for base-256-b1-fp8: let its cases",
        ),
        (  # a part of a run says nothing of the rest
            SPEED_CASES[:2],
            [found(SPEED_CASES[1], HOLDS)],
            0,
            False,
            "covered 0 of 1 verdicts; no longer needed for base-256-b1-fp8: let its cases",
        ),
        (None, [found(case, HOLDS) for case in SPEED_CASES[:4]], 0, False, "no longer needed for base-512-b1-fp8, "),
        (SPEED_CASES[:2], [found(case, HOLDS) for case in SPEED_CASES], 0, True, "0 of 2 verdicts; what it waives"),
        (SPEED_CASES[:1], [found(SPEED_CASES[0], Outcome.INVALID)], 0, False, "covered 0 of 1 verdicts ("),
        (SPEED_CASES[:1], [found(SPEED_CASES[0], Outcome.INCONCLUSIVE)], 0, False, "covered 0 of 1 verdicts ("),
        (  # one case, two verdicts
            SPEED_CASES[:1],
            [found(SPEED_CASES[0], HOLDS), found(SPEED_CASES[0], FLIPPED, ID)],
            1,
            False,
            "covered 1 of 2 verdicts (",
        ),
    ],
)
def test_what_it_did_is_said(cases, founds, covered, holds_again, said):
    """It is to be taken out once all that it names holds, and to be narrowed once a part does; never on a guess."""
    each = waiver(cases=cases)
    (did,) = used([each], founds)
    (line,) = lines([each], founds)
    assert (did.id, did.covered, did.holds_again) == (ID, covered, holds_again)
    assert said in line
    assert ("take it out of waivers.toml" in line) is holds_again


def test_cases_that_are_not_run_are_not_waited_for():
    """On a CPU, where some of a claim's cases never run, it holds again when those that do hold."""
    each = waiver(claim="fnet/fp16-dft32-finite-at-512", gpu="cpu", engine="onnxruntime")
    verdict = found("base-512-b1-fp16+dft32", HOLDS, claim=each.claim, figure="nonfinite_share")
    assert used([each], [verdict])[0].holds_again


def test_line_says_who_why_and_until_when():
    """A line can be acted on alone: id, last day, reason and link."""
    (line,) = lines([waiver()], [])
    assert line == (
        "slower-11.5, until 2026-09-30: nothing it names was checked "
        "(a fix is announced; https://example.com/tracker/1)"
    )


def test_each_waiver_is_said_apart():
    """Each that applies is reported with what it alone covered, in the file's order."""
    two = [waiver(id="a", cases=SPEED_CASES[:1]), waiver(id="b", cases=SPEED_CASES[1:2])]
    founds = [found(SPEED_CASES[0], FLIPPED, "a"), found(SPEED_CASES[1], FLIPPED)]
    assert [(did.id, did.covered) for did in used(two, founds)] == [("a", 1), ("b", 0)]
    assert used(two, founds)[0].expires == TODAY
    assert [line.partition(",")[0] for line in lines(two, founds)] == ["a", "b"]
