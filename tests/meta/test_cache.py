"""The content-keyed cache: what its key holds, and what a crash, a race, damage or a bad disk does to it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.engines.cache import Cache, Entry, key
from fixtures.errors import InputError

PARTS = {"weights": "ab12", "window": 512, "layers": ["a", "b"], "level": 1, "tf32": False, "versions": {"trt": "11.4"}}
ROOT = Path(__file__).parents[2]

# A process that makes one entry: it says when it is asking, and, if it has to make the payload, writes half of it, says
# so, and goes on when told to. It loads cache.py alone, since the package around it takes seconds.
MAKER = """
import json, sys
from pathlib import Path
sys.path.append("fixtures/engines")
from cache import Cache

def make(path):
    with path.open("w") as payload:
        payload.write("half ")
        payload.flush()
        print("making", flush=True)
        sys.stdin.readline()
        payload.write("and whole")

print("asking", flush=True)
entry = Cache(Path(sys.argv[1])).get("plans", json.loads(sys.argv[2]), make)
assert "torch" not in sys.modules
print("hit" if entry.hit else "made", entry.path.read_text(), flush=True)
"""


def start(folder: Path) -> subprocess.Popen[str]:
    """A maker that has reached "asking"."""
    command = [sys.executable, "-c", MAKER, str(folder), json.dumps(PARTS)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "asking\n"
    return process


def text(words: str, made: list[str] | None = None):
    """A `make` that writes `words`, and counts itself in `made`."""

    def make(path: Path) -> None:
        path.write_text(words)
        if made is not None:
            made.append(words)

    return make


def never(path: Path) -> None:
    raise AssertionError(f"{path} was made although a sound entry was there")


PAYLOAD = text("payload")


def get(folder: Path, make=PAYLOAD, **changed: object) -> Entry:
    return Cache(folder).get("plans", PARTS | changed, make)


# ---- the key


@pytest.mark.parametrize(
    "changed",
    [
        {"weights": "ab13"},
        {"window": 128},
        {"window": 512.0},
        {"window": "512"},
        {"layers": ["b", "a"]},
        {"layers": ["a"]},
        {"level": 3},
        {"level": True},
        {"tf32": True},
        {"tf32": 0},
        {"tf32": None},
        {"versions": {"trt": "11.5"}},
        {"plugin": "cd34"},
    ],
    ids=str,
)
def test_any_changed_part_misses(tmp_path, changed):
    """C10: one thing changed in the content, its type included, is another entry; the unchanged one still hits."""
    get(tmp_path)
    assert not get(tmp_path, **changed).hit
    assert get(tmp_path, never).hit


def test_key_is_content_alone(tmp_path):
    """C10: order of parts, folder, path and modification time do not matter; a hit names its key."""
    made = get(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    os.utime(tmp_path / "there" / "plans" / made.key / "payload", (0, 0))
    hit = Cache(tmp_path / "there").get("plans", dict(reversed(PARTS.items())), never)
    assert (hit.key, hit.hit, hit.notes) == (key(PARTS), True, ())
    assert hit.path.read_text() == "payload"


def test_kinds_are_apart(tmp_path):
    """Scales and plans made from equal parts are two entries."""
    get(tmp_path, text("a plan"))
    assert Cache(tmp_path).get("scales", PARTS, text("scales")).path.read_text() == "scales"


@pytest.mark.parametrize(
    ("part", "error"),
    [
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        ([1.0, float("nan")], ValueError),
        (Path("model.onnx"), TypeError),
        (b"bytes", TypeError),
        ((1, 2), TypeError),
        ({1: "one"}, TypeError),
        ({True: "yes"}, TypeError),
    ],
    ids=repr,
)
def test_key_refuses_what_json_would_change(part, error):
    """C10, C23: no NaN in a key, and no two contents under one key because JSON writes them alike."""
    with pytest.raises(error):
        key({"part": part})


# ---- damage


def flip_last(payload: Path) -> None:
    data = bytearray(payload.read_bytes())
    data[-1] ^= 1
    payload.write_bytes(data)


DAMAGES = {
    "empty": (lambda home: (home / "payload").write_bytes(b""), "size_bytes differs"),
    "cut": (lambda home: os.truncate(home / "payload", 3), "size_bytes differs"),
    "flipped": (lambda home: flip_last(home / "payload"), "sha256 differs"),
    "html": (lambda home: (home / "payload").write_text("<html>404</html>"), "size_bytes differs"),
    "gone": (lambda home: (home / "payload").unlink(), "payload: No such file or directory"),
    "no manifest": (lambda home: (home / "manifest.json").unlink(), "manifest.json: No such file or directory"),
    "manifest cut": (lambda home: os.truncate(home / "manifest.json", 20), "manifest.json is not readable"),
    "manifest binary": (
        lambda home: (home / "manifest.json").write_bytes(b"\xff\x00"),
        "manifest.json is not readable",
    ),
    "manifest null": (lambda home: (home / "manifest.json").write_text("null"), "manifest.json is not readable"),
    "manifest list": (lambda home: (home / "manifest.json").write_text("[]"), "parts differs"),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_one_rebuild_and_a_note(tmp_path, damage, reason):
    """C11: a truncated, flipped or foreign file is never read: set aside, made again once, and said so."""
    home = get(tmp_path, text("whole payload")).path.parent
    damage(home)
    made: list[str] = []
    entry = get(tmp_path, text("whole payload", made))
    assert entry.notes == (f"cache entry plans/{entry.key}: it was damaged ({reason}) and it was made again",)
    assert (entry.hit, entry.path.read_text(), made) == (False, "whole payload", ["whole payload"])
    assert home.with_name(f"{home.name}.damaged").is_dir()
    assert get(tmp_path, never).notes == ()


def test_foreign_entry_is_refused(tmp_path):
    """C11: a sound entry of other parts, moved to this key, is damage too."""
    foreign = get(tmp_path, text("of TensorRT 10"), level=5).path.parent
    foreign.rename(foreign.with_name(key(PARTS)))
    entry = get(tmp_path, text("of TensorRT 11"))
    assert "(parts differs)" in entry.notes[0]
    assert entry.path.read_text() == "of TensorRT 11"


def test_one_damaged_entry_is_kept(tmp_path):
    """Set aside means the last damaged entry, not a growing pile of them."""
    for words in ("first", "second"):
        get(tmp_path).path.write_text(words)
        get(tmp_path)
    folder = tmp_path / "plans"
    assert (folder / f"{key(PARTS)}.damaged" / "payload").read_text() == "second"
    assert sorted(path.name.partition(".")[2] for path in folder.iterdir()) == ["", "damaged", "lock"]


def test_failed_make_leaves_nothing(tmp_path):
    """What `make` raises passes through unchanged, an OSError of its own included; the next call makes the entry."""

    def fail(path: Path) -> None:
        path.write_text("half")
        (path.parent / "missing" / "input.onnx").read_bytes()

    with pytest.raises(FileNotFoundError):
        get(tmp_path, fail)
    assert [path.suffix for path in (tmp_path / "plans").iterdir()] == [".lock"]
    assert get(tmp_path).notes == ()


def test_large_payload_is_hashed_in_chunks(tmp_path):
    """A payload need not fit in memory: reading it back holds no more than a buffer of it."""

    def sparse(path: Path) -> None:
        with path.open("wb") as payload:
            payload.truncate(2**26)

    tracemalloc.start()
    try:
        get(tmp_path, sparse)
        assert get(tmp_path, never).hit
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2**22


# ---- processes


def test_two_processes_make_it_once(tmp_path):
    """C11: the second process waits for the first and takes what it made."""
    first = start(tmp_path)
    assert first.stdout is not None
    assert first.stdout.readline() == "making\n"
    second = start(tmp_path)
    assert first.communicate("go on\n", timeout=10) == ("made half and whole\n", None)
    assert second.communicate("", timeout=10) == ("hit half and whole\n", None)


def test_killed_writer_leaves_nothing_that_is_read(tmp_path):
    """C11: kill -9 in the middle of a payload; its lock and its half file stop nobody and are cleared away, with a
    note."""
    writer = start(tmp_path)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "making\n"
    writer.send_signal(signal.SIGKILL)
    writer.communicate(timeout=10)
    folder = tmp_path / "plans"
    assert (folder / f"{key(PARTS)}.part" / "payload").read_text() == "half "
    assert (folder / f"{key(PARTS)}.lock").exists()
    entry = get(tmp_path, text("whole"))
    assert (entry.hit, entry.path.read_text()) == (False, "whole")
    assert entry.notes == (f"cache entry plans/{entry.key}: its writer was killed and it was made again",)
    assert get(tmp_path, never).notes == ()
    assert not (folder / f"{key(PARTS)}.part").exists()


# ---- a folder that cannot be written


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder that this process may use, as a user whom file permissions bind (root's writes they do not stop)."""
    folder = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    try:
        if root:
            shutil.chown(folder, 65534)
            os.seteuid(65534)
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o700)
        shutil.rmtree(folder)


def test_read_only_folder_is_one_clear_line(unprivileged):
    """C11: nothing can be written: one line with the folder, the reason and the option."""
    unprivileged.chmod(0o500)
    with pytest.raises(InputError) as caught:
        get(unprivileged / "cache")
    assert str(unprivileged) in str(caught.value)
    assert "Permission denied" in str(caught.value)
    assert "--engine-cache DIR" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_read_only_folder_still_serves(unprivileged):
    """A cache laid read-only before the run is of use: a hit writes nothing."""
    get(unprivileged)
    folders = [unprivileged, unprivileged / "plans"]
    for folder in folders:
        folder.chmod(0o500)
    try:
        assert get(unprivileged, never).hit
    finally:
        for folder in folders:
            folder.chmod(0o700)


def test_folder_that_is_a_file(tmp_path):
    """`--engine-cache` names a file: said in one line, and the file is left alone."""
    (tmp_path / "cache").write_text("mine")
    with pytest.raises(InputError, match="--engine-cache DIR"):
        get(tmp_path / "cache")
    assert (tmp_path / "cache").read_text() == "mine"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's always-full device")
def test_full_disk_is_one_clear_line(tmp_path):
    """A disk that fills up while the payload is written: one line, and nothing half-written."""

    def fill(path: Path) -> None:
        path.write_text("half")
        Path("/dev/full").write_text("more than there is room for")

    with pytest.raises(InputError, match=r"No space left on device.*--engine-cache DIR"):
        get(tmp_path, fill)
    assert [path.suffix for path in (tmp_path / "plans").iterdir()] == [".lock"]
