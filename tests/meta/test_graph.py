"""An FNet graph is the reference's function, its types are the recipe's, and its file is whole; with faults fed in."""

from __future__ import annotations

import resource
from math import nan

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from fixtures import graphs, metrics
from fixtures.cases import Case
from fixtures.checkpoints import Checkpoint
from fixtures.engines.onnxruntime import CpuEngine
from fixtures.engines.probe import ranges
from fixtures.errors import EngineError, InputError
from fixtures.fnet import figures
from fixtures.fnet import graph as fnet
from fixtures.fnet.graph import dft_matrices
from fixtures.fnet.recipe import RECIPES
from fixtures.fnet.reference import Reference
from fixtures.graphs import Builder, Graph
from tests.meta import tiny

HALF = ("fp16", "fp16+hs", "fp16+dft32", "fp8", "fp8-no-output-dense")
FP32, FP16, FP8 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.FLOAT8E4M3FN
WORD_TABLE = "embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(tiny.plain())


# ---- the DFT


def dft_error(matrices: tuple[np.ndarray, np.ndarray], length: int) -> float:
    """The farthest any element is from PyTorch's FFT of the identity in float64."""
    exact = torch.fft.fft(torch.eye(length, dtype=torch.float64))
    cosine, sine = (torch.from_numpy(matrix).double() for matrix in matrices)
    return max(float((cosine - exact.real).abs().max()), float((sine + exact.imag).abs().max()))


@pytest.mark.parametrize("length", [512, 256, 128, 100, 96, 768])
def test_dft_matrices_are_the_fft(length):
    """Every element is the FFT's, to the rounding of fp32 (half a step at 1 is 2^-25), powers of two or not."""
    matrices = dft_matrices(length)
    assert [matrix.dtype for matrix in matrices] == [np.float32, np.float32]
    assert dft_error(matrices, length) <= 2**-25 + 1e-12


def test_dft_check_finds_angles_in_fp32():
    """The fault: the same matrices from fp32 angles, without the modulo, are 1000 times as far off."""
    index = np.arange(512, dtype=np.float32)
    angle = np.outer(index, index) * np.float32(2 * np.pi / 512)
    assert dft_error((np.cos(angle), np.sin(angle)), 512) > 1e-5


@pytest.mark.parametrize("shape", [(512, 768), (100, 96)])
def test_dft_products_are_the_real_part_of_fft2(shape):
    """C X C - S X S is what Transformers takes of the 2-D FFT; adding the products instead is another function."""
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (row_cos, row_sin), (column_cos, column_sin) = (
        [torch.from_numpy(matrix).double() for matrix in dft_matrices(length)] for length in shape
    )
    exact, cosines, sines = torch.fft.fft2(x).real, row_cos @ x @ column_cos, row_sin @ x @ column_sin
    assert metrics.relative_l2(exact, cosines - sines).max() < 2e-7
    assert metrics.relative_l2(exact, cosines + sines).mean() > 1


# ---- the function


@pytest.mark.parametrize(("window", "batch"), [(16, 1), (16, 3), (20, 1), (100, 3), (128, 1), (1, 1)])
def test_fp32_graph_is_the_reference(reference, window, batch):
    """Any window up to the checkpoint's, power of two or not, and any batch: fp32 agrees with Transformers."""
    ids = tiny.ids(batch, window)
    with CpuEngine(tiny.graph("fp32", window, batch)) as engine:
        found = engine.run({"input_ids": ids})
    assert found["features"].shape == (batch, window, tiny.HIDDEN)
    assert tiny.apart(reference.features(ids), found["features"]) < 2e-6
    assert torch.equal(found["cls"], found["features"][:, 0])


@pytest.mark.parametrize(("variant", "limit"), [(name, 0.01) for name in HALF[:3]] + [(name, 0.2) for name in HALF[3:]])
def test_half_and_fp8_graphs_are_near_the_reference(reference, variant, limit):
    """Every variant is the same network, as far as its types allow."""
    ids = tiny.ids(3)
    assert tiny.apart(reference.features(ids), tiny.features(tiny.graph(variant, batch=3), ids)) < limit


@pytest.mark.parametrize("variant", ["fp32", "fp16", "fp8"])
def test_row_does_not_depend_on_its_batch_mates(variant):
    """C29: a row gives the same alone and beside any others."""
    row, mates, batch_of_3 = tiny.ids(1, seed=1), tiny.ids(2, seed=2), tiny.graph(variant, batch=3)
    alone = tiny.features(tiny.graph(variant), row)
    for batch in (torch.cat([row, mates]), torch.cat([row, row, mates[:1]])):
        torch.testing.assert_close(tiny.features(batch_of_3, batch)[:1], alone, rtol=1e-5, atol=1e-5)


def test_padding_is_part_of_the_input(reference):
    """C29: one sentence padded to 16 and to 20 gives two answers, and the reference gives the same two."""
    short = torch.nn.functional.pad(tiny.ids(1, 10), (0, 6), value=3)
    long = torch.nn.functional.pad(short, (0, 4), value=3)
    expected = [reference.features(ids)[:, 0] for ids in (short, long)]
    found = [tiny.features(tiny.graph(window=ids.shape[1]), ids)[:, 0] for ids in (short, long)]
    assert tiny.apart(*expected) > 0.1
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_token_type_zero_is_in_the_graph():
    """C29: there is no token type input, and type 0's embedding counts."""
    table = torch.randn(4, tiny.HIDDEN, generator=torch.Generator().manual_seed(3))
    typed, ids = tiny.checkpoint(put={"embeddings.token_type_embeddings.weight": table}), tiny.ids()
    found = tiny.features(tiny.graph(of=typed), ids)
    assert tiny.apart(Reference(typed).features(ids), found) < 2e-6
    assert tiny.apart(tiny.features(tiny.graph(), ids), found) > 0.1


@pytest.mark.parametrize("window", [0, -1, 129, 512, None])
def test_window_that_does_not_fit_is_refused(window):
    """One line with the window, the limit and the way out."""
    case = Case("fnet", "tiny", window, 1, "fp32")
    with tiny.one_line(
        InputError, f"window {window} ", "max_position_embeddings is 128", "choose a window of 1 to 128"
    ):
        fnet.build(case, tiny.plain(), RECIPES["fp32"], {})


def test_ids_of_another_length_are_refused():
    """A DFT of the wrong length is another function, so no engine takes a row that is not as long as the window."""
    with tiny.one_line(EngineError, "input_ids", "(1, 20)", "(1, 16)"):
        tiny.features(tiny.graph(window=20), tiny.ids(1, 16))


# ---- types, names, quantized layers


def elements(graph: Graph) -> dict[str, int]:
    """The element type of every value and constant of a graph."""
    inner = graph.proto.graph
    found = {value.name: value.type.tensor_type.elem_type for value in (*inner.value_info, *inner.input, *inner.output)}
    return found | {tensor.name: tensor.data_type for tensor in inner.initializer}


@pytest.mark.parametrize("variant", RECIPES)
def test_every_type_and_shape_is_in_the_graph(variant):
    """Strongly typed: opset 21, IR 10, no value without type and full shape, arrays of the type that is declared."""
    graph = tiny.graph(variant, batch=3)
    assert [(opset.domain, opset.version) for opset in graph.proto.opset_import] == [("", 21)]
    assert graph.proto.ir_version == 10
    known = elements(graph)
    assert {name for node in graph.proto.graph.node for name in (*node.input, *node.output)} == known.keys()
    for value in graph.proto.graph.value_info:
        assert all(size.dim_value > 0 for size in value.type.tensor_type.shape.dim), value.name
    for name, array in graph.weights.items():
        assert graphs.ELEMENT_TYPES[array.dtype] == known[name]
    assert [known[name] for name in ("input_ids", "features", "cls")] == [TensorProto.INT64, FP32, FP32]


@pytest.mark.parametrize("variant", RECIPES)
def test_products_have_the_recipes_types(variant):
    """The sequence axis is fp32, the hidden axis as the recipe says, other products and GELU in the work precision,
    residuals and norms fp32."""
    recipe, known = RECIPES[variant], elements(tiny.graph(variant))
    work, hidden = ({"fp32": FP32, "fp16": FP16}[each] for each in (recipe.work, recipe.hidden_dft))
    assert known["embeddings/projection/matmul"] == work
    for layer in ("layer.0", "layer.1"):
        for part in ("cos", "sin"):
            assert (known[f"{layer}/sequence_dft/{part}"], known[f"{layer}/hidden_dft/{part}"]) == (FP32, hidden)
        assert {known[f"{layer}/{name}"] for name in ("intermediate/matmul", "output/matmul", "gelu")} == {work}
        assert {known[f"{layer}/{part}/{name}"] for part in ("mixing", "output") for name in ("add", "norm")} == {FP32}


@pytest.mark.parametrize("variant", RECIPES)
def test_node_names_are_unique_and_say_where(variant):
    """Kernel time is grouped by them: each node and its output are called by layer and part."""
    nodes = tiny.graph(variant).proto.graph.node
    names = [node.name for node in nodes]
    assert len(set(names)) == len(names)
    assert names == [name for node in nodes for name in node.output]
    assert {name.partition("/")[0] for name in names} == {"embeddings", "layer.0", "layer.1", "features", "cls"}
    assert {"layer.1/sequence_dft/cos", "layer.1/hidden_dft/sin", "layer.1/intermediate/matmul"} < set(names)


@pytest.mark.parametrize("variant", RECIPES)
def test_quantized_layers_are_the_recipes(variant):
    """C28: two a layer for `fp8`, one without `output.dense`, by name and by count; none elsewhere."""
    graph = tiny.graph(variant)
    kinds = [kind.split(".")[0] for kind in RECIPES[variant].quantized]
    found = [node.name for node in graph.proto.graph.node if node.op_type == "QuantizeLinear"]
    assert found == [f"layer.{layer}/{kind}/quantize" for layer in range(tiny.LAYERS) for kind in kinds]
    facts = figures.facts(graph)
    assert facts.quantized == {"fp8": 2 * tiny.LAYERS, "fp8-no-output-dense": tiny.LAYERS}.get(variant, 0)
    assert facts.fp8_bytes == len(found) * tiny.HIDDEN * tiny.INNER + bool(found)  # and one zero point for all


@pytest.mark.parametrize("variant", ["fp8", "fp8-no-output-dense"])
def test_scales_have_the_type_of_their_data(variant):
    """Opset 21: beside fp16 data a scale is fp16, and both sides of a pair read the same one."""
    graph = tiny.graph(variant)
    known, nodes = elements(graph), {node.name: node for node in graph.proto.graph.node}
    pairs = [node for node in nodes.values() if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    for node in pairs:
        assert (known[node.input[1]], known[node.input[2]], graph.weights[node.input[1]].shape) == (FP16, FP8, ())
        assert known[node.output[0]] == (FP8 if node.op_type == "QuantizeLinear" else FP16)
    for node in (node for node in pairs if node.op_type == "QuantizeLinear"):
        assert nodes[node.name.replace("/quantize", "/dequantize")].input[:2] == [node.output[0], node.input[1]]


@pytest.mark.parametrize("bad", [0.0, -0.0, -0.01, float("nan"), float("inf"), 1e-45, 1e-8, 1e5])
def test_bad_activation_scale_is_refused_by_name(bad):
    """C26: a scale of zero, and any other that fp16 cannot hold, stops before it is in a graph."""
    with tiny.one_line(InputError, "a scale of the input of encoder.layer.1.output.dense is"):
        tiny.graph("fp8", scales=tiny.same_scales(tiny.BOTH) | {"encoder.layer.1.output.dense": bad})


@pytest.mark.parametrize(
    ("variant", "layer"),
    [
        ("fp8", "encoder.layer.2.output.dense"),
        ("fp8-no-output-dense", "encoder.layer.0.output.dense"),
        ("fp16", "encoder.layer.0.output.dense"),
    ],
)
def test_scale_that_belongs_nowhere_is_refused(variant, layer):
    """C28: a scale for a layer that is not there, or that this variant does not quantize, is no silent no-op."""
    with tiny.one_line(InputError, layer, "which the recipe does not quantize"):
        tiny.graph(variant, scales={layer: 0.01})


def test_outlier_layer_stays_fp16():
    """A layer without a scale (the 20x rule) is an fp16 product, and the count of quantized layers shows it."""
    graph = tiny.graph("fp8", scales=tiny.same_scales(tiny.BOTH[:1]))
    assert figures.facts(graph).quantized == 1
    assert elements(graph)["encoder.layer.1.output.dense.weight.T"] == FP16


@pytest.mark.parametrize("variant", ["fp32", "fp8"])
def test_flops_are_those_of_every_product(variant):
    """Two for each multiply and add of the projection, both DFT axes (cosine and sine) and the feed-forward."""
    window, hidden, batch = 20, tiny.HIDDEN, 3
    layer = 2 * window * (window * hidden + hidden * hidden + hidden * tiny.INNER)
    assert tiny.graph(variant, window, batch).flops == 2 * batch * (window * hidden * hidden + tiny.LAYERS * layer)


# ---- constants in fp16


def test_constant_beyond_fp16_is_refused_by_name():
    """An element that would become infinite is never written; the fp32 graph of the same weights has it."""
    table = tiny.plain().state[WORD_TABLE].clone()
    table[7, 3] = -70000.0
    huge = tiny.checkpoint(put={WORD_TABLE: table})
    with tiny.one_line(InputError, WORD_TABLE, "70000", "65504", "keep it in fp32"):
        tiny.graph("fp16", of=huge)
    assert tiny.graph("fp32", of=huge).weights[WORD_TABLE].min() == -70000.0


@pytest.mark.parametrize(
    ("value", "kept"), [(65519.0, 65504.0), (-65519.0, -65504.0), (65520.0, None), (-65520.0, None), (nan, None)]
)
def test_where_fp16_ends(value, kept):
    """What rounds to fp16's largest value is that, what rounds to infinity is refused, and so is what is no number."""
    builder = Builder()
    array = np.array([value, 1.0], np.float32)
    if kept is None:
        with tiny.one_line(InputError, "constant 'bias' reaches", "keep it in fp32"):
            builder.constant_as("bias", array, "fp16")
    else:
        builder.output(builder.op("Identity", "out", builder.constant_as("bias", array, "fp16")), np.float16, [2])
        assert builder.build(Case("fnet", "tiny", 4, 1, "fp16")).weights["bias"].tolist() == [kept, 1.0]


def test_constant_that_vanishes_in_fp16_is_refused_by_name():
    """A whole bias below fp16's smallest step would be lost in silence; one that is zero in fp32 already is fine."""
    name = "encoder.layer.1.intermediate.dense.bias"
    with tiny.one_line(InputError, name, "all zeros in fp16"):
        tiny.graph("fp16", of=tiny.checkpoint(put={name: torch.full((tiny.INNER,), 1e-9)}))
    assert not tiny.graph("fp16", of=tiny.checkpoint(put={name: torch.zeros(tiny.INNER)})).weights[name].any()


@pytest.mark.parametrize("lost", [0, 3])
def test_elements_that_underflow_are_listed(lost):
    """Single elements below fp16's smallest step are counted, by constant; true zeros are not, nor the DFT's."""
    name = "encoder.layer.0.output.dense.bias"
    bias = torch.ones(tiny.HIDDEN)
    bias[:lost], bias[-1] = 1e-9, 0.0
    notes = tiny.graph("fp16", of=tiny.checkpoint(put={name: bias})).half_notes
    assert notes == ((graphs.HalfNote(name, tiny.HIDDEN, lost),) if lost else ())


def faint_rows() -> Checkpoint:
    """Embeddings of +-1e-6, whose variance is the epsilon's 1e-12."""
    return tiny.checkpoint(put=tiny.embedding(torch.tensor([1e-6, -1e-6]).repeat(tiny.POSITIONS, tiny.HIDDEN // 2)))


def largest_norm(graph: Graph) -> float:
    """The largest output of the first layer norm."""
    found = ranges(graph, {"input_ids": tiny.ids()}, CpuEngine)
    return next(each.largest for each in found if each.node == "embeddings/norm")


@pytest.mark.parametrize("variant", ["fp32", "fp16", "fp8"])
def test_layer_norm_epsilon_stays_in_effect(variant):
    """1e-12 would be 0 in fp16: rows whose variance is 1e-12 too come out at 1/sqrt(2), and at 1 without it."""
    graph = tiny.graph(variant, of=faint_rows())
    norms = [node for node in graph.proto.graph.node if node.op_type == "LayerNormalization"]
    assert len(norms) == 1 + 2 * tiny.LAYERS
    for norm in norms:
        fields = {attribute.name: helper.get_attribute_value(attribute) for attribute in norm.attribute}
        assert (np.float32(fields["epsilon"]), fields["stash_type"]) == (np.float32(1e-12), FP32)
    assert largest_norm(graph) == pytest.approx(0.5**0.5, rel=1e-3)
    next(field for field in norms[0].attribute if field.name == "epsilon").f = float(np.float16(1e-12))
    assert largest_norm(graph) == pytest.approx(1.0, rel=1e-3)


# ---- C07: layer norm beyond fp16's squares


def with_pure_fp16_norm(graph: Graph) -> Graph:
    """The fault: the first layer norm (gain 1, bias 0) in fp16, as by a tool that makes every value fp16."""

    def node(op_type: str, name: str, *inputs: str, **attributes: object) -> onnx.NodeProto:
        return helper.make_node(op_type, list(inputs), [name], name, **attributes)

    pure = [
        node("Cast", "pure/x", "embeddings/add", to=FP16),
        node("MatMul", "pure/mean", "pure/x", "shares"),
        node("Sub", "pure/deviation", "pure/x", "pure/mean"),
        node("Mul", "pure/square", "pure/deviation", "pure/deviation"),
        node("MatMul", "pure/variance", "pure/square", "shares"),
        node("Sqrt", "pure/spread", "pure/variance"),
        node("Div", "pure/unit", "pure/deviation", "pure/spread"),
        node("Cast", "embeddings/norm", "pure/unit", to=FP32),
    ]
    shares = np.full((tiny.HIDDEN, 1), 1 / tiny.HIDDEN, np.float16)
    return tiny.rewired(graph, {"embeddings/norm": pure}, {"shares": shares})


def rows_of_deviation(deviation: float) -> torch.Tensor:
    """A different order of signs at every position, each row of mean 0 and this standard deviation."""
    random = torch.Generator().manual_seed(0)
    row = torch.tensor([deviation, -deviation]).repeat(tiny.HIDDEN // 2)
    return torch.stack([row[torch.randperm(tiny.HIDDEN, generator=random)] for _ in range(tiny.POSITIONS)])


ROW_OF_THE_CASE = torch.tensor([300.0, -300.0, 150.0, -150.0]).repeat(tiny.HIDDEN // 4)
WIDE = {
    "256": rows_of_deviation(256.0),
    "the row of the case": torch.stack([ROW_OF_THE_CASE.roll(position) for position in range(tiny.POSITIONS)]),
}


@pytest.mark.parametrize("rows", WIDE.values(), ids=WIDE)
def test_layer_norm_holds_deviations_of_256(rows):
    """C07: our norm, in fp32 between fp16 tensors, is right where the square passes 65504; one in fp16 is finite and
    wrong, which a check for NaN would pass and two metrics find."""
    wide = tiny.checkpoint(put=tiny.embedding(rows))
    graph, ids = tiny.graph("fp16", of=wide), tiny.ids()
    expected, ours = Reference(wide).features(ids), tiny.features(graph, ids)
    assert tiny.apart(expected, ours) < 0.01
    assert not metrics.collapsed_rows(expected, ours).any()
    pure = tiny.features(with_pure_fp16_norm(graph), ids)
    assert pure.isfinite().all()
    assert tiny.apart(expected, pure) > 0.5
    assert metrics.collapsed_rows(expected, pure).all()


def test_deviation_just_under_256_survives_in_fp16():
    """C07: 255.875 squares to 65472, which fp16 still holds: the fault above is its range and nothing else."""
    graph = tiny.graph("fp16", of=tiny.checkpoint(put=tiny.embedding(rows_of_deviation(255.875))))
    assert tiny.apart(tiny.features(graph, tiny.ids()), tiny.features(with_pure_fp16_norm(graph), tiny.ids())) < 0.01


# ---- C08: where the scaling goes


@pytest.fixture(scope="module")
def mixing() -> Reference:
    """One layer at the study's size, with one element of 79,500 in its DFT."""
    return Reference(tiny.mixing())


@pytest.fixture(scope="module")
def expected(mixing) -> torch.Tensor:
    return mixing.features(tiny.ids(1, 512))


def mixed(graph: Graph) -> torch.Tensor:
    return tiny.features(graph, tiny.ids(1, 512))


@pytest.mark.parametrize("variant", ["fp16+hs", "fp16+dft32"])
def test_cures_keep_the_function(expected, variant):
    """C08: scaling that is undone before the residual, and the DFT in fp32, are the same network: cosine 1."""
    found = mixed(tiny.graph(variant, 512, of=tiny.mixing()))
    assert metrics.cosine(expected.flatten(1), found.flatten(1))[0] == pytest.approx(1.0, abs=1e-6)
    assert tiny.apart(expected, found) < 1e-3


def test_scaling_of_the_fourier_branch_alone_is_found(mixing, expected):
    """C08: the 1/64 not undone gives the case's cosine of 0.990, which a limit of 0.99 takes; error and KL do not."""
    unscale, real = "layer.0/hidden_dft/unscale", "layer.0/hidden_dft/real/fp32"
    sound = tiny.graph("fp16+hs", 512, of=tiny.mixing())
    faulty = tiny.rewired(sound, {unscale: [helper.make_node("Identity", [real], [unscale], unscale)]}, {})
    found = mixed(faulty)
    assert metrics.cosine(expected.flatten(1), found.flatten(1))[0] == pytest.approx(0.990, abs=5e-4)
    assert tiny.apart(expected, found) > 0.1
    logits = [mixing.head(each[0]) for each in (expected, found)]
    assert metrics.kl(*logits).mean() > 1e-3


def test_output_times_1000_is_found(reference):
    """C08: cosine stays perfect, relative error is 999."""
    louder = [helper.make_node("Mul", ["layer.1/output/norm", "thousand"], ["features"], "features")]
    graph = tiny.rewired(tiny.graph(), {"features": louder}, {"thousand": np.array(1000, np.float32)})
    expected, found = reference.features(tiny.ids()), tiny.features(graph, tiny.ids())
    assert metrics.cosine(expected[:, 0], found[:, 0])[0] == pytest.approx(1.0, abs=1e-9)
    assert tiny.apart(expected, found) == pytest.approx(999, rel=1e-4)


def test_clamp_in_the_graph_is_reported(expected):
    """C08: a clamp makes the overflow finite and stays within the study's 4%; the graph's own facts show it."""
    real, cos, sin = (f"layer.0/hidden_dft/{part}" for part in ("real", "cos", "sin"))
    sound = tiny.graph("fp16", 512, of=tiny.mixing())
    clamp = [
        helper.make_node("Sub", [cos, sin], [f"{real}/free"], f"{real}/free"),
        helper.make_node("Clip", [f"{real}/free", "lowest", "highest"], [real], real),
    ]
    limits = {"lowest": np.array(-65504, np.float16), "highest": np.array(65504, np.float16)}
    clamped = tiny.rewired(sound, {real: clamp}, limits)
    assert tiny.apart(expected[:, 0], mixed(clamped)[:, 0]) < 0.04
    clamps = {"Clip", "Min", "Max", "Where"}
    assert clamps & set(figures.facts(clamped).operators) == {"Clip"}
    assert not clamps & {name for variant in RECIPES for name in figures.facts(tiny.graph(variant)).operators}


# ---- identity and file


def test_digest_is_of_the_content_alone():
    """C10: equal content has one digest; one weight, one attribute, the window, the batch or a scale changes it."""
    digest = tiny.graph("fp8").sha256
    assert tiny.graph("fp8").sha256 == digest
    bias = tiny.plain().state["encoder.layer.1.output.dense.bias"].clone()
    bias[0] += 2**-10  # of about 0.1: a step of fp16 and more
    others = [
        tiny.graph("fp8", of=tiny.checkpoint(put={"encoder.layer.1.output.dense.bias": bias})),
        tiny.graph("fp8", of=tiny.checkpoint(layer_norm_eps=1e-11)),
        tiny.graph("fp8", window=17),
        tiny.graph("fp8", batch=2),
        tiny.graph("fp8", scales=tiny.same_scales(tiny.BOTH, 1 / 32)),
        tiny.graph("fp8-no-output-dense"),
    ]
    assert len({digest, *(graph.sha256 for graph in others)}) == 1 + len(others)


@pytest.mark.parametrize(("variant", "tolerance"), [("fp32", 1e-6), ("fp16", 0.05), ("fp8", 0.05)])
def test_saved_file_is_the_graph(tmp_path, variant, tolerance):
    """The file is self-contained and sound, holds the arrays to the bit, and runs by itself with the engine's outputs
    (as near as fp16 that is not rounded between operators comes); where it lies is not in the digest."""
    graph, path = tiny.graph(variant), tmp_path / "new" / "case.onnx"
    digest = graph.sha256
    graph.save(path)
    assert [each.name for each in path.parent.iterdir()] == ["case.onnx"]
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(path)
    assert list(model.graph.node) == list(graph.proto.graph.node)
    for tensor in model.graph.initializer:
        array, stored = graph.weights[tensor.name], numpy_helper.to_array(tensor)
        assert (stored.shape, stored.tobytes()) == (array.shape, array.tobytes())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(["features"], {"input_ids": tiny.ids().numpy()})[0])
    torch.testing.assert_close(found, tiny.features(graph, tiny.ids()), rtol=tolerance, atol=tolerance)
    assert {graph.sha256, tiny.graph(variant).sha256} == {digest}


def test_failing_write_leaves_nothing(tmp_path):
    """A file system that refuses the bytes leaves the file that was there before, and no part of the new one."""
    path = tmp_path / "case.onnx"
    path.write_text("before")
    graph, (soft, hard) = tiny.graph(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            graph.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
