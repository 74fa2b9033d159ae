"""Text sources: hub, folder and embedded, fed with real files and with every fault that should stop them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentencepiece

from fixtures.cases import Pin, studies
from fixtures.datasets import PAIR_COUNT, Datasets, Texts, open_datasets
from fixtures.errors import InputError
from tests.meta.hub import Hub

STUDY = studies()["fnet"]
ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / "shared" / "data"
PROBE = "U.S. 3.5% [MASK]"

needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason="no ../shared/data beside the repository")


def refused(call: Callable[[], object], *words: str) -> None:
    """The call ends in an InputError of one line that holds all `words`."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert [word for word in words if word not in message] == [], message


def parquet(**columns: list[Any]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def embedded() -> Datasets:
    """What a run without network and files reads; shared, since training its tokenizer is the slow part."""
    return open_datasets("embedded", STUDY)


@pytest.fixture(scope="module")
def spiece(embedded: Datasets) -> bytes:
    """A small SentencePiece model with FNet's special tokens and, like ALBERT's, without capitals."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(row.lower() for row in embedded.texts().held_out[:150]),
        model_writer=model,
        vocab_size=400,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        pad_piece="<pad>",
        user_defined_symbols=["[CLS]", "[SEP]", "[MASK]"],
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


Files = dict[str, str | bytes]
Folder = Callable[[str, Files], str]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Writes files by path, and a dataset.toml that gives them their parts; returns the value for --datasets."""

    def write(toml: str, files: Files) -> str:
        for name, content in {"dataset.toml": toml, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(tmp_path)

    return write


WIKITEXT = '[wikitext2]\ncalibration = "wiki.train.raw"\nheld_out = "wiki.test.raw"\n'
WIKI: Files = {"wiki.train.raw": " Seen . \n", "wiki.test.raw": " Unseen . \n"}


# embedded


def test_embedded_text_is_enough_and_split(embedded: Datasets) -> None:
    """The default run has text on both sides, and calibration never sees a held-out paragraph."""
    texts = embedded.texts()
    assert len(set(texts.calibration)) == len(texts.calibration) > 544
    assert len(set(texts.held_out)) == len(texts.held_out) > 300
    assert not set(texts.calibration) & set(texts.held_out)
    assert all(row == " ".join(row.split()) for row in texts.calibration + texts.held_out)


def test_embedded_pairs_score_what_they_keep(embedded: Datasets) -> None:
    """1,379 pairs whose score is 5 times the share of words kept, and which say that they are not STS-B."""
    texts = embedded.texts()
    assert texts.pairs is not None
    assert len(texts.pairs) == PAIR_COUNT
    for pair in texts.pairs:
        first, second = pair.first.split(), pair.second.split()
        kept = sum(a == b for a, b in zip(first, second, strict=True))
        assert pair.score == pytest.approx(5 * kept / len(first))
    scores = {pair.score for pair in texts.pairs}
    assert (min(scores), max(scores)) == (0.0, 5.0)
    assert len(scores) > 100
    assert any("not STS-B" in note for note in texts.notes)


def test_embedded_is_the_same_on_every_run(embedded: Datasets) -> None:
    """C34: neither hash seed nor threads move the text, the pairs or the trained vocabulary."""
    again = open_datasets("embedded", STUDY)
    trained = [source.tokenizer(32000).backend_tokenizer.to_str() for source in (embedded, again)]
    assert trained[0] == trained[1]

    show = (
        "from fixtures.datasets import open_datasets as o; from fixtures.cases import studies as s;"
        "print(ascii(o('embedded', s()['fnet']).texts()), end='')"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    other = subprocess.run([sys.executable, "-c", show], cwd=ROOT, env=env, capture_output=True, check=True, text=True)
    assert other.stdout == ascii(embedded.texts())


def test_embedded_tokenizer_is_fnets_in_form(embedded: Datasets) -> None:
    """FNet's special tokens come first, case is kept and no character of the text is unknown."""
    tokenizer = embedded.tokenizer(32000)
    assert tokenizer.convert_ids_to_tokens(range(5)) == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert 7000 < len(tokenizer) <= 8000
    assert "".join(tokenizer.tokenize(PROBE)) == "▁U.S.▁3.5%[MASK]"
    texts = embedded.texts()
    ids = tokenizer(list(texts.calibration + texts.held_out), verbose=False)["input_ids"]
    assert not any(tokenizer.unk_token_id in row for row in ids)


def test_tokenizer_must_fit_the_checkpoint(embedded: Datasets) -> None:
    """A tokenizer with one id too many is refused with both numbers; the exact fit is not."""
    size = len(embedded.tokenizer(32000))
    assert embedded.tokenizer(size)
    words = ("does not fit the checkpoint", f"ids reach {size - 1}", f"{size - 1} embeddings", "--checkpoints")
    refused(lambda: embedded.tokenizer(size - 1), *words)


# folder: dataset.toml


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[wikitext2", ("not TOML",)),
        ("[wikitext]\n", ("unknown table [wikitext]", "wikitext2")),
        ("[wikitext2]\ntrain = 'x'\n", ("unknown key train in [wikitext2]", "calibration, held_out")),
        ("[wikitext2]\nheld_out = 3\n", ("[wikitext2] held_out is a int", "path in quotes")),
        ("stsb = 'x'\n", ("stsb is a str, not a table",)),
        ("[stsb]\ntest = 'sts-test.csv'\n", ("[stsb] test = 'sts-test.csv'", "no such file")),
        ("[stsb]\ntest = '.'\n", ("[stsb] test = '.'", "no such file")),
        ("[tokenizer]\npath = 'wiki.test.raw'\n", ("[tokenizer] path", "no such folder")),
        ("[imagenet]\nimages = 'absent'\n", ("[imagenet] images", "no such folder")),
        ("[imagenet]\nlabel = 'wiki.test.raw'\n", ("unknown key label in [imagenet]",)),
        (WIKITEXT.replace("train", "test"), ("calibration and held_out are one file",)),
    ],
)
def test_wrong_dataset_toml_is_refused_by_name(folder: Folder, toml: str, words: tuple[str, ...]) -> None:
    """Every name, type and path of dataset.toml is checked when the option is read, before any work."""
    refused(lambda: open_datasets(folder(toml, WIKI), STUDY), "dataset.toml", *words)


def test_folder_must_be_one(tmp_path: Path) -> None:
    """A misspelt option and a folder without dataset.toml say what was expected."""
    refused(lambda: open_datasets("embeded", STUDY), "--datasets embeded", "hub", "embedded")
    refused(lambda: open_datasets(str(tmp_path), STUDY), str(tmp_path), "no dataset.toml")


def test_absent_part_fails_where_it_is_used(folder: Folder) -> None:
    """C34: without a part nothing else takes its place: text and tokenizer raise by name, pairs are None."""
    source = open_datasets(folder(WIKITEXT, WIKI), STUDY)
    assert source.texts() == Texts(source.source, ("Seen .",), ("Unseen .",), pairs=None, notes=())
    refused(lambda: source.tokenizer(32000), "dataset.toml", "[tokenizer] path is absent")
    for part in ("calibration", "held_out"):
        toml = "".join(line for line in WIKITEXT.splitlines(keepends=True) if not line.startswith(part))
        refused(open_datasets(folder(toml, WIKI), STUDY).texts, "dataset.toml", f"[wikitext2] {part} is absent")


# folder: text and pairs


LINES = [" \n", " = Title = \n", " First \x85 row \u2028 here . \n", " = = Part = = \n", "\n", " a = b \n"]
ROWS = ("First \x85 row \u2028 here .", "a = b")


@pytest.mark.parametrize("form", ["lines", "crlf", "parquet"])
def test_rows_are_the_files_lines(folder: Folder, form: str) -> None:
    """Lines, CRLF lines and parquet rows read alike: blanks and headings out, Unicode line separators kept inside."""
    text = "".join(LINES)
    content = {"lines": text, "crlf": text.replace("\n", "\r\n"), "parquet": parquet(text=LINES)}[form]
    name = "x.parquet" if form == "parquet" else "x.raw"
    toml = WIKITEXT.replace("wiki.test.raw", name)
    texts = open_datasets(folder(toml, {**WIKI, name: content}), STUDY).texts()
    assert texts.held_out == ROWS


@pytest.mark.parametrize(
    ("name", "noted"), [("wiki.train.raw", False), ("wiki.valid.raw", True), ("constrained.raw", True)]
)
def test_calibration_on_another_split_is_said(folder: Folder, name: str, noted: bool) -> None:
    """Calibrating on anything but the train split goes into the notes, with the file's name."""
    toml = WIKITEXT.replace("wiki.train.raw", name)
    texts = open_datasets(folder(toml, {**WIKI, name: "x"}), STUDY).texts()
    assert texts.notes == ((f"calibration text is {name}, not the train split",) if noted else ())


STS_ROWS = [("2.5", 'He said "no.', "He did."), ("0", "A cat.", 'A "dog.'), ("5.000", "One.", "One.")]
STS = "".join(f"news\tfile\t2012\t{i}\t{s}\t{a}\t{b}\n" for i, (s, a, b) in enumerate(STS_ROWS))
STS_PARQUET = dict(zip(("score", "sentence1", "sentence2"), map(list, zip(*STS_ROWS, strict=True)), strict=True))
STS_PARQUET["score"] = [0.5, 0.0, 1.0]


def pairs_of(folder: Folder, name: str, content: str | bytes) -> Callable[[], Texts]:
    toml = WIKITEXT + f'[stsb]\ntest = "{name}"\n'
    return open_datasets(folder(toml, {**WIKI, name: content}), STUDY).texts


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.csv", STS), ("x.tsv", STS), ("x.parquet", parquet(**STS_PARQUET))],
)
def test_pairs_read_alike_in_every_form(folder: Folder, name: str, content: str | bytes) -> None:
    """Unbalanced quotation marks swallow no row, licence fields no sentence, and scores are 0 to 5 in both forms."""
    if isinstance(content, str):
        content = content.replace("One.\n", "One.\tlicence\thttp://x\n")
    pairs = pairs_of(folder, name, content)().pairs
    assert pairs is not None
    assert [(f"{pair.score}", pair.first, pair.second) for pair in pairs] == [
        ("2.5", 'He said "no.', "He did."),
        ("0.0", "A cat.", 'A "dog.'),
        ("5.0", "One.", "One."),
    ]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.csv", "", ("no pairs",)),
        ("x.csv", STS[:-7], ("row 3", "fields")),
        ("x.csv", STS + "\n" + STS, ("row 4", "1 tab-separated fields")),
        ("x.csv", STS.replace("2.5", "high"), ("row 1", "'high' is not a number")),
        ("x.csv", STS.replace("2.5", "nan"), ("row 1", "nan is not from 0 to 5")),
        ("x.csv", STS.replace("2.5", "-1"), ("row 1", "-1.0 is not from 0 to 5", "STS-B's own test split")),
        ("x.csv", STS.replace("2.5", "5.1"), ("row 1", "5.1")),
        ("x.csv", STS.encode("utf-16"), ("not UTF-8",)),
        ("x.json", "{}", (".json file", ".parquet")),
        ("x.parquet", b"version https://git-lfs.github.com/spec/v1\n", ("not a whole parquet file",)),
        ("x.parquet", parquet(**STS_PARQUET)[:-20], ("not a whole parquet file",)),
        ("x.parquet", parquet(text=["a"]), ("no column score, sentence1, sentence2", "only text")),
        ("x.parquet", parquet(**{**STS_PARQUET, "score": ["a", "b", "c"]}), ("not a whole parquet file of this form",)),
        ("x.parquet", parquet(**{**STS_PARQUET, "score": [0.5, 1.2, 0.0]}), ("row 2", "1.2 is not from 0 to 1")),
        ("x.parquet", parquet(**{**STS_PARQUET, "sentence2": ["a", None, "c"]}), ("sentence2 has 1 empty cells",)),
    ],
)
def test_broken_pairs_are_refused(folder: Folder, name: str, content: str | bytes, words: tuple[str, ...]) -> None:
    """C23, C34: a cut file, hidden or non-numeric scores and foreign formats name the file and the row."""
    refused(pairs_of(folder, name, content), name, *words)


# folder: tokenizer


def tokenizer_of(folder: Folder, files: Files) -> Datasets:
    toml = WIKITEXT + '[tokenizer]\npath = "tok"\n'
    return open_datasets(folder(toml, {**WIKI, **{f"tok/{name}": content for name, content in files.items()}}), STUDY)


def test_folder_tokenizer_is_the_models_own(folder: Folder, spiece: bytes) -> None:
    """C34: a SentencePiece folder gives SentencePiece's own ids; capitals it lacks are counted, not changed."""
    source = tokenizer_of(folder, {"spiece.model": spiece})
    own = sentencepiece.SentencePieceProcessor(model_proto=spiece)
    tokenizer = source.tokenizer(400)
    for text in ("U.S. 3.5%", "Unseen .", "the  statement's (value) is a-b , 1,000 ."):
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == own.encode(text)
    assert tokenizer(PROBE)["input_ids"][-1] == tokenizer.mask_token_id == own.piece_to_id("[MASK]")
    ids = own.encode("Unseen .")
    share = ids.count(own.unk_id()) / len(ids)
    assert share > 0
    assert source.texts().notes == (
        f"the folder's tokenizer keeps capitals: {share:.1%} of the held-out tokens are <unk>",
    )


def test_tokenizer_runs_no_code(folder: Folder, spiece: bytes) -> None:
    """Code that lies in a tokenizer's folder stays there, whatever its config asks for."""
    config = '{"auto_map": {"AutoTokenizer": ["evil.Evil", null]}, "tokenizer_class": "Evil"}'
    code = "import pathlib; pathlib.Path(__file__).with_name('ran').touch(); Evil = None"
    files: Files = {"spiece.model": spiece, "tokenizer_config.json": config, "evil.py": code}
    source = tokenizer_of(folder, files)
    assert len(source.tokenizer(400)) == 400
    assert not list(Path(source.source.removeprefix("folder ")).rglob("ran"))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"tokenizer_config.json": "{}"}, ("neither tokenizer.json nor spiece.model",)),
        ({"spiece.model": b""}, ("vocabulary is empty",)),
        ({"spiece.model": b"\xff" * 99}, ("cannot be read", "fetch them again")),
        ({"tokenizer.json": "{"}, ("cannot be read", "JSONDecodeError")),
        ({"tokenizer.json": "{}"}, ("cannot be read",)),
    ],
)
def test_broken_tokenizer_is_refused(folder: Folder, files: Files, words: tuple[str, ...]) -> None:
    """A tokenizer that lost its vocabulary is an error, where the library makes one of five tokens and says nothing."""
    refused(lambda: tokenizer_of(folder, files).tokenizer(32000), "tok: ", *words)


@pytest.mark.parametrize(("role", "token"), [("mask", None), ("mask", "[MASQUE]"), ("pad", "[PAD]"), ("cls", "<s>")])
def test_special_tokens_must_be_in_the_vocabulary(folder: Folder, spiece: bytes, role: str, token: str | None) -> None:
    """A special token that the library would append as an untrained id is refused by name."""
    config = json.dumps({f"{role}_token": token})
    source = tokenizer_of(folder, {"spiece.model": spiece, "tokenizer_config.json": config})
    refused(lambda: source.tokenizer(32000), f"no {role} token ({token})")


# folder: the real files


@pytest.fixture(scope="module")
def real() -> Datasets:
    """WikiText-2, STS-B and ALBERT's SentencePiece model, as published."""
    return open_datasets(str(REAL), STUDY)


@needs_real_data
def test_real_text_is_whole(real: Datasets) -> None:
    """C34: every row and pair of the published files is there, and what differs from the study is said."""
    texts = real.texts()
    raw = (REAL / "wikitext2" / "wiki.test.raw").read_bytes().decode().split("\n")
    headings = sum(line.startswith(" = ") and line.endswith(" = ") for line in raw)
    assert len(texts.held_out) == 2891 - headings == 2185
    assert len(texts.calibration) == 1841
    assert texts.held_out[0].startswith("Robert Boulter is an English film")
    assert texts.pairs is not None
    assert len(texts.pairs) == 1379
    assert sum(pair.score for pair in texts.pairs) / 1379 == pytest.approx(2.607917, abs=5e-7)
    assert texts.notes == (
        "calibration text is wiki.valid.raw, not the train split",
        "the folder's tokenizer keeps capitals: 11.8% of the held-out tokens are <unk>",
    )


@needs_real_data
def test_real_tokenizer_gives_the_models_ids(real: Datasets) -> None:
    """C34: the ids equal SentencePiece's own on real text, and FNet's published ones; 30,000 ids need as many rows."""
    tokenizer = real.tokenizer(30000)
    own = sentencepiece.SentencePieceProcessor(model_file=str(REAL / "tokenizer" / "spiece.model"))
    rows = list(real.texts().held_out[:200])
    assert tokenizer(rows, add_special_tokens=False, verbose=False)["input_ids"] == own.encode(rows)
    assert tokenizer("This is a test", add_special_tokens=False)["input_ids"] == [13, 1, 4398, 25, 21, 1289]
    assert tokenizer(PROBE, add_special_tokens=False)["input_ids"] == [13, 1, 9, 1, 9, 203, 9, 1933, 4]
    refused(lambda: real.tokenizer(29999), "ids reach 29999", "29999 embeddings")


# hub, for real against a server on loopback


TRAIN_FILE = "wikitext-2-raw-v1/train-00000-of-00001.parquet"
TEST_FILE = "wikitext-2-raw-v1/test-00000-of-00001.parquet"
WIKITEXT_PIN, STSB_PIN, MODEL_PIN = STUDY.datasets["wikitext2"], STUDY.datasets["stsb"], STUDY.checkpoints["base"]
LATER = Pin(WIKITEXT_PIN.repo, "1" * 40)  # there, whole, with other rows
HALF = Pin(WIKITEXT_PIN.repo, "2" * 40)  # there, without the train split
UNKNOWN = Pin(WIKITEXT_PIN.repo, "3" * 40)
GATED = Pin("Salesforce/gated", "4" * 40)

LOAD = """
import json, sys
from dataclasses import replace
from fixtures.cases import Pin, studies
from fixtures.datasets import open_datasets
from fixtures.errors import InputError

def load(study):
    source = open_datasets("hub", study)
    try:
        texts = source.texts()
        ids = source.tokenizer(32000)("U.S. 3.5% [MASK]")["input_ids"]
    except InputError as error:
        return str(error)
    pairs = [(pair.score, pair.first, pair.second) for pair in texts.pairs]
    return [source.source, texts.calibration, texts.held_out, pairs, texts.notes, ids]

study = studies()["fnet"]
pins = [Pin(*pin) for pin in json.loads(sys.argv[1])]
print(json.dumps([load(replace(study, datasets={**study.datasets, "wikitext2": pin})) for pin in pins]))
"""


def load(hub: Hub, home: Path, pins: list[Pin], **extra: str) -> dict[Pin, Any]:
    """What a fresh process gets with each of `pins` as the study's WikiText-2: data, or the error's line."""
    command = [sys.executable, "-c", LOAD, json.dumps([(pin.repo, pin.revision) for pin in pins])]
    done = subprocess.run(command, cwd=ROOT, env=hub.env(home, **extra), stdout=subprocess.PIPE, check=True)
    return dict(zip(pins, json.loads(done.stdout), strict=True))


@dataclass(frozen=True)
class Visit:
    """Two processes that share a cache, the second one offline, and what they asked the server for."""

    online: dict[Pin, Any]
    offline: dict[Pin, Any]
    requests: list[str]
    requests_offline: list[str]


@pytest.fixture(scope="module")
def visit(embedded: Datasets, spiece: bytes, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    """Loads every pin once with the server and once from what that left in the cache."""
    home = tmp_path_factory.mktemp("hub")
    saved = [Path(name) for name in embedded.tokenizer(32000).save_pretrained(home / "saved")]
    rows = {TRAIN_FILE: parquet(text=LINES), TEST_FILE: parquet(text=[" Unseen . \n"]), "README.md": b""}
    moved = {**rows, TRAIN_FILE: parquet(text=["Moved ."])}
    half = {TEST_FILE: rows[TEST_FILE]}
    repos = {
        ("dataset", WIKITEXT_PIN.repo): {WIKITEXT_PIN.revision: rows, LATER.revision: moved, HALF.revision: half},
        ("dataset", STSB_PIN.repo): {
            STSB_PIN.revision: {"data/test-00000-of-00001.parquet": parquet(**STS_PARQUET), "README.md": b""}
        },
        ("model", MODEL_PIN.repo): {
            MODEL_PIN.revision: {"spiece.model": spiece, **{path.name: path.read_bytes() for path in saved}}
        },
    }
    with Hub(repos, gated={("dataset", GATED.repo)}) as hub:
        online = load(hub, home, [WIKITEXT_PIN, HALF, UNKNOWN, GATED])
        requests = list(hub.requests)
        offline = load(hub, home, [WIKITEXT_PIN, HALF, LATER, GATED], HF_HUB_OFFLINE="1")
        return Visit(online, offline, requests, hub.requests[len(requests) :])


def test_hub_data_comes_from_the_pinned_revision(visit: Visit, embedded: Datasets) -> None:
    """C34: rows, pairs and ids are those of the pin though the repository moved on, and nothing else is fetched."""
    source, calibration, held_out, pairs, notes, ids = visit.online[WIKITEXT_PIN]
    assert source == (
        "hub Salesforce/wikitext@b08601e…, sentence-transformers/stsb@ab7a5ac…, tokenizer of google/fnet-base@d89b6fa…"
    )
    assert (tuple(calibration), held_out, notes) == (ROWS, ["Unseen ."], [])
    assert pairs == [[float(score), first, second] for score, first, second in STS_ROWS]
    assert ids == embedded.tokenizer(32000)(PROBE)["input_ids"]
    assert not any(LATER.revision in request or "README.md" in request for request in visit.requests)


def test_full_cache_serves_offline(visit: Visit) -> None:
    """C34: offline, a cache that holds everything gives the same data, and the hub is left alone."""
    assert visit.offline[WIKITEXT_PIN] == visit.online[WIKITEXT_PIN]
    assert visit.requests_offline == []


@pytest.mark.parametrize(
    ("offline", "pin", "words"),
    [
        pytest.param(False, GATED, ("401",), id="gated"),
        pytest.param(False, UNKNOWN, ("no revision",), id="wrong revision"),
        pytest.param(False, HALF, (TRAIN_FILE,), id="absent file"),
        pytest.param(True, HALF, (TRAIN_FILE, "HF_HUB_OFFLINE"), id="partial cache"),
        pytest.param(True, LATER, (TRAIN_FILE, "HF_HUB_OFFLINE"), id="another revision cached"),
        pytest.param(True, GATED, (TRAIN_FILE, "HF_HUB_OFFLINE"), id="empty cache"),
    ],
)
def test_hub_data_out_of_reach_is_an_error(visit: Visit, offline: bool, pin: Pin, words: tuple[str, ...]) -> None:
    """C34: what the hub or the cache does not give is one line that names it, never other or fewer rows."""
    message = (visit.offline if offline else visit.online)[pin]
    assert isinstance(message, str)
    assert "\n" not in message
    assert [word for word in (f"{pin.repo}@{pin.revision[:7]}", *words) if word not in message] == [], message
