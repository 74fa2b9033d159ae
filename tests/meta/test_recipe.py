"""FNet's recipes: what each variant is, which layers it quantizes, and its weights as FP8."""

from __future__ import annotations

import numpy as np
import pytest

from fixtures.cases import studies
from fixtures.errors import InputError
from fixtures.fnet.recipe import RECIPES, Recipe, fp8_weight, quantized_layers, recipe

BOTH, INTERMEDIATE = ("intermediate.dense", "output.dense"), ("intermediate.dense",)


def test_every_variant_of_the_grid_has_a_recipe():
    """The grid and the recipes name the same six variants."""
    assert {case.variant for case in studies()["fnet"].cases} == set(RECIPES)


@pytest.mark.parametrize(
    ("variant", "window", "expected"),
    [
        ("fp32", 512, Recipe("fp32", "fp32", 1.0, ())),
        ("fp16", 512, Recipe("fp16", "fp16", 1.0, ())),
        ("fp16+hs", 512, Recipe("fp16", "fp16", 1 / 64, ())),
        ("fp16+dft32", 512, Recipe("fp16", "fp32", 1.0, ())),
        ("fp8", 512, Recipe("fp16", "fp16", 1 / 64, BOTH)),
        ("fp8", 257, Recipe("fp16", "fp16", 1 / 64, BOTH)),
        ("fp8", 256, Recipe("fp16", "fp16", 1.0, BOTH)),
        ("fp8", 128, Recipe("fp16", "fp16", 1.0, BOTH)),
        ("fp8-no-output-dense", 512, Recipe("fp16", "fp16", 1 / 64, INTERMEDIATE)),
        ("fp8-no-output-dense", 256, Recipe("fp16", "fp16", 1.0, INTERMEDIATE)),
    ],
)
def test_recipe(variant, window, expected):
    """Each variant is what the study says; FP8 stands on the scaled graph at 512, on the plain one at 256 and 128."""
    assert recipe(variant, window) == expected


def test_unknown_variant_names_the_known_ones():
    """A misspelt variant is one line that lists the variants there are."""
    with pytest.raises(InputError, match=r"'fp8\+hs'.*fp32, fp16, fp16\+hs, fp16\+dft32, fp8, fp8-no-output-dense"):
        recipe("fp8+hs", 512)


@pytest.mark.parametrize(
    ("variant", "num_layers", "count"),
    [
        ("fp8", 12, 24),
        ("fp8", 24, 48),
        ("fp8-no-output-dense", 12, 12),
        ("fp8-no-output-dense", 24, 24),
        ("fp16", 12, 0),
    ],
)
def test_quantized_layers_by_count(variant, num_layers, count):
    """The documented number of FP8 products: 24 in base, 48 in large, half of that without `output.dense`."""
    assert len(set(quantized_layers(recipe(variant, 512), num_layers))) == count


def test_quantized_layers_by_name():
    """The names are those of Transformers' FNetModel: each is a linear layer there, and no other is quantized."""
    import torch
    from transformers import FNetConfig, FNetModel

    with torch.device("meta"):
        model = FNetModel(FNetConfig(num_hidden_layers=2))
    linear = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    kept = {"embeddings.projection", "pooler.dense"}
    assert set(quantized_layers(recipe("fp8", 512), 2)) == linear - kept


def test_weight_is_quantized_per_tensor():
    """One fp16 scale of amax / 448, and codes that come back within half an E4M3 step (1/16 of the value)."""
    weight = np.random.default_rng(0).normal(0, 0.04, (64, 32)).astype(np.float32)
    codes, scale = fp8_weight(weight, "encoder.layer.0.output.dense.weight")
    assert (scale.shape, scale.dtype, codes.shape) == ((), np.float16, weight.shape)
    assert scale == np.float16(np.abs(weight).max() / 448)
    back = codes.astype(np.float32) * np.float32(scale)
    assert np.all(np.abs(back - weight) <= np.maximum(np.abs(weight) / 16, np.float32(scale) * 2**-10))


def test_zero_weight_is_refused_by_name():
    """C26: a layer of zeros has no scale, and no trained checkpoint has one."""
    with pytest.raises(InputError, match=r"encoder\.layer\.7\.output\.dense\.weight is all zeros"):
        fp8_weight(np.zeros((4, 4), np.float32), "encoder.layer.7.output.dense.weight")
