"""What TensorRT made of a case: sizes, another precision than was asked for, kernel time; with faults fed in."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fixtures.cases import Case
from fixtures.conclusions import conclusions
from fixtures.engines.inspection import Inspection, Layer
from fixtures.engines.tensorrt import LayerTime, TensorRTEngine
from fixtures.fnet import built, lab
from fixtures.fnet.figures import GraphFacts
from fixtures.fnet.lab import Lab
from fixtures.fnet.recipe import recipe
from fixtures.profiling import RUNS
from fixtures.telemetry import Summary
from fixtures.timing import GroupTiming
from fixtures.verdicts import Outcome
from tests.meta.setups import B200, made

HALF, FP8 = (Case("fnet", "base", 512, 1, variant) for variant in ("fp16+hs", "fp8"))
PRODUCTS = ("sequence_dft/cos", "sequence_dft/sin", "hidden_dft/cos", "hidden_dft/sin", "intermediate", "output")
PROJECTION = "embeddings/projection/matmul"
MIB = 2**20


def gemm(node: str, precision: str) -> Layer:
    """A product of the engine, named by its node in layer 0."""
    name = f"layer.0/{node}" if "dft" in node else f"layer.0/{node}/matmul"
    return Layer(name, "gemm", "", (name,), (precision, precision), (precision,), (name,), precision)


def layers(**other: str) -> tuple[Layer, ...]:
    """One encoder layer as fp16+hs asks for it, but for `other`: products by the first word of their name."""
    default = {"sequence_dft": "fp32", "hidden_dft": "fp16", "intermediate": "fp16", "output": "fp16"} | other
    projection = Layer("embeddings", "gemm", "", (PROJECTION,), ("fp16",), ("fp16",), (PROJECTION,), "fp16")
    return (projection, *(gemm(node, default[node.partition("/")[0]]) for node in PRODUCTS))


def facts(quantized: int) -> GraphFacts:
    return GraphFacts(sha256="", operators=(), constant_bytes=0, fp8_bytes=0, quantized=quantized, flops=0)


@dataclass
class Fake(TensorRTEngine):
    """An engine that was never built: what it says of itself, and the milliseconds of its layers."""

    plan_bytes: int
    built: tuple[Layer, ...]
    ms: tuple[float, ...] = (0.2, 1.0, 1.0, 0.4, 0.4, 0.5, 0.5)

    def inspect(self) -> Inspection:
        return Inspection(self.built)

    def profile(self, runs: int) -> list[LayerTime]:
        times = list(zip(self.built, self.ms, strict=True))
        return [LayerTime(run, layer.name, ms) for run in range(runs) for layer, ms in times]


def test_plan_sizes():
    """MiB, and the change that the study prints as -33%."""
    fp8, half = Fake(108 * MIB, ()), Fake(162 * MIB, ())
    assert built.plan_size(half).value == 162.0
    assert built.plan_change(fp8, half).value == pytest.approx(-1 / 3)


@pytest.mark.parametrize(
    ("variant", "other", "fp8_products", "said"),
    [
        ("fp16+hs", {}, 0, None),
        ("fp16+dft32", {"hidden_dft": "fp32"}, 0, None),
        ("fp8", {"intermediate": "fp8", "output": "fp8"}, 2, None),
        ("fp8-no-output-dense", {"intermediate": "fp8"}, 1, None),
        ("fp16+hs", {"output": "fp32"}, 0, "layer.0/output/matmul in fp32"),
        ("fp16+hs", {"sequence_dft": "fp16"}, 0, "layer.0/sequence_dft/cos in fp16"),
        ("fp16+dft32", {}, 0, "layer.0/hidden_dft/cos in fp16"),
        ("fp8", {}, 2, "asked for fp8 with 2 FP8 GEMMs and convolutions, but the engine has 0"),
        ("fp8", {"intermediate": "fp8"}, 2, "but the engine has 1"),
    ],
)
def test_engine_of_another_precision_is_told(variant, other, fp8_products, said):
    """C01: what was built is read from the engine; fp32 is right where the graph says so and nowhere else."""
    found = built.difference(Fake(0, layers(**other)), recipe(variant, 512), fp8_products)
    assert (found is None) if said is None else said in found


def timing(half_ms: float, fp8_ms: float) -> GroupTiming:
    """Nine rounds without noise."""
    return GroupTiming(
        rounds_ms={HALF.id: (half_ms,) * 9, FP8.id: (fp8_ms,) * 9},
        plain_ms={},
        warmup_calls=0,
        calls_per_round=50,
        input_sha256="0" * 64,
        timer="made up",
        telemetry=Summary(0, None, None, None, None, None, None, "made up"),
        problems=(),
        notes=(),
    )


@pytest.fixture
def session(tmp_path, monkeypatch) -> Lab:
    """A B200 with TensorRT whose two engines are fakes and whose times are the study's."""
    study = Lab(made(tmp_path, B200, tensorrt=True, checkpoints="synthetic", datasets="embedded"))
    engines = {
        HALF: (facts(quantized=0), Fake(162 * MIB, layers())),
        FP8: (facts(quantized=2), Fake(108 * MIB, layers(intermediate="fp8", output="fp8"))),
    }
    monkeypatch.setattr(study, "_gpu_engine", engines.__getitem__)
    monkeypatch.setattr(study, "timing", lambda *_: timing(0.752, 0.715))
    return study


def judged(claim: str, measured) -> Outcome:
    return measured.judged(conclusions().claims[f"fnet/{claim}"].limits, Outcome.FLIPPED)


def test_plan_claim(session):
    """The documented sizes hold the claim."""
    assert session.plan(HALF).keys() == {"plan_size"}
    assert judged("fp8-plan-base", session.plan(FP8)["plan_change"]) is Outcome.HOLDS


def test_time_of_another_engine_is_invalid(session):
    """C01: the very times that hold the claim say nothing once the FP8 engine turns out to be fp16."""
    sound = session.speed(FP8)["speedup"]
    assert (sound.problems, sound.value) == ((), pytest.approx(0.752 / 0.715))
    session._gpu_engine(FP8)[1].built = layers()
    session.built_otherwise = session._built_otherwise
    found = session.speed(FP8)
    assert "base-512-b1-fp8: asked for fp8 with 2 FP8 GEMMs" in found["speedup"].problems[0]
    assert judged("fp8-barely-faster", found["speedup"]) is Outcome.INVALID
    assert session.speed(HALF)["latency"].problems == ()


def test_kernel_claims(session, monkeypatch):
    """Shares of the half-precision call, and what FP8 takes off the feed-forward products, by the names of claims."""
    monkeypatch.setattr(session, "timing", lambda *_: timing(4.0, 4.0))
    session._gpu_engine(FP8)[1].ms = (0.2, 1.0, 1.0, 0.4, 0.4, 0.4, 0.4)
    half, fp8 = session.kernels(HALF), session.kernels(FP8)
    assert half["sequence_dft_share"].value == pytest.approx(2.0 / 4.0)
    assert half["ffn_share"].value == pytest.approx(1.0 / 4.0)
    assert fp8["ffn_shorter"].value == pytest.approx(0.2)
    assert fp8["free_dft_speedup"].value == pytest.approx(2.0 / 1.8)
    assert half["ffn_share"].samples == RUNS


def test_incomplete_profile_is_no_figure(session, monkeypatch):
    """C19: a profiler that reports one opaque layer gives no share."""
    monkeypatch.setattr(session, "timing", lambda *_: timing(4.0, 4.0))
    opaque = Layer("graph launch", "other", "", (), (), ())
    session._gpu_engine(HALF)[1].built, session._gpu_engine(HALF)[1].ms = (opaque,), (4.0,)
    share = session.kernels(HALF)["sequence_dft_share"]
    assert share.problems
    assert judged("sequence-dft-dominates-at-batch-1", share) is Outcome.INVALID


def test_only_tensorrt_has_plans(tmp_path, monkeypatch):
    """Another engine's case is refused by name, not given a size of something else."""
    study = Lab(made(tmp_path, B200, engine="onnxruntime", checkpoints="synthetic", datasets="embedded"))
    monkeypatch.setattr(study, "_gpu_engine", lambda _: (None, object()))
    with pytest.raises(lab.InputError, match="base-512-b1-fp8: plans and kernels are figures of TensorRT"):
        study.plan(FP8)
