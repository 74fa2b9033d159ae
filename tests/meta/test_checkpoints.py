"""Guards that weights come whole, finite and fp32 from where the option says, and that anything else is one clear line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file

from fixtures import checkpoints
from fixtures.cases import Pin, Study
from fixtures.checkpoints import Checkpoint, from_folder, load, state_sha256
from fixtures.errors import InputError
from fixtures.fnet import weights
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


def one_value(name: str, value: float) -> Callable[[Path, State], None]:
    def change(folder: Path, state: State) -> None:
        state[name].flatten()[3] = value
        write(folder, state)

    return change


def one_file(name: str, content: bytes | None) -> Callable[[Path, State], None]:
    def change(folder: Path, state: State) -> None:
        write_parts(folder, state) if "-0000" in name or "index" in name else write(folder, state)
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


def stored_as(dtype: torch.dtype) -> Callable[[Path, State], None]:
    return lambda folder, state: write(folder, {name: tensor.to(dtype) for name, tensor in state.items()}) and None


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
def test_damaged_folder_is_refused_by_name(
    tmp_path: Path, state: State, damage: Callable[[Path, State], None], words: list[str]
) -> None:
    """C11, C23, C26: a broken, foreign, pickled or non-finite checkpoint is one line that names the file or tensor."""
    damage(tmp_path, state)
    message = refusal(lambda: from_folder(tmp_path))
    assert str(tmp_path) in message
    assert all(word in message for word in words), message


# The option

STUDY = Study("fnet", "", {"base": Pin("a/b", "0" * 40), "large": Pin("a/c", "0" * 40)}, {}, ())


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
FROM_HUB = """
import json, sys
from fixtures.cases import Pin
from fixtures.checkpoints import from_hub
from fixtures.errors import InputError
said = []
for pin in json.load(sys.stdin):
    try:
        found = from_hub(Pin(*pin))
        said.append([found.source, found.sha256])
    except InputError as error:
        said.append([str(error), ""])
print(json.dumps(said))
"""
SNAPSHOT = """
import sys, time
time.sleep = lambda seconds: None  # the client waits 23 s between its retries
from fixtures.cases import Pin
from fixtures.errors import InputError
from fixtures.hub import snapshot
try:
    snapshot(Pin(*sys.argv[1:]), "model", ["config.json"])
except InputError as error:
    print(error)
"""
Said = dict[Pin, list[str]]


def visit(env: dict[str, str]) -> Said:
    """What `from_hub` says of every pin in a fresh process: source and hash, or its refusal."""
    pins = json.dumps([(pin.repo, pin.revision) for pin in PINS])
    done = subprocess.run(
        [sys.executable, "-c", FROM_HUB], cwd=ROOT, env=env, input=pins, stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(zip(PINS, json.loads(done.stdout), strict=True))


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Said, Said, list[str]]]:
    """All pins from a hub on loopback, then again offline from the cache that left, one snapshot in it made partial."""
    random = torch.Generator().manual_seed(0)
    state = {name: torch.rand(shape, generator=random) for name, shape in weights.shapes(CONFIG).items()}
    data = save(state)
    files = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": data, "pytorch_model.bin": b"pickle"}
    repos = {("model", pin.repo): {REVISION: files} for pin in (WHOLE, PARTIAL, GATED)}
    repos["model", PICKLED.repo] = {REVISION: {name: files[name] for name in ("config.json", "pytorch_model.bin")}}
    home = tmp_path_factory.mktemp("home")
    with Hub(repos, gated={("model", GATED.repo)}) as hub:
        online = visit(hub.env(home, HF_TOKEN="hf_secret"))
        requests = list(hub.requests)
        (home / f"hub/models--google--partial/snapshots/{REVISION}/model.safetensors").unlink()
        offline = visit(hub.env(home, HF_HUB_OFFLINE="1"))
        assert hub.requests == requests
    yield online, offline, requests
