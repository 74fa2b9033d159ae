"""Small MNASNets and pictures, for tests that need the shape of the study and not its size."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image

from fixtures.cases import Case
from fixtures.checkpoints import Checkpoint, from_folder, state_sha256
from fixtures.engines.cache import Cache
from fixtures.engines.onnxruntime import CpuEngine
from fixtures.graphs import Graph
from fixtures.mnasnet import graph as mnasnet
from fixtures.mnasnet.lab import Lab
from fixtures.mnasnet.model import DIGITS_FOLDER, Preprocessing, network
from fixtures.mnasnet.recipe import quantized_layers, recipe
from fixtures.setup import Setup

torch.set_num_threads(1)  # threads of so small a convolution only wait for each other

SIZE = 64
PREPROCESSING = {
    "tag": "tiny",
    "input_size": [3, SIZE, SIZE],
    "interpolation": "bilinear",
    "crop_pct": 0.9,
    "mean": [0.4, 0.5, 0.6],
    "std": [0.2, 0.25, 0.3],
}


@cache
def checkpoint(architecture: str = "mnasnet_small", classes: int = 20) -> Checkpoint:
    """Weights from a seed whose batch norms have the statistics of noise, so that activations stay alive."""
    torch.manual_seed(0)
    model: Any = timm.create_model(architecture, num_classes=classes)
    for norm in (module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)):
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
        torch.nn.init.uniform_(norm.bias, -0.2, 0.6)
        norm.momentum = 1.0  # statistics of this one batch
    torch.nn.init.uniform_(model.classifier.bias, -1, 1)
    model.train()(images(8))
    config = {"architecture": architecture, "num_classes": classes, "pretrained_cfg": PREPROCESSING}
    return Checkpoint(f"tiny {architecture}", config, model.state_dict(), state_sha256(model.state_dict()))


@cache
def digits() -> torch.nn.Module:
    """The suite's own digits model."""
    return network(from_folder(DIGITS_FOLDER))


def images(rows: int = 4, size: int = SIZE) -> torch.Tensor:
    """Blotches from a seed, fp32 [rows, 3, size, size], as bright as preprocessed pictures."""
    blotches = torch.randn(rows, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return torch.nn.functional.interpolate(blotches, (size, size), mode="bilinear")


def graph(
    model: torch.nn.Module,
    variant: str = "fp32",
    batch: int = 1,
    names: Sequence[str] | None = None,
    scale: float = 0.02,
) -> Graph:
    """The graph of one case of `model`; FP8 ones have one activation scale, on the recipe's convolutions or `names`."""
    size = Preprocessing.of(model).input_size
    chosen = recipe(variant)
    if names is None:
        names = quantized_layers(model, size) if chosen.fp8 else ()
    return mnasnet.build(
        Case("mnasnet", "tiny", None, batch, variant), model, size, chosen, dict.fromkeys(names, scale)
    )


def logits(graph: Graph, rows: torch.Tensor) -> torch.Tensor:
    """What the CPU engine gives, fp32 [rows, classes]."""
    with CpuEngine(graph) as engine:
        return torch.cat([engine.run({"image": part})["logits"] for part in torch.split(rows, graph.case.batch)])


def lab(folder: Path, said: Callable[[str], None] = lambda _: None, **given: Any) -> Lab:
    """A session's study on a CPU with its cache in `folder`."""
    chosen = {"checkpoints": "synthetic", "datasets": "embedded", "samples": None} | given
    return Lab(
        Setup(
            engine="onnxruntime",
            device="cpu",
            gpu=None,
            asked=frozenset(),
            why={},
            cache=Cache(folder),
            save_graphs=None,
            say=said,
            not_timed="not timed: made up",
            **chosen,
        )
    )


def picture(kind: str = "PNG", size: tuple[int, int] = (40, 30), seed: int = 0) -> bytes:
    """An encoded picture of noise."""
    pixels = np.random.default_rng(seed).integers(256, size=(size[1], size[0], 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def shard(samples: Mapping[str, Mapping[str, bytes]]) -> bytes:
    """A webdataset's tar file: members `<key>.<kind>` by key and kind."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for key, parts in samples.items():
            for kind, content in parts.items():
                member = tarfile.TarInfo(f"{key}.{kind}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return file.getvalue()
