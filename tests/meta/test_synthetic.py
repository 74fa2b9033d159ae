"""Guards that the synthetic FNet overflows fp16 where the study's models do, and that planting it changes no output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch.nn.functional import gelu, layer_norm, linear

from fixtures.checkpoints import Checkpoint, state_sha256
from fixtures.fnet import synthetic, weights

FP16_MAX = 65_504
PAD, CLS, SEP = 3, 4, 5
SMALL = synthetic.SETTINGS | {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "vocab_size": 100,
    "max_position_embeddings": 24,
}
State = Mapping[str, torch.Tensor]


class Forward:
    """FNet in fp32, straight from its definition. `peaks`: largest absolute DFT output of each row so far."""

    def __init__(self, state: State, config: Mapping[str, Any]) -> None:
        self.state, self.config = state, config

    def features(self, ids: torch.Tensor) -> torch.Tensor:
        tables = ("word", ids), ("position", slice(ids.shape[1])), ("token_type", slice(1))
        embedded = sum(self.state[f"embeddings.{name}_embeddings.weight"][rows] for name, rows in tables)
        hidden = self.dense("embeddings.projection", self.norm("embeddings.LayerNorm", embedded))
        self.peaks = torch.zeros(len(ids))
        for layer in (f"encoder.layer.{index}" for index in range(self.config["num_hidden_layers"])):
            mixed = torch.fft.fft2(hidden).real
            self.peaks = torch.maximum(self.peaks, mixed.abs().amax((1, 2)))
            mixed = self.norm(f"{layer}.fourier.output.LayerNorm", mixed + hidden)
            inner = gelu(self.dense(f"{layer}.intermediate.dense", mixed), approximate="tanh")
            hidden = self.norm(f"{layer}.output.LayerNorm", self.dense(f"{layer}.output.dense", inner) + mixed)
        return hidden

    def logits(self, features: torch.Tensor) -> torch.Tensor:
        inner = gelu(self.dense("cls.predictions.transform.dense", features), approximate="tanh")
        return self.dense("cls.predictions.decoder", self.norm("cls.predictions.transform.LayerNorm", inner))

    def pooled(self, features: torch.Tensor) -> torch.Tensor:
        return self.dense("pooler.dense", features[:, 0]).tanh()

    def dense(self, name: str, value: torch.Tensor) -> torch.Tensor:
        return linear(value, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def norm(self, name: str, value: torch.Tensor) -> torch.Tensor:
        gain, bias = self.state[f"{name}.weight"], self.state[f"{name}.bias"]
        return layer_norm(value, bias.shape, gain, bias, self.config["layer_norm_eps"])


def passages(window: int, lengths: tuple[int, ...]) -> torch.Tensor:
    """Framed random passages of these lengths in tokens, frame included, padded to the window."""
    random = torch.Generator().manual_seed(1)
    ids = torch.full((len(lengths), window), PAD)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = torch.randint(7, 100, (length,), generator=random)
        row[0], row[length - 1] = CLS, SEP
    return ids


def outputs(scale: float, **undone: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Last hidden state over `scale`, logits and pooled row of the small model; `undone` multiplies tensors by name."""
    state = dict(weights.canonical(Checkpoint("", SMALL, synthetic.generate(SMALL, scale), "")).state)
    for name, factor in undone.items():
        state[name] = state[name] * factor
    model = Forward(state, SMALL)
    features = model.features(passages(24, (5, 16, 24)))
    return features / scale, model.logits(features), model.pooled(features)


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("scale", [synthetic.SCALE, 5.3], ids=["as planted", "no power of two"])
def test_planting_changes_no_output(scale: float) -> None:
    """The planted model is the plain one: hidden state over the scale, logits and pooled row agree to 1e-5."""
    for found, expected in zip(outputs(scale), outputs(1), strict=True):
        assert error(found, expected) < 1e-5


@pytest.mark.parametrize(
    "name",
    [
        "embeddings.projection.bias",
        "encoder.layer.0.fourier.output.LayerNorm.bias",
        "encoder.layer.0.output.dense.weight",
        "encoder.layer.1.output.dense.bias",
        "encoder.layer.1.output.LayerNorm.weight",
        "cls.predictions.transform.dense.weight",
    ],
)
def test_a_part_left_unscaled_shows(name: str) -> None:
    """A fault fed in: with one tensor not scaled with the others, the logits are other logits."""
    factor = synthetic.SCALE if name.startswith("cls.") else 1 / synthetic.SCALE
    assert error(outputs(synthetic.SCALE, **{name: factor})[1], outputs(1)[1]) > 1e-3


@pytest.fixture(scope="module")
def base() -> Checkpoint:
    """`base` at full size, as a run without a GPU gets it."""
    return synthetic.checkpoint("base")


@pytest.mark.parametrize(("window", "low", "high"), [(512, 1.1 * FP16_MAX, 2 * FP16_MAX), (256, 0, 0.9 * FP16_MAX)])
def test_overflow_is_at_512_alone(base: Checkpoint, window: int, low: float, high: float) -> None:
    """C08: the DFT output passes fp16's largest value by 10% at 512, and stays 10% under it at 256."""
    model = Forward(base.state, base.config)
    with torch.inference_mode():
        model.features(passages(window, (200,)))
    assert low < model.peaks < high


def test_weights_fit_fp16(base: Checkpoint) -> None:
    """Every weight is finite in fp16: what overflows is an activation, as in the study."""
    assert max(torch.linalg.vector_norm(tensor, torch.inf) for tensor in base.state.values()) < FP16_MAX


def test_base_is_the_study_model(base: Checkpoint) -> None:
    """The full architecture in canonical form, a tied decoder and all heads included."""
    assert weights.canonical(base, "base").state.keys() == weights.shapes(base.config).keys()
    assert base.state[weights.DECODER] is base.state[weights.WORDS]
    assert base.source == "synthetic base, seed 0"


def test_same_weights_on_every_machine() -> None:
    """The seed gives one set of bits, whatever the CPU and the version of PyTorch: records depend on this hash."""
    found = state_sha256(synthetic.generate(SMALL, synthetic.SCALE))
    assert found == state_sha256(synthetic.generate(SMALL, synthetic.SCALE))
    assert found == "8ffd1291e7ccd03bd1fd21a63a0d453de417e338be691ede46b241f39ecc2471"
