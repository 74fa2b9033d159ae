"""What was built, from the engine inspector's JSON: made-up layer lists in the forms that TensorRT 10 and 11 write."""

from __future__ import annotations

import json
import re

import pytest

from fixtures.engines.inspection import mismatch, parse
from fixtures.errors import EngineError

# Two encoder layers, in the names of fixtures/fnet/graph.py.
OPS = {
    f"layer.{index}/{name}": op
    for index in range(2)
    for name, op in {
        "sequence_dft/cos": "MatMul",
        "hidden_dft/cos": "MatMul",
        "mixing/norm": "LayerNormalization",
        "intermediate/quantize": "QuantizeLinear",
        "intermediate/dequantize": "DequantizeLinear",
        "intermediate/weight": "DequantizeLinear",
        "intermediate/matmul": "MatMul",
        "gelu": "Gelu",
        "output/matmul": "MatMul",
        "output/norm": "LayerNormalization",
    }.items()
}
DFT = ("sequence_dft",)
HALF = "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1"
FLOAT = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_ffma"
TF32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_tensor16x8x8"
FP8 = "sm100_xmma_gemm_e4m3f16_e4m3f32_f32_tn_n_tilesize128x128x128"
FUSED = "__myl_AddMeanSubMulMeanAddSqrtDivMulCastMulAdd_0xf16f32e6f8d3ff9f104bbb1655b0183afb"


def layer(nodes, layer_type="kgen", reads="Half", writes="Half", tactic=FUSED, **fields):
    """One DETAILED layer as TensorRT 10 writes it. `reads` and `writes` are the types of one input and one output."""
    return {
        "Name": "+".join(nodes).replace(".", "_") + "_myl0_1",
        "LayerType": layer_type,
        "Inputs": [{"Name": "__mye1", "Dimensions": [1, 16, 32], "Format/Datatype": reads}],
        "Outputs": [{"Name": "__mye2", "Dimensions": [1, 16, 32], "Format/Datatype": writes}],
        "TacticName": tactic,
        "StreamId": 0,
        "Metadata": "\x1f".join(f"[ONNX Layer: {node}]" for node in nodes),
    } | fields


def gemm(node, tactic, kind="Half", extra=()):
    return layer([node, *extra], "gemm", kind, "Float" if kind == "Float" else "Half", tactic)


def network(dft=FLOAT, dense=HALF, dense_reads="Half", rest="Half", quantize=None):
    """The layers of both encoder layers: fp32 sequence axis, two dense products, fused layers between."""
    layers = []
    for name in ("layer.0", "layer.1"):
        layers += [
            gemm(f"{name}/sequence_dft/cos", dft, "Float"),
            gemm(f"{name}/hidden_dft/cos", HALF if rest == "Half" else FLOAT, rest),
            layer([f"{name}/mixing/norm"], reads=rest, writes=quantize or rest),
            gemm(f"{name}/intermediate/matmul", dense, dense_reads, [f"{name}/intermediate/dequantize"]),
            layer([f"{name}/gelu"], reads=rest, writes=quantize or rest),
            gemm(f"{name}/output/matmul", dense, dense_reads),
            layer([f"{name}/output/norm"], reads=rest, writes=rest),
        ]
    return layers


def inspect(layers):
    return parse(json.dumps({"Layers": layers, "Bindings": ["input_ids", "cls"]}), OPS)


def split_types(layers):
    """The same layers as TensorRT 11 writes them: the type in a field of its own, bindings as objects."""
    for entry in layers:
        for tensor in (*entry["Inputs"], *entry["Outputs"]):
            tensor["Datatype"] = tensor.pop("Format/Datatype")
            tensor["Format"] = "Row major linear FP32 format (kLINEAR)"
    return layers


GOOD = {
    "fp32": network(dense=FLOAT, dense_reads="Float", rest="Float"),
    "fp16": network(),
    "fp8": network(dense=FP8, dense_reads="FP8", quantize="FP8"),
}


@pytest.mark.parametrize("form", [lambda layers: layers, split_types], ids=["10", "11"])
@pytest.mark.parametrize("precision", GOOD)
def test_what_was_asked_for_is_no_mismatch(precision, form):
    """An engine of its variant passes, in TensorRT 10's form of the JSON and in 11's."""
    found = inspect(form(json.loads(json.dumps(GOOD[precision]))))
    assert mismatch(found, precision, fp8_products=4 * (precision == "fp8"), fp32_by_design=DFT) is None


BAD = {
    "a: fp32 graph": ("fp16", GOOD["fp32"], 0, "6 of 8 .* layer.0/hidden_dft/cos in fp32"),
    "fp16 engine": ("fp32", GOOD["fp16"], 0, "6 of 8 .* layer.0/hidden_dft/cos in fp16"),
    "b: no FP8 tensor": ("fp8", GOOD["fp16"], 4, "with 4 FP8 .* the engine has 0"),
    "b: one FP8 product lost": (
        "fp8",
        [*GOOD["fp8"][:3], gemm("layer.0/intermediate/matmul", HALF), *GOOD["fp8"][4:]],
        4,
        "with 4 FP8 .* the engine has 3",
    ),
    "FP8 where none was asked": ("fp16", GOOD["fp8"], 0, "4 of 8 .* layer.0/intermediate/matmul in fp8"),
    "c: fp32 around FP8": (
        "fp8",
        [
            entry if entry["LayerType"] == "gemm" else layer([node], reads="Float", writes="Float")
            for entry, node in zip(GOOD["fp8"], ["mixing/norm"] * 14, strict=True)
        ],
        4,
        "6 of 6 other layers are all fp32",
    ),
    "TF32 though off": ("fp16", network(dft=TF32), 0, "2 of 8 .* layer.0/sequence_dft/cos in tf32"),
    "fp16 where fp32 is by design": ("fp16", network(dft=HALF), 0, "layer.0/sequence_dft/cos in fp16"),
    "no product at all": ("fp16", [layer(["layer.0/gelu"])], 0, "no GEMM and no convolution"),
    "types not told": (
        "fp16",
        [gemm("layer.0/intermediate/matmul", "cutlass_gemm", "N/A due to dynamic shapes")],
        0,
        "in unknown",
    ),
    "names only": ("fp16", ["layer.0/mixing/norm", "layer.0/intermediate/matmul + layer.0/gelu"], 0, "in unknown"),
    "fused names only": ("fp16", ["__myl_CastMulAdd_myl0_3", "intermediate_matmul_myl0_4"], 0, "no GEMM"),
}


@pytest.mark.parametrize(("precision", "layers", "fp8", "words"), BAD.values(), ids=BAD)
def test_mismatch(precision, layers, fp8, words):
    """C01: an engine that is not of its variant is named in one line, before its time is used."""
    found = mismatch(inspect(layers), precision, fp8_products=fp8, fp32_by_design=DFT)
    assert found is not None
    assert found.startswith(f"asked for {precision}")
    assert "\n" not in found
    assert re.search(words, found)


def test_fp32_by_design_has_to_be_declared():
    """An fp32 product in an fp16 engine is a mismatch until the caller names it."""
    assert "layer.0/sequence_dft/cos in fp32" in (mismatch(inspect(GOOD["fp16"]), "fp16") or "")


def test_one_fp32_layer_in_many_is_no_mismatch():
    """A layer norm split in two has fp32 between its parts; that does not make the engine fp32."""
    layers = [*GOOD["fp8"], layer(["layer.0/output/norm"], reads="Float", writes="Float")]
    assert mismatch(inspect(layers), "fp8", fp8_products=4, fp32_by_design=DFT) is None


def test_counts():
    """The canaries: counts by kind and type, with Quantize layers left alone and reformats among them."""
    layers = [
        *GOOD["fp8"],
        layer(["layer.0/intermediate/quantize"], reads="Half", writes="FP8"),
        layer([], "Reformat", "Half", "Channel major FP8 format where C % 16 == 0", "", Origin="QDQ"),
        layer([], "Reformat", "Row major linear FP16 format", "Half", "", Origin="REFORMAT"),
    ]
    found = inspect(layers)
    assert found.canaries() == {
        "layers": 17,
        "fp8_gemms": 4,
        "fp8_convolutions": 0,
        "quantize_layers": 2,
        "reformats": 1,
        "gemm_layers_fp16": 2,
        "gemm_layers_fp32": 2,
        "gemm_layers_fp8": 4,
        "tensors_fp16": 20,
        "tensors_fp32": 4,
        "tensors_fp8": 10,
    }


def test_product_in_two_layers_counts_once():
    """A product and the layer that sums its parts are one GEMM, of the product's type."""
    node = "layer.0/intermediate/matmul"
    found = inspect([gemm(node, FP8, "FP8"), layer([node], reads="Float", writes="Half")])
    assert [entry.kind for entry in found.layers] == ["gemm", "other"]
    assert found.fp8_gemms == 1


def test_product_in_a_generated_kernel_counts():
    """A product that the compiler wrote itself says so by its node alone; one merged kernel can hold two."""
    nodes = ["layer.0/intermediate/matmul", "layer.0/output/matmul"]
    found = inspect([layer(nodes, reads="FP8"), layer(["layer.0/hidden_dft/cos"], "Constant")])
    assert (found.fp8_gemms, [entry.precision for entry in found.layers]) == (2, ["fp8", None])


@pytest.mark.parametrize(
    ("layer_type", "tactic", "described", "precision"),
    [
        ("CaskConvolution", "sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc", "Half", "fp16"),
        ("CaskGemmConvolution", "", "Channel major FP8 format where C % 16 == 0", "fp8"),
        ("conv", "sm100_xmma_fprop_implicit_gemm_e4m3e4m3_e4m3f32_f32_nhwckrsc", "FP8", "fp8"),
        ("CaskConvActPool", "", "Row major linear FP32", "fp32"),
        ("CaskConvolution", "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32", "BFloat16", "bf16"),
    ],
)
def test_convolution(layer_type, tactic, described, precision):
    """Convolutions, in the layer types and formats TensorRT gives them; a convolution split in groups counts once."""
    part = {"LayerType": layer_type, "TacticName": tactic, "Inputs": [{"Format/Datatype": described}], "Outputs": []}
    part["Metadata"] = "[ONNX Layer: blocks.0/pointwise]"
    text = json.dumps({"Layers": [part | {"Name": "group 0"}, part | {"Name": "group 1"}]})
    found = parse(text, {"blocks.0/pointwise": "Conv"})
    assert [(entry.kind, entry.precision) for entry in found.layers] == [("convolution", precision)] * 2
    assert found.fp8_convolutions == (precision == "fp8")


def test_nodes_survive_the_layer_name():
    """A layer's name is not its nodes' (dots are lost); the metadata has them, with control characters between."""
    nodes = ["layer.0/intermediate/matmul", "layer.0/gelu"]
    text = json.dumps({"Layers": [layer(nodes)]}).replace("\\u001f", "\x1f")
    assert parse(text, OPS).layers[0].nodes == tuple(nodes)


@pytest.mark.parametrize("text", ["", "null", "[]", '"Layers"', "{}", '{"Layers": []}', '{"Layers": [{}]}', '{"Layers'])
def test_unreadable_answer(text):
    """An inspector that says nothing is an error, not an engine without layers."""
    with pytest.raises(EngineError, match="engine inspector"):
        parse(text, OPS)
