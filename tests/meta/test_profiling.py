"""Kernel time by group: made-up traces with the faults of public reports, the study's own table, both forms of ONNX
Runtime's profile."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from fixtures import profiling
from fixtures.conclusions import conclusions
from fixtures.documented import documented
from fixtures.engines.onnxruntime_profile import joined, watch
from fixtures.engines.tensorrt import LayerTime as TensorRTTime
from fixtures.errors import EngineError
from fixtures.fnet import kernels
from fixtures.profiling import OTHER, LayerTime, Trace, located, profile
from fixtures.verdicts import Limits, Outcome
from tests.meta import tiny

GROUPS = {"dft": r"dft$", "ffn": r"ffn$"}
CALL = (("dft", 0.20), ("ffn", 0.10), ("norm", 0.05))
RUNS = 9


def trace(layers=CALL, runs=RUNS):
    """The same layers in every run; a layer is its own node, unless it comes with a tuple of nodes."""
    return Trace(
        tuple(
            LayerTime(run, name, nodes[0] if nodes else (name,), ms)
            for run in range(runs)
            for name, ms, *nodes in layers
        )
    )


def reduced(layers=CALL, runs=RUNS, asked=RUNS, latency_ms=None):
    return profile(trace(layers, runs), GROUPS, asked, latency_ms)


def test_groups_are_sums_of_their_layers():
    """Each layer counts once, in the group of its node, and shares are of the profile's own sum."""
    found = reduced((*CALL, ("layer.1/dft", 0.02)))
    assert found.groups_ms == pytest.approx({"dft": 0.22, "ffn": 0.10, OTHER: 0.05})
    assert found.total_ms == pytest.approx(0.37)
    assert (found.runs, found.coverage, found.problems) == (RUNS, 1.0, ())
    assert profiling.share(found, "dft").value == pytest.approx(0.22 / 0.37)


@pytest.mark.parametrize(("sums_to", "ratio"), [(0.35, 0.35 / 0.42), (0.55, 0.55 / 0.42)])
def test_sum_either_side_of_the_latency_is_legal(sums_to, ratio):
    """C19: layers that sum to less or to more than the call are data; the ratio is kept, and shares do not use it."""
    found = reduced([(name, ms * sums_to / 0.35) for name, ms in CALL], latency_ms=0.42)
    assert found.over_latency == pytest.approx(ratio)
    assert found.problems == ()
    assert found.latency_ms == 0.42
    assert profiling.share(found, "dft").value == pytest.approx(0.20 / 0.35)


@pytest.mark.parametrize("latency_ms", [0.05, 0.71])
def test_sum_far_from_the_latency_is_incomplete(latency_ms):
    """C14, C19: a sum of seven times the latency, or of under half of it, is not of the calls that were timed."""
    (problem,) = reduced(latency_ms=latency_ms).problems
    assert "of the latency" in problem


BAD = {
    "empty": (Trace(()), "the trace is empty"),
    "zeros": (trace([(name, 0.0) for name, _ in CALL]), "the trace is empty"),
    "graph launch": (trace([("graph launch", 0.97, ()), *((name, ms / 12) for name, ms in CALL)]), "graph launch"),
    "all in one": (trace([("ForeignNode", 0.97, ("dft", "ffn", "norm")), *CALL]), "ForeignNode"),
    "one replay of nine": (trace(runs=1), "9 calls were to be watched, the trace has 1"),
    "a call too many": (trace(runs=10), "9 calls were to be watched, the trace has 10"),
    "cut off": (Trace(trace().layers[:-1]), "2 to 3"),
    "no feed-forward": (trace([("dft", 0.2), ("intermediate", 0.1)]), "no time in ffn"),
    "negative": (trace([*CALL, ("norm", -0.01)]), "norm took -0.01 ms"),
    "nan": (trace([*CALL, ("norm", math.nan)]), "norm took nan ms"),
    "told by the profiler": (Trace(trace().layers, ("events were lost",)), "events were lost"),
}


@pytest.mark.parametrize(("found", "words"), BAD.values(), ids=BAD)
def test_incomplete_is_an_outcome(found, words):
    """C19: a trace with gaps gives a reason and no figure: not 97% other, not 0% feed-forward, not green."""
    gaps = profile(found, GROUPS, RUNS, None)
    assert any(words in problem for problem in gaps.problems), gaps.problems
    assert all(problem.startswith("incomplete: ") and "\n" not in problem for problem in gaps.problems)
    anything = Limits(0, 100, "whatever it is")
    for measured in (
        profiling.share(gaps, "ffn"),
        profiling.kernel_ratio(gaps, reduced()),
        profiling.kernel_ratio(reduced(), gaps),
    ):
        assert math.isnan(measured.value)
        assert measured.problems == gaps.problems
        assert measured.judged(anything, Outcome.FLIPPED) is Outcome.INVALID


@pytest.mark.parametrize(("unknown_ms", "whole"), [(0.018, True), (0.019, False)])
def test_coverage_band(unknown_ms, whole):
    """C19: up to 5% of unknown layers, such as reformats, are other kernels; from there no share is told."""
    found = reduced((*CALL, ("Reformatting CopyNode", unknown_ms, ())))
    assert found.coverage == pytest.approx(0.35 / (0.35 + unknown_ms))
    assert found.groups_ms[OTHER] == pytest.approx(0.05 + unknown_ms)
    assert (found.problems == ()) is whole


def test_fused_layer_goes_to_its_product():
    """A product's group has all that was fused into it; a layer that runs products of two groups has no group."""
    found = reduced((*CALL, ("fused", 0.01, ("bias", "layer.1/ffn", "gelu")), ("both", 0.001, ("dft", "ffn"))))
    assert found.groups_ms == pytest.approx({"dft": 0.20, "ffn": 0.11, OTHER: 0.051})
    assert found.coverage == pytest.approx(1 - 0.001 / 0.361)


def test_interrupted_call_does_not_count():
    """C15: one call of ten times the time moves no figure."""
    layers = trace().layers
    slow = [replace(layer, ms=layer.ms * 10) if layer.run == 4 and layer.layer == "ffn" else layer for layer in layers]
    found = profile(Trace(tuple(slow)), GROUPS, RUNS, None)
    assert found.groups_ms == reduced().groups_ms
    assert profiling.share(found, "ffn").value == pytest.approx(0.10 / 0.35)


def spread(scale=1.0, runs=profiling.RUNS, seed=0):
    """A profile whose feed-forward time, 0.1 ms times `scale`, has a spread of 2% from call to call."""
    noise = np.random.default_rng(seed).normal(1, 0.02, runs)
    layers = [
        LayerTime(run, name, (name,), ms * scale * noise[run] if name == "ffn" else ms)
        for run in range(runs)
        for name, ms in CALL
    ]
    return profile(Trace(tuple(layers)), GROUPS, runs, None)


def test_shares_and_ratios_have_intervals():
    """The spread of the calls is in the interval, so that a share beside a limit is inconclusive."""
    share = profiling.share(spread(), "ffn")
    assert share.interval.low < 0.1 / 0.35 < share.interval.high
    limits = Limits(None, share.value + 1e-4, "right beside it")
    assert share.judged(limits, Outcome.FLIPPED) is Outcome.INCONCLUSIVE
    value, interval = profiling.ratio_of_medians(spread(0.8).of("ffn"), spread(seed=1).of("ffn"))
    assert interval.low < 0.8 < interval.high
    assert interval.low < value < interval.high
    assert 0.9 < interval.confidence < 0.95


def test_few_calls_have_no_interval():
    """Five calls say too little of their spread to judge by."""
    few = spread(runs=5)
    anything = Limits(0, 100, "whatever it is")
    for measured in (profiling.share(few, "ffn"), profiling.kernel_ratio(few, few)):
        assert measured.interval is None
        assert measured.judged(anything, Outcome.FLIPPED) is Outcome.INCONCLUSIVE


def test_kernel_ratio():
    """Kernel time of a call over the half-precision case's."""
    slower = reduced([(name, ms * 1.02) for name, ms in CALL])
    assert profiling.kernel_ratio(slower, reduced()).value == pytest.approx(1.02)


# ------------------------------------------------------------------------------------------ layers by name


@dataclass(frozen=True)
class BuiltLayer:
    name: str
    nodes: tuple[str, ...]


def test_one_name_in_two_layers():
    """C19: layers of one name are told apart by their order in each call, and neither takes the other's time."""
    layers = [BuiltLayer("gemm", ("dft",)), BuiltLayer("norm", ("norm",)), BuiltLayer("gemm", ("ffn",))]
    times = [
        TensorRTTime(run, name, ms)
        for run in range(RUNS)
        for name, ms in (("gemm", 0.2), ("norm", 0.05), ("gemm", 0.1))
    ]
    found = profile(located(times, layers), GROUPS, RUNS, None)
    assert found.groups_ms == pytest.approx({"dft": 0.2, "ffn": 0.1, OTHER: 0.05})


@pytest.mark.parametrize("names", [("gemm",), ("gemm", "gemm", "gemm"), ("elsewhere",)])
def test_name_that_cannot_be_placed(names):
    """C19: times that do not match the engine's layers of that name, or a name it does not have, are of no node."""
    layers = [BuiltLayer("gemm", ("dft",)), BuiltLayer("gemm", ("ffn",))]
    found = located([TensorRTTime(0, name, 0.1) for name in names], layers)
    assert [layer.nodes for layer in found.layers] == [()] * len(names)


# ------------------------------------------------------------------------------------------ the study's groups


def test_products_of_the_graph_have_one_group_each():
    """Every MatMul of the graph is in the group that the study puts it in, and no other node is in any."""
    nodes = {node.name: node.op_type for variant in ("fp16+hs", "fp8") for node in tiny.graph(variant).proto.graph.node}
    rows = tuple(LayerTime(0, name, (name,), 1.0) for name in nodes)
    by_group = {
        name: profile(Trace((row,)), kernels.GROUPS, 1, None).groups_ms for name, row in zip(nodes, rows, strict=True)
    }
    in_groups = {name: next(group for group, ms in groups.items() if ms) for name, groups in by_group.items()}
    assert {name for name, group in in_groups.items() if group != OTHER} == {
        name for name, op in nodes.items() if op == "MatMul"
    }
    assert in_groups["layer.1/sequence_dft/sin"] == kernels.SEQUENCE_DFT
    assert in_groups["layer.0/hidden_dft/cos"] == kernels.HIDDEN_DFT
    assert in_groups["layer.1/intermediate/matmul"] == in_groups["layer.0/output/matmul"] == kernels.FFN
    assert in_groups["embeddings/projection/matmul"] == kernels.PROJECTION


FNET = documented("fnet")
PRINTED = ("base-512-b1", "base-256-b1", "base-512-b8")


def halves(group):
    return "fp16" if "256" in group else "fp16+hs"


def printed_layers(case):
    """Layers that take what the study prints of one case. Its fp16 table has the feed-forward GEMMs among the others,
    so they are taken from the text; what is left is split between the hidden-axis DFT and the projection."""
    ms = {name: FNET.figure(f"kernel_{name}", case).value for name in ("sequence_dft", "other_gemms", "other")}
    if case.endswith("fp8"):
        ffn, rest = FNET.figure("kernel_ffn_gemms", case).value, ms["other_gemms"]
    else:
        ffn = FNET.figure("kernel_ffn_gemms_about", case).value
        rest = ms["other_gemms"] - ffn
    return {
        "layer.0/sequence_dft/cos": ms["sequence_dft"],
        "layer.0/hidden_dft/cos": rest * 0.9,
        "embeddings/projection/matmul": rest * 0.1,
        "layer.0/output/matmul": ffn,
        "layer.0/gelu": ms["other"],
    }


def study_profile(layers):
    return profile(trace(list(layers.items())), kernels.GROUPS, RUNS, None)


def as_measured(case):
    return study_profile(printed_layers(case))


FIGURES = {
    "sequence_dft_share": lambda half, _: kernels.sequence_dft_share(half),
    "ffn_share": lambda half, _: kernels.ffn_share(half),
    "ffn_shorter": kernels.ffn_shorter,
    "free_dft_speedup": kernels.free_dft_speedup,
}


def measured(figure, group):
    return FIGURES[figure](as_measured(f"{group}-{halves(group)}"), as_measured(f"{group}-fp8"))


@pytest.mark.parametrize(("group", "speedup"), [("base-512-b1", 1.065), ("base-256-b1", 1.090), ("base-512-b8", 1.139)])
def test_speedup_with_a_free_dft_follows_from_the_printed_times(group, speedup):
    """The speedup that conclusions.toml says to follow from the study's kernel table does."""
    assert measured("free_dft_speedup", group).value == pytest.approx(speedup, abs=5e-4)


def test_printed_shares_follow_from_the_printed_times():
    """40% and 62% sequence-axis DFT, 18% to 30% feed-forward GEMMs, 15% to 26% off them: the text from its table."""
    for group in ("base-512-b1", "base-512-b8"):
        printed = FNET.figure("sequence_dft_share", f"{group}-fp16+hs")
        assert printed.low <= measured("sequence_dft_share", group).value <= printed.high
    for figure in ("ffn_share", "ffn_shorter"):
        values = [measured(figure, group).value for group in PRINTED]
        # The text rounds the times that these are of to 0.01 ms, which is up to 5% of them.
        assert min(values) == pytest.approx(FNET.figure(f"{figure}_min", "base").value, rel=0.05)
        assert max(values) == pytest.approx(FNET.figure(f"{figure}_max", "base").value, rel=0.05)


KERNEL_CLAIMS = [
    (claim, case) for claim in conclusions().claims.values() if claim.figure in FIGURES for case in claim.cases
]


@pytest.mark.parametrize(("stated", "of"), KERNEL_CLAIMS, ids=[f"{claim.id}-{case}" for claim, case in KERNEL_CLAIMS])
def test_claims_hold_on_the_printed_times(stated, of):
    """The study's own kernel times bear out each of its claims on them."""
    group = of.rpartition("-")[0]
    assert measured(stated.figure, group).judged(stated.limits, Outcome.FLIPPED) is Outcome.HOLDS


@pytest.mark.parametrize(
    ("figure", "of", "factor", "stated"),
    [
        ("sequence_dft_share", "layer.0/sequence_dft/cos", 0.5, "sequence-dft-dominates-at-batch-1"),
        ("ffn_share", "layer.0/output/matmul", 2.5, "look-again-1"),
    ],
)
def test_claims_flip(figure, of, factor, stated):
    """A sequence-axis DFT of half its time, and feed-forward GEMMs of more than twice theirs, are findings."""
    layers = printed_layers("base-512-b1-fp16+hs")
    found = study_profile({**layers, of: layers[of] * factor})
    limits = conclusions().claims[f"fnet/{stated}"].limits
    assert FIGURES[figure](found, None).judged(limits, Outcome.FLIPPED) is Outcome.FLIPPED


@pytest.mark.parametrize("group", PRINTED)
@pytest.mark.parametrize("fp8", [False, True])
def test_columns_of_the_study(group, fp8):
    """A profile is put into the columns of the study's table, whose other GEMMs hold fp16's feed-forward ones."""
    case = f"{group}-{'fp8' if fp8 else halves(group)}"
    found = kernels.as_printed(as_measured(case), fp8=fp8)
    columns = {name: each.value for name, each in found.items()}
    assert columns == pytest.approx({name: FNET.figure(name, case).value for name in columns})
    assert len(columns) == 3 + fp8


def test_gaps_in_either_profile_reach_its_figures():
    """C19: no cut and no speed-up from a profile with gaps, on whichever side."""
    half, fp8 = as_measured("base-512-b1-fp16+hs"), as_measured("base-512-b1-fp8")
    gaps = profile(Trace(()), kernels.GROUPS, RUNS, None)
    for figure in (kernels.ffn_shorter, kernels.free_dft_speedup):
        assert figure(half, gaps).problems == figure(gaps, fp8).problems == gaps.problems
    assert {each.problems for each in kernels.as_printed(gaps, fp8=True).values()} == {gaps.problems}


# ------------------------------------------------------------------------------------------ ONNX Runtime

CALLS, WATCHED = 3, 2
BASE_NS = 1_790_000_000_000_000_000  # what torch.profiler's times are relative to
KERNEL_US = {"MatMul": 3.0, "FusedMatMul": 3.0, "Gemm": 2.0}  # by operator; any other takes 1


@dataclass(frozen=True)
class Session:
    """A session's profile as ONNX Runtime wrote it, and when it was started."""

    text: str
    start_ns: int

    @property
    def events(self):
        return json.loads(self.text)

    @property
    def nodes(self):
        return [event for event in self.events if event["cat"] == "Node"]


def open_session(folder):
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "session")
    options.log_severity_level = 3
    model = tiny.graph("fp16+hs").to_proto().SerializeToString()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """The real profile of three calls of a tiny FNet: of a CPU, and so with host times only.

    Its times are replaced by ones that do not depend on the machine: a node every 10 us, which takes 8.
    """
    opened = open_session(tmp_path_factory.mktemp("session"))
    for _ in range(CALLS):
        opened.run(None, {"input_ids": tiny.ids().numpy()})
    start_ns = opened.get_profiling_start_time_ns()
    events = json.loads(Path(opened.end_profiling()).read_text())
    for place, event in enumerate(sorted(events, key=lambda event: (event["ts"], -event["dur"]))):
        event |= {"ts": 10 * place, "dur": 8}
    return Session(json.dumps(events), start_ns)


def kernels_of(session, late_us=0.0):
    """What torch.profiler would write of the last two calls: each node launches a kernel, which runs long after."""
    first = sorted(event["ts"] for event in session.events if event["name"] == "model_run")[CALLS - WATCHED]
    found = []
    for number, node in enumerate(node for node in session.nodes if node["ts"] >= first):
        at = (session.start_ns - BASE_NS) / 1000 + node["ts"] + 3 + late_us
        took = KERNEL_US.get(node["args"]["op_name"], 1.0)
        args = {"correlation": number, "node": node["name"]}
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at, "dur": 3.0, "args": args}
        kernel = {"cat": "kernel", "name": "sgemm_128x64", "ts": at + 500, "dur": took, "args": args}
        found += [{"ph": "X", **launch}, {"ph": "X", **kernel}]
    return found


def written(events):
    return json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": [{"ph": "M", "name": "process"}, *events]})


def test_kernels_are_joined_with_the_nodes_that_launched_them(session):
    """A kernel is of the node that the host was at, however late it ran, and although all have one name."""
    found = joined(session.text, session.start_ns, written(kernels_of(session)))
    assert found.problems == ()
    by_node = {layer.nodes[0]: layer.ms * 1000 for layer in found.layers}
    assert by_node == pytest.approx(
        {
            node["name"].removesuffix("_kernel_time"): KERNEL_US.get(node["args"]["op_name"], 1.0)
            for node in session.nodes
        }
    )
    split = profile(found, kernels.GROUPS, WATCHED, None)
    assert split.problems == ()
    assert {group: ms * 1000 for group, ms in split.groups_ms.items() if group != OTHER} == pytest.approx(
        {kernels.SEQUENCE_DFT: 12.0, kernels.HIDDEN_DFT: 12.0, kernels.FFN: 8.0, kernels.PROJECTION: 2.0}
    )


def test_kernel_of_unknown_launch_is_of_no_node(session):
    """C19: time whose launch was not recorded, or was outside every node, lowers the coverage and is of its call."""
    launch, *others = kernels_of(session)
    for events in (others, [{**launch, "ts": launch["ts"] - 15}, *others]):
        found = joined(session.text, session.start_ns, written(events))
        assert [layer.nodes for layer in found.layers].count(()) == 1
        assert profile(found, kernels.GROUPS, WATCHED, None).coverage < 1


@pytest.mark.parametrize("late_us", [-5, 5])
def test_clocks_that_disagree_are_found(session, late_us):
    """C19: were the two clocks apart, launches would not lie within nodes, and no share would be told."""
    found = joined(session.text, session.start_ns, written(kernels_of(session, late_us)))
    assert {layer.nodes for layer in found.layers} == {()}
    assert profile(found, kernels.GROUPS, WATCHED, None).problems != ()


def test_product_without_a_kernel(session):
    """C19: a product that launched nothing in a watched call is named: its time is missing, or in another group."""
    lost = "layer.0/hidden_dft/cos"
    events = [event for event in kernels_of(session) if event["args"]["node"] != f"{lost}_kernel_time"]
    found = joined(session.text, session.start_ns, written(events))
    assert found.problems == (f"no kernel was launched by {lost}, though it is a product",)
    assert found.problems[0] in profile(found, kernels.GROUPS, WATCHED, None).problems[0]


def test_watched_process_without_kernels(tmp_path, monkeypatch):
    """C19: where torch.profiler sees no kernel, the calls were made, the session's file is gone, the trace is empty."""

    class NoKernels:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def export_chrome_trace(self, path):
            Path(path).write_text(written([]))

    monkeypatch.setattr("torch.profiler.profile", NoKernels)
    opened, calls = open_session(tmp_path), []

    def call():
        calls.append(opened.run(None, {"input_ids": tiny.ids().numpy()}))

    found = watch(opened, call, runs=4)
    assert found == Trace(())
    assert len(calls) > 4  # warmed up
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "<html>", "[1]", '[{"cat": "Node"}]', "null"])
def test_no_profile_at_all(session, text):
    """A file of another form is an error of one line, whichever of the two it is."""
    whole = session.text, written(kernels_of(session))
    for session_text, kernels_text in ((text, whole[1]), (whole[0], text)):
        with tiny.one_line(EngineError, "cannot be read"):
            joined(session_text, session.start_ns, kernels_text)
