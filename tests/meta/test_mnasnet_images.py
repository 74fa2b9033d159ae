"""MNASNet's pictures, from shards, the hub, labelled files and scikit-learn, and every fault that should stop them."""

from __future__ import annotations

import csv
import hashlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torchvision.datasets.folder import pil_loader

from fixtures import metrics
from fixtures.errors import InputError
from fixtures.mnasnet import STUDY, images, tasks
from fixtures.mnasnet.images import Picture, Pictures, all_digits, digits, open_pictures
from fixtures.mnasnet.model import Preprocessing, network
from tests.meta import tiny_mnasnet as tiny
from tests.meta.hub import Hub
from tests.meta.tiny import one_line
from tests.meta.tiny_mnasnet import picture, shard

ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / "shared" / "data"
PIN = STUDY.datasets["imagenet1k"]
PREPROCESSING = Preprocessing((3, 48, 48), "bicubic", 0.875, "center", (0.5, 0.4, 0.3), (0.25, 0.2, 0.3))

needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason="no ../shared/data beside the repository")


# ---- digits


def test_digits_and_their_classes_belong_together():
    """Pinned pairs of pixels and class: a list of labels in another order cannot hide."""
    found = all_digits()
    pinned = {0: (0, "904de1faa76da671"), 500: (8, "8afe2677184275c1"), 1796: (8, "cf815fd0dc3eadc9")}
    for row, (label, sha256) in pinned.items():
        assert found[row].label == label
        assert hashlib.sha256(found[row].decode().tobytes()).hexdigest().startswith(sha256)


def test_digits_are_split():
    """What is held out neither trained the digits model nor calibrates, and there is enough of both."""
    found, everything = digits(), all_digits()
    trained = {picture.name for picture in everything[: images.DIGITS_TRAINING]}
    assert {picture.name for picture in found.calibration} <= trained
    assert not trained & {picture.name for picture in found.held_out}
    assert (len(found.calibration), len(found.held_out)) == tasks.EMBEDDED_SAMPLES
    assert any("trained on" in note for note in found.notes)


# ---- shards


def samples(count: int, first: int = 0, kind: str = "jpg") -> dict[str, dict[str, bytes]]:
    """`count` samples as CLIP_benchmark writes them; the class of one is its number, its image one of noise."""
    image = picture("JPEG")
    return {f"s{number:07d}": {kind: image, "cls": b"%d" % (number % 1000)} for number in range(first, first + count)}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the repository's test split: two shards of 60 and 30 samples."""
    (tmp_path / "test").mkdir()
    (tmp_path / "test/0.tar").write_bytes(shard(samples(60)))
    (tmp_path / "test/1.tar").write_bytes(shard(samples(30, first=60, kind="webp")))
    (tmp_path / "test/nshards.txt").write_text("2\n")
    return tmp_path


def labels(found: Pictures) -> list[int]:
    return [each.label for each in (*found.calibration, *found.held_out)]


@pytest.mark.parametrize("place", [".", "test"])
def test_every_25th_image_of_each_shard(copy, place):
    """The study's rule starts anew in each shard; the seed shuffles, and the first quarter calibrates."""
    found = open_pictures(str(copy / place), STUDY)
    assert sorted(labels(found)) == [0, 25, 50, 60, 85]
    assert labels(found) != sorted(labels(found))
    assert (len(found.calibration), len(found.held_out)) == (1, 4)
    assert labels(found) == labels(open_pictures(str(copy / place), STUDY))
    assert found.held_out[0].decode().size == (40, 30)
    assert found.classes == 1000


def absent_shard(folder: Path) -> None:
    (folder / "test/0.tar").unlink()


def odd_count(folder: Path) -> None:
    (folder / "test/nshards.txt").write_text("<html>")


def cut_shard(folder: Path) -> None:
    path = folder / "test/1.tar"
    path.write_bytes(path.read_bytes()[:1500])


def cut_between_members(folder: Path) -> None:
    path = folder / "test/1.tar"
    with tarfile.open(path) as tar:
        end = tar.getmembers()[40].offset
    path.write_bytes(path.read_bytes()[:end])


def pointer(folder: Path) -> None:
    (folder / "test/1.tar").write_text("version https://git-lfs.github.com/spec/v1\n")


def no_class(folder: Path) -> None:
    (folder / "test/1.tar").write_bytes(shard({"s0000000": {"jpg": picture()}}))


def counted_from_one(folder: Path) -> None:
    (folder / "test/1.tar").write_bytes(shard({"s0000000": {"jpg": picture(), "cls": b"1000"}}))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (absent_shard, ("2 shards belong here", "0.tar is missing")),
        (odd_count, ("<html> shards belong here",)),
        (cut_shard, ("1.tar", "not a whole tar file", "fetch it again")),
        (cut_between_members, ("1.tar", "not a whole tar file (it was cut)")),
        (pointer, ("1.tar", "not a whole tar file")),
        (no_class, ("1.tar/s0000000", "a cls and one of jpg")),
        (counted_from_one, ("1.tar/s0000000", "'1000'", "0 to 999")),
    ],
)
def test_broken_shards_are_refused_by_name(copy, fault: Callable[[Path], None], words):
    """C34: a part of the shards, or of one, is an error and never fewer images."""
    fault(copy)
    with one_line(InputError, *words):
        open_pictures(str(copy), STUDY)


def test_folder_without_pictures_is_refused(tmp_path):
    """What a folder may hold is said, and digits are not put in its place."""
    with one_line(InputError, str(tmp_path), "dataset.toml", "test/0.tar"):
        open_pictures(str(tmp_path), STUDY)


# ---- the hub

LOAD = """
import sys
sys.path.insert(0, {root!r})
from fixtures.errors import InputError
from fixtures.mnasnet import STUDY
from fixtures.mnasnet.images import open_pictures
try:
    found = open_pictures("hub", STUDY)
    print(sorted(each.label for each in found.calibration + found.held_out), found.source, found.notes, sep="|")
except InputError as error:
    print(error)
"""


def load(env: dict[str, str]) -> str:
    """What a process of its own says of the hub's pictures; the client reads its environment on import."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD.format(root=str(ROOT))], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_hub_gives_the_pinned_shards_and_then_the_cache(copy, tmp_path):
    """C34: the pin's test split and nothing else is fetched; offline the cache serves, and an empty one is an error."""
    files = {f"test/{path.name}": path.read_bytes() for path in (copy / "test").iterdir()}
    repos = {("dataset", PIN.repo): {PIN.revision: {**files, "train/0.tar": b"never asked for"}}}
    with Hub(repos) as server:
        online = load(server.env(tmp_path / "home"))
        assert online.startswith("[0, 25, 50, 60, 85]|hub clip-benchmark/wds_imagenet1k@b24c7a5|")
        assert "prints no revision" in online
        assert not [request for request in server.requests if "train" in request]
        asked = len(server.requests)
        assert load(server.env(tmp_path / "home", HF_HUB_OFFLINE="1")) == online
        empty = load(server.env(tmp_path / "other", HF_HUB_OFFLINE="1"))
        assert len(server.requests) == asked
    assert empty.startswith(f"hub dataset {PIN.repo}@b24c7a5")
    assert "HF_HUB_OFFLINE" in empty


# ---- labelled files

SYNSETS = ("n01", "n02", "n03", "n04")
LABELLED = '[imagenet]\nimages = "images"\nlabels = "labels.csv"\nsynsets = "synsets.txt"\n'


def write_labelled(folder: Path, **changed: str) -> str:
    """Four pictures of four classes, the last an odd one; `changed` is put into the third row."""
    (folder / "images").mkdir()
    (folder / "dataset.toml").write_text(LABELLED)
    (folder / "synsets.txt").write_text("\n".join(SYNSETS))
    with (folder / "labels.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, images.LABEL_COLUMNS)
        rows.writeheader()
        for label, wnid in enumerate(SYNSETS):
            data, name = picture(seed=label), f"{wnid}.png"
            (folder / "images" / name).write_bytes(data)
            role = "edge:grayscale, tiny" if label == 3 else "core"
            row = {"file": name, "class_index": label, "wnid": wnid, "role": role}
            rows.writerow({**row, "sha256": hashlib.sha256(data).hexdigest(), **(changed if label == 2 else {})})
    return str(folder)


def test_labelled_files_are_read_by_their_roles(tmp_path):
    """Accuracy is taken on `core` alone, `edge` ones are kept apart, and it is said that they are not the study's."""
    found = open_pictures(write_labelled(tmp_path), STUDY)
    assert sorted(labels(found)) == [0, 1, 2]
    assert [each.label for each in found.edge] == [3]
    assert "another set" in found.notes[0]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"class_index": "3"}, ("n03.png", "class 3 is n03 in the labels", "['n04']", "another order")),
        ({"class_index": "4"}, ("n03.png", "class 4 is n03")),
        ({"class_index": "-1"}, ("n03.png", "'-1'")),
        ({"role": "test"}, ("n03.png", "'test'", "core or edge")),
        ({"sha256": "0" * 64}, ("n03.png", "SHA-256")),
        ({"file": "n05.png"}, ("n05.png", "cannot be read")),
    ],
)
def test_wrong_row_is_refused_by_name(tmp_path, changed, words):
    """C34: a class that counts from one, an edited picture, an absent one and an unknown role name the file."""
    with one_line(InputError, *words):
        open_pictures(write_labelled(tmp_path, **changed), STUDY)


def test_absent_column_and_part_are_named(tmp_path):
    """A table without a column, or a dataset.toml without this part, says what is missing."""
    write_labelled(tmp_path)
    path = tmp_path / "labels.csv"
    path.write_text(path.read_text().replace("sha256", "md5", 1))
    with one_line(InputError, "labels.csv", "no column sha256"):
        open_pictures(str(tmp_path), STUDY)
    (tmp_path / "dataset.toml").write_text(LABELLED.replace("synsets", "#"))
    with one_line(InputError, "[imagenet] synsets is absent"):
        open_pictures(str(tmp_path), STUDY)


@needs_real_data
def test_real_photographs():
    """All 103 files are those that were labelled, in the order of ImageNet's synsets."""
    found = open_pictures(str(REAL), STUDY)
    assert (len(found.calibration), len(found.held_out), len(found.edge)) == (25, 75, 3)
    assert {label // 10 for label in labels(found)} == set(range(100))


@needs_real_data
def test_two_engines_on_real_photographs():
    """Image by image, odd files among them: fp32 and fp16 engines put the class first that PyTorch does."""
    found, model = open_pictures(str(REAL), STUDY), network(tiny.checkpoint())
    kept = replace(found, calibration=(), held_out=(*found.held_out[:9], *found.edge))
    rows = tasks.encode(kept, Preprocessing.of(model), 20, tasks.Samples(0, 12)).held_out
    for variant in ("fp32", "fp16"):
        logits = tiny.logits(tiny.graph(model, variant), rows)
        assert metrics.agreement(model(rows), logits).all()
        assert metrics.kl(model(rows), logits).max() < 1e-2


# ---- decoding and preprocessing


@pytest.mark.parametrize("name", ["n04372370_switch", "n03804744_nail", "n02951585_can_opener", "n01443537_goldfish"])
@needs_real_data
def test_real_files_decode_as_torchvision_does(name):
    """Grayscale is widened to RGB, an EXIF rotation is left alone, a tiny file is not padded: pixel by pixel."""
    path = REAL / "imagenet_sample/images" / f"{name}.JPEG"
    found = Picture(name, path.read_bytes(), 0).decode()
    expected = pil_loader(str(path))
    assert (found.mode, found.size) == ("RGB", expected.size)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("form", ["L", "P", "RGBA", "CMYK", "LA", "1"])
def test_every_form_becomes_rgb(form, tmp_path):
    """Palettes, transparency and print colours are no other shape of input, and decode as torchvision's do."""
    kind = "TIFF" if form == "CMYK" else "PNG"
    path = tmp_path / f"picture.{kind.lower()}"
    Image.open(io.BytesIO(picture())).convert(form).save(path, kind)
    found = Picture("odd", path.read_bytes(), 0).decode()
    assert found.tobytes() == pil_loader(str(path)).tobytes()
    assert PREPROCESSING.transform()(found).shape == (3, 48, 48)


def test_exif_rotation_is_left_alone():
    """torchvision and timm read pixels as they are stored, so the study did."""
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    Image.open(io.BytesIO(picture())).save(file, "JPEG", exif=exif)
    assert Picture("turned", file.getvalue(), 0).decode().size == (40, 30)


@pytest.mark.parametrize("data", [b"", b"<html>", picture("JPEG")[:600], picture()[:-40]])
def test_broken_picture_is_named(data):
    """C34: half a picture is an error, not a gray one."""
    with one_line(InputError, "broken.jpg", "not a whole image"):
        Picture("broken.jpg", data, 0).decode()


def encoded(preprocessing: Preprocessing = PREPROCESSING, pictures: Pictures | None = None, **samples: int):
    counts = tasks.Samples(**{"calibration": 2, "held_out": 3} | samples)
    return tasks.encode(pictures or digits(), preprocessing, 10, counts)


@pytest.mark.parametrize(
    "change",
    [
        {"crop_pct": 0.9},
        {"crop_pct": 1.0},
        {"crop_mode": "squash"},
        {"interpolation": "bilinear"},
        {"interpolation": "nearest"},
        {"mean": (0.5, 0.5, 0.5)},
        {"std": (0.5, 0.5, 0.5)},
    ],
)
def test_other_preprocessing_is_another_input(change):
    """C32: each of crop, filter, mean and std moves the hash of what is fed, and is in the line that is recorded."""
    other = Preprocessing(**{**vars(PREPROCESSING), **change})
    wide = Pictures("noise", 10, *(tuple(Picture("n", picture(seed=seed), 1) for seed in range(3)) for _ in range(2)))
    assert encoded(other, wide).sha256 != encoded(pictures=wide).sha256
    assert str(other) != str(PREPROCESSING)


def test_hash_is_of_every_pixel_and_class():
    """C34: encoding twice gives one digest; another order, one other class or one other image gives another."""
    found = digits()
    first, *rest = found.held_out[:3]
    changed = (
        (*rest, first),
        (Picture(first.name, first.data, 9), *rest),
        (Picture(first.name, found.held_out[5].data, first.label), *rest),
    )
    digests = {encoded(pictures=Pictures("", 10, found.calibration, held_out)).sha256 for held_out in changed}
    assert len({encoded().sha256, encoded().sha256, *digests}) == 4


def test_never_fewer_than_asked():
    """C34: the line says how many there are and how to ask for fewer."""
    with one_line(InputError, "601 held-out images are asked for and 600 are there", "--samples"):
        encoded(held_out=601)
    with one_line(InputError, "501 calibration images"):
        encoded(calibration=501)


def test_classes_of_other_data_are_no_labels():
    """A digit's class says nothing about a model of 1,000 classes, so there is no top-1 to be misread."""
    assert tasks.encode(digits(), PREPROCESSING, 1000, tasks.Samples(1, 1)).labels is None
    assert encoded().labels.tolist() == [each.label for each in digits().held_out[:3]]


def test_stress_inputs():
    """29 different inputs, as the study has, all within what a preprocessed picture can be."""
    found = tasks.stress(PREPROCESSING)
    assert len({each.numpy().tobytes() for each in found.values()}) == 29
    mean, std = (torch.tensor(each).reshape(3, 1, 1) for each in (PREPROCESSING.mean, PREPROCESSING.std))
    for values in found.values():
        pixels = values * std + mean
        assert pixels.shape == (3, 48, 48)
        assert (pixels - 0.5).abs().max() < 0.5 + 1e-6
    assert all(torch.equal(each, found[name]) for name, each in tasks.stress(PREPROCESSING).items())
