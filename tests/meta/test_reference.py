"""The reference is Transformers' own model in fp32, whatever surrounds it, or one line that says why it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fixtures import checkpoints
from fixtures.checkpoints import Checkpoint
from fixtures.errors import InputError
from fixtures.fnet import weights
from fixtures.fnet.reference import Reference
from tests.meta import tiny


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(tiny.plain())


def in_hub_form(folder: Path, stored: Checkpoint) -> Path:
    """A checkpoint as a folder that Transformers loads by itself."""
    (folder / "config.json").write_text(json.dumps({"architectures": ["FNetForPreTraining"], **stored.config}))
    tensors = {name: tensor.clone() for name, tensor in stored.state.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize(("tied", "window"), [(True, 128), (False, 100)])
def test_is_the_model_that_transformers_loads(tmp_path, tied, window):
    """Features and logits are those of `FNetForPreTraining.from_pretrained` on the same files, to the bit."""
    from transformers import FNetForPreTraining

    folder = in_hub_form(tmp_path, tiny.stored(tie_word_embeddings=tied))
    model = FNetForPreTraining.from_pretrained(folder).eval()
    ours = Reference(weights.canonical(checkpoints.from_folder(folder)))
    ids = tiny.ids(2, window)
    with torch.inference_mode():
        expected = model(ids, output_hidden_states=True)
    features = ours.features(ids)
    assert torch.equal(features, expected.hidden_states[-1])
    torch.testing.assert_close(
        ours.head(features.flatten(0, 1)), expected.prediction_logits.flatten(0, 1), rtol=1e-6, atol=1e-6
    )


def test_decoder_of_its_own_is_used():
    """An untied decoder gives other logits from the same features; the tied one is the word embeddings."""
    rows = torch.randn(3, tiny.HIDDEN, generator=torch.Generator().manual_seed(0))
    tied, untied = (Reference(tiny.checkpoint(tie_word_embeddings=tie)) for tie in (True, False))
    assert torch.equal(tied.model.cls.predictions.decoder.weight, tied.model.fnet.embeddings.word_embeddings.weight)
    assert not torch.allclose(tied.head(rows), untied.head(rows), atol=0.1)


def test_uses_the_checkpoints_own_tensors(reference):
    """Nothing is copied: a large model is in memory once."""
    own = {tensor.data_ptr() for tensor in tiny.plain().state.values()}
    assert {parameter.data_ptr() for parameter in reference.model.parameters()} <= own


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_type_are_refused(dtype):
    """C31: half precision is one clear failure by name, not a reference."""
    name = "encoder.layer.1.output.dense.weight"
    half = tiny.checkpoint(put={name: tiny.plain().state[name].to(dtype)})
    with tiny.one_line(InputError, "tiny seed 0", name, str(dtype), "the reference is fp32"):
        Reference(half)


def test_stays_fp32_under_autocast(reference):
    """C31: an autocast around it changes no bit of features or logits; Transformers' model alone would change."""
    ids = tiny.ids(2)
    features = reference.features(ids)
    logits = reference.head(features[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(reference.features(ids), features)
        assert torch.equal(reference.head(features[0]), logits)
        assert reference.model.cls.predictions(features[0]).dtype == torch.bfloat16
    assert (features.dtype, logits.dtype) == (torch.float32, torch.float32)


def test_nan_in_a_weight_names_the_row():
    """C23: a row that is not finite is no reference; the rows before it are not blamed."""
    name = "embeddings.word_embeddings.weight"
    table = tiny.plain().state[name].clone()
    table[7] = float("nan")
    broken = Reference(tiny.checkpoint(put={name: table}))
    ids = torch.where((ids := tiny.ids(3)) == 7, 8, ids)
    assert broken.features(ids).isfinite().all()
    ids[1, 5] = 7
    with tiny.one_line(InputError, "not finite for row 1", "NaN"):
        broken.features(ids)


@pytest.mark.parametrize("missing", [weights.DECODER, "cls.predictions.transform.dense.bias"])
def test_checkpoint_without_its_head_is_refused(missing):
    """A figure of masked words needs the trained head, not a random one: refused by name."""
    state = {name: tensor for name, tensor in tiny.plain().state.items() if name != missing}
    headless = Checkpoint("tiny without head", tiny.CONFIG, state, "")
    with tiny.one_line(InputError, "tiny without head", missing, "need a checkpoint with its head"):
        Reference(headless)


def test_watched_dft_is_the_largest_of_each_layer():
    """C31: layer by layer the size (of a negative here) that a 2-D FFT in float64 reaches on what the layer gets; and
    nothing is watched afterwards."""
    reference = Reference(tiny.checkpoint(put=tiny.OVERFLOW))
    inputs: list[torch.Tensor] = []
    layers = [layer.fourier.self for layer in reference.model.fnet.encoder.layer]
    hooks = [layer.register_forward_pre_hook(lambda _, args: inputs.append(args[0])) for layer in layers]
    with reference.watched_dft() as largest:
        for row in tiny.ids(3).split(1):
            reference.features(row)
    for hook in hooks:
        hook.remove()
    assert len(largest) == 3 * tiny.LAYERS
    assert largest == pytest.approx([float(torch.fft.fft2(x.double()).real.abs().max()) for x in inputs], rel=1e-6)
    reference.features(tiny.ids())
    assert len(largest) == 3 * tiny.LAYERS


def test_watched_dft_lets_go_after_an_error(reference):
    """The hooks are gone even when the block fails."""
    with pytest.raises(RuntimeError, match="inside"), reference.watched_dft() as largest:
        raise RuntimeError("inside")
    reference.features(tiny.ids())
    assert largest == []
