"""fp16 on a CPU rounds where an fp16 GPU rounds; without the emulation the overflow of the study would not show."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto

from fixtures.cases import Case
from fixtures.engines import onnxruntime as cpu
from fixtures.engines.half import emulate_fp16
from fixtures.graphs import Builder, Graph
from tests.meta import tiny

FP32, FP16, FP8 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.FLOAT8E4M3FN
LARGEST, STEP = 65504.0, 2.0**-24  # fp16's largest number and its smallest step

# Two fp16 operands of every kind of result: plain, inexact, overflowing, underflowing, infinite, NaN.
PAIRS = np.array(
    [
        *[(1.5, 2.25), (0.1, 0.3), (2048.0, 1.0), (3e-3, 2e-3), (-7.0, 3.0)],
        *[(LARGEST, LARGEST), (-LARGEST, 300.0), (STEP, 0.25), (STEP, -STEP)],
        *[(np.inf, 1.0), (np.inf, -np.inf), (np.nan, 1.0), (0.0, 0.0), (1.0, 0.0)],
    ]
)


@pytest.fixture
def left_out(monkeypatch) -> None:
    """The fault: the CPU engine takes the graph as it is."""
    monkeypatch.setattr(cpu, "emulate_fp16", lambda graph: graph)


def half_graph(op_type: str, *inputs: str) -> Graph:
    """op(x, y) in fp16 between casts, over fp32 vectors."""
    build = Builder()
    for name in inputs:
        build.input(name, np.float32, (len(PAIRS),))
        build.cast(f"{name}/fp16", name, "fp16")
    build.cast("out", build.op(op_type, "op", *(f"{name}/fp16" for name in inputs)), "fp32")
    build.output("out", np.float32, (len(PAIRS),))
    return build.build(Case("fnet", "tiny", None, 1, "fp16"))


def out(graph: Graph, **feeds: np.ndarray) -> np.ndarray:
    with cpu.CpuEngine(graph) as engine:
        values = engine.run({name: torch.from_numpy(array.astype(np.float32)) for name, array in feeds.items()})
    return values["out"].numpy()


# ---- what it is for


def is_finite(variant: str) -> bool:
    graph = tiny.graph(variant, of=tiny.checkpoint(put=tiny.OVERFLOW))
    return bool(tiny.features(graph, tiny.ids()).isfinite().all())


def test_overflow_shows():
    """A DFT whose first element is -153,600 is not finite in plain fp16, and is in fp16+hs and with the DFT in fp32."""
    finite = {variant: is_finite(variant) for variant in ("fp32", "fp16", "fp16+hs", "fp16+dft32")}
    assert finite == {"fp32": True, "fp16": False, "fp16+hs": True, "fp16+dft32": True}


@pytest.mark.usefixtures("left_out")
def test_overflow_vanishes_without_it():
    """The fault: ONNX Runtime alone computes in fp32, and the study's known issue would be gone unseen."""
    assert is_finite("fp16")


# ---- the same numbers as fp16


@pytest.mark.parametrize(
    ("op_type", "numpy_op"),
    [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide), ("Max", np.maximum)],
)
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_operator_of_two_is_numpys(op_type, numpy_op):
    """Element by element what NumPy gives in fp16, overflow, underflow, infinity and NaN included."""
    x, y = PAIRS.T.astype(np.float16)
    np.testing.assert_array_equal(out(half_graph(op_type, "x", "y"), x=x, y=y), numpy_op(x, y).astype(np.float32))


@pytest.mark.parametrize(("op_type", "numpy_op"), [("Sqrt", np.sqrt), ("Abs", np.abs), ("Neg", np.negative)])
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_operator_of_one_is_numpys(op_type, numpy_op):
    """The same for one operand."""
    x = PAIRS[:, 0].astype(np.float16)
    np.testing.assert_array_equal(out(half_graph(op_type, "x"), x=x), numpy_op(x).astype(np.float32))


def product_and_difference() -> Graph:
    """(x W) - x, all fp16, with W = 1 everywhere on 4 x 4."""
    build = Builder()
    build.input("x", np.float32, (1, 4))
    x = build.cast("x/fp16", "x", "fp16")
    product = build.op("MatMul", "product", x, build.constant_as("ones", np.ones((4, 4), np.float32), "fp16"))
    build.cast("out", build.op("Sub", "difference", product, x), "fp32")
    build.output("out", np.float32, (1, 4))
    return build.build(Case("fnet", "tiny", None, 1, "fp16"))


ROW = np.array([[2048.0, 1.0, 0.0, 0.0]])


def test_rounding_is_between_operators():
    """2049 becomes 2048 before the next operator sees it; a product past 65504 is infinite and stays so."""
    graph = product_and_difference()
    assert out(graph, x=ROW).tolist() == [[0.0, 2047.0, 2048.0, 2048.0]]
    assert np.isposinf(out(graph, x=np.full((1, 4), 20000.0))).all()


@pytest.mark.usefixtures("left_out")
def test_rounding_between_operators_is_lost_without_it():
    """The fault: 2049 - 2048 is 1 and 80000 - 20000 is 60000."""
    graph = product_and_difference()
    assert out(graph, x=ROW).tolist() == [[1.0, 2048.0, 2049.0, 2049.0]]
    assert out(graph, x=np.full((1, 4), 20000.0)).tolist() == [[60000.0] * 4]


def test_explicit_casts_are_kept():
    """A graph's own cast to fp16 and back rounds, overflows and underflows as one."""
    x = np.array([1 + 2**-12, 70000.0, -65520.0, 65519.0, 2**-26, 0.1, np.nan] * 2)
    with np.errstate(over="ignore"):
        expected = x.astype(np.float32).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(out(half_graph("Identity", "x"), x=x), expected)


# ---- the graph it makes


@pytest.mark.parametrize("variant", ["fp16", "fp16+hs", "fp16+dft32", "fp8"])
def test_rounds_what_is_computed_and_nothing_else(variant):
    """One rounding for each fp16 value, none for one that was only moved, and fp32 everywhere between."""
    graph = tiny.graph(variant)
    rounded = emulate_fp16(graph)
    halves = {value.name for value in graph.proto.graph.value_info if value.type.tensor_type.elem_type == FP16}
    computed = {node.name for node in graph.proto.graph.node if node.name in halves and node.op_type != "Gather"}
    constant = {name for name in computed if name.endswith("/weight")}  # FP8, dequantized once and for all
    typed = onnx.shape_inference.infer_shapes(rounded.to_proto(), check_type=True, strict_mode=True)
    types = {value.name: value.type.tensor_type.elem_type for value in typed.graph.value_info}
    assert {name for name, element in types.items() if element == FP16} == {
        f"{name}/rounded" for name in computed - constant
    }
    assert "embeddings/word" in halves - computed
    assert {array.dtype for array in rounded.weights.values()} <= {
        np.dtype(each) for each in (np.float32, np.int64, ml_dtypes.float8_e4m3fn)
    }


def test_fp32_graph_is_left_as_it_is():
    """There is nothing to round: the same nodes and arrays."""
    graph = tiny.graph("fp32")
    rounded = emulate_fp16(graph)
    assert list(rounded.proto.graph.node) == list(graph.proto.graph.node)
    assert rounded.weights == graph.weights


# ---- FP8 constants

CODES = np.array([code for code in range(256) if code & 0x7F != 0x7F], np.uint8)  # 0x7F and 0xFF are NaN


def dequantized(codes: np.ndarray, scale: np.ndarray, **axis: int) -> np.ndarray:
    """What an engine makes of an FP8 constant [rows, columns], taken out by adding zero."""
    build = Builder()
    build.input("x", np.float32, codes.shape)
    build.constant("codes", codes.view(ml_dtypes.float8_e4m3fn))
    build.constant("scale", scale)
    build.constant("zero", np.zeros(scale.shape, ml_dtypes.float8_e4m3fn))
    wide = build.cast("wide", build.op("DequantizeLinear", "weight", "codes", "scale", "zero", **axis), "fp32")
    build.op("Add", "out", wide, "x")
    build.output("out", np.float32, codes.shape)
    return out(build.build(Case("fnet", "tiny", None, 1, "fp8")), x=np.zeros(codes.shape))


@pytest.mark.parametrize(
    ("axis", "scale"),
    [
        ({}, np.array(0.0123, np.float16)),
        ({}, np.array(2.0**-14, np.float16)),
        ({}, np.array(3.7, np.float32)),
        ({"axis": 0}, np.array([0.01, 0.5], np.float16)),
        ({"axis": -2}, np.array([0.01, 0.5], np.float16)),
        ({"axis": 1}, np.linspace(0.01, 2, 127, dtype=np.float16)),
        ({}, np.linspace(0.01, 2, 127, dtype=np.float16)),  # ONNX's own default is axis 1
    ],
)
def test_fp8_constant_is_what_torch_reads(axis, scale):
    """All 254 numbers of E4M3, times the scale of their tensor, row or column, rounded to the scale's type."""
    codes = CODES.reshape(2, 127)
    wide = torch.from_numpy(codes).view(torch.float8_e4m3fn).float().numpy()
    factor = scale[:, None] if axis.get("axis") in (0, -2) else scale
    expected = (wide * factor.astype(np.float32)).astype(scale.dtype).astype(np.float32)
    np.testing.assert_array_equal(dequantized(codes, scale, **axis), expected)


def test_activation_through_fp8_is_what_torch_gives():
    """Quantize and Dequantize with an fp16 scale: to nearest even, held to +-448 times the scale."""
    build, scale, shape = Builder(), np.array(0.25, np.float16), (6,)
    build.input("x", np.float32, shape)
    build.constant("scale", scale)
    build.constant("zero", np.zeros((), ml_dtypes.float8_e4m3fn))
    codes = build.op("QuantizeLinear", "codes", build.cast("x/fp16", "x", "fp16"), "scale", "zero")
    build.cast("out", build.op("DequantizeLinear", "values", codes, "scale", "zero"), "fp32")
    build.output("out", np.float32, shape)
    x = np.array([0.3, -1.7, 200.0, -60000.0, 4.25, 0.0])
    held = torch.from_numpy(x).half().float().div(0.25).clamp(-448, 448)
    expected = held.to(torch.float8_e4m3fn).float() * 0.25
    assert out(build.build(Case("fnet", "tiny", None, 1, "fp8")), x=x).tolist() == expected.tolist()
