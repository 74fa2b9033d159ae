"""Encoded inputs: what decides a row's ids, its choice, its masks and its hash, and that nothing else does."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fixtures.cases import studies
from fixtures.datasets import Texts, open_datasets
from fixtures.errors import InputError
from fixtures.fnet.passages import FRAME, LONGEST, NOT_MASKED, SHORTEST, Encoded, encode, mask, passages, stress

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCAB_SIZE = 32000
EMBEDDED = open_datasets("embedded", studies()["fnet"])


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """The embedded tokenizer: `<pad>`, `<unk>`, `[CLS]`, `[SEP]` and `[MASK]` are 0 to 4."""
    return EMBEDDED.tokenizer(VOCAB_SIZE)


@pytest.fixture(scope="module")
def texts() -> Texts:
    return EMBEDDED.texts()


def of_length(count: int, start: str = "statement") -> str:
    """A text of `count` tokens, since a full stop is one token whatever stands beside it."""
    return start + "." * (count - 1)


def rows_of(encoded: Encoded) -> set[bytes]:
    return {row.tobytes() for row in encoded.ids}


def same(left: Encoded, right: Encoded) -> bool:
    return left.sha256 == right.sha256


# encode


def test_rows_are_framed_and_padded(tokenizer: PreTrainedTokenizerFast) -> None:
    """`[CLS] ... [SEP]`, then padding to the window, in int64; lengths count the frame."""
    encoded = encode(tokenizer, ["The statement.", ""], 12)
    body = tokenizer("The statement.", add_special_tokens=False)["input_ids"]
    assert encoded.ids.dtype == encoded.lengths.dtype == np.int64
    assert encoded.ids.tolist() == [[2, *body, 3] + [0] * (10 - len(body)), [2, 3] + [0] * 10]
    assert encoded.lengths.tolist() == [len(body) + FRAME, FRAME]
    assert encoded.truncated == 0


def test_truncation_keeps_the_frame_and_is_counted(tokenizer: PreTrainedTokenizerFast) -> None:
    """C29: a text of 600 tokens fills the window up to its `[SEP]`, and the count says that its end is gone."""
    encoded = encode(tokenizer, [of_length(600), of_length(510), of_length(511)], 512)
    assert encoded.truncated == 2
    assert encoded.lengths.tolist() == [512, 512, 512]
    assert encoded.ids[:, -1].tolist() == [tokenizer.sep_token_id] * 3


def test_a_row_does_not_depend_on_its_batch_mates(tokenizer: PreTrainedTokenizerFast, texts: Texts) -> None:
    """C29: alone or beside longer texts a sentence has the same ids, padded to the window and not to the longest."""
    sentences = list(texts.held_out[:20])
    together = encode(tokenizer, sentences, 256).ids
    assert together.shape == (20, 256)
    for sentence, row in zip(sentences, together, strict=True):
        assert np.array_equal(encode(tokenizer, [sentence], 256).ids[0], row)


def test_hash_holds_everything_the_model_gets(tokenizer: PreTrainedTokenizerFast, texts: Texts) -> None:
    """C34: the hash repeats, and moves with one changed row, the order of the rows, the window or one other id."""
    sentences = list(texts.held_out[:20])
    base = encode(tokenizer, sentences, 256)
    assert same(base, encode(tokenizer, sentences, 256))
    assert not same(base, encode(tokenizer, [*sentences[:-1], "Changed."], 256))
    assert not same(base, encode(tokenizer, sentences[::-1], 256))
    assert not same(base, encode(tokenizer, sentences[:-1], 256))
    assert not same(base, encode(tokenizer, sentences, 512))
    other = base.ids.copy()
    other[3, 5] += 1
    assert not same(base, Encoded(other, base.lengths, base.truncated))
    assert not same(base, Encoded(base.ids.reshape(40, 128), base.lengths, base.truncated))
    assert not same(base, Encoded(base.ids.astype(np.int32), base.lengths, base.truncated))


def test_other_token_ids_change_the_hash(tokenizer: PreTrainedTokenizerFast) -> None:
    """C34: a tokenizer that splits "U.S. 3.5% [MASK]" in another way gives other inputs, and the hash says so."""
    from tokenizers import pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    drifted = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        **{f"{role}_token": getattr(tokenizer, f"{role}_token") for role in ("pad", "unk", "cls", "sep", "mask")},
    )
    probe = ["U.S. 3.5% [MASK]"]
    assert same(encode(tokenizer, probe, 32), encode(drifted, probe, 32))
    drifted.backend_tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # punctuation no longer stands alone
    assert not same(encode(tokenizer, probe, 32), encode(drifted, probe, 32))


# passages


@pytest.mark.parametrize(("length", "taken"), [(15, False), (16, True), (510, True), (511, False)])
def test_passages_are_whole_rows_of_16_to_510_tokens(
    tokenizer: PreTrainedTokenizerFast, length: int, taken: bool
) -> None:
    """A row just outside the range is left out, never cut to fit; duplicates count once."""
    rows = [of_length(length), of_length(100), of_length(100)]
    if taken:
        encoded = passages(tokenizer, rows, 2, 512)
        assert sorted(encoded.lengths.tolist()) == sorted([length + FRAME, 100 + FRAME])
        assert encoded.truncated == 0
    else:
        with pytest.raises(InputError, match=f"1 of the 2 different rows have {SHORTEST} to {LONGEST} tokens"):
            passages(tokenizer, rows, 2, 512)


def test_default_counts_are_there(tokenizer: PreTrainedTokenizerFast, texts: Texts) -> None:
    """The study's 544 calibration and 300 held-out passages exist without network, and share none."""
    calibration = passages(tokenizer, texts.calibration, 544, 512)
    held_out = passages(tokenizer, texts.held_out, 300, 512)
    assert (calibration.ids.shape, held_out.ids.shape) == ((544, 512), (300, 512))
    assert (len(rows_of(calibration)), len(rows_of(held_out))) == (544, 300)
    assert not rows_of(calibration) & rows_of(held_out)


def test_choice_ignores_row_order_and_count(tokenizer: PreTrainedTokenizerFast, texts: Texts) -> None:
    """`--samples 8` measures 8 of the 300 passages, and a reordered or repeated source gives the same ones."""
    few, many = (passages(tokenizer, texts.held_out, count, 512) for count in (8, 300))
    assert np.array_equal(few.ids, many.ids[:8])
    assert same(many, passages(tokenizer, texts.held_out[::-1] + texts.held_out[:50], 300, 512))


def test_choice_is_by_hash_of_the_text(tokenizer: PreTrainedTokenizerFast, texts: Texts) -> None:
    """The rule itself, so that another machine or version takes the same rows and not merely some fixed ones."""
    rows = sorted(texts.held_out, key=lambda row: hashlib.sha256(row.encode()).hexdigest())
    lengths = encode(tokenizer, rows, 1024).lengths - FRAME
    eligible = [row for row, length in zip(rows, lengths, strict=True) if SHORTEST <= length <= LONGEST]
    assert same(passages(tokenizer, texts.held_out, 8, 512), encode(tokenizer, eligible[:8], 512))


def test_one_changed_row_changes_the_passages(tokenizer: PreTrainedTokenizerFast, texts: Texts) -> None:
    """C34: when a row that was chosen is edited, the inputs' hash moves."""
    rows = [row for row in texts.held_out if len(row) > 200][:30]
    base = passages(tokenizer, rows, 30, 512)
    assert not same(base, passages(tokenizer, [rows[0] + " Really.", *rows[1:]], 30, 512))


def test_too_few_passages_is_an_error(tokenizer: PreTrainedTokenizerFast, texts: Texts) -> None:
    """C34: never fewer than asked; the line says how many there are and how to ask for fewer."""
    with pytest.raises(InputError) as caught:
        passages(tokenizer, texts.held_out[:40], 300, 512)
    message = str(caught.value)
    there = sum(
        SHORTEST <= length - FRAME <= LONGEST for length in encode(tokenizer, texts.held_out[:40], 1024).lengths
    )
    assert f"300 passages are asked for and {there} of the 40" in message
    assert "--samples N" in message
    assert "\n" not in message
    assert len(passages(tokenizer, texts.held_out[:40], there, 512).ids) == there


def test_narrow_window_truncates_the_same_passages(tokenizer: PreTrainedTokenizerFast) -> None:
    """At a window of 256 the passages are those of 512, the longer ones cut and counted."""
    rows = [of_length(16), of_length(254), of_length(255), of_length(510)]
    wide, narrow = (passages(tokenizer, rows, 4, window) for window in (512, 256))
    assert (wide.truncated, narrow.truncated) == (0, 2)
    assert narrow.lengths.tolist() == np.minimum(wide.lengths, 256).tolist()
    assert np.array_equal(narrow.ids[:, :255], wide.ids[:, :255])
    assert (narrow.ids[narrow.lengths == 256, 255] == tokenizer.sep_token_id).all()


# mask


def test_masks_are_15_percent_of_each_body(tokenizer: PreTrainedTokenizerFast, texts: Texts) -> None:
    """Each passage loses 15% of its body tokens to `[MASK]`; the labels hold them and ignore everything else."""
    encoded = passages(tokenizer, texts.held_out, 50, 512)
    masked = mask(tokenizer, encoded)
    assert masked.positions.sum(axis=1).tolist() == [round(0.15 * (length - FRAME)) for length in encoded.lengths]
    assert (masked.ids[masked.positions] == tokenizer.mask_token_id).all()
    assert np.array_equal(masked.labels[masked.positions], encoded.ids[masked.positions])
    assert (masked.labels[~masked.positions] == NOT_MASKED).all()
    assert np.array_equal(np.where(masked.positions, masked.labels, masked.ids), encoded.ids)
    assert masked.ids.dtype == masked.labels.dtype == np.int64


def test_special_tokens_are_never_masked(tokenizer: PreTrainedTokenizerFast) -> None:
    """Frame, padding and unknown tokens stay; one maskable token is enough, none is an error that names the row."""
    ids = np.array([[2, 1, 4, 50, 1, 3, 0, 0], [2, 1, 4, 1, 3, 0, 0, 0]])
    masked = mask(tokenizer, Encoded(ids[:1], np.array([6]), 0))
    assert masked.positions.tolist() == [[False, False, False, True, False, False, False, False]]
    with pytest.raises(InputError, match="row 1 has no token to mask"):
        mask(tokenizer, Encoded(ids, np.array([6, 5]), 0))


def test_masks_depend_on_seed_and_passage_alone(tokenizer: PreTrainedTokenizerFast, texts: Texts) -> None:
    """The same passage is masked alike in any batch, count and window, and otherwise for another seed."""
    rows = [row for row in texts.held_out if len(row) < 400]  # those fit both windows
    few, many = (passages(tokenizer, rows, count, 512) for count in (8, 40))
    masked = mask(tokenizer, many)
    assert np.array_equal(mask(tokenizer, few).ids, masked.ids[:8])
    turned = Encoded(many.ids[::-1], many.lengths[::-1], 0)
    assert np.array_equal(mask(tokenizer, turned).ids, masked.ids[::-1])
    narrow = passages(tokenizer, rows, 8, 256)
    assert np.array_equal(mask(tokenizer, narrow).ids, masked.ids[:8, :256])
    assert not np.array_equal(mask(tokenizer, many, seed=1).positions, masked.positions)


# stress


@pytest.mark.parametrize("window", [128, 512])
def test_stress_inputs_are_the_studys_22(tokenizer: PreTrainedTokenizerFast, window: int) -> None:
    """22 different framed rows, each with a name, over the checkpoint's whole vocabulary, the same on every call."""
    inputs = stress(tokenizer, window, VOCAB_SIZE)
    names, rows = zip(*inputs, strict=True)
    ids = np.stack(rows)
    assert len(set(names)) == len({row.tobytes() for row in rows}) == 22
    assert ids.shape == (22, window)
    assert ids.dtype == np.int64
    assert ids.min() >= 0
    assert ids.max() == VOCAB_SIZE - 1
    assert (ids[:, 0] == tokenizer.cls_token_id).all()
    assert dict(inputs)["cls-sep"].tolist() == [2, 3] + [0] * (window - 2)
    assert dict(inputs)["all-mask"].tolist() == [2] + [4] * (window - 2) + [3]
    assert np.array_equal(ids, np.stack([row for _, row in stress(tokenizer, window, VOCAB_SIZE)]))
