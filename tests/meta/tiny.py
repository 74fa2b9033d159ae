"""A tiny FNet, its graphs and its text, for tests that need the shape of the study and not its size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import onnx
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from fixtures import metrics
from fixtures.cases import Case
from fixtures.checkpoints import Checkpoint, state_sha256
from fixtures.datasets import SPECIAL_TOKENS, Datasets, Pair, Texts
from fixtures.engines.onnxruntime import CpuEngine
from fixtures.fnet import graph as fnet
from fixtures.fnet import weights
from fixtures.fnet.recipe import quantized_layers, recipe
from fixtures.graphs import Array, Graph

torch.set_num_threads(1)  # threads of so small a product only wait for each other

LAYERS, HIDDEN, INNER, WORDS, POSITIONS = 2, 32, 64, 200, 128
BOTH = tuple(f"encoder.layer.{index}.{kind}.dense" for index in range(LAYERS) for kind in ("intermediate", "output"))
CONFIG = {
    "model_type": "fnet",
    "vocab_size": WORDS,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "intermediate_size": INNER,
    "max_position_embeddings": POSITIONS,
    "type_vocab_size": 4,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu_new",
    "pad_token_id": 3,
    "tie_word_embeddings": True,
}

# An embedding projection that puts this on every element. Its sum over 16 x 32 elements, which is the first of the 2-D
# DFT, is -153,600: beyond fp16, where every value before it is within.
OVERFLOW = {"embeddings.projection.bias": torch.full((HIDDEN,), -300.0)}
OVERFLOW_WINDOW = 16


def stored(seed: int = 0, **config: Any) -> Checkpoint:
    """Weights from a seed under the names that Transformers writes; the decoder's is stored where it is not tied."""
    config = CONFIG | config
    random = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in weights.shapes(config).items():
        if name == weights.DECODER and config["tie_word_embeddings"]:
            continue
        drawn = torch.randn(shape, generator=random)
        if name.endswith("LayerNorm.weight"):
            drawn = 1 + 0.3 * drawn
        else:
            drawn *= 0.1 if name.endswith(".bias") else shape[-1] ** -0.5
        state[name if name.startswith("cls.") else f"fnet.{name}"] = drawn
    state["cls.predictions.bias"] = state["cls.predictions.decoder.bias"]
    return Checkpoint(f"tiny seed {seed}", config, state, state_sha256(state))


@cache
def plain() -> Checkpoint:
    """The checkpoint that graphs are of unless a test says otherwise."""
    return checkpoint()


def checkpoint(seed: int = 0, put: Mapping[str, torch.Tensor] | None = None, **config: Any) -> Checkpoint:
    """The canonical checkpoint, with the tensors of `put` in place of its own."""
    found = weights.canonical(stored(seed, **config))
    state = {**found.state, **(put or {})}
    return Checkpoint(found.source, found.config, state, state_sha256(state))


def graph(
    variant: str = "fp32",
    window: int = OVERFLOW_WINDOW,
    batch: int = 1,
    of: Checkpoint | None = None,
    scales: Mapping[str, float] | None = None,
) -> Graph:
    """The graph of one tiny case."""
    of, chosen = of or plain(), recipe(variant, window)
    if scales is None:
        scales = same_scales(quantized_layers(chosen, of.config["num_hidden_layers"]))
    return fnet.build(Case("fnet", "tiny", window, batch, variant), of, chosen, scales)


def rewired(graph: Graph, replaced: Mapping[str, Sequence[onnx.NodeProto]], arrays: Mapping[str, Array]) -> Graph:
    """`graph` with other nodes in place of those named, and more arrays: how a fault gets into a sound graph."""
    nodes = [each for node in graph.proto.graph.node for each in replaced.get(node.name, [node])]
    changed = graph.rewritten(nodes, {**graph.weights, **arrays})
    typed = onnx.shape_inference.infer_shapes(changed.to_proto(), check_type=True, strict_mode=True)
    changed.proto.graph.value_info.extend(typed.graph.value_info)
    return changed


def same_scales(layers: Iterable[str], scale: float = 1 / 64) -> dict[str, float]:
    """One activation scale for each of `layers`; 1/64 holds values up to 7."""
    return dict.fromkeys(layers, scale)


def features(graph: Graph, ids: torch.Tensor) -> torch.Tensor:
    """What the CPU engine gives, fp32 [rows, window, hidden]."""
    with CpuEngine(graph) as engine:
        return engine.run({"input_ids": ids})["features"]


def apart(expected: torch.Tensor, found: torch.Tensor) -> float:
    """Relative L2 error of the worst row, a whole window taken as one vector."""
    return float(metrics.relative_l2(expected.flatten(1), found.flatten(1)).max())


@contextmanager
def one_line(error: type[Exception], *words: str) -> Iterator[None]:
    """The block ends in `error`, whose message is one line and holds all `words`."""
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert [word for word in words if word not in message] == [], message


def embedding(rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """Weights that feed `rows`, [positions, hidden], to the first layer norm, of gain 1, whatever the ids are."""
    hidden = rows.shape[1]
    return {
        "embeddings.word_embeddings.weight": torch.zeros(WORDS, hidden),
        "embeddings.token_type_embeddings.weight": torch.zeros(CONFIG["type_vocab_size"], hidden),
        "embeddings.position_embeddings.weight": rows,
        "embeddings.LayerNorm.weight": torch.ones(hidden),
        "embeddings.LayerNorm.bias": torch.zeros(hidden),
    }


@cache
def mixing() -> Checkpoint:
    """One layer at the study's size, 512 x 768, of which only the layer norm of x + DFT(x) is left; x is normal with a
    mean of 0.2, so that one element of the DFT passes fp16's range, the first of the first row, at about 79,500."""
    positions, hidden = 512, 768
    put = embedding(torch.randn(positions, hidden, generator=torch.Generator().manual_seed(0)))
    put["embeddings.projection.weight"] = torch.eye(hidden)
    put["embeddings.projection.bias"] = torch.full((hidden,), 0.2)
    put["encoder.layer.0.output.dense.weight"] = torch.zeros(hidden, INNER)
    put["encoder.layer.0.output.dense.bias"] = torch.zeros(hidden)
    for norm in ("fourier.output.LayerNorm", "output.LayerNorm"):
        put[f"encoder.layer.0.{norm}.weight"] = torch.ones(hidden)
        put[f"encoder.layer.0.{norm}.bias"] = torch.zeros(hidden)
    return checkpoint(put=put, num_hidden_layers=1, hidden_size=hidden, max_position_embeddings=positions)


def ids(rows: int = 1, window: int = OVERFLOW_WINDOW, seed: int = 0) -> torch.Tensor:
    """Random rows of token ids, int64 [rows, window]."""
    return torch.randint(WORDS, (rows, window), generator=torch.Generator().manual_seed(seed))


def text(rows: int = 12, pairs: int | None = 8) -> Datasets:
    """Rows of 16 to 39 different words for each part, and scored pairs of sentences."""

    def row(start: int, length: int) -> str:
        return " ".join(f"w{(start + 7 * step) % (WORDS - len(SPECIAL_TOKENS))}" for step in range(length))

    vocabulary = {token: index for index, token in enumerate(SPECIAL_TOKENS)}
    vocabulary |= {f"w{index}": len(vocabulary) + index for index in range(WORDS - len(vocabulary))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIAL_TOKENS, strict=True))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{name}_token": token for name, token in names.items()}
    )
    scored = [Pair(5.0 * index / 8, row(index, 6), row(3 * index + 1, 6)) for index in range(pairs or 0)]
    texts = Texts(
        source="tiny text",
        calibration=tuple(row(index, 16 + index % 24) for index in range(rows)),
        held_out=tuple(row(index + 60, 16 + index % 24) for index in range(rows)),
        pairs=None if pairs is None else tuple(scored),
        notes=(),
    )
    return Datasets(texts.source, lambda: texts, lambda: fast)
