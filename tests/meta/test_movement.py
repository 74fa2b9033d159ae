"""Whether figures moved, against a baseline and against the study's print, and what becomes a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from math import nan
from pathlib import Path

import onnxruntime
import pytest

from fixtures import movement
from fixtures.baselines import Choice, Figure, Inputs, Measured, Origin
from fixtures.cases import Case, studies
from fixtures.conclusions import conclusions, tolerance
from fixtures.documented import Printed, documented
from fixtures.engines.base import Runtime
from fixtures.errors import InputError
from fixtures.gpus import Probe
from fixtures.movement import (
    CaseFigures,
    against_print,
    as_figures,
    compare,
    environment,
    of_claim,
    printed_for,
    problems_of,
)
from fixtures.setup import Setup
from fixtures.verdicts import UNDRIFTED, Interval, Measurement, share_interval
from tests.meta.setups import B200, B300, H200, NONE, made
from tests.meta.tiny import one_line

FP8 = Case("fnet", "base", 512, 1, "fp8")
FIGURES = {
    "agreement": Figure(0.94, "share", 3000),
    "cls_cosine_mean": Figure(0.997, "", 300),
    "fp8_gemms": Figure(24, "count", 1),
    "kl_mean": Figure(0.01, "nats", 300),
}


def sha(text: str) -> str:
    return (text * 64)[:64]


def inputs(model: str = "base", window: int = 512) -> Inputs:
    return Inputs({model: Origin("made up", sha("a"))}, {f"{model}-{window}": Origin("made up", sha("b"))})


def case_figures(case: str = FP8.id, figures: Mapping[str, Figure] = FIGURES, of: Inputs | None = None) -> CaseFigures:
    return CaseFigures(case, sha("c"), of or inputs(), figures)


@pytest.fixture
def choice() -> Choice:
    """A baseline of FIGURES."""
    recorded = Measured(
        study="fnet",
        engine="onnxruntime",
        version="1.31.1",
        device="cpu",
        recorded=date(2026, 11, 30),
        environment={"python": "3.11.9"},
        inputs=inputs(),
        graphs={FP8.id: sha("c")},
        figures={FP8.id: FIGURES},
        builds=1,
        canaries={},
        telemetry={},
        accepted={},
    )
    return Choice(recorded, "onnxruntime 1.31.1 on cpu")


# ---- against a baseline


def outcomes(choice: Choice, **changed: float) -> dict[str, str]:
    """Each figure's outcome, with those of `changed` in place of what was recorded."""
    figures = {name: replace(FIGURES[name], value=changed.get(name, FIGURES[name].value)) for name in FIGURES}
    return {verdict.figure: verdict.outcome.value for verdict in compare(choice, case_figures(figures=figures))}


def test_same_figures_hold(choice):
    """Every figure is compared, and one that did not move holds."""
    assert outcomes(choice) == dict.fromkeys(FIGURES, "holds")


@pytest.mark.parametrize(
    ("figure", "inside", "outside"),
    [
        ("kl_mean", (0.0091, 0.0109), (0.0089, 0.0111)),  # a tenth of it
        ("agreement", (0.9351, 0.9449), (0.9349, 0.9451)),  # 0.005
        ("fp8_gemms", (24.0, 24.0), (23, 25)),  # a count
    ],
)
def test_moved_either_way_is_red(choice, figure, inside, outside):
    """C03: inside its tolerance a figure holds, beyond it has moved, be it worse or better, and the rest hold."""
    for value in inside:
        assert outcomes(choice, **{figure: value}) == dict.fromkeys(FIGURES, "holds")
    for value in outside:
        assert outcomes(choice, **{figure: value}) == dict.fromkeys(FIGURES, "holds") | {figure: "moved"}


def test_few_samples_move_a_share_further():
    """Of 50 masked words two may turn on another CPU; of 3,000 no share moves by more than the tolerance."""
    assert str(tolerance("agreement").around(0.9, 50)) == "0.86 to 0.94"
    assert str(tolerance("agreement").around(0.9, 3000)) == "0.895 to 0.905"


THROTTLED = "throttled: hw_thermal_slowdown in 12 of 40 samples"


def test_figure_with_a_problem_is_invalid_and_never_moved(choice):
    """C15: a throttled GPU is no regression, however far the figure is from the baseline, and however near."""
    for value in (0.94, 0.5):
        figures = FIGURES | {"agreement": Figure(value, "share", 3000)}
        found = replace(case_figures(figures=figures), problems={"agreement": THROTTLED})
        verdicts = {verdict.figure: verdict for verdict in compare(choice, found)}
        assert (verdicts["agreement"].outcome, verdicts["agreement"].note) == ("invalid", THROTTLED)
        assert verdicts["kl_mean"].outcome == "holds"


def test_what_a_recorded_build_gave_has_not_moved(choice):
    """C03 d: builds of one graph differ, and a figure that one of them had is no movement, whatever the tolerance."""
    seen = replace(FIGURES["kl_mean"], low=0.0089, high=0.0120)
    assert choice.measured is not None
    wide = replace(choice, measured=replace(choice.measured, figures={FP8.id: FIGURES | {"kl_mean": seen}}))
    for value, outcome in ((0.0089, "holds"), (0.0120, "holds"), (0.0088, "moved"), (0.0121, "moved")):
        assert outcomes(wide, kl_mean=value)["kl_mean"] == outcome, value
    (verdict,) = (each for each in compare(wide, case_figures()) if each.figure == "kl_mean")
    assert verdict.limits is not None
    assert verdict.limits.reason.endswith("widened to what the recorded builds gave")


def test_comparison_with_the_pinned_record_is_its_own(choice):
    """A drift is not the same finding as a movement since the newest record."""
    assert {verdict.claim for verdict in compare(choice, case_figures(), UNDRIFTED)} == {UNDRIFTED}


def test_pinned_record_may_lack_what_the_study_has_gained(choice):
    """A new figure, variant or case has nothing to drift from; what both have is still compared."""
    gained = case_figures(figures=FIGURES | {"kl_p99": Figure(0.1, "nats", 300)})
    assert {verdict.figure for verdict in compare(choice, gained, UNDRIFTED)} == FIGURES.keys()
    assert compare(choice, case_figures("base-512-b1-fp16+hs"), UNDRIFTED) == []


def test_problems_are_kept_by_figure():
    """What a measurement says of itself goes with the record; a sound one says nothing."""
    sound, throttled = Measurement(1.0, 9), Measurement(1.0, 9, problems=("throttled", "clock step"))
    assert problems_of({"speedup": sound, "latency": throttled}) == {"latency": "throttled; clock step"}


@pytest.mark.parametrize("bad", [nan, float("inf")])
def test_figure_that_is_not_finite_is_invalid(choice, bad):
    """C23: NaN is within no tolerance."""
    assert outcomes(choice, kl_mean=bad)["kl_mean"] == "invalid"


def test_verdict_says_what_it_was(choice):
    """The message has the recorded value and where it is from."""
    (verdict,) = (each for each in compare(choice, case_figures()) if each.figure == "cls_cosine_mean")
    assert (verdict.baseline, verdict.case) == ("0.997 (onnxruntime 1.31.1 on cpu)", FP8.id)
    assert "0.01 nats (onnxruntime 1.31.1 on cpu)" in compare(choice, case_figures())[-1].message()


def test_movement_within_the_noise_is_none(choice):
    """C03: a figure whose group is further from itself than the band is wide says nothing, near or far."""
    for value in (0.94, 0.5):
        figures = FIGURES | {"agreement": Figure(value, "share", 9, noise=0.1)}
        verdicts = {verdict.figure: verdict for verdict in compare(choice, case_figures(figures=figures))}
        assert verdicts["agreement"].outcome == "invalid"
        assert "noise: one engine is up to 10.00% from itself" in verdicts["agreement"].note
        assert verdicts["kl_mean"].outcome == "holds"
    quiet = FIGURES | {"agreement": Figure(0.94, "share", 9, noise=0.001)}
    assert {each.outcome.value for each in compare(choice, case_figures(figures=quiet))} == {"holds"}


def test_figure_keeps_how_sure_it_is():
    """Interval and noise of the build that counts stand in the record."""
    builds = [
        Measurement(value, 9, Interval(value - 0.01, value + 0.01, 0.96, "made up"), noise=value / 1000)
        for value in (1.2, 1.0, 1.1)
    ]
    found = as_figures(*({"speedup": build} for build in builds))["speedup"]
    assert (found.value, found.low, found.high) == (1.1, 1.0, 1.2)
    assert (found.interval, found.noise) == (builds[2].interval, builds[2].noise)


def test_noisy_machine_flips_no_conclusion():
    """C15: one engine that is not as fast as itself is the machine's fault, and nothing of the study's."""
    noise = conclusions().claims["fnet/same-engine-twice"]
    far = Measurement(1.009, 9, Interval(1.006, 1.012, 0.96, "made up"))
    verdict = of_claim(noise, "base-512-b1-fp16+hs", far)
    assert (verdict.outcome, verdict.note) == (
        "invalid",
        "one engine is not as fast as itself: this machine is too noisy to time",
    )
    speed = conclusions().claims["fnet/fp8-barely-faster"]
    assert of_claim(speed, FP8.id, replace(far, value=1.3, interval=None, exact=True)).outcome == "flipped"


def share(value: float) -> dict[str, Figure]:
    """What a case has of which this share of 300 rows is not finite."""
    found = {
        "nonfinite_share": Figure(value, "share", 300),
        "latency": Figure(1.0, "ms", 9),
        "fp8_gemms": FIGURES["fp8_gemms"],
    }
    return found if value else found | FIGURES


@pytest.mark.parametrize(
    ("before", "here", "outcome", "words"),
    [
        (0.0, 1.0, "moved", "not finite here alone: not compared is agreement, cls_cosine_mean, kl_mean"),
        (0.0, 1 / 300, "moved", "not finite here alone"),
        (1.0, 0.0, "moved", "not finite in the baseline alone: not compared is agreement"),
        (1.0, 0.99, "holds", ""),
        (0.0, 0.0, "holds", ""),
    ],
)
def test_rows_that_are_finite_on_one_side_alone(choice, before, here, outcome, words):
    """C23: one row of 300 is enough: the share has moved, and says which figures are on one side only. What both sides
    have is compared as ever."""
    assert choice.measured is not None
    recorded = replace(choice, measured=replace(choice.measured, figures={FP8.id: share(before)}))
    found = {each.figure: each for each in compare(recorded, case_figures(figures=share(here)))}
    assert found["nonfinite_share"].outcome == outcome
    assert words in found["nonfinite_share"].note
    assert found["latency"].outcome == "holds"


def test_overflow_of_what_is_scanned_beside_the_passages(choice):
    """C23: the figures of quality are all there, and nothing is said to be missing."""
    assert choice.measured is not None
    recorded = replace(choice, measured=replace(choice.measured, figures={FP8.id: share(0.0)}))
    found = {each.figure: each for each in compare(recorded, case_figures(figures=share(0.01) | FIGURES))}
    assert found["nonfinite_share"].outcome == "moved"
    assert found["nonfinite_share"].note == "rows are not finite here alone"


def test_overflow_excuses_no_other_figure(choice):
    """C21: a time that is gone is no quality that cannot be measured."""
    assert choice.measured is not None
    recorded = replace(choice, measured=replace(choice.measured, figures={FP8.id: share(0.0)}))
    timeless = {name: each for name, each in share(1.0).items() if name != "latency"}
    with one_line(InputError, f"only in the baseline: {FP8.id}: ", "latency"):
        compare(recorded, case_figures(figures=timeless))


@pytest.mark.parametrize("sure", [{"interval": Interval(nan, nan, 0.96, "made up")}, {"noise": nan}])
def test_what_is_not_known_is_not_recorded(sure):
    """C23: an interval or a noise that is NaN has its figure's problem, and costs a report no record."""
    found = as_figures({"speedup": Measurement(1.1, 9, **sure)})["speedup"]
    assert (found.value, found.interval, found.noise) == (1.1, None, None)


def test_profile_with_gaps_is_invalid_against_the_print(tmp_path, monkeypatch):
    """C19: a figure that was taken over nothing is said to be none, with its reason."""
    monkeypatch.setattr(movement, "printed_for", lambda *_: {"kernel_total": Printed("1.0 ms", 1.0, 0.95, 1.05, "ms")})
    found = {"kernel_total": Measurement(nan, 0, problems=("incomplete: 3 kernels of 40 unseen",))}
    (verdict,) = against_print(FP8, found, made(tmp_path))
    assert (verdict.outcome, verdict.note) == ("invalid", "incomplete: 3 kernels of 40 unseen")


FEWER = {name: figure for name, figure in FIGURES.items() if name != "kl_mean"}
UNLIKE = {
    "case renamed": (case_figures("base_512-b1-fp8"), ("base_512-b1-fp8 is not in the baseline", FP8.id, "--record")),
    "figure gone": (
        case_figures(figures=FEWER),
        ("only in the baseline", FP8.id, "kl_mean", "record the baseline anew"),
    ),
    "figure new": (
        case_figures(figures=FIGURES | {"kl_p99": Figure(0.1, "nats", 300)}),
        ("only in this run", FP8.id, "kl_p99", "record the baseline anew"),
    ),
    "another unit": (
        case_figures(figures=FIGURES | {"kl_mean": Figure(0.01, "bits", 300)}),
        (FP8.id, "kl_mean", "'nats' recorded, 'bits' here", "record it anew"),
    ),
}


@pytest.mark.parametrize(("found", "words"), UNLIKE.values(), ids=UNLIKE)
def test_what_cannot_be_compared_is_an_error(choice, found, words):
    """C21: what only one side has is named and is no pass, nor is a number in another unit."""
    with one_line(InputError, *words):
        compare(choice, found)


# ---- against the print


def on(folder: Path, monkeypatch: pytest.MonkeyPatch, found: Probe = NONE, release: str = "") -> Setup:
    """A run on the study's inputs, on a CPU or with TensorRT of this release on a GPU."""
    monkeypatch.setattr(movement, "runtime", lambda engine, device: Runtime(engine, f"{release}.0.1", device))
    return made(folder, found, tensorrt=True, checkpoints="hub", datasets="hub", samples="1500")


PRINTED = [
    # GPU and TensorRT, case, what is printed there; None: a figure that this run has no print of
    (NONE, "", FP8, {"kl_mean": "0.0095 nats", "agreement": "93.99%", "latency": None, "plan_size": None}),
    (NONE, "", FP8.at("fp32"), {}),
    (B200, "11.4", FP8, {"latency": "0.715 ms", "speedup": "1.05x", "plan_size": "108.0 MiB", "agreement": "93.99%"}),
    (B200, "11.1", FP8, {"latency": "0.714 ms", "kl_mean": "0.0097 nats", "kl_p99": "0.064 nats", "plan_size": None}),
    (B200, "11.5", FP8, {"latency": None, "speedup": None, "plan_size": None, "agreement": "93.99%"}),
    (B300, "11.4", FP8, {"latency": "0.652 ms", "agreement": "94.14%", "cls_bar_share": "0/400", "plan_size": None}),
    (B300, "11.1", FP8, {"latency": None, "agreement": "93.99%"}),
    (H200, "11.4", FP8, {"latency": None, "agreement": "93.99%"}),
    # its speed-up has an erratum, on this GPU alone
    (B200, "11.4", Case("fnet", "large", 512, 8, "fp8"), {"latency": "6.177 ms", "speedup": None}),
    (B300, "11.4", Case("fnet", "large", 512, 8, "fp8"), {"latency": "5.898 ms", "speedup": "1.06x"}),
]


@pytest.mark.parametrize(
    ("found", "release", "case", "expected"),
    PRINTED,
    ids=[f"{found.gpu.slug if found.gpu else 'cpu'}-{release}-{case}" for found, release, case, _ in PRINTED],
)
def test_which_print_a_run_is_held_against(monkeypatch, tmp_path, found, release, case, expected):
    """Times and sizes of this very GPU and version or none; quality of the main run where there is no own print; and
    never a figure that contradicts others."""
    printed = printed_for(case, on(tmp_path, monkeypatch, found, release))
    assert {name: printed[name].text if name in printed else None for name in expected} == expected
    if not expected:
        assert printed == {}


def test_times_of_another_engine_are_not_the_prints(monkeypatch, tmp_path):
    """The control on a B200 is not TensorRT, so that no printed time is its own; quality is."""
    monkeypatch.setattr(movement, "runtime", lambda engine, device: Runtime(engine, "11.4.0", device))
    control = made(tmp_path, B200, tensorrt=True, engine="onnxruntime")
    assert not {"latency", "speedup", "plan_size"} & printed_for(FP8, control).keys()
    assert "agreement" in printed_for(FP8, control)


def test_every_gpu_of_the_print_is_a_known_part():
    """C39: the names that a study prints are those that the table of GPUs gives."""
    printed_on = {key.gpu for key, _ in documented("fnet") if key.gpu}
    assert printed_on == {found.gpu.slug.upper() for found in (B200, B300)}


def judged(setup: Setup, **values: float | Measurement) -> dict[str, str]:
    """Outcomes against the print of base FP8 at 512."""
    found = {
        name: value if isinstance(value, Measurement) else Measurement(value, 3000, exact=True)
        for name, value in values.items()
    }
    return {verdict.figure: verdict.outcome.value for verdict in against_print(FP8, found, setup)}


@pytest.mark.parametrize(
    ("figure", "inside", "outside"),
    [
        ("agreement", (0.9350, 0.9448), (0.9348, 0.9450)),  # 93.99%, 0.005
        ("kl_mean", (0.0086, 0.0104), (0.0085, 0.0105)),  # 0.0095, a tenth
        ("cls_bar_share", (0.0, 0.05), (0.051,)),  # 0/400, 0.05
    ],
)
def test_one_tolerance_beyond_the_print_is_moved(monkeypatch, tmp_path, figure, inside, outside):
    """The print is a value with the figure's tolerance around it, either way."""
    setup = on(tmp_path, monkeypatch)
    assert [judged(setup, **{figure: value})[figure] for value in inside] == ["holds"] * len(inside)
    assert [judged(setup, **{figure: value})[figure] for value in outside] == ["moved"] * len(outside)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(0.93, 0.95, "holds"), (0.90, 0.936, "holds"), (0.90, 0.934, "moved"), (0.946, 0.96, "moved")],
)
def test_print_is_met_by_an_interval(monkeypatch, tmp_path, low, high, outcome):
    """A sample of 300 passages cannot lie within half a point as a whole: it is as printed where its interval reaches
    into the tolerance, which a study's own figures on other masked words do."""
    measured = Measurement((low + high) / 2, 8000, Interval(low, high, 0.95, "made up"))
    assert judged(on(tmp_path, monkeypatch), agreement=measured) == {"agreement": outcome}


def test_exact_print_on_the_studys_images_is_met(monkeypatch, tmp_path):
    """MNASNet's 1,389 of 1,500, as printed, with the interval that a run gives it; and top-1 of another draw of the
    images, though not of a wrong crop."""
    fp8 = studies()["mnasnet"].case("mnasnet_100-b1-fp8")
    share, interval = share_interval(1389, 1500)
    found = {"agreement": Measurement(share, 1500, interval), "top1": Measurement(0.7427 - 0.015, 1500, exact=True)}
    setup = on(tmp_path, monkeypatch, B200, "11.4")
    assert {each.figure: each.outcome for each in against_print(fp8, found, setup)} == dict.fromkeys(found, "holds")
    wrong = {"top1": Measurement(0.7427 - 0.02, 1500, exact=True)}
    assert [each.outcome for each in against_print(fp8, wrong, setup)] == ["moved"]


def test_fewer_rows_are_no_news_of_a_figure_without_an_interval(monkeypatch, tmp_path):
    """Spearman of 20 pairs is anything: it is held against the print of 1,379 with all of them alone."""
    setup = on(tmp_path, monkeypatch)
    assert judged(setup, sts_spearman=0.0, agreement=0.94) == {"sts_spearman": "moved", "agreement": "holds"}
    for samples in (20, None):  # few without a GPU
        fewer = replace(setup, samples=samples)
        assert judged(fewer, sts_spearman=0.0, agreement=0.94) == {"agreement": "holds"}
    assert "sts_spearman" in judged(replace(setup, samples=None, device="cuda"), sts_spearman=0.0)


def test_times_of_a_release_bind_no_other(monkeypatch, tmp_path):
    """MNASNet's kernel times and layers are of the study's target: fewer of a later release are no movement."""
    fp8 = studies()["mnasnet"].case("mnasnet_100-b1-fp8")
    machine = {"kernel_total", "extra_layers", "latency"}
    assert machine <= printed_for(fp8, on(tmp_path, monkeypatch, B200, "11.4")).keys()
    assert not machine & printed_for(fp8, on(tmp_path, monkeypatch, B200, "11.6")).keys()


def test_figure_without_a_print_is_left_out(monkeypatch, tmp_path):
    """What the study does not print of this run is no verdict, whatever its value; the rest is."""
    assert judged(on(tmp_path, monkeypatch), latency=99.0, fp8_gemms=24, agreement=0.94) == {"agreement": "holds"}


def test_what_is_unsound_is_invalid_and_says_why(monkeypatch, tmp_path):
    """C23: NaN never passes, and a throttled figure is neither moved nor sound."""
    setup = on(tmp_path, monkeypatch, B200, "11.4")
    throttled = Measurement(0.715, 9, exact=True, problems=("throttled", "another process"))
    assert judged(setup, agreement=nan, latency=throttled) == {"agreement": "invalid", "latency": "invalid"}
    (verdict,) = against_print(FP8, {"latency": throttled}, setup)
    assert (verdict.note, verdict.documented) == ("throttled; another process", "0.715 ms")


# ---- what a record holds


def test_figures_have_the_units_of_the_claims():
    """What is recorded and what is claimed is one number; a figure without a unit there cannot be recorded."""
    found = as_figures({"kl_mean": Measurement(0.01, 8), "agreement": Measurement(0.9, 8)})
    assert found == {"kl_mean": Figure(0.01, "nats", 8), "agreement": Figure(0.9, "share", 8)}
    assert {name: figure.unit for name, figure in found.items()}.items() <= conclusions().units.items()
    with pytest.raises(KeyError):
        as_figures({"undeclared": Measurement(1.0, 8)})


def test_figure_of_several_builds():
    """The median build counts, the extremes are kept, and a problem of any of them is one of the figure."""
    builds = [{"kl_mean": Measurement(value, 8)} for value in (0.012, 0.010, 0.011)]
    assert as_figures(*builds) == {"kl_mean": Figure(0.011, "nats", 8, low=0.010, high=0.012)}
    throttled = {"kl_mean": Measurement(0.011, 8, problems=("throttled",))}
    assert problems_of(*builds, throttled) == {"kl_mean": "throttled"}


def test_figure_of_the_first_build_alone():
    """Kernel profiles are of one build: such a figure has no spread, which is unknown and not zero."""
    first = {"kl_mean": Measurement(0.012, 8), "ffn_share": Measurement(0.2, 20)}
    found = as_figures(
        first, {"kl_mean": Measurement(0.010, 8)}, {"kl_mean": Measurement(0.011, 8)}, once=["ffn_share"]
    )
    assert found["ffn_share"] == Figure(0.2, "share", 20)
    assert found["kl_mean"] == Figure(0.011, "nats", 8, low=0.010, high=0.012)


@pytest.mark.parametrize("having", [(0,), (1,), (0, 1)])
def test_figure_that_some_builds_lack(having):
    """C21: it is no figure of the others alone, be it the first build's."""
    names = [("kl_mean", "agreement") if build in having else ("kl_mean",) for build in range(3)]
    with one_line(InputError, "agreement was measured in some of 3 builds only"):
        as_figures(*(dict.fromkeys(found, Measurement(0.9, 8)) for found in names))


def test_environment(monkeypatch, tmp_path):
    """What computes, at its version; a package that is not installed is left out and not "none"."""
    monkeypatch.setattr(movement, "PACKAGES", ("torch", "no-such-package"))
    found = environment(made(tmp_path))
    assert found["onnxruntime"] == onnxruntime.__version__
    assert found.keys() == {"python", "machine", "torch", "onnxruntime"}


def test_loaded_version_goes_before_the_package_metadata(monkeypatch, tmp_path):
    """C10: the engine's version is that of the library in the process."""
    monkeypatch.setattr(movement, "PACKAGES", ("onnxruntime",))
    monkeypatch.setattr(movement, "runtime", lambda *_: Runtime("onnxruntime", "9.9", "cpu"))
    assert environment(made(tmp_path))["onnxruntime"] == "9.9"
