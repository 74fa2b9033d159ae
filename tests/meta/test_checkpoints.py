"""Guards that weights come whole, finite and fp32 from where the option says; anything else is one clear line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file

from fixtures.cases import Pin
from fixtures.checkpoints import Checkpoint, from_folder, load, state_sha256
from fixtures.errors import InputError
from fixtures.fnet import STUDY, weights
from tests.meta.hub import Hub

ROOT = Path(__file__).parents[2]
CONFIG = {
    "model_type": "fnet",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "vocab_size": 20,
    "max_position_embeddings": 16,
    "type_vocab_size": 4,
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-12,
    "tie_word_embeddings": True,
}
State = dict[str, torch.Tensor]
Damage = Callable[[Path, State], object]  # writes a checkpoint with a fault


@pytest.fixture
def state() -> State:
    """A small FNet under canonical names, its decoder untied; values that fp16 and bf16 hold exactly."""
    random = torch.Generator().manual_seed(0)
    return {name: torch.randint(-8, 9, shape, generator=random) / 8 for name, shape in weights.shapes(CONFIG).items()}


def write(folder: Path, state: State, config: Any = CONFIG) -> Path:
    """A checkpoint in the hub's form."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(state, folder / "model.safetensors")
    return folder


def write_parts(folder: Path, state: State) -> Path:
    """The same, its tensors dealt out to two files and an index."""
    whole = write(folder, state) / "model.safetensors"
    whole.unlink()
    names = sorted(state)
    index = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(names)}
    for part in set(index.values()):
        save_file({name: state[name] for name in names if index[name] == part}, folder / part)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return folder


def refusal(call: Callable[[], object]) -> str:
    """The one line that `call` is refused with."""
    with pytest.raises(InputError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def same(found: State, expected: State) -> bool:
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


# Folders


def test_folder_gives_the_stored_weights(tmp_path: Path, state: State) -> None:
    """What is read is what was written, and the source names the folder."""
    found = from_folder(write(tmp_path, state))
    assert same(dict(found.state), state)
    assert (found.config, found.source) == (CONFIG, f"folder {tmp_path}")


def test_split_weights_are_the_whole(tmp_path: Path, state: State) -> None:
    """Weights in several files with an index read as from one file; C10: the hash follows content, not path."""
    parts, whole = from_folder(write_parts(tmp_path / "parts", state)), from_folder(write(tmp_path / "whole", state))
    assert same(dict(parts.state), state)
    assert parts.sha256 == whole.sha256


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state | {"pooler.dense.bias": state["pooler.dense.bias"] + 2**-20},
        lambda state: state | {"pooler.dense.bias": state["pooler.dense.bias"].reshape(2, 4)},
        lambda state: state | {"pooler.dense.bias": state["pooler.dense.bias"].view(torch.int32)},
        lambda state: {name.replace("pooler", "puller"): tensor for name, tensor in state.items()},
        lambda state: {name: tensor for name, tensor in state.items() if name != "pooler.dense.bias"},
    ],
    ids=["value", "shape", "type", "name", "absent"],
)
def test_hash_follows_every_part_of_a_tensor(state: State, change: Callable[[State], State]) -> None:
    """C10: one value, shape, type or name changed is another hash; the order of tensors is not."""
    assert state_sha256(change(state)) != state_sha256(state)
    assert state_sha256(dict(reversed(state.items()))) == state_sha256(state)


@pytest.mark.parametrize(("dtype", "name"), [(torch.float16, "fp16"), (torch.bfloat16, "bf16")])
def test_half_precision_is_read_as_fp32_and_said(tmp_path: Path, state: State, dtype: torch.dtype, name: str) -> None:
    """Weights stored in half precision become fp32 with the same values, and the source says so."""
    found = from_folder(write(tmp_path, {key: tensor.to(dtype) for key, tensor in state.items()}))
    assert same(dict(found.state), state)
    assert found.source.endswith(f"stored as {name}, read as fp32")


def one_value(name: str, value: float) -> Damage:
    def change(folder: Path, state: State) -> None:
        state[name].flatten()[3] = value
        write(folder, state)

    return change


def one_file(name: str, content: bytes | None) -> Damage:
    def change(folder: Path, state: State) -> None:
        make = write_parts if name in (PART, INDEX) else write
        make(folder, state)
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)

    return change


def pickled(folder: Path, state: State) -> None:
    write(folder, state)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def cut(folder: Path, state: State) -> None:
    path = write(folder, state) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])


def stored_as(dtype: torch.dtype) -> Damage:
    return lambda folder, state: write(folder, {name: tensor.to(dtype) for name, tensor in state.items()})


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
PART, INDEX = "model-00001-of-00002.safetensors", "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (one_value("pooler.dense.weight", float("nan")), ["pooler.dense.weight", "NaN or infinity"]),
        (one_value("embeddings.projection.weight", float("-inf")), ["embeddings.projection.weight", "NaN or infinity"]),
        (stored_as(torch.float64), ["torch.float64", "fp32, fp16 and bf16"]),
        (stored_as(torch.float8_e4m3fn), ["torch.float8_e4m3fn", "fp32, fp16 and bf16"]),
        (pickled, ["only pytorch_model.bin", "never opened", "model.safetensors"]),
        (one_file("model.safetensors", None), ["no weights", "bring model.safetensors"]),
        (one_file("model.safetensors", b""), ["model.safetensors", "not a whole safetensors file"]),
        (one_file("model.safetensors", LFS_POINTER), ["model.safetensors", "not a whole safetensors file"]),
        (cut, ["model.safetensors", "not a whole safetensors file"]),
        (one_file("config.json", None), ["config.json", "not readable as JSON"]),
        (one_file("config.json", b"{"), ["config.json", "not readable as JSON"]),
        (one_file("config.json", b"[]"), ["config.json", "holds list"]),
        (one_file(PART, None), [PART, "not a whole safetensors file"]),
        (one_file(PART, save({"other": torch.zeros(1)})), [f" in {PART}", "not there"]),
        (one_file(INDEX, b"{}"), [INDEX, "no weight_map"]),
    ],
)
def test_damaged_folder_is_refused_by_name(tmp_path: Path, state: State, damage: Damage, words: list[str]) -> None:
    """C11, C23, C26: a broken, foreign, pickled or non-finite checkpoint is one line that names the file or tensor."""
    damage(tmp_path, state)
    message = refusal(lambda: from_folder(tmp_path))
    assert str(tmp_path) in message
    assert all(word in message for word in words), message


# The option


def test_option_names_a_folder(tmp_path: Path, state: State) -> None:
    """A folder serves as itself, or by its folder of the model's name, which goes first."""
    own, named = write(tmp_path, state), write(tmp_path / "large", state)
    assert load(str(tmp_path), "base", STUDY, pytest.fail).source == f"folder {own}"
    assert load(str(tmp_path), "large", STUDY, pytest.fail).source == f"folder {named}"


def test_option_synthetic_is_the_given_maker(state: State) -> None:
    """`synthetic` asks the study's own maker for the model."""
    made = Checkpoint("synthetic", CONFIG, state, "")
    assert load("synthetic", "base", STUDY, {"base": made}.__getitem__) is made


def test_option_without_a_checkpoint_says_where_it_looked(tmp_path: Path) -> None:
    """A folder without checkpoints, and a misspelt option, list both places that were tried."""
    message = refusal(lambda: load(str(tmp_path / "hubb"), "base", STUDY, pytest.fail))
    assert f"{tmp_path / 'hubb' / 'base' / 'config.json'}" in message
    assert f"{tmp_path / 'hubb' / 'config.json'}" in message


# The hub

REVISION, OTHER = "a" * 40, "b" * 40
WHOLE, PARTIAL, GATED = Pin("google/whole", REVISION), Pin("google/partial", REVISION), Pin("google/gated", REVISION)
PICKLED, ABSENT = Pin("google/pickled", REVISION), Pin("google/absent", REVISION)
MOVED, BRANCH = Pin("google/whole", OTHER), Pin("google/whole", "main")
PINS = (WHOLE, PARTIAL, GATED, PICKLED, ABSENT, MOVED, BRANCH)
ASK = """
import json, sys, time
time.sleep = lambda seconds: None  # the client waits 23 s in all before it gives up on a hub that does not answer
from fixtures.cases import Pin
from fixtures.errors import InputError
{how}
said = []
for pin in json.load(sys.stdin):
    try:
        said.append(ask(Pin(*pin)))
    except InputError as error:
        said.append(str(error))
print(json.dumps(said))
"""
WEIGHTS = """
from fixtures.checkpoints import from_hub
def ask(pin):
    found = from_hub(pin)
    return f"{found.source} {found.sha256}"
"""
FILES = """
from fixtures.hub import snapshot
def ask(pin):
    return f"files in {snapshot(pin, 'model', ['config.json', 'model*.safetensors*'])}"
"""
Said = dict[Pin, str]


def visit(how: str, pins: Sequence[Pin], env: dict[str, str]) -> Said:
    """What a fresh process gets for every pin: a line on what it found, or the refusal."""
    command = [sys.executable, "-c", ASK.format(how=how)]
    pairs = json.dumps([(pin.repo, pin.revision) for pin in pins])
    done = subprocess.run(command, cwd=ROOT, env=env, input=pairs, stdout=subprocess.PIPE, text=True, check=True)
    return dict(zip(pins, json.loads(done.stdout), strict=True))


@dataclass(frozen=True)
class Visits:
    state: State
    online: Said
    offline: Said
    requests: list[str]
    """What the hub was asked for online."""
    authorized: bool
    """Whether any request carried a token."""


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Visits:
    """All pins from a hub on loopback, then offline from the cache this left, with one snapshot made partial."""
    state = {name: torch.ones(shape) for name, shape in weights.shapes(CONFIG).items()}
    files = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": save(state), "pytorch_model.bin": b"-"}
    repos = {("model", pin.repo): {REVISION: files} for pin in (WHOLE, PARTIAL, GATED)}
    repos["model", PICKLED.repo] = {REVISION: {name: files[name] for name in ("config.json", "pytorch_model.bin")}}
    home = tmp_path_factory.mktemp("home")
    with Hub(repos, gated={("model", GATED.repo)}) as hub:
        online = visit(WEIGHTS, PINS, hub.env(home, HF_TOKEN="hf_secret"))
        requests = list(hub.requests)
        (home / f"hub/models--google--partial/snapshots/{REVISION}/model.safetensors").unlink()
        offline = visit(FILES, PINS, hub.env(home, HF_HUB_OFFLINE="1"))
        assert hub.requests == requests, "offline means no request"
        return Visits(state, online, offline, requests, hub.saw_token)


def test_hub_weights_are_the_pinned_ones(visits: Visits) -> None:
    """Weights come from the pinned revision, named in the source; nothing but config and safetensors is fetched."""
    assert visits.online[WHOLE] == f"hub google/whole@{REVISION[:7]} {state_sha256(visits.state)}"
    fetched = [request for request in visits.requests if request.startswith("GET /google/whole/")]
    base = f"GET /google/whole/resolve/{REVISION}"
    assert sorted(fetched) == [f"{base}/config.json", f"{base}/model.safetensors"]


def test_hub_access_needs_and_sends_no_token(visits: Visits) -> None:
    """Public access only: not even a token that the user has is sent."""
    assert not visits.authorized


def test_full_cache_serves_offline(visits: Visits) -> None:
    """C34: what was fetched once loads with HF_HUB_OFFLINE."""
    assert visits.offline[WHOLE].startswith("files in ")


@pytest.mark.parametrize(
    ("pin", "words"),
    [
        (GATED, ["google/gated@aaaaaaa", "gates access (401)", "name a folder"]),
        (ABSENT, ["google/absent@aaaaaaa", "no such public repository", "name a folder"]),
        (MOVED, ["google/whole@bbbbbbb", f"no revision {OTHER}", "correct the pin"]),
        (PICKLED, ["google/pickled@aaaaaaa", "it has no model*.safetensors*"]),
        (BRANCH, ["google/whole@main", "can move", "full commit hash"]),
    ],
)
def test_hub_refusals_say_which_and_why(visits: Visits, pin: Pin, words: list[str]) -> None:
    """C34: 401, a missing repository, a moved revision, a branch and pickled weights each have a line of their own."""
    assert all(word in visits.online[pin] for word in words), visits.online[pin]
    assert "\n" not in visits.online[pin]


@pytest.mark.parametrize("pin", [PARTIAL, GATED, MOVED], ids=["partial", "empty", "other revision"])
def test_offline_cache_that_lacks_files_is_refused(visits: Visits, pin: Pin) -> None:
    """C34: a partial cache, an empty one and one of another revision are errors, never other weights."""
    assert "HF_HUB_OFFLINE is set" in visits.offline[pin]
    assert f"{pin.repo}@{pin.revision[:7]}" in visits.offline[pin]
    assert "\n" not in visits.offline[pin]


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "https://hub.invalid"], ids=["no server", "refusing proxy"])
def test_no_network_is_one_line(tmp_path: Path, endpoint: str) -> None:
    """C34: without a connection, or behind a proxy that refuses, the message says so and names the way out."""
    with Hub({}) as hub:  # as a proxy it knows no CONNECT
        message = visit(FILES, [WHOLE], hub.env(tmp_path, HF_ENDPOINT=endpoint, HTTPS_PROXY=hub.url))[WHOLE]
    assert f"google/whole@aaaaaaa: no answer from {endpoint} (" in message
    assert "connect, or name a folder" in message
    assert "\n" not in message


# Canonical names


def checkpoint(state: State, **config: Any) -> Checkpoint:
    return Checkpoint("folder x", CONFIG | config, state, "hash")


def as_stored(state: State) -> State:
    """The names of Transformers' `FNetForPreTraining`."""
    return {name if name.startswith("cls.") else f"fnet.{name}": tensor for name, tensor in state.items()}


def without(state: State, *names: str) -> State:
    return {name: tensor for name, tensor in state.items() if not name.startswith(names)}


def test_both_prefixes_are_one_model(state: State) -> None:
    """`FNetForPreTraining` and `FNetModel` state dicts give the same encoder; the latter has no head, which is fine."""
    assert same(dict(weights.canonical(checkpoint(as_stored(state))).state), state)
    encoder = without(state, "cls.")
    assert same(dict(weights.canonical(checkpoint(encoder)).state), encoder)


def test_canonical_is_stable(state: State) -> None:
    """A canonical checkpoint comes back as it is, hash and config with it."""
    once = weights.canonical(checkpoint(as_stored(state)))
    twice = weights.canonical(once)
    assert same(dict(twice.state), dict(once.state))
    assert (twice.source, twice.config, twice.sha256) == (once.source, once.config, "hash")


def test_tied_decoder_is_the_word_embeddings(state: State) -> None:
    """A masked-LM head stored without a decoder weight reads the word embeddings."""
    found = weights.canonical(checkpoint(without(as_stored(state), weights.DECODER))).state
    assert found[weights.DECODER] is found[weights.WORDS]


def test_untied_decoder_stays_as_stored(state: State) -> None:
    """A stored decoder weight is used, whatever the config says of tying."""
    for tie in (True, False):
        found = weights.canonical(checkpoint(as_stored(state), tie_word_embeddings=tie)).state
        assert found[weights.DECODER] is state[weights.DECODER]


@pytest.mark.parametrize("name", [weights.HEAD_BIAS, weights.DECODER_BIAS])
def test_decoder_bias_under_either_name(state: State, name: str) -> None:
    """The head's bias has two names in stored files, and either gives the one canonical entry."""
    stored = without(state, weights.DECODER_BIAS) | {name: state[weights.DECODER_BIAS]}
    assert same(dict(weights.canonical(checkpoint(stored)).state), state)


def test_decoder_bias_is_the_one_that_is_added(state: State) -> None:
    """Where a file holds both names, an untied head keeps a leftover `bias` that the model does not read."""
    stored = state | {weights.HEAD_BIAS: torch.full((20,), 9.0)}
    assert same(dict(weights.canonical(checkpoint(stored)).state), state)


def test_buffers_other_heads_and_old_names(state: State) -> None:
    """Position ids, stored DFT matrices and other tasks' heads are left out; gamma and beta are weight and bias."""
    stored = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in as_stored(state).items()
    } | {
        "fnet.embeddings.position_ids": torch.arange(16)[None],
        "fnet.encoder.layer.0.fourier.self.dft_mat_seq": torch.zeros(16, 16, dtype=torch.complex64),
        "classifier.weight": torch.zeros(3, 8),
    }
    assert same(dict(weights.canonical(checkpoint(stored)).state), state)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"embeddings.word_embeddings.weight": torch.zeros(21, 8)}, ["word_embeddings.weight", "(21, 8)", "(20, 8)"]),
        ({"encoder.layer.1.output.dense.weight": torch.zeros(16, 8)}, ["layer.1.output.dense", "(16, 8)", "(8, 16)"]),
        ({"embeddings.position_embeddings.weight": torch.zeros(32, 8)}, ["position_embeddings", "(32, 8)", "(16, 8)"]),
        ({"embeddings.token_type_embeddings.weight": torch.zeros(2, 8)}, ["token_type", "(2, 8)", "(4, 8)"]),
        ({"encoder.layer.1.intermediate.dense.bias": None}, ["encoder.layer.1.intermediate.dense.bias is missing"]),
        ({"cls.predictions.transform.dense.bias": None}, ["cls.predictions.transform.dense.bias is missing"]),
        ({"encoder.layer.2.output.dense.bias": torch.zeros(8)}, ["encoder.layer.2.output.dense.bias has no place"]),
        ({"encoder.layer.0.lora_a": torch.zeros(8)}, ["encoder.layer.0.lora_a has no place"]),
        ({"fnet.pooler.dense.bias": torch.zeros(8)}, ["pooler.dense.bias twice"]),
    ],
)
def test_other_tensors_are_refused_by_name(
    state: State, change: dict[str, torch.Tensor | None], words: list[str]
) -> None:
    """A tensor of another shape, a missing, a surplus and a contradictory one name the tensor and both shapes."""
    changed = {name: tensor for name, tensor in (state | change).items() if tensor is not None}
    message = refusal(lambda: weights.canonical(checkpoint(changed)))
    assert all(word in message for word in ["folder x", *words]), message


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "bert"}, ["model_type is 'bert'"]),
        ({"hidden_act": "gelu"}, ["hidden_act is 'gelu'", "gelu_new"]),
        ({"num_hidden_layers": None}, ["num_hidden_layers as None"]),
        ({"vocab_size": True}, ["vocab_size as True"]),
        ({"hidden_size": "8"}, ["hidden_size as '8'"]),
        ({"layer_norm_eps": float("nan")}, ["layer_norm_eps as nan"]),
    ],
)
def test_other_configs_are_refused_by_name(state: State, config: dict[str, Any], words: list[str]) -> None:
    """C23: another architecture or activation, and a count or epsilon that is none, name the setting."""
    message = refusal(lambda: weights.canonical(checkpoint(state, **config)))
    assert all(word in message for word in ["folder x", *words]), message


def test_untied_config_needs_a_decoder(state: State) -> None:
    """Where the config forbids tying, a missing decoder weight is an error and not the word embeddings."""
    stored = without(state, weights.DECODER)
    message = refusal(lambda: weights.canonical(checkpoint(stored, tie_word_embeddings=False)))
    assert f"{weights.DECODER} is missing" in message


def test_one_folder_is_not_two_models(state: State) -> None:
    """C32: a checkpoint of another size under a model's name is refused, so `base` is never recorded as `large`."""
    message = refusal(lambda: weights.canonical(checkpoint(state), "large"))
    assert "num_hidden_layers is 2, fnet large has 24" in message
