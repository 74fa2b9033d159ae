"""Stand-ins for what a GPU would give: engines that were never built, and times that were never taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from fixtures.engines.base import Tensors
from fixtures.engines.inspection import Inspection, Layer
from fixtures.engines.tensorrt import LayerTime, TensorRTEngine
from fixtures.telemetry import Summary
from fixtures.timing import CALLS, ROUNDS, GroupTiming

MIB = 2**20
QUIET = Summary(9, (1965, 1980), (3996, 3996), 41, 402.4, {}, ())


@dataclass(eq=False)
class Fake(TensorRTEngine):
    """What an engine says of itself, and the milliseconds of its layers; its logits are of nothing."""

    plan_bytes: int
    built: tuple[Layer, ...]
    ms: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    bound: list[Tensors] = field(default_factory=list)
    closed: bool = False

    def run(self, feeds: Tensors) -> dict[str, torch.Tensor]:
        assert not self.closed
        return {"logits": feeds["image"].mean((1, 2, 3))[:, None] * torch.arange(10)}

    def bind(self, feeds: Tensors) -> None:
        self.bound.append(feeds)

    def inspect(self) -> Inspection:
        return Inspection(self.built)

    def profile(self, runs: int) -> list[LayerTime]:
        times = list(zip(self.built, self.ms, strict=True))
        return [LayerTime(run, layer.name, ms) for run in range(runs) for layer, ms in times]

    def close(self) -> None:
        assert not self.closed
        self.closed = True


def product(name: str, precision: str, kind: str = "gemm") -> Layer:
    """A product of an engine, which runs the node `name`."""
    return Layer(name, kind, "", (name,), (precision, precision), (precision,), (name,), precision)


def timing(ms: Mapping[str, float], problems: Iterable[str] = ()) -> GroupTiming:
    """Rounds without noise, by case id; the first is there twice."""
    first = next(iter(ms))
    return GroupTiming(
        rounds_ms={name: (value,) * ROUNDS for name, value in {**ms, f"{first} again": ms[first]}.items()},
        plain_ms=dict(ms),
        warmup_calls=0,
        calls_per_round=CALLS,
        input_sha256="0" * 64,
        timer="made up",
        telemetry=QUIET,
        problems=tuple(problems),
        notes=(),
    )
