"""The range probe names the node where a graph leaves fp16, and sees what the engine itself computes."""

from __future__ import annotations

import weakref

import pytest
import torch

from fixtures.engines import onnxruntime as cpu
from fixtures.engines.onnxruntime import CpuEngine
from fixtures.engines.probe import Range, first_nonfinite, ranges
from fixtures.fnet import figures, tasks
from fixtures.fnet.recipe import RECIPES
from fixtures.fnet.reference import Reference
from fixtures.graphs import Graph
from tests.meta import tiny

FP16_MAX = 65504.0


def overflowing(variant: str) -> Graph:
    return tiny.graph(variant, of=tiny.checkpoint(put=tiny.OVERFLOW))


def of(graph: Graph, ids: torch.Tensor | None = None) -> dict[str, Range]:
    return {found.node: found for found in ranges(graph, {"input_ids": tiny.ids() if ids is None else ids}, CpuEngine)}


def first(graph: Graph, open_engine=CpuEngine) -> str | None:
    return first_nonfinite(graph, {"input_ids": tiny.ids()}, open_engine)


@pytest.mark.parametrize("variant", RECIPES)
def test_every_value_in_the_order_it_is_computed(variant):
    """One range for each node that gives fp32 or fp16, none left out and none twice; a sound graph has no overflow."""
    graph = tiny.graph(variant, batch=3)
    found = list(ranges(graph, {"input_ids": tiny.ids(3)}, CpuEngine))
    expected = [node.name for node in graph.proto.graph.node if node.op_type != "QuantizeLinear"]
    assert [each.node for each in found] == expected
    assert all(each.nonfinite == 0 and 0 < each.largest <= FP16_MAX for each in found)
    assert first_nonfinite(graph, {"input_ids": tiny.ids(3)}, CpuEngine) is None


@pytest.mark.parametrize("variant", ["fp32", "fp16", "fp8"])
def test_parts_are_the_whole(variant):
    """Running a graph layer by layer changes nothing: the last range is that of the whole graph's output."""
    graph = tiny.graph(variant)
    assert of(graph)["features"].largest == pytest.approx(float(tiny.features(graph, tiny.ids()).abs().max()), rel=1e-5)


def test_dft_is_the_references():
    """The range of each layer's DFT is what the reference's own FFT reaches."""
    reference = Reference(tiny.plain())
    with reference.watched_dft() as expected:
        reference.features(tiny.ids())
    found = of(tiny.graph())
    assert [found[f"layer.{index}/hidden_dft/real"].largest for index in (0, 1)] == pytest.approx(expected, rel=1e-5)


def test_overflow_is_named():
    """One line: the first node, and the largest value that was still finite before it."""
    found = of(overflowing("fp16"))
    before = found["layer.0/sequence_dft/cos"].largest
    assert found["layer.0/hidden_dft/cos"].nonfinite == 1
    assert before == pytest.approx(16 * 300, rel=0.01)
    assert first(overflowing("fp16")) == (
        "first not finite: layer.0/hidden_dft/cos "
        f"(largest finite value before it: {before:,.6g} at layer.0/sequence_dft/cos)"
    )


def test_one_element_of_393216_is_found():
    """C08: at 512 x 768 the one element that overflows is the pooled token's, and it marks the whole row."""
    graph, ids = tiny.graph("fp16", 512, of=tiny.mixing()), tiny.ids(1, 512)
    found = of(graph, ids)["layer.0/hidden_dft/cos"]
    assert (found.nonfinite, found.largest < 65504) == (1, True)
    with CpuEngine(graph) as engine:
        outputs = tasks.run(lambda rows: engine.run({"input_ids": rows})["features"], ids.numpy())
    assert figures.nonfinite(outputs).value == 1.0


def test_fp32_graph_says_what_would_not_fit():
    """C07: nothing overflows in fp32, and the ranges point at the values that fp16 could not hold."""
    found = of(overflowing("fp32"))
    assert [name for name, each in found.items() if each.largest > FP16_MAX] == [
        "layer.0/hidden_dft/cos",
        "layer.0/hidden_dft/real",
        "layer.0/mixing/add",
    ]
    assert found["layer.0/hidden_dft/cos"].largest == pytest.approx(153_600, rel=0.01)
    assert first(overflowing("fp32")) is None


@pytest.mark.parametrize("variant", ["fp16+hs", "fp16+dft32"])
def test_cures_are_finite(variant):
    """With either cure no value of fp16's own range overflows."""
    assert first(overflowing(variant)) is None


def test_without_half_the_probe_sees_nothing(monkeypatch):
    """The fault: the probe reports what the engine computes, which without the emulation of fp16 is fp32."""
    monkeypatch.setattr(cpu, "emulate_fp16", lambda graph: graph)
    assert first(overflowing("fp16")) is None


def test_nan_in_the_first_value_is_named():
    """A bad weight shows at the first node, with nothing before it."""
    table = torch.full((tiny.WORDS, tiny.HIDDEN), float("nan"))
    graph = tiny.graph(of=tiny.checkpoint(put={"embeddings.word_embeddings.weight": table}))
    assert of(graph)["embeddings/word"] == Range("embeddings/word", 0.0, 16 * tiny.HIDDEN)
    assert first(graph) == "first not finite: embeddings/word (largest finite value before it: none)"


def test_stops_at_the_layer_and_holds_one_at_a_time():
    """No layer after the overflow is built, each part has its own weights alone, and when a part is built, the engine
    before it is closed and its values are gone."""
    parts: list[Graph] = []
    values: list[weakref.ref] = []

    class Watched(CpuEngine):
        def __init__(self, graph: Graph) -> None:
            assert [value for value in values if value() is not None] == []
            parts.append(graph)
            super().__init__(graph)

        def run(self, feeds):
            found = super().run(feeds)
            values.extend(weakref.ref(value.untyped_storage()) for value in found.values())
            return found

        def close(self) -> None:
            super().close()
            parts.append("closed")

    assert first(overflowing("fp16"), Watched) is not None
    embeddings, closed, layer, closed_too = parts
    assert closed == closed_too == "closed"
    assert [part.proto.graph.node[-1].name.partition("/")[0] for part in (embeddings, layer)] == [
        "embeddings",
        "layer.0",
    ]
    assert not embeddings.weights.keys() & layer.weights.keys()
    assert not any("layer.1" in name for name in (*embeddings.weights, *layer.weights))
