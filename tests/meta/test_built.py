"""What TensorRT made of an FNet case: sizes, another precision than was asked for, kernel time; with faults fed in."""

from __future__ import annotations

import pytest

from fixtures.cases import Case
from fixtures.conclusions import conclusions
from fixtures.engines.inspection import Layer
from fixtures.fnet import lab
from fixtures.fnet.figures import GraphFacts
from fixtures.fnet.lab import Lab
from fixtures.profiling import RUNS
from fixtures.verdicts import Outcome
from tests.meta.engines import MIB, Fake, product, timing
from tests.meta.setups import B200, made

HALF, FP8 = (Case("fnet", "base", 512, 1, variant) for variant in ("fp16+hs", "fp8"))
PRODUCTS = ("sequence_dft/cos", "sequence_dft/sin", "hidden_dft/cos", "hidden_dft/sin", "intermediate", "output")
PROJECTION = "embeddings/projection/matmul"
MS = (0.2, 1.0, 1.0, 0.4, 0.4, 0.5, 0.5)  # of the projection, then of PRODUCTS


def gemm(node: str, precision: str) -> Layer:
    """A product of the engine, named by its node in layer 0."""
    return product(f"layer.0/{node}" if "dft" in node else f"layer.0/{node}/matmul", precision)


def layers(**other: str) -> tuple[Layer, ...]:
    """One encoder layer as fp16+hs asks for it, but for `other`: products by the first word of their name."""
    default = {"sequence_dft": "fp32", "hidden_dft": "fp16", "intermediate": "fp16", "output": "fp16"} | other
    return (product(PROJECTION, "fp16"), *(gemm(node, default[node.partition("/")[0]]) for node in PRODUCTS))


def facts(quantized: int) -> GraphFacts:
    return GraphFacts(sha256="", operators=(), constant_bytes=0, fp8_bytes=0, quantized=quantized, flops=0)


@pytest.fixture
def session(tmp_path, monkeypatch) -> Lab:
    """A B200 with TensorRT whose two engines are fakes and whose times are the study's."""
    study = Lab(made(tmp_path, B200, tensorrt=True, checkpoints="synthetic", datasets="embedded"))
    engines = {
        HALF: Fake(162 * MIB, layers(), MS),
        FP8: Fake(108 * MIB, layers(intermediate="fp8", output="fp8"), MS),
    }
    monkeypatch.setattr(study.bench, "gpu_engine", engines.__getitem__)
    monkeypatch.setattr(study.bench, "facts", {HALF: facts(quantized=0), FP8: facts(quantized=2)}.__getitem__)
    monkeypatch.setattr(study.bench, "_feeds", lambda _: {})
    time(study, monkeypatch, 0.752, 0.715)
    return study


def time(study: Lab, monkeypatch, half_ms: float, fp8_ms: float) -> None:
    """Have the study's two engines take these times."""
    monkeypatch.setattr(study.bench, "timing", lambda *_: timing({HALF.id: half_ms, FP8.id: fp8_ms}))


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
def test_engine_of_another_precision_is_told(session, monkeypatch, variant, other, fp8_products, said):
    """C01: what was built is read from the engine; fp32 is right where the graph says so and nowhere else."""
    monkeypatch.setattr(session.bench, "gpu_engine", lambda _: Fake(0, layers(**other)))
    monkeypatch.setattr(session.bench, "facts", lambda _: facts(fp8_products))
    found = session.bench.built_otherwise(HALF.at(variant))
    assert (found is None) if said is None else said in found


def judged(claim: str, measured) -> Outcome:
    return measured.judged(conclusions().claims[f"fnet/{claim}"].limits, Outcome.FLIPPED)


def test_plan_claim(session):
    """The documented sizes, in MiB, hold the claim on the change that the study prints as -33%."""
    assert session.plan(HALF).keys() == {"plan_size"}
    assert session.plan(HALF)["plan_size"].value == 162.0
    assert session.plan(FP8)["plan_change"].value == pytest.approx(-1 / 3)
    assert judged("fp8-plan-base", session.plan(FP8)["plan_change"]) is Outcome.HOLDS


def test_time_of_another_engine_is_invalid(session):
    """C01: the very times that hold the claim say nothing once the FP8 engine turns out to be fp16."""
    sound = session.speed(FP8)["speedup"]
    assert (sound.problems, sound.value) == ((), pytest.approx(0.752 / 0.715))
    session.bench.inspection = session.bench._inspection  # which remembers
    session.bench.gpu_engine(FP8).built = layers()
    found = session.speed(FP8)
    assert "base-512-b1-fp8: asked for fp8 with 2 FP8 GEMMs" in found["speedup"].problems[0]
    assert judged("fp8-barely-faster", found["speedup"]) is Outcome.INVALID
    assert session.speed(HALF)["latency"].problems == ()
    assert judged("fp8-plan-base", session.plan(FP8)["plan_change"]) is Outcome.INVALID


def test_kernel_claims(session, monkeypatch):
    """Shares of the half-precision call, and what FP8 takes off the feed-forward products, by the names of claims."""
    time(session, monkeypatch, 4.0, 4.0)
    session.bench.gpu_engine(FP8).ms = (0.2, 1.0, 1.0, 0.4, 0.4, 0.4, 0.4)
    half, fp8 = session.kernels(HALF), session.kernels(FP8)
    assert half["sequence_dft_share"].value == pytest.approx(2.0 / 4.0)
    assert half["ffn_share"].value == pytest.approx(1.0 / 4.0)
    assert fp8["ffn_shorter"].value == pytest.approx(0.2)
    assert fp8["free_dft_speedup"].value == pytest.approx(2.0 / 1.8)
    assert half["ffn_share"].samples == RUNS


def test_incomplete_profile_is_no_figure(session, monkeypatch):
    """C19: a profiler that reports one opaque layer gives no share."""
    time(session, monkeypatch, 4.0, 4.0)
    half = session.bench.gpu_engine(HALF)
    half.built, half.ms = (Layer("graph launch", "other", "", (), (), ()),), (4.0,)
    share = session.kernels(HALF)["sequence_dft_share"]
    assert share.problems
    assert judged("sequence-dft-dominates-at-batch-1", share) is Outcome.INVALID


def test_only_tensorrt_has_plans(tmp_path, monkeypatch):
    """Another engine's case is refused by name, not given a size of something else."""
    study = Lab(made(tmp_path, B200, engine="onnxruntime", checkpoints="synthetic", datasets="embedded"))
    monkeypatch.setattr(study.bench, "gpu_engine", lambda _: object())
    with pytest.raises(lab.InputError, match="base-512-b1-fp8: plans and layers are figures of TensorRT"):
        study.plan(FP8)
