"""The documented files say what the studies print, the print agrees with itself, and the claims with the print."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from fixtures.cases import studies
from fixtures.conclusions import Claim, claims, conclusions, parse_conclusions, tolerance
from fixtures.documented import Key, Printed, documented, parse_documented, printed
from fixtures.errors import InputError
from fixtures.strict import FOLDER

STUDIES = ("fnet", "mnasnet")
DIGESTS = {
    "fnet": "ea9489b4afba9d129e8f061fb0a51c8be8f1dbb3a4aefc98fbbb1089700cc5ac",
    "mnasnet": "0c428d50dafe9efc5fd77e12aa61ce8bbb79da7286a141a26eb1379201e26a4c",
}
STUDY_TEXTS = Path(__file__).parents[3] / "shared" / "studies"

# What multiplies the count of FP8 products to bytes of FP8 weights: hidden and intermediate size in config.json.
WEIGHT_BYTES = {"base": 768 * 3072, "large": 1024 * 4096}
MB, MIB = 1e6, 2**20


# ---------------------------------------------------------------------------------------------- arithmetic


@dataclass(frozen=True)
class Span:
    """An interval of values; arithmetic gives the interval of every possible result."""

    low: float
    high: float

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Span) -> Span:
        return Span(self.low - other.high, self.high - other.low)

    def __mul__(self, factor: float) -> Span:
        return Span(self.low * factor, self.high * factor)

    def __truediv__(self, other: Span) -> Span:
        return Span(self.low / other.high, self.high / other.low)


ONE = Span(1, 1)


def smallest(spans: Iterable[Span]) -> Span:
    spans = list(spans)
    return Span(min(span.low for span in spans), min(span.high for span in spans))


def largest(spans: Iterable[Span]) -> Span:
    spans = list(spans)
    return Span(max(span.low for span in spans), max(span.high for span in spans))


class Print:
    """A study's figures as spans by key; `used` collects the keys that an arithmetic rule read."""

    def __init__(self, figures: dict[Key, Printed]) -> None:
        self.figures = figures
        self.used: set[Key] = set()

    def __getitem__(self, key: Key) -> Span:
        self.used.add(key)
        return Span(self.figures[key].low, self.figures[key].high)

    def keys(self, figure: str, **fields: str) -> list[Key]:
        found = [key for key in self.figures if key.figure == figure]
        return [key for key in found if all(getattr(key, name) == value for name, value in fields.items())]

    def half(self, key: Key) -> Key:
        """The same figure of the half-precision case: fp16+hs where the study has it."""
        assert key.case is not None
        group = re.sub(r"-fp8.*$", "", key.case)
        scaled = key._replace(case=f"{group}-fp16+hs")
        return scaled if scaled in self.figures else key._replace(case=f"{group}-fp16")

    def ratio(self, latency: Key) -> Span:
        """Half precision's time over this case's."""
        return self[self.half(latency)] / self[latency]

    def ratios(self, suffix: str) -> list[Span]:
        """The ratio of every timed case on TensorRT 11.4 whose id ends so."""
        keys = self.keys("latency", tensorrt="11.4")
        return [self.ratio(key) for key in keys if key.case is not None and key.case.endswith(suffix)]


Rules = dict[Key, Span]


def common_rules(p: Print) -> Rules:
    """Ratios of times and changes of plan size, which every study prints."""
    rules = {key: p.ratio(key._replace(figure="latency")) for key in p.keys("speedup")}
    for key in p.keys("plan_change"):
        size = key._replace(figure="plan_size")
        rules[key] = p[size] / p[p.half(size)] - ONE
    return rules


def fnet_rules(p: Print) -> Rules:
    rules = common_rules(p)
    for case, suffix in (("b1", "-b1-fp8"), ("b8", "-b8-fp8"), ("fp8-no-output-dense", "-fp8-no-output-dense")):
        rules[Key("speedup_min", case, None, "11.4")] = smallest(p.ratios(suffix))
        rules[Key("speedup_max", case, None, "11.4")] = largest(p.ratios(suffix))
    for case in ("fp16", "fp8"):
        keys = p.keys("agreement", gpu="B200", tensorrt="11.4")
        spans = [p[key] for key in keys if key.case is not None and f"-{case}" in key.case]
        rules[Key("agreement_min", case, None, "11.4")] = smallest(spans)
        rules[Key("agreement_max", case, None, "11.4")] = largest(spans)
    rules[Key("dft_headroom", "large-256")] = ONE - p[Key("dft_abs_max", "large-256")] / p[Key("fp16_max")]
    rules[Key("scan_sentences")] = p[Key("sts_pairs")] * 2
    for model, size in WEIGHT_BYTES.items():
        weights = Key("fp8_weights", model)
        rules[weights] = p[Key("fp8_gemms", model)] * (size / MB)
        fp8 = Key("plan_size", f"{model}-512-b1-fp8", "B200", "11.4")
        rules[fp8] = p[p.half(fp8)] - p[weights] * (MB / MIB)  # a weight goes from two bytes to one, the rest stays
    return rules | kernel_rules(p)


def kernel_rules(p: Print) -> Rules:
    """FNet's text on kernel time, from the table: fp16's feed-forward GEMMs are what FP8's other GEMMs lack."""
    rules, shares, cuts = {}, [], []
    for fp8 in p.keys("kernel_ffn_gemms"):
        half = p.half(fp8._replace(figure="kernel_other_gemms"))
        sequence, other = half._replace(figure="kernel_sequence_dft"), half._replace(figure="kernel_other")
        ffn = p[half] - p[fp8._replace(figure="kernel_other_gemms")]
        total = p[sequence] + p[half] + p[other]
        rules[half._replace(figure="kernel_ffn_gemms_about")] = ffn
        rules[fp8._replace(figure="kernel_ffn_gemms_about")] = p[fp8]
        if (share := half._replace(figure="sequence_dft_share")) in p.figures:
            rules[share] = p[sequence] / total
        shares.append(ffn / total)
        cuts.append(ONE - p[fp8] / ffn)
    base = Key("ffn_share_min", "base", "B200", "11.4")
    for figure, spans in (("ffn_share", shares), ("ffn_shorter", cuts)):
        rules[base._replace(figure=f"{figure}_min")] = smallest(spans)
        rules[base._replace(figure=f"{figure}_max")] = largest(spans)
    hidden = Key("kernel_hidden_dft", "base-512-b1-fp8", "B200", "11.4")
    rules[hidden] = Span(0, p[hidden._replace(figure="kernel_other_gemms")].high)
    rules[p.half(hidden)] = p[hidden]  # "the same in both builds"
    return rules


def mnasnet_rules(p: Print) -> Rules:
    rules = common_rules(p)
    both = Key("speedup_min", "b32+b128", None, "11.4")
    rules[both] = Span(0, smallest(p.ratios("-b128-fp8")).high)  # the times at batch 32 are not printed
    rules[both._replace(figure="speedup_max")] = Span(largest(p.ratios("-b128-fp8")).low, math.inf)
    images = Key("held_out_images")
    for key in p.keys("top1") + p.keys("agreement") + p.keys("top1_reference"):
        share = round(p.figures[key].value * p[images].low) / p[images].low  # a whole number of images
        rules[key] = Span(share, share)
    rules[Key("images")] = p[images] + p[Key("calibration_images")]
    return rules


RULES: dict[str, Callable[[Print], Rules]] = {"fnet": fnet_rules, "mnasnet": mnasnet_rules}


def apart(span: Span, figure: Printed) -> bool:
    """Whether no value is in both; 1e-9 is what floats may be off."""
    return span.high < figure.low - 1e-9 or span.low > figure.high + 1e-9


def faults(study: str, figures: dict[Key, Printed]) -> set[Key]:
    """Where the print disagrees with its arithmetic: a contradiction that is no erratum, an erratum that is none any
    more, or one that is not the declared one."""
    errata = documented(study).errata
    rules = RULES[study](Print(figures))
    contradicted = {key for key, span in rules.items() if apart(span, figures[key])}
    return (contradicted ^ errata.keys()) | {key for key in errata if apart(rules[key], errata[key].computed)}


def number(figure: Printed) -> str:
    found = re.match(r"-?[\d.]+", figure.text)
    assert found is not None, figure
    return found[0]


def edited(figure: Printed) -> list[Printed]:
    """The figure with one of its digits one higher or lower, for each digit."""
    digits, unit = number(figure), "%" if figure.text.endswith("%") else figure.unit
    at = [i for i, digit in enumerate(digits) if digit.isdigit()]
    return [
        printed(f"{digits[:i]}{(int(digits[i]) + step) % 10}{digits[i + 1 :]}", unit) for i in at for step in (1, -1)
    ]


def behind_a_quotient(figures: dict[Key, Printed]) -> set[Key]:
    """The printed speed-ups and changes of plan size, and the times and sizes that they are quotients of."""
    p, found = Print(figures), set[Key]()
    for quotient, figure in (("speedup", "latency"), ("plan_change", "plan_size")):
        for key in p.keys(quotient):
            value = key._replace(figure=figure)
            found |= {key, value, p.half(value)}
    return found


@pytest.mark.parametrize("study", STUDIES)
def test_print_agrees_with_itself(study: str) -> None:
    """Every printed ratio, percentage and range follows from other printed figures within rounding, errata excepted."""
    assert faults(study, dict(documented(study))) == set()


@pytest.mark.parametrize("study", STUDIES)
def test_edit_of_a_ratio_or_its_times_is_seen(study: str) -> None:
    """A digit that changes a speed-up, a plan's change or a time or size behind one by 2% breaks the arithmetic."""
    figures = dict(documented(study))
    for key in behind_a_quotient(figures) - documented(study).errata.keys():
        was = figures[key]
        for edit in edited(was):
            if abs(edit.value - was.value) >= 0.02 * abs(was.value):
                assert faults(study, figures | {key: edit}), f"{key}: {was} as {edit}"


@pytest.mark.parametrize("study", STUDIES)
def test_every_figure_behind_a_rule_is_held_by_it(study: str) -> None:
    """No rule is idle: for each figure that one reads there is an edit of one digit that it sees."""
    figures = dict(documented(study))
    p = Print(figures)
    held = (RULES[study](p).keys() | p.used) - documented(study).errata.keys()
    idle = {key for key in held if not any(faults(study, figures | {key: edit}) for edit in edited(figures[key]))}
    assert idle == set()


def test_erratum_that_is_mended_is_seen() -> None:
    """An erratum is declared only as long as the print contradicts itself."""
    found = documented("fnet")
    assert found.errata
    for key, erratum in found.errata.items():
        assert faults("fnet", dict(found) | {key: erratum.computed}) == {key}


@pytest.mark.parametrize("study", STUDIES)
def test_file_is_unchanged(study: str) -> None:
    """No figure is edited by accident, also where no arithmetic covers it."""
    text = (FOLDER / "documented" / f"{study}.toml").read_bytes()
    message = "documented files carry the study's print; a change needs an erratum (and then a new digest here)"
    assert hashlib.sha256(text).hexdigest() == DIGESTS[study], message


# ---------------------------------------------------------------------------------------------- the study's text

# What a study's text holds beside figures: dates, pull requests, versions, revisions, and names with digits in them.
NOT_FIGURES = re.compile(
    r"\d{4}-\d\d-\d\d|request\s+\d+|\b[0-9a-f]{40}\b|TensorRT 11(\.\d+)+|\b\d+(\.\d+){2,}|\| 11\.\d \||CUDA 13|^\d\. "
    r"|mnasnet_100|[Ww]iki[Tt]ext-2|2D|FP\d|fp\d+|dft32|TF32|NVFP4|4 bits|\b[BH]\d00|\bL2\b|top-1|p99",
    re.MULTILINE,
)
ELSEWHERE = {
    "fnet": {"128": "a window, so part of a case id", "1.107": "in an erratum"},
    "mnasnet": {
        "128": "a batch, so part of a case id",
        "3": "a level, so in the name of fp16-opt3",
        "0.906": "no erratum",
    },
}


def numbers(text: str) -> list[str]:
    """The numbers of a text without their thousands separators and signs."""
    return re.findall(r"\d+(?:\.\d+)?(?:e[-+]\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text))


@cache
def study_text(study: str) -> str:
    path = STUDY_TEXTS / f"{study}.md"
    if not path.is_file():
        pytest.skip(f"the study's text is not beside this repository: {path}")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("study", STUDIES)
def test_every_figure_is_in_the_study(study: str) -> None:
    """No documented figure is made up."""
    there = set(numbers(study_text(study)))
    assert {
        str(key): figure.text for key, figure in documented(study) if not there.issuperset(numbers(figure.text))
    } == {}


@pytest.mark.parametrize("study", STUDIES)
def test_every_number_of_the_study_is_documented(study: str) -> None:
    """No figure of the study is left out, and its tables have as many of each as the file."""
    text = NOT_FIGURES.sub(" ", study_text(study))
    here = Counter(digits for _, figure in documented(study) for digits in numbers(figure.text))
    assert set(numbers(text)) - here.keys() == ELSEWHERE[study].keys()
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    assert not Counter(digits for digits in numbers(rows) if "." in digits) - here


# ---------------------------------------------------------------------------------------------- the reader


@pytest.mark.parametrize(
    ("digits", "unit", "expected"),
    [
        ("0.752", "ms", ("0.752 ms", 0.752, 0.7515, 0.7525, "ms")),
        ("0.690", "ms", ("0.690 ms", 0.69, 0.6895, 0.6905, "ms")),
        ("93.99", "%", ("93.99%", 0.9399, 0.93985, 0.93995, "share")),
        ("-33", "%", ("-33%", -0.33, -0.335, -0.325, "share")),
        ("5.9e-06", "nats", ("5.9e-06 nats", 5.9e-06, 5.85e-06, 5.95e-06, "nats")),
        ("1.05", "x", ("1.05x", 1.05, 1.045, 1.055, "x")),
        ("293/300", "share", ("293/300", 293 / 300, 293 / 300, 293 / 300, "share")),
        ("24", "count", ("24", 24, 24, 24, "count")),
    ],
)
def test_printed_interval(digits: str, unit: str, expected: tuple[str, float, float, float, str]) -> None:
    """A printed figure stands for the values that round to its digits, trailing zeros counted."""
    found = printed(digits, unit)
    assert (found.text, found.unit) == (expected[0], expected[4])
    assert (found.value, found.low, found.high) == pytest.approx(expected[1:4], rel=1e-12)


@pytest.mark.parametrize(
    ("study", "key", "text"),
    [
        ("fnet", ("latency", "base-512-b1-fp16+hs", "B200", "11.4"), "0.752 ms"),
        ("fnet", ("latency", "base-512-b1-fp16", "B200", "11.4"), "0.756 ms"),
        ("fnet", ("latency", "base-256-b1-fp8", "B200", "11.1"), "0.468 ms"),
        ("fnet", ("agreement", "base-512-b1-fp8", "B300", "11.4"), "94.14%"),
        ("fnet", ("sts_spearman", "large-256-b1-fp8", "B200", "11.4"), "0.1690"),
        ("fnet", ("nonfinite_share", "base-512-b1-fp16", "B200", "11.1"), "98/100"),
        ("fnet", ("plan_change", "large-512-b1-fp8"), "-42%"),
        ("fnet", ("held_out_passages",), "300"),
        ("fnet", ("fp8_gemms", "large", "B300", "11.1"), "48"),
        ("mnasnet", ("latency", "mnasnet_100-b1-fp16-opt3", "B300"), "0.158 ms"),
        ("mnasnet", ("top1", "mnasnet_100-b1-fp16", "B300", "11.4"), "75.00%"),
    ],
)
def test_figure_is_found(study: str, key: tuple[str, ...], text: str) -> None:
    """A row of the study is one call; a GPU that the study does not tie a figure to fits any."""
    assert documented(study).figure(*key).text == text


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (("agrement", "base-512-b1-fp8"), "near: .*agreement of base-512-b1-fp8 on B200"),
        (("latency", "base-512-b1-fp9", "B200"), "no latency of base-512-b1-fp9 on B200; near: .*base-512-b1-fp8"),
        (("latency", "base-128-b1-fp8", "B200", "11.1"), "near: .*base-128-b1-fp8 on B200 with TensorRT 11.4"),
        (("agreement", "base-512-b1-fp8"), "more than once: .*B300 .*TensorRT 11.1"),
    ],
)
def test_figure_that_is_not_one_is_an_error(key: tuple[str, ...], message: str) -> None:
    """A figure that is not printed, or printed for several GPUs, never becomes another one."""
    with pytest.raises(LookupError, match=message):
        documented("fnet").figure(*key)


SMALL = """
study = "small"
source = "a test"
gpus = ["B200"]
[pins]
m = "a/b@c"
[software]
torch = "2"
[tensorrt]
"11.4" = "11.4.0.106"
[figures]
latency = { unit = "ms", meaning = "time" }
[[table]]
title = "Speed"
tensorrt = "11.4"
columns = ["group", "gpu", "latency fp16", "latency fp8"]
rows = [["m-b1", "B200", 0.20, "-"]]
"""


def test_small_file_is_read() -> None:
    """A third study needs a file, not code; "-" is no figure."""
    found = parse_documented(SMALL, "small.toml")
    assert [(str(key), figure.text) for key, figure in found] == [
        ("latency of m-b1-fp16 on B200 with TensorRT 11.4", "0.20 ms")
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('source = "a test"', "", "source: .*required"),
        ('source = "a test"', 'source = "a test"\nauthor = "x"', "author: Unexpected"),
        ('source = "a test"', "source = 1.5", "source: .*valid string"),
        ('source = "a test"', 'source = "a test"\nsource = "b"', "not TOML"),
        ('source = "a test"', "source = 2026-11-30", "not TOML of texts and numbers"),
        ('unit = "ms"', 'unit = "ms", digits = 3', "figures.latency.digits: Unexpected"),
        ("0.20", "nan", "latency of m-b1-fp16 .*'nan' is neither"),
        ("0.20", "-inf", "latency of m-b1-fp16 .*'-inf' is neither"),
        ("0.20", "true", "table.0.rows.0.2"),
        ("0.20", '"NaN"', "'NaN' is neither"),
        ("0.20", '"1/0"', "'1/0' is neither"),
        ('0.20, "-"', "0.20", "row m-b1 has 3 cells for 4 columns"),
        ('"B200", 0.20', '"B300", 0.20', "'B300' is not one of B200"),
        ('tensorrt = "11.4"', 'tensorrt = "11.5"', "'11.5' is not one of 11.4"),
        ('tensorrt = "11.4"', "tensorrt = 11.4", "table.0.tensorrt: .*valid string"),
        ("rows = [", 'rows = [["m-b1", "B200", 0.21, "-"], ', "latency of m-b1-fp16 on B200.* is printed twice"),
        ('"latency fp8"]', '"latency fp16"]', "a column is there twice"),
        ('"latency fp8"]', '"latency"]', "column 'latency': a variant goes with"),
        (
            '"-"]]',
            '0.1]]\n[[erratum]]\nfigure = "latency"\ncomputed = 1.0\nreason = "x"',
            "erratum: latency is in no table",
        ),
    ],
)
def test_odd_file_is_refused_by_name(old: str, new: str, message: str) -> None:
    """C23: a field too many or too few, another type, NaN, or the same figure twice names the file and the place."""
    assert old in SMALL
    with pytest.raises(InputError, match=f"small.toml: .*{message}") as caught:
        parse_documented(SMALL.replace(old, new), "small.toml")
    assert "\n" not in str(caught.value)


def test_undeclared_and_unused_figures_are_refused() -> None:
    """A misspelt figure is neither read nor forgotten."""
    with pytest.raises(InputError, match="'latincy' is not declared"):
        parse_documented(SMALL.replace("latency fp16", "latincy fp16"), "small.toml")
    with pytest.raises(InputError, match="no table has figure speed"):
        parse_documented(SMALL.replace("[figures]", '[figures]\nspeed = { unit = "x", meaning = "y" }'), "small.toml")


def test_unknown_study_is_named() -> None:
    """A study without a documented file is an error that names it."""
    with pytest.raises(InputError, match="no documented figures for study 'fnett'"):
        documented("fnett")


@pytest.mark.parametrize("study", studies())
def test_documented_cases_are_of_the_grid(study: str) -> None:
    """A figure that is filed under a whole case id belongs to a case that the suite has, with the weights it pins."""
    grid = {case.id for case in studies()[study].cases}
    odd = {key.case for key, _ in documented(study) if key.case and re.search(r".-b\d+-.", key.case)} - grid
    assert odd == set()
    pins = studies()[study].checkpoints | studies()[study].datasets
    assert documented(study).pins.items() <= {name: f"{pin.repo}@{pin.revision}" for name, pin in pins.items()}.items()


# ---------------------------------------------------------------------------------------------- claims


def printed_spans(study: str, figure: str, case: str) -> list[Span]:
    """What the study's print gives for a claim's figure and case, on every GPU and TensorRT: as printed, or derived."""
    p = Print(dict(documented(study)))
    model, _, variant = case.rpartition(re.search(r"-b\d+-", case)[0])  # type: ignore[index]

    def of(name: str, at: str = case, **fields: str) -> list[Key]:
        return p.keys(name, case=at, **fields)

    parts = (case, model, model.split("-")[0], variant)
    direct = [p[key] for part in parts for key in of(figure, part)]
    if direct:
        return direct
    match figure:
        case "speedup":
            return [p.ratio(key) for key in of("latency")]
        case "plan_change":
            return [p[key] / p[p.half(key)] - ONE for key in of("plan_size")]
        case "kernel_ratio":
            return [p[key] / p[p.half(key)] for key in of("kernel_total")]
        case "agreement_loss":
            return [p[p.half(key)] - p[key] for key in of("agreement", gpu="B200", tensorrt="11.4")]
        case "top1_loss":
            return [p[p.half(key._replace(gpu=None))] - p[key] for key in of("top1")]
        case "kl_ratio":
            fp8 = case.removesuffix("-no-output-dense")
            return [p[key] / p[key._replace(case=fp8)] for key in of("kl_mean")]
        case "sts_spearman_loss":
            return [p[Key("sts_spearman_reference", model)] - p[key] for key in of("sts_spearman")]
        case "prompt_cls_cosine":
            return [p[Key(figure, f"{model.split('-')[1]}-{variant}")]]
        case "latency_ratio":
            stated = [p[key] for end in ("min", "max") for key in of(f"slowdown_{end}", variant)]
            scaled = re.sub(r"fp16(-opt3)?$", "fp16+hs" if study == "fnet" else "fp16", case)
            return stated or [p[key] / p[key._replace(case=scaled)] for key in of("latency")]
        case "latency_ratio_11_1":
            return [p[key] / p[key._replace(tensorrt="11.4")] for key in of("latency", tensorrt="11.1")]
        case "ffn_share":
            return [p[key] / kernel_total(p, key) for key in of("kernel_ffn_gemms_about")]
        case "ffn_shorter":
            return [ONE - p[key] / p[p.half(key)] for key in of("kernel_ffn_gemms_about")]
        case "free_dft_speedup":
            return [without_dft(p, p.half(key)) / without_dft(p, key) for key in of("kernel_other_gemms")]
        case _:
            return []


def kernel_total(p: Print, key: Key) -> Span:
    parts = [key._replace(figure=f"kernel_{part}") for part in ("sequence_dft", "other_gemms", "ffn_gemms", "other")]
    return sum((p[part] for part in parts if part in p.figures), Span(0, 0))


def without_dft(p: Print, key: Key) -> Span:
    parts = [key._replace(figure=f"kernel_{part}") for part in ("other_gemms", "ffn_gemms", "other")]
    return sum((p[part] for part in parts if part in p.figures), Span(0, 0))


def broken_by_the_print(claim: Claim) -> list[str]:
    """The claim's cases whose printed figures are not wholly within its limits."""
    low, high = claim.limits.lowest - 1e-9, claim.limits.highest + 1e-9
    spans = [(case, span) for case in claim.cases for span in printed_spans(claim.study, claim.figure, case)]
    return [f"{case}: {span}" for case, span in spans if not low <= span.low <= span.high <= high]


# Claims that the studies state in words, or that no printed figure of their cases bears on.
IN_WORDS = {
    "fnet/fp32-is-the-reference",
    "fnet/same-engine-twice",
    "mnasnet/same-engine-twice",
    "mnasnet/fp8-slower-at-level-3",
    "fnet/no-collapsed-rows",
    "fnet/fp16-finite-at-256-and-128",
    "fnet/fp16-hs-finite-at-512",
    "fnet/fp16-dft32-finite-at-512",
    "fnet/fp8-finite",
    "fnet/fp8-constants-base",
    "fnet/fp8-constants-large",
    "mnasnet/finite",
    "mnasnet/fp32-is-the-reference",
    "mnasnet/digits-are-read",
    "mnasnet/fp32-top1",
    "mnasnet/fp16-predicts-as-pytorch",
    "mnasnet/fp16-agrees-with-pytorch",
    "mnasnet/fp8-changes-logits",
    "mnasnet/fake-quantization-as-engine",
    "mnasnet/fp8-weights",
    "mnasnet/fp8-constants",
}


@pytest.mark.parametrize("study", STUDIES)
def test_claims_hold_on_the_print(study: str) -> None:
    """No limit contradicts the study it is taken from, and every claim but those in words was held against figures."""
    found = claims(study)
    assert {id: broken for id, claim in found.items() if (broken := broken_by_the_print(claim))} == {}
    bare = {
        id for id, claim in found.items() if not any(printed_spans(study, claim.figure, case) for case in claim.cases)
    }
    assert bare == {id for id in IN_WORDS if id.startswith(f"{study}/")}


@pytest.mark.parametrize(
    ("id", "low", "high"),
    [
        ("fnet/fp16-not-finite-at-512", 0.98, None),
        ("fnet/fp8-barely-faster", 1.0, 1.1),
        ("fnet/fp8-loses-agreement", 0.05, None),
        ("fnet/fp8-no-output-dense-kl", 0.35, 0.6),
        ("fnet/free-dft-not-enough", None, 1.1),
        ("mnasnet/fp8-slower", None, 0.9),
        ("mnasnet/fp16-faster-at-level-3", None, 0.7),
    ],
)
def test_limit_that_contradicts_the_print_is_seen(id: str, low: float | None, high: float | None) -> None:
    """A limit edited past the printed figures breaks its claim, derived figures included."""
    claim = conclusions().claims[id]
    assert broken_by_the_print(replace(claim, limits=replace(claim.limits, low=low, high=high)))


@pytest.mark.parametrize("study", STUDIES)
def test_claims_quote_the_print(study: str) -> None:
    """The numbers that a claim says are documented are printed in the study, and its statement is one sentence."""
    there = {digits for _, figure in documented(study) for digits in numbers(figure.text)}
    for claim in claims(study).values():
        words = re.sub(r"TensorRT 11\.\d|B\d00|FP8|fp16|batch \d+( and \d+)?|at \d+", "", claim.documented)
        assert there.issuperset(numbers(words)), claim.id
        assert re.fullmatch(r"[^\n]+\.", claim.statement), claim.id


@pytest.mark.parametrize("study", studies())
def test_claims_are_of_the_grid(study: str) -> None:
    """A claim's case is one that the suite has."""
    grid = {case.id for case in studies()[study].cases}
    assert {case for claim in claims(study).values() for case in claim.cases} <= grid


def test_units_are_the_documented_ones() -> None:
    """A figure that is both printed and claimed has one unit."""
    printed_units = {(key.figure, figure.unit) for study in STUDIES for key, figure in documented(study)}
    for claim in conclusions().claims.values():
        known = {unit for figure, unit in printed_units if figure == claim.figure}
        assert known <= {claim.unit}, claim.id


@pytest.mark.parametrize(
    ("figure", "baseline", "inside", "outside"),
    [
        ("kl_mean", 0.0095, 0.0097, 0.0107),
        ("kl_mean", 5.9e-06, 1.2e-05, 3e-05),
        ("latency", 28.0, 28.4, 31.0),
        ("latency", 28.0, 27.5, 25.0),
        ("agreement", 0.9399, 0.9414, 0.90),
        ("fp8_gemms", 24, 24, 23),
    ],
)
def test_tolerance_is_two_sided(figure: str, baseline: float, inside: float, outside: float) -> None:
    """C03: what rebuilds and GPUs change is inside a figure's band, a gain as large as the loss is outside."""
    limits = tolerance(figure).around(baseline, 10**6)
    assert limits.lowest <= inside <= limits.highest
    assert not limits.lowest <= outside <= limits.highest
    assert limits.reason


SMALL_CLAIMS = """
[figure]
speedup = { unit = "x", meaning = "a ratio" }
[claim.small.faster]
statement = "FP8 is faster."
figure = "speedup"
cases = ["m-b1-fp8"]
min = 1.0
documented = "1.05x"
reason = "faster"
inputs = "any"
needs = "gpu"
[tolerance]
speedup = { absolute = 0.02, reason = "noise" }
"""


def test_small_claims_are_read() -> None:
    """A third study's claims need entries, not code."""
    (claim,) = parse_conclusions(SMALL_CLAIMS).claims.values()
    assert (claim.id, claim.study, claim.unit, str(claim.limits)) == ("small/faster", "small", "x", "at least 1")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("min = 1.0", "min = nan", "claim.small.faster.min: .*finite"),
        ("min = 1.0", "max = inf", "claim.small.faster.max: .*finite"),
        ("min = 1.0", "min = true", "claim.small.faster.min"),
        ("min = 1.0", 'min = "1.0"', "claim.small.faster.min"),
        ("min = 1.0", "", "small/faster: limits: low and high are both None"),
        ("min = 1.0", "min = 1.0\nmax = 0.9", "small/faster: limits: low 1 is above"),
        ("min = 1.0", "min = 1.0\nlow = 1.0", "claim.small.faster.low: Unexpected"),
        ('reason = "faster"', 'reason = ""', "small/faster: limits: reason is empty"),
        ('reason = "faster"', "", "claim.small.faster.reason: .*required"),
        ('figure = "speedup"', 'figure = "speedups"', "small/faster: figure 'speedups' is not declared"),
        ('"m-b1-fp8"', "", "claim.small.faster.cases"),
        ('"m-b1-fp8"', '"m-b1-fp8", "m-b1-fp8"', "small/faster: a case is there twice"),
        ('needs = "gpu"', 'needs = "cuda"', "claim.small.faster.needs"),
        ("[tolerance]", "[claim.small.faster]\n[tolerance]", "not TOML"),
        ("absolute = 0.02", "absolute = -0.02", "tolerance.speedup.absolute"),
        ("absolute = 0.02", "absolute = nan", "tolerance.speedup.absolute: .*finite"),
        ("speedup = { absolute", "speedups = { absolute", "speedup, speedups is under"),
    ],
)
def test_odd_claim_is_refused_by_name(old: str, new: str, message: str) -> None:
    """C23: a limit that is NaN, a text or a boolean, or without a reason names the claim and the field."""
    assert old in SMALL_CLAIMS
    with pytest.raises(InputError, match=f"conclusions.toml: .*{message}") as caught:
        parse_conclusions(SMALL_CLAIMS.replace(old, new))
    assert "\n" not in str(caught.value)


def test_absent_claims_and_tolerances_are_named() -> None:
    """Nothing to hold a study or a figure against is an error, not a pass."""
    with pytest.raises(InputError, match="no claim of study 'fnett'"):
        claims("fnett")
    with pytest.raises(InputError, match="no tolerance for figure 'kl'"):
        tolerance("kl")
