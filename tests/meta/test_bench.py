"""The engines of a study on a GPU, on digits and with stand-ins for what a GPU would give: builds, times, what TensorRT
made of a case, kernels; each fault reaches the figure that rests on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from fixtures import bench as benches
from fixtures import exhibits
from fixtures.cases import Case, studies
from fixtures.conclusions import conclusions
from fixtures.document import Kernels
from fixtures.engines.inspection import Layer
from fixtures.errors import EngineError, InputError
from fixtures.fnet.lab import Lab as FNetLab
from fixtures.graphs import Graph, HalfNote
from fixtures.mnasnet import STUDY, kernels
from fixtures.mnasnet.lab import Lab
from fixtures.mnasnet.recipe import fp8_convolutions, recipe
from fixtures.profiling import RUNS, LayerTime, Trace
from fixtures.telemetry import Summary
from fixtures.timing import AGAIN, GroupTiming
from fixtures.verdicts import Limits, Measurement, Outcome
from tests.meta import setups
from tests.meta.engines import MIB, QUIET, Fake, product, timing
from tests.meta.setups import B200
from tests.meta.tiny import one_line
from tests.meta.tiny_mnasnet import lab

FP32, FP16, FP8 = (STUDY.case(f"digits-b1-{variant}") for variant in ("fp32", "fp16", "fp8"))
CASES = (FP32, FP16, FP8)
SAMPLES = 6
MS = {"fp32": 0.4, "fp16": 0.2, "fp8": 0.25}
PLANS = {"fp32": 16 * MIB, "fp16": 10 * MIB, "fp8": 7 * MIB}


def layers(graph: Graph, quantized: str = "fp8") -> tuple[Layer, ...]:
    """The engine that was asked for: a layer for each product, and one for each Quantize node."""
    fp8, work = fp8_convolutions(graph), recipe(graph.case.variant).work
    found = []
    for node in graph.proto.graph.node:
        name = node.name
        if node.op_type in ("Conv", "Gemm"):
            precision = quantized if name.removesuffix("/conv") in fp8 else work
            found.append(product(name, precision, "convolution" if node.op_type == "Conv" else "gemm"))
        elif node.op_type == "QuantizeLinear":
            found.append(Layer(name, "quantize", "", (name,), ("fp16",), ("fp8",)))
    return tuple(found)


class Gpu:
    """Stands in for a GPU: which engines were opened for which build, and what was given to the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: dict[int, list[Fake]] = defaultdict(list)
        self.timed: list[dict[str, Any]] = []
        self.scale = {0: 1.0}  # of every time, by build; 1 but for those
        self.extra: dict[int, int] = {}  # layers of the FP8 engine more, by build
        self.quantized = "fp8"  # what the convolutions of the recipe are built in
        self.problems: tuple[str, ...] = ()
        self.spread = 0.0  # how far an engine is from itself, timed twice
        monkeypatch.setattr(benches, "open_gpu_engine", self.open)
        monkeypatch.setattr(benches, "time_group", self.time)
        monkeypatch.setattr(benches, "CudaClock", lambda: "the clock")

    def open(self, graph: Graph, _engine: str, _cache: object, _gpu: object, _say: object, build: int) -> Fake:
        """What `open_gpu_engine` would."""
        built = layers(graph, self.quantized)
        if graph.case.variant == "fp8":
            built += (Layer("reformat", "reformat", "", (), ("fp8",), ("fp8",)),) * self.extra.get(build, 0)
        ms = tuple(0.003 if layer.kind == "quantize" else 0.004 for layer in built)
        found = Fake(PLANS[graph.case.variant] + build * MIB, built, ms, notes=(f"{graph.case}: timing cache: fresh",))
        self.opened[build].append(found)
        return found

    def time(self, engines: Mapping[str, Fake], feeds: Any, clock: object, **options: Any) -> GroupTiming:
        """What `time_group` would; the build is that of the engines."""
        assert clock == "the clock"
        self.timed.append({"engines": list(engines), "feeds": feeds, **options})
        (build,) = {build for build, found in self.opened.items() for each in found if each in engines.values()}
        ms = {name: MS[name.rpartition("-")[2]] * self.scale.get(build, 1.0) for name in engines}
        found = timing(ms, self.problems)
        again = {
            name: tuple(ms * (1 + self.spread) for ms in times)
            for name, times in found.rounds_ms.items()
            if name.endswith(AGAIN)
        }
        return replace(found, rounds_ms={**found.rounds_ms, **again})


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Digits as they are without a GPU: what the labs of this file share."""
    return lab(tmp_path_factory.mktemp("cache"), samples=SAMPLES)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def opened(made: Lab, gpu: Gpu, said: list[str]) -> Callable[..., Lab]:  # noqa: ARG001  gpu takes the place of one
    """Digits on a B200, but for what really runs, which is the CPU."""

    def make(engine: str = "tensorrt", **given: Any) -> Lab:
        found = copy(made)
        options = {"engine": engine, "gpu": B200.gpu, "not_timed": None, "say": said.append, "notes": []} | given
        found.setup = replace(made.setup, **options)
        return found.rebuilt(0)

    return make


def judged(claim: str, measured: Measurement) -> Outcome:
    return measured.judged(conclusions().claims[f"mnasnet/{claim}"].limits, Outcome.FLIPPED)


# ---------------------------------------------------------------------------------------------- builds


def test_three_builds(opened, gpu):
    """Each engine is built three times, each build is timed by itself and closed; all else is made once, and a figure
    is the median build's with the others beside it."""
    gpu.scale |= {1: 1.1, 2: 0.9}
    gpu.extra |= {1: 2}
    study = opened(builds=3)
    rows = study.setup.stopwatch.rows
    records = {case: study.record(case) for case in CASES}
    assert {build: len(found) for build, found in gpu.opened.items()} == {0: 3, 1: 3, 2: 3}
    assert [each.closed for build in (0, 1, 2) for each in gpu.opened[build]] == [False] * 3 + [True] * 6
    assert [group["engines"][0] for group in gpu.timed] == [FP16.id] * 3
    latency = records[FP16].figures["latency"]
    assert (latency.value, latency.low, latency.high) == pytest.approx((0.2, 0.18, 0.22))
    layers = records[FP8].figures["extra_layers"]
    assert (layers.value, layers.low, layers.high) == (34, 34, 36)
    size = records[FP16].figures["plan_size"]
    assert (size.value, size.low, size.high) == (11, 10, 12)
    assert records[FP8].canaries["layers"] == len(layers_of(study, FP8))
    once = {f"digits {what}": SAMPLES for what in ("reference", "calibration", "fake quantization")}
    assert {name: count for name, count in rows.items() if name in once} == once


def layers_of(study: Lab, case: Case) -> tuple[Layer, ...]:
    return layers(study.graph(case))


def test_one_build_says_nothing_of_spread(opened):
    """What was built once has no lowest and highest."""
    figure = opened().record(FP16).figures["latency"]
    assert (figure.low, figure.high) == (None, None)


def test_fault_of_one_build_reaches_the_record(opened, gpu, monkeypatch):
    """C01: an FP8 engine without FP8 convolutions in the second build alone leaves no figure of its time sound."""
    real = gpu.open

    def faulty(graph: Graph, *given: Any) -> Fake:
        gpu.quantized = "fp16" if given[-1] == 1 else "fp8"
        return real(graph, *given)

    monkeypatch.setattr(benches, "open_gpu_engine", faulty)
    problems = opened(builds=2).record(FP8).problems
    assert problems.keys() == {"latency", "speedup", "plan_size", "plan_change", "extra_layers"}
    assert problems["speedup"] == (
        "digits-b1-fp8: asked for fp8 with 34 FP8 GEMMs and convolutions, but the engine has 0"
    )


def test_build_that_is_not_finite_is_no_record(opened, monkeypatch):
    """A figure of some builds only would hide the others."""
    study = opened(builds=2)
    monkeypatch.setattr(study, "_rebuilt_figures", lambda *_: {FP16: {"nonfinite_share": Measurement(1.0, 6)}})
    with one_line(InputError, "kl_mean", "some of 2 builds only"):
        study.record(FP16)


# ---------------------------------------------------------------------------------------------- times


def test_speed(opened, gpu):
    """Half precision first, on the group's first image, to the study's tolerance; figures by the names of claims."""
    study = opened()
    assert {case: study.speed(case).keys() for case in CASES} == {
        FP32: {"latency"},
        FP16: {"latency"},
        FP8: {"latency", "speedup"},
    }
    assert study.speed(FP8)["speedup"].value == pytest.approx(0.8)
    assert judged("fp8-slower", study.speed(FP8)["speedup"]) is Outcome.HOLDS
    assert judged("same-engine-twice", study.bench.same_engine_twice(FP16)) is Outcome.HOLDS
    (group,) = gpu.timed
    assert group["engines"] == [FP16.id, FP32.id, FP8.id]
    assert torch.equal(group["feeds"]["image"], study.inputs("digits").held_out[:1])
    assert (group["tolerance"], group["rounds"], group["gpu_uuid"]) == (0.005, 9, "GPU-1")
    assert 0 < group["floors_ms"][FP16.id] < 1e-3


def test_time_that_no_gpu_could_take_is_below_the_floor():
    """C14: 0.005 ms for base at 512, which a host that does not wait gives, is below what 82 GFLOP take anywhere."""
    layers, window, hidden, inner = 12, 512, 768, 3072
    flops = layers * window * 2 * (2 * hidden * inner + 2 * hidden * hidden + 2 * window * hidden)
    assert 0.005 < flops / benches.FASTEST_FLOPS_PER_MS < 0.05


def test_longer_is_another_measurement(opened, gpu):
    """Where an interval straddles a limit the group is timed again, on the same engines."""
    study = opened()
    study.speed(FP8), study.speed(FP8, 27)
    assert [group["rounds"] for group in gpu.timed] == [9, 27]
    assert len(gpu.opened[0]) == 3


@pytest.mark.parametrize("where", ["build", "capture"])
def test_engine_that_fails_costs_its_own_figures_alone(opened, gpu, monkeypatch, said, where):
    """C19: what kept one engine from being built or captured is the error of its case, found once; the others of its
    group are timed and have their records."""
    tried, error = [], EngineError(f"{FP8}: the TensorRT build had not ended after 1800 s and was stopped")
    opens, times = gpu.open, gpu.time

    def hang(graph: Graph, *rest: Any) -> Fake:
        tried.append(graph.case)
        if graph.case == FP8:
            raise error
        return opens(graph, *rest)

    def refuse(engines: Mapping[str, Fake], *rest: Any, **options: Any) -> GroupTiming:
        left = {name: engine for name, engine in engines.items() if name != FP8.id}
        return replace(times(left, *rest, **options), failed={FP8.id: error})

    if where == "build":
        monkeypatch.setattr(benches, "open_gpu_engine", hang)
    else:
        monkeypatch.setattr(benches, "time_group", refuse)
    study = opened()
    for asked in (study.speed, study.record, study.bench.latency):
        with one_line(EngineError, "digits-b1-fp8", "had not ended"):
            asked(FP8)
    assert study.record(FP16).figures["latency"].value == pytest.approx(0.2)
    assert study.bench.same_engine_twice(FP16).value == 1
    assert tried.count(FP8) == (1 if where == "build" else 0)
    note = f"left out of the rounds of digits-b1: {error}"
    assert note in study.bench.rounds("digits-b1").notes
    assert f"mnasnet: {note}" in said


def test_first_engine_that_fails_leaves_no_ratio(opened, gpu, monkeypatch):
    """C19: another engine timed twice is not the half-precision engine, and nothing is held against it."""
    opens = gpu.open

    def crash(graph: Graph, *rest: Any) -> Fake:
        if graph.case == FP16:
            raise EngineError(f"{FP16}: crashed")
        return opens(graph, *rest)

    monkeypatch.setattr(benches, "open_gpu_engine", crash)
    study = opened()
    assert study.speed(FP32)["latency"].value == pytest.approx(0.4)
    for asked in (study.bench.same_engine_twice, study.speed):
        with one_line(EngineError, "digits-b1-fp16: crashed"):
            asked(FP8)
    assert study.bench.ratio(FP32, FP8).value == pytest.approx(1.6)  # of two that were timed


def test_throttled_times_are_no_figures(opened, gpu):
    """C15: what was wrong with the machine stands in the record, and no claim is judged on it."""
    gpu.problems = ("GPU throttled: hw_slowdown",)
    study = opened()
    assert judged("fp8-slower", study.speed(FP8)["speedup"]) is Outcome.INVALID
    found = study.record(FP8).problems
    assert found == dict.fromkeys(("latency", "speedup"), "GPU throttled: hw_slowdown")
    assert len(gpu.timed) == 3  # measured again twice


@pytest.mark.parametrize(
    ("spread", "outcome", "words"), [(0.0005, Outcome.HOLDS, ""), (0.09, Outcome.INVALID, "noise")]
)
def test_band_narrower_than_the_group_is_noisy_is_none(opened, gpu, spread, outcome, words):
    """A ratio is judged by how far one engine of its group is from itself: a claim with a band narrower than that is
    invalid and says so; a quiet group changes nothing, and an open limit cannot be too narrow."""
    gpu.spread = spread
    study, limits = opened(), Limits(0.75, 0.85, "made up")
    measured = study.speed(FP8)["speedup"]
    assert measured.noise == pytest.approx(spread)
    assert measured.judged(limits, Outcome.FLIPPED) is outcome
    assert words in measured.note(limits)
    assert judged("fp8-slower", measured) is Outcome.HOLDS
    assert study.bench.same_engine_twice(FP16).noise == 0


@pytest.mark.parametrize("gpu_found", [B200.gpu, None])
def test_nothing_is_made_up_without_a_clock(opened, gpu_found):
    """C17: the line says why there is no time, and figures are those that need none."""
    study = opened("onnxruntime", not_timed="not timed: made up", gpu=gpu_found)
    with one_line(InputError, FP8.group, "not timed: made up"):
        study.speed(FP8)
    with one_line(InputError, FP8.group, "not timed: made up"):
        study.kernels(FP8)
    assert not {"latency", "speedup", "kernel_ratio"} & study.figures(FP8).keys()


@pytest.mark.parametrize(
    ("variant", "half", "figure"),
    [
        ("fp8", "fp16", "speedup"),
        ("fp8-opt3", "fp16-opt3", "speedup_at_level_3"),
        ("fp16-opt3", "fp16", "latency_ratio"),
        ("fp16", "fp16", None),
        ("fp32", "fp16", None),
    ],
)
def test_what_a_case_is_compared_with(opened, monkeypatch, variant, half, figure):
    """FP8 against fp16 of its own optimization level, level 3 against level 1."""
    study, case = opened(), STUDY.case(f"mnasnet_100-b32-{variant}")
    assert study.half_precision(case) == case.at(half)
    pairs = []
    monkeypatch.setattr(study.bench, "latency", lambda *_: None)
    monkeypatch.setattr(study.bench, "ratio", lambda *given: pairs.append(given))
    assert study.speed(case).keys() == {"latency", figure} - {None}
    slow_fast = {"latency_ratio": (case, case.at(half), 9)}.get(figure, (case.at(half), case, 9))
    assert pairs == ([slow_fast] if figure else [])


@pytest.mark.parametrize(
    ("engine", "variants"),
    [("tensorrt", ["fp16", "fp32", "fp16-opt3", "fp8", "fp8-opt3"]), ("onnxruntime", ["fp16", "fp32", "fp8"])],
)
def test_groups_of_an_engine(opened, engine, variants):
    """All variants of the engine are timed together, fp16 first; levels are TensorRT's alone."""
    cases = opened(engine, device="cuda").bench.cases("mnasnet_100-b128")
    assert [case.variant for case in cases] == variants


# ---------------------------------------------------------------------------------------------- what TensorRT built


def test_plan(opened):
    """Size, change and layers of an FP8 case; size alone of others."""
    study = opened()
    found = study.plan(FP8)
    assert {name: each.value for name, each in found.items()} == pytest.approx(
        {"plan_size": 7, "plan_change": -0.3, "extra_layers": 34}
    )
    assert study.plan(FP16).keys() == {"plan_size"}
    assert judged("fp8-plan-smaller-at-batch-1", found["plan_change"]) is Outcome.HOLDS
    assert judged("fp8-plan-larger-at-batch-128", found["plan_change"]) is Outcome.FLIPPED
    assert judged("quantize-layers-do-not-fuse", found["extra_layers"]) is Outcome.HOLDS
    assert all(study.bench.built_otherwise(case) is None for case in CASES)


@pytest.mark.parametrize("quantized", ["fp16", "fp32"])
def test_fp8_engine_without_fp8_is_refused(opened, gpu, quantized):
    """C01: times, sizes and kernels that would hold the claims say nothing of an engine that is not FP8."""
    gpu.quantized = quantized
    study = opened()
    assert FP8.id in study.bench.built_otherwise(FP8)
    figures = study.speed(FP8) | study.plan(FP8) | study.kernels(FP8)
    assert len(figures) == 6
    for measured in figures.values():
        assert "asked for fp8" in measured.problems[0]
    assert judged("fp8-slower", figures["speedup"]) is Outcome.INVALID
    assert study.speed(FP16)["latency"].problems == ()


def test_fused_quantize_layers_flip_the_claim(opened):
    """With no layer more, the study's account of the lost time is stale."""
    study = opened()
    for engine in (study.bench.gpu_engine(case) for case in (FP16, FP8)):
        engine.built = tuple(layer for layer in engine.built if layer.kind != "quantize")
    assert judged("quantize-layers-do-not-fuse", study.plan(FP8)["extra_layers"]) is Outcome.FLIPPED


def test_canaries(opened):
    """Counts of the built engine stand in TensorRT's records, and in no other engine's."""
    found = opened().record(FP8).canaries
    assert (found["fp8_convolutions"], found["quantize_layers"], found["layers"]) == (34, 34, 34 + 53)
    assert opened("onnxruntime").record(FP8).canaries == {}


def test_notes_of_a_build_are_said(opened, said):
    """C10, C11: that a plan was built again, or from no timings, is in the run's output and in its result, with the
    case; and once, however often the group is opened."""
    study, note = opened(), "mnasnet: digits-b1-fp16: timing cache: fresh"
    for _ in range(2):
        study.bench.gpu_engine(FP16)
        study.bench.close()
    assert said.count(note) == 1
    assert study.setup.notes == [note]


def test_other_group_closes_engines(opened, gpu):
    """Engines in memory are those of one group."""
    study = opened()
    first = study.bench.gpu_engine(FP16)
    assert study.bench.gpu_engine(FP16) is first
    study.bench.gpu_engine(replace(FP16, batch=2))
    assert [each.closed for each in gpu.opened[0]] == [True, False]


# ---------------------------------------------------------------------------------------------- kernels


def test_kernels(opened, gpu):
    """Kernel time over half precision's, and by group, of what was bound for the clock."""
    study = opened()
    ratio, ms = study.kernels(FP8)["kernel_ratio"], 53 * 0.004
    assert (ratio.value, ratio.samples) == (pytest.approx((ms + 0.102) / ms), RUNS)
    assert judged("fp8-kernels-not-shorter", ratio) is Outcome.HOLDS
    assert study.kernels(FP16) == study.kernels(FP32) == {}
    assert study.kernel_times(FP16)["kernel_total"].value == pytest.approx(ms)
    shown = study.bench.kernels(FP8)
    assert shown == Kernels(FP8.id, shown.groups_ms, 1.0, 0.25, [])
    expected = {"pointwise": 34 * 0.004, "depthwise": 17 * 0.004, "other": 2 * 0.004 + 0.102}
    assert shown.groups_ms == pytest.approx(expected)
    bound = [feeds["image"] for engine in gpu.opened[0] for feeds in engine.bound]
    assert [torch.equal(image, gpu.timed[0]["feeds"]["image"]) for image in bound] == [True, True]


def test_faster_kernels_flip_the_claim(opened):
    """The study's first reason to look again."""
    study = opened()
    engine = study.bench.gpu_engine(FP8)
    engine.ms = tuple(0.002 for _ in engine.built)
    assert judged("fp8-kernels-not-shorter", study.kernels(FP8)["kernel_ratio"]) is Outcome.FLIPPED


def test_opaque_profile_is_no_figure(opened):
    """C19: one layer that runs everything gives no split, and so no sound sum; the report has the reason."""
    study = opened()
    study.bench.gpu_engine(FP8).profile = lambda runs: [LayerTime(run, "myelin", (), 0.3) for run in range(runs)]
    assert judged("fp8-kernels-not-shorter", study.kernels(FP8)["kernel_ratio"]) is Outcome.INVALID
    shown = study.bench.kernels(FP8)
    assert (shown.coverage, "myelin" in shown.problems[0]) == (0.0, True)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[Case, Any]]]:
    """What ONNX Runtime was watched on, by process; a node of its graphs takes 5 us."""
    asked: list[list[tuple[Case, Any]]] = []

    def watch(cases: Iterable[tuple[Graph, Any]], runs: int) -> list[Trace]:
        given = list(cases)
        asked.append([(graph.case, feeds) for graph, feeds in given])
        found = []
        for graph, _ in given:
            nodes = [node.name for node in graph.proto.graph.node if node.op_type in ("Conv", "Gemm", "QuantizeLinear")]
            times = [LayerTime(run, name, (name,), 0.005) for run in range(runs) for name in nodes]
            found.append(Trace(tuple(times)))
        return found

    monkeypatch.setattr(benches, "watched", watch)
    return asked


def claim_on(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    """Let a claim be on the kernel ratio of `case`."""
    real = conclusions().claims["mnasnet/fp8-kernels-not-shorter"]
    monkeypatch.setattr(benches, "claims", lambda _: {real.id: replace(real, cases=(case.id,))})


def test_kernels_of_the_control(opened, monkeypatch, watched):
    """ONNX Runtime is watched on the same input, with all cases that claims compare in one process; figures of those
    stand in baselines."""
    claim_on(monkeypatch, FP8)
    study = opened("onnxruntime")
    assert [study.bench.profiled(case) for case in CASES] == [False, True, True]
    figures = study.kernels(FP8)
    assert figures.keys() == set(kernels.FIGURES)
    assert figures["kernel_ratio"].value == pytest.approx((53 + 34) / 53)
    assert study.bench.kernels(FP16).problems == []
    assert [[case for case, _ in together] for together in watched] == [[FP16, FP8]]
    assert all(torch.equal(feeds["image"], study.inputs("digits").held_out[:1]) for _, feeds in watched[0])


def test_profiles_that_no_claim_is_on_are_not_taken(opened, monkeypatch, watched):
    """A profile of the control takes seconds, so it is taken for claims alone; TensorRT's baselines have all."""
    study = opened("onnxruntime")
    assert "kernel_ratio" not in study.figures(FP8)
    assert watched == []
    claim_on(monkeypatch, FP8)
    assert "kernel_ratio" in opened("onnxruntime").figures(FP8)
    assert all(opened().bench.profiled(case) for case in CASES)


def test_profiles_are_of_the_first_build(opened):
    """A profile shows where time goes and not how much, so rebuilding does not repeat it, on either engine."""
    assert not any(opened().rebuilt(1).bench.profiled(case) for case in CASES)


@pytest.mark.parametrize(
    ("study", "cases"),
    [
        (
            "fnet",
            {f"base-{group}-{variant}" for group in ("512-b1", "512-b8") for variant in ("fp16+hs", "fp8")}
            | {f"base-256-b1-{variant}" for variant in ("fp16", "fp8")},
        ),
        ("mnasnet", {"mnasnet_100-b1-fp16", "mnasnet_100-b1-fp8"}),
    ],
)
def test_profiled_cases_of_the_control(tmp_path, study, cases):
    """Those that claims on kernel time are of, and those that they are compared with; none where nothing is timed."""
    labs = {"fnet": FNetLab, "mnasnet": Lab}
    for reason, expected in ((None, cases), ("not timed: made up", set())):
        setup = replace(setups.made(tmp_path, engine="onnxruntime"), not_timed=reason)
        bench = labs[study](setup).bench
        assert {case.id for case in studies()[study].cases if bench.profiled(case)} == expected


@pytest.mark.parametrize("engine", ["tensorrt", "onnxruntime"])
def test_process_that_cannot_watch_fails_the_figure(opened, monkeypatch, watched, engine):
    """C19: what kept the control from being watched is the error of that case's figures, remembered, and of no other
    case or engine."""
    claim_on(monkeypatch, FP8)
    watch = benches.watched

    def crash(cases: Iterable[tuple[Graph, Any]], runs: int) -> list[Trace | EngineError]:
        half, _ = watch(cases, runs)
        return [half, EngineError(f"{FP8}: watching ONNX Runtime crashed (SIGABRT)")]

    monkeypatch.setattr(benches, "watched", crash)
    study = opened(engine)
    if engine == "tensorrt":
        assert study.kernels(FP8)["kernel_ratio"].problems == ()
        return
    for _ in range(2):
        with one_line(EngineError, FP8.id, "SIGABRT"):
            study.kernels(FP8)
    assert study.bench.kernels(FP16).problems == []
    assert len(watched) == 1


# ---------------------------------------------------------------------------------------------- fp16 and small weights


@pytest.mark.parametrize(
    ("notes", "line"),
    [
        ([("conv_stem.weight", 864, 3)], "3 weights underflow in fp16: 3 of 864 in conv_stem.weight"),
        (
            [("a", 10, 1), ("conv_head.weight", 409600, 1200), ("b", 10, 1)],
            "1,202 weights underflow in fp16: 1,200 of 409,600 in conv_head.weight, the others in 2 more",
        ),
    ],
)
def test_underflow_is_said_once(opened, monkeypatch, said, notes, line):
    """What fp16 lost of a case's weights is one line, however often and for however many builds it is made."""
    study = opened(builds=2)
    real = study.bench._subject.graph
    faint = tuple(HalfNote(*note) for note in notes)

    def graph(case: Case) -> Graph:
        made = real(case)
        return replace(made, half_notes=faint) if case == FP16 else made

    monkeypatch.setattr(study, "graph", graph)
    study._begin(build=0)
    study.record(FP16)
    assert [each for each in said if "underflow" in each] == [f"mnasnet: {FP16}: {line}"]


# ---------------------------------------------------------------------------------------------- for the report


def test_rounds_of_a_group(opened, gpu):
    """What a page shows of a group's times, the engine that ran twice included."""
    gpu.problems = ("a foreign process",)
    found = opened().bench.rounds(FP16.group)
    assert list(found.rounds_ms) == [FP16.id, FP32.id, FP8.id, f"{FP16.id} again"]
    assert (found.rounds_ms[FP8.id], found.attempts, found.problems) == ([0.25] * 9, 3, ["a foreign process"])
    assert found.telemetry == {
        "SM clock": "1965 to 1980 MHz",
        "memory clock": "3996 MHz",
        "temperature": "at most 41 °C",
        "power": "402 W",
        "clock limited by": "none",
        "other processes": "none",
    }


@pytest.mark.parametrize(
    ("summary", "lines"),
    [
        (Summary(0, None, None, None, None, None, None, "no NVML"), {"unknown": "no NVML"}),
        (replace(QUIET, sm_clock_mhz=None, power_w=None, temperature_c=None), {"SM clock": None, "power": None}),
        (replace(QUIET, throttle_reasons={"sw_power_cap": 4}), {"clock limited by": "sw_power_cap 4"}),
        (replace(QUIET, throttle_reasons=None, other_processes=None), {"clock limited by": None}),
        (replace(QUIET, other_processes=(17, 18)), {"other processes": "17, 18"}),
    ],
)
def test_what_is_unknown_is_not_shown_as_nothing(summary, lines):
    """C18: a quantity that could not be read has no line; "none" was looked for and not found."""
    found = exhibits.telemetry(summary)
    assert {name: found.get(name) for name in lines} == lines
