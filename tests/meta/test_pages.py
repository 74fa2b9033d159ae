"""The report for people: what stands first, what no page may hide, and texts that must not break it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from math import inf, nan
from time import process_time

import pytest

from fixtures import baselines, pages, plots, publish, readings, wording
from fixtures.conclusions import conclusions
from fixtures.decisions import State
from fixtures.document import Document, Kernels
from fixtures.verdicts import AS_PRINTED, COMPARISONS, UNDRIFTED, UNMOVED, Limits, Outcome, next_step
from tests.meta import documents
from tests.meta.documents import FLIPPED, ODD, STANDS, claimed, compared, timed

VOID = {"meta", "br"}
EMPTY_OR_SVG = {"path", "rect", "polyline"}  # drawn in SVG, where a tag may close itself


class Page(HTMLParser):
    """A page's elements: tags with their attributes, visible text by element, and whether every tag was closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        assert tag in EMPTY_OR_SVG
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if data.strip() and "style" not in self.open:
            self.texts.append((tuple(self.open), " ".join(data.split())))

    @property
    def text(self) -> str:
        return " ".join(text for _, text in self.texts)

    def within(self, tag: str) -> str:
        return " ".join(text for path, text in self.texts if tag in path)


def page(document: Document) -> Page:
    return Page(pages.html(document))


def section(text: str, title: str) -> str:
    """One section of a Markdown page, without its title."""
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def with_verdicts(*verdicts, **changes) -> Document:
    return replace(documents.upgrade(), verdicts=list(verdicts), **changes)


EVERY = pytest.mark.parametrize("made", documents.ALL, ids=lambda made: made.__name__)
FASTER = claimed("fnet/fp8-barely-faster", "base-512-b1-fp8", 1.22, FLIPPED)
AS_BEFORE = claimed("fnet/fp8-barely-faster", "base-256-b1-fp8", 1.09)


# ---- what stands first


@EVERY
def test_the_state_of_the_decisions_comes_first(made):
    """Before counts, claims and figures, on both pages; then each decision, the worst first, with what to do."""
    document = made()
    texts = [text for path, text in page(document).texts if "header" in path]
    assert texts[1] == pages.headline(document)
    markdown = pages.markdown(document)
    assert markdown.startswith(f"# {pages.headline(document)}\n")
    order = sorted(document.decisions, key=lambda each: pages.STATES.index(each.state))
    said = [each.headline.removeprefix(f"{each.state.upper()}: ") for each in order]
    assert [text for text in texts if text in said] == said
    assert [text for text in texts if text in {each.next for each in order}] == [each.next for each in order]
    places = [markdown.index(wording.markdown_text(each.headline)) for each in order]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ("", "No decision was checked"),
        ("stands", "The decision stands"),
        ("reversed", "The decision is reversed"),
        ("stands stands", "Both decisions stand"),
        ("undecided undecided undecided", "All 3 decisions are undecided"),
        ("stands reversed", "1 of 2 decisions is reversed, 1 stands"),
        ("stands reopened reopened undecided", "2 of 4 decisions are reopened, 1 is undecided, 1 stands"),
    ],
)
def test_headline(states, said):
    """C05: one decision that fell leads, however many stand."""
    decisions = [replace(STANDS, state=State(state)) for state in states.split()]
    assert pages.headline(replace(documents.green(), decisions=decisions)) == said


def test_one_screen_says_what_to_do():
    """The invented upgrade: what is reversed, on which grounds, what next and how much failed, before all else."""
    text = page(documents.upgrade()).text.partition("What ran")[0]
    for said in (
        "1 of 2 decisions is reversed",
        "TensorRT 11.5.0.90 on NVIDIA B200",
        "speedup 1.22x",
        "no longer so",
        "Run once more to confirm",
        "42 of 312 tests failed",
        "3 claims flipped",
        "22 of 44 figures",
    ):
        assert said in text


def test_comparison_names_both_sides_first():
    """Of two recorded runs, the one before and the one here; figures are of the earlier run, not of a baseline."""
    document = documents.comparison()
    for text in (page(document).text, pages.markdown(document).replace("**", "")):
        before, here = text.index("Before: TensorRT 11.4.0.106"), text.index("Here: TensorRT 11.5.0.90")
        assert before < here < text.index("What may be the cause")
        assert "the earlier run" in text
        assert "newest" not in text.partition("Words")[0]


# ---- what no page may hide


@EVERY
def test_every_claim_that_does_not_hold_is_named(made):
    """On both pages, under its id, which is its key in conclusions.toml, with its outcome in words."""
    document = made()
    for text in (page(document).text, pages.markdown(document).replace(wording.BAR, "|")):
        for claim in pages.stated(document):
            if claim.outcome != "holds":
                assert claim.id in text
                assert claim.outcome in text


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_what_is_not_finite_is_never_a_number(bad):
    """C23: "not finite" in a claim's span and row, among moved figures and on the plot; never 0, none or blank."""
    kl = claimed("fnet/fp16-kl", "base-512-b1-fp16+hs", None, Outcome.INVALID, non_finite={"measured": bad})
    fine = claimed("fnet/fp16-kl", "base-256-b1-fp16", 1.2e-5)
    moved = compared("speedup", "base-512-b1-fp8", 1.0, 1.05, 0.02, unit="x")
    moved = replace(moved, measured=None, margin=None, outcome=Outcome.INVALID, non_finite={"measured": bad})
    document = with_verdicts(kl, fine, moved)
    html, markdown = page(document), pages.markdown(document)
    assert f"base-512-b1-fp16+hs not finite ({bad})" in html.text
    assert f"not finite ({bad}) in 1 of 2, 1.2e-05 nats" in html.text
    assert f"not finite ({bad}) in 1 of 2, 1.2e-05 nats" in markdown
    assert f"1 figure could not be judged: not finite ({bad})" in html.text
    assert f"not finite ({bad})" in section(markdown, "Figures that could not be judged")
    assert section(markdown, "Figures that moved") == ""
    labels = [given["aria-label"] or "" for tag, given in html.tags if tag == "svg" and "aria-label" in given]
    assert any(f"base-512-b1-fp8: not finite ({bad})" in label for label in labels)


def test_nothing_measured_is_said():
    """A None without a non-finite value behind it was never measured."""
    absent = claimed("fnet/fp16-kl", "base-512-b1-fp16+hs", None, Outcome.INVALID, limits=None)
    assert "not measured" in page(with_verdicts(absent)).text
    assert "not measured" in pages.markdown(with_verdicts(absent))


def test_worst_claims_come_first():
    """Flipped, moved, invalid, inconclusive, waived, holds; of equal outcomes, the nearest to its limit."""
    verdicts = [
        AS_BEFORE,
        claimed("fnet/fp16-kl", "a", 2e-5),
        claimed("fnet/fp16-hs-finite-at-512", "a", 0.1, FLIPPED, waiver="known"),
        claimed("fnet/fp16-not-finite-at-512", "a", 0.9, Outcome.INCONCLUSIVE),
        claimed("fnet/fp16-dft32-much-slower", "a", 1.4, Outcome.INVALID),
        claimed("mnasnet/fp8-slower", "a", 1.01, FLIPPED),
        claimed("fnet/look-again-2", "a", 0.994, FLIPPED),
        claimed("fnet/fp8-agreement-below-97", "a", 0.994, FLIPPED),
    ]
    found = pages.stated(with_verdicts(*verdicts))
    assert [claim.outcome for claim in found] == [
        *["flipped"] * 3,
        "invalid",
        "inconclusive",
        "waived",
        "holds",
        "holds",
    ]
    assert [claim.id.partition("/")[2] for claim in found[:3]] == [
        "fp8-agreement-below-97",
        "fp8-slower",
        "look-again-2",
    ]
    shown = [given["id"] for tag, given in page(with_verdicts(*verdicts)).tags if tag == "details" and "id" in given]
    assert shown == [claim.anchor for claim in found]


def test_worst_case_of_a_claim_decides_and_leads():
    """One flipped case makes the claim flipped, its margin the claim's; the span has both."""
    (claim,) = pages.stated(with_verdicts(AS_BEFORE, FASTER))
    assert (claim.outcome, claim.measured, claim.margin) == ("flipped", "1.09x to 1.22x", "0.07x past it")
    assert [found.case for found in claim.cases] == [FASTER.case, AS_BEFORE.case]


def test_figure_is_listed_once_with_all_that_it_is_off():
    """C03: against the newest and the pinned baseline and the print; what holds is counted alone."""
    moved = [compared("latency", "a", 31.0, 28.0, 0.03, claim=claim) for claim in (AS_PRINTED, UNDRIFTED, UNMOVED)]
    document = with_verdicts(*moved, compared("latency", "b", 28.1, 28.0, 0.03))
    (found,) = pages.off_figures(document)
    assert (found.against, found.outcome) == ("newest, pinned, print", "moved")
    assert pages.compared(document) == {
        "newest baseline": (2, 1),
        "pinned baseline": (1, 0),
        "the study's print": (1, 0),
    }
    rows = [line for line in section(pages.markdown(document), "Figures that moved").splitlines() if "`a`" in line]
    assert rows == [
        "| ↕ moved | `a` | `latency` | 31 ms | 28 ms | +10.71% | 27.16 to 28.84 ms | newest, pinned, print |"
    ]


def test_what_to_do_is_what_the_verdict_says():
    """C03: about each claim, and once about figures that are not as expected in each way, on both pages."""
    moved = [compared("latency", case, 31.0, 28.0, 0.03, claim=claim) for claim in COMPARISONS for case in ("a", "b")]
    document = with_verdicts(FASTER, *moved)
    for text in (
        page(document).text,
        pages.markdown(document).replace("\\", "").replace("&lt;", "<").replace("&gt;", ">"),
    ):
        for claim, outcome in ((FASTER.claim, FLIPPED), *((claim, Outcome.MOVED) for claim in COMPARISONS)):
            assert text.count(next_step(claim, outcome)) == 1
        for name in ("the newest baseline", "the pinned baseline", "the study's print"):
            assert f"moved against {name}: " in text


def test_waived_takes_no_step():
    """What is known and excused needs no more than its waiver."""
    verdicts = [replace(FASTER, waiver="known"), compared("latency", "a", 31.0, 28.0, 0.03)]
    document = with_verdicts(*(replace(each, waiver="known") for each in verdicts))
    assert "confirm with a second run" not in page(document).text + pages.markdown(document)


def test_figures_that_could_not_be_judged_are_no_movement():
    """C37: a throttled group's figures are counted apart, with why, and those that do hold are counted as such."""
    document = documents.throttled()
    html, markdown = page(document), pages.markdown(document)
    assert pages.off_figures(document) == []
    for text in (html.text, section(markdown, "Figures that could not be judged").replace("\\", "")):
        assert "5 figures could not be judged: throttled: hw_thermal_slowdown" in text
        assert next_step(UNMOVED, Outcome.INVALID) in text
    assert "5 of 44 figures not judged" in html.text
    assert "39 figures as expected" in html.text
    assert "Figures that moved" not in html.text + markdown


@pytest.mark.parametrize(("version", "new"), [("1.31.1", ""), ("1.31.2", " (the newest recorded one before 1.31.2)")])
@pytest.mark.parametrize(("role", "prefix"), [("newest", ""), ("pinned", "pinned: ")])
def test_baseline_is_named_once(version, new, role, prefix):
    """Why a record was chosen does not say again which one it is."""
    (record,) = baselines.read(baselines.MEASURED / "cpu/onnxruntime-1.31.1/fnet.json")
    choice = baselines.choose(baselines.MEASURED, "cpu", "onnxruntime", version, "fnet", record.inputs)
    basis = publish.basis(role, record, prefix + choice.why)
    said = f"ONNX Runtime 1.31.1 on a CPU, recorded {record.recorded}{new}"
    html, markdown = (make(replace(documents.green(), bases=[basis])) for make in (pages.html, pages.markdown))
    assert f"<dt>fnet, {role} baseline</dt><dd>{said}</dd>" in html
    assert f"- fnet, {role} baseline: {said}\n" in markdown


def test_every_ratio_of_times_is_drawn():
    """A ratio that a claim is about has its plot, but for those of other things than times."""
    claims = conclusions().claims.values()
    assert {each.figure for each in claims if each.unit == "x"} - {"kl_ratio", "outlier_ratio"} == pages.RATIOS.keys()
    faster = replace(claimed("mnasnet/fp8-slower", "mnasnet_100-b1-fp8-opt3", 0.9), figure="speedup_at_level_3")
    assert [plot.figure for plot in pages.ratio_plots(with_verdicts(faster))] == ["speedup_at_level_3"]


def test_slow_drift_shows():
    """C03: a figure that holds against the newest baseline and not against the pinned one is no figure as expected."""
    drifted = [
        compared("latency", "a", 31.0, was, 0.03, claim=claim) for claim, was in ((UNMOVED, 30.8), (UNDRIFTED, 28))
    ]
    assert [found.against for found in pages.off_figures(with_verdicts(*drifted))] == ["pinned"]


def test_infrastructure_stands_apart():
    """C37: what the machine broke is under its own title, after what the subject broke, on both pages."""
    document = documents.throttled()
    html, markdown = page(document), pages.markdown(document)
    subject, machine = html.text.split("Of the machine or the inputs", 1)
    assert "quantized twice" in subject
    assert "EngineError" not in subject
    assert "EngineError" in machine
    assert "InputError" in machine
    assert "quantized twice" in section(markdown, "Failed without a verdict")
    assert "EngineError" in section(markdown, "Failures of the machine or the inputs: these say nothing of TensorRT")
    assert "2 of 7 timed groups were not sound" in html.text
    assert "hw\\_thermal\\_slowdown" in section(markdown, "What may be the cause")


@pytest.mark.parametrize(
    ("outcome", "measured", "said"),
    [
        (Outcome.HOLDS, 0.977, "still there"),
        (FLIPPED, 0.0, "gone here"),
        (Outcome.INCONCLUSIVE, 0.9, "not decided here"),
    ],
)
def test_known_issue_is_there_or_gone(outcome, measured, said):
    """A known issue that is gone is a finding too."""
    document = with_verdicts(claimed("fnet/fp16-not-finite-at-512", "base-512-b1-fp16", measured, outcome))
    assert said in page(document).text
    assert said.capitalize() in section(pages.markdown(document), "Known issues")


def test_waiver_that_is_stale_is_said():
    """One that expired, and one of which the verdict holds again."""
    for text in (page(documents.throttled()).text, pages.markdown(documents.throttled())):
        assert "expired" in text
        assert "holds again: remove it" in text


def test_what_was_not_run_is_counted_with_its_reason():
    """On both pages, with the total of tests."""
    for text in (page(documents.green()).text, pages.markdown(documents.green())):
        assert "61 tests" in text
        assert "it is a claim about TensorRT engines" in text
        assert "137 not run" in text


# ---- what is not there


def test_nothing_to_say_is_no_section():
    """A run that compared nothing has its failure and the words, and no empty table."""
    html = page(documents.empty())
    titles = [text for path, text in html.texts if path[-1] == "h2"]
    assert titles == ["What ran", "Failures without a verdict", "Words"]
    assert "no test ran" not in html.text
    assert "1 of 1 test failed" in html.text
    markdown = pages.markdown(documents.empty())
    assert re.findall(r"^## (.*)$", markdown, re.M) == [
        "Failures of the machine or the inputs: these say nothing of TensorRT",
        "How to reproduce",
    ]


def test_run_without_times_has_no_speed():
    """C22: without a GPU, or under pytest-xdist, and what was not timed is said."""
    html = page(documents.untimed())
    assert "Speed" not in html.within("h2")
    assert "not timed: pytest-xdist" in html.text


@EVERY
def test_contents_lead_somewhere(made):
    """Every link within the page has its place, and no place is there twice."""
    html = page(made())
    places = [given["id"] for _, given in html.tags if "id" in given]
    assert len(places) == len(set(places))
    targets = {given["href"][1:] for tag, given in html.tags if tag == "a" and given["href"].startswith("#")}
    assert targets <= set(places)


# ---- texts that must not break it


@EVERY
def test_page_loads_nothing(made):
    """No style sheet, script, image, font or frame: one file, whatever the names in it."""
    text = pages.html(made())
    html = Page(text)
    assert not {tag for tag, _ in html.tags} & {"link", "script", "img", "iframe", "object", "embed", "base", "form"}
    assert not [given for _, given in html.tags if given.keys() & {"src", "srcset"}]
    assert not [name for _, given in html.tags for name in given if name.startswith("on")]
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert not re.search(r"url\(|@import|http", style)


def test_names_are_shown_as_they_are():
    """C25: "<", "&", "/", "[", "|", backticks and letters beyond ASCII, in every part that takes a name."""
    html = page(documents.odd_names())
    assert not {tag for tag, _ in html.tags} & {"b", "i", "d", "script", "sequence", "before", "problem", "reason"}
    assert html.text.count(ODD) >= 5
    for said in (
        "<script>alert(1)</script>|`odd`",
        "FP8 <i>is</i> | `fast`",
        "<b>bold</b>",
        "NVIDIA <B200> | MIG 1g.23gb",
    ):
        assert said in html.text
    assert not [given for tag, given in html.tags if tag == "a" and given["href"].startswith("javascript:")]


def cells(row: str) -> list[str]:
    """A Markdown row's cells; a bar that is escaped ends none."""
    assert re.fullmatch(r"\| .* \|", row)
    return re.split(r"(?<!\\)\|", row[1:-1])


@EVERY
def test_markdown_tables_are_whole(made):
    """Each row has as many cells as its head, and no text ends a cell, a row or a code span."""
    lines = pages.markdown(made()).splitlines()
    for number, line in enumerate(lines):
        if re.fullmatch(r"\|(-+:?\|)+", line):
            width = len(cells(lines[number - 1]))
            assert line.count("|") - 1 == width
            rows = iter(lines[number + 1 :])
            while (row := next(rows, "")).startswith("|"):
                assert len(cells(row)) == width
    assert "\n\n\n" not in pages.markdown(made())


def test_markdown_takes_no_html():
    """What looks like a tag is text, outside code and in it."""
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", pages.markdown(documents.odd_names()), flags=re.S)
    assert set(re.findall(r"<[^>]*>", outside)) <= {"<br>"}


@pytest.mark.parametrize(
    ("text", "code"),
    [("plain", "`plain`"), ("a`b", "`` a`b ``"), ("``", "``` `` ```"), ("a|b", "`a|b`"), ("two\nlines", "`two lines`")],
)
def test_code_span(text, code):
    """Backticks inside do not end it; a bar is escaped in a table alone, since elsewhere the backslash would show."""
    assert wording.markdown_code(text) == code
    assert wording.markdown_code(text, cell=True) == code.replace("|", r"\|")


# ---- size and time


@pytest.mark.parametrize("of_claims", [60, 1000, 3000])
def test_large_report(of_claims):
    """3,000 verdicts, many or all of them claims that flipped: both pages in 2 s and 2 MB, and every claim is named."""
    document = documents.many(3000, of_claims)
    start = process_time()
    html, markdown = pages.html(document), pages.markdown(document)
    assert process_time() - start < 2.0
    assert len(html.encode()) < 2e6
    assert len(markdown) <= pages.MARKDOWN_CHARACTERS
    assert html.count("fnet/made-up-claim-number-") >= of_claims
    assert "left out here" in markdown


def test_long_markdown_is_cut_and_says_so():
    """Where rows alone do not make it short enough, so many are left out as it takes."""
    claims = {f"fnet/{n}": replace(documents.CLAIMS["fnet/fp16-kl"], statement="*" * 400) for n in range(90)}
    document = with_verdicts(*(replace(FASTER, claim=id) for id in claims), claims=claims)
    text = pages.markdown(document)
    assert len(text) <= pages.MARKDOWN_CHARACTERS
    assert "40 more claims left out here" in text
    endless = replace(document, causes=["&" * 400] * 90, notes=[], command="&" * 9000)
    endless = replace(endless, decisions=[replace(STANDS, headline="&" * 400, next="&" * 400)] * 90)
    assert len(pages.markdown(endless)) <= pages.MARKDOWN_CHARACTERS


@pytest.mark.parametrize("note", ["failed: waiver known expired on 2026-01-01", "not a whole run: pytest failed"])
def test_what_is_wrong_with_a_run_stands_first(note):
    """A red that no verdict shows: an expired waiver, a vanished case, a gate of nothing, an interruption. Other notes
    stand at the end."""
    document = replace(documents.upgrade(), notes=["fnet: a plan was built again", note])
    markdown, html = pages.markdown(document), pages.html(document)
    before, after = markdown.partition(document.decisions[0].headline)[::2]
    assert note.partition(": ")[2] in before
    assert "a plan was built again" in section(markdown, "Notes")
    assert "a plan was built again" not in before
    assert after
    assert html.index(note) < html.index("What ran</h2>")


def test_moved_figures_in_a_comment_are_few():
    """The 20 farthest, then a count."""
    document = with_verdicts(*(compared("latency", f"case-{n}", 1.1 + n / 100, 1.0, 0.03) for n in range(30)))
    listed = section(pages.markdown(document), "Figures that moved")
    assert [f"`case-{n}`" in listed for n in range(30)] == [False] * 10 + [True] * 20
    assert "10 more figures left out here" in listed


# ---- numbers as texts


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.9941, "share", "99.41%"),
        (0.0, "share", "0%"),
        (65504.0, "", "65,504"),
        (5.9e-6, "nats", "5.9e-06 nats"),
        (0.7521, "ms", "0.7521 ms"),
        (24.0, "count", "24"),
        (1.2, "x", "1.2x"),
        (nan, "share", "not finite"),
        (inf, "ms", "not finite"),
        (9999.7, "x", "10,000x"),
    ],
)
def test_quantity(value, unit, said):
    """Four digits that count, with the unit; a number that is none stays none."""
    assert wording.quantity(value, unit) == said


@pytest.mark.parametrize(
    ("low", "high", "unit", "said"),
    [
        (None, 0.97, "share", "at most 97%"),
        (0.9, None, "share", "at least 90%"),
        (1.0, 1.15, "x", "1x to 1.15x"),
        (0.4, 0.5, "ms", "0.4 to 0.5 ms"),
        (24.0, 24.0, "count", "exactly 24"),
    ],
)
def test_limits(low, high, unit, said):
    """Open sides in words, a word's unit once."""
    assert wording.limits(Limits(low, high, "made up"), unit) == said


@pytest.mark.parametrize(
    ("measured", "expected", "unit", "said"),
    [
        (31.0, 28.0, "ms", "+10.71%"),
        (0.994, 0.94, "share", "+5.4 points"),
        (-0.2, -0.4, "x", "+50.00%"),
        (3.0, 0.0, "count", "+3"),
    ],
)
def test_change(measured, expected, unit, said):
    """C14: per cent of what was, points of a share, and no division by a zero baseline."""
    found = replace(compared("a", "b", 1.0, 1.0, 0.1), measured=measured, expected=expected, unit=unit)
    assert readings.change(found) == said


# ---- plots


def test_band_interval_and_value_share_an_axis():
    """A value outside its band lies right of it, and 1 is always on the axis."""
    (track,) = plots.plot("speedup", [FASTER], 10).off[FASTER.case]
    low, high = track.band
    assert 0 <= low < high < track.interval[0] <= track.value <= track.interval[1] <= plots.WIDTH
    assert track.value == pytest.approx(sum(track.interval) / 2, abs=0.2)
    slower = replace(FASTER, limits=Limits(1.2, 1.7, "made up"), measured=1.4, interval=None)
    assert 0 < plots.plot("latency_ratio", [slower], 10).axis.at(1.0) < plots.WIDTH


def test_open_limit_reaches_the_edge():
    """ "At most 1.0" has its band from the left edge on."""
    found = claimed("mnasnet/fp8-slower", "mnasnet_100-b1-fp8", 0.9)
    (track,) = plots.plot("speedup", [found], 10).held[found.case]
    assert track.band[0] == 0


def test_value_that_cannot_be_drawn_is_not():
    """C23: NaN has no place on an axis."""
    found = replace(FASTER, measured=nan, interval=None, outcome=Outcome.INVALID)
    (track,) = plots.plot("speedup", [found], 10).off[found.case]
    assert (track.value, track.interval) == (None, None)


@pytest.mark.parametrize(("low", "high"), [(0.9, 1.3), (0.994, 1.006), (0.0, 40.0), (-0.3, 0.2)])
def test_ticks(low, high):
    """Three to seven round numbers, all inside."""
    ticks = plots.Axis(low, high).ticks()
    assert 3 <= len(ticks) <= 7
    assert all(low <= tick <= high for tick in ticks)


def test_traces_share_a_scale_and_mark_the_second_time():
    """C15: a clock step shows in every line of its group, and a quiet group is not blown up to look like one."""
    quiet, stepped = (
        plots.traces(group) for group in documents.throttled().rounds if group.group in ("base-512-b1", "large-512-b1")
    )
    assert quiet.reach == plots.FINEST_TRACE
    assert stepped.reach > 0.15
    assert [line.again for line in quiet.lines] == [False, False, False, False, True]
    assert quiet.same == pytest.approx(1, abs=0.002)
    heights = [float(point.split(",")[1]) for point in stepped.lines[0].points.split()]
    assert min(heights[:4]) - max(heights[4:]) > plots.TRACE_HEIGHT / 4


@pytest.mark.parametrize("times", [{}, {"a": []}, {"a": [1.0, nan]}, {"a": [0.0, 1.0]}, {"a": [1.0]}])
def test_times_that_cannot_be_drawn(times):
    """C14, C25: none, not finite, zero, or one round: the page is whole, and says what was wrong."""
    group = timed("base-512-b1", rounds_ms=times, plain_ms={}, problems=["cannot be"])
    assert "cannot be" in page(replace(documents.upgrade(), rounds=[group])).text


def test_bars_of_one_group_compare():
    """C19: the longest case of a group fills the width, and the others are shorter by what their kernels save."""
    long, short = plots.bars(
        [
            Kernels("a-b1-fp16", {"ffn": 0.6, "dft": 0.4}, 1, None, []),
            Kernels("a-b1-fp8", {"ffn": 0.1, "dft": 0.4}, 1, None, []),
        ]
    )
    assert sum(part.width for part in long.segments) == pytest.approx(plots.WIDTH)
    assert sum(part.width for part in short.segments) == pytest.approx(plots.WIDTH / 2)
    assert [part.kind for part in long.segments] == [part.kind for part in short.segments]


def test_kernels_without_times():
    """C19: an empty trace is a bar without parts and its problem, and no division by zero."""
    empty = Kernels("base-512-b1-fp8", {}, 0.0, None, ["incomplete: nothing was traced"])
    assert "incomplete: nothing was traced" in page(replace(documents.upgrade(), kernels=[empty])).text
