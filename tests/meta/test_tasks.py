"""What the FNet study feeds and what it makes of the outputs: every row in its place, and no figure from a bad one."""

from __future__ import annotations

import weakref
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from fixtures.errors import InputError
from fixtures.fnet import figures, tasks
from fixtures.fnet.passages import Encoded
from fixtures.fnet.tasks import Inputs, MaskedWords, Outputs, Quality, Samples, Similarity
from fixtures.verdicts import Limits, Outcome, bootstrap_mean_interval, bootstrap_ratio_interval
from tests.meta import tiny

WINDOW = 32
FEW = Samples(passages=8, calibration=6, pairs=4)
NAN = float("nan")


def encoded(samples: Samples = FEW, window: int = WINDOW, **text: int | None) -> Inputs:
    return tasks.encode(tiny.text(**text), tiny.WORDS, samples, window)


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    return encoded()


# ---- inputs


def test_counts_are_those_asked_for(inputs):
    """No fewer rows than asked: two sentences a pair, 22 stress rows, one prompt, all as long as the window."""
    rows = (
        inputs.calibration.ids,
        inputs.passages.ids,
        inputs.masked.ids,
        inputs.sentences.ids,
        inputs.stress,
        inputs.prompt,
    )
    assert [each.shape for each in rows] == [(count, WINDOW) for count in (6, 8, 8, 8, 22, 1)]
    assert (len(inputs.scores), len(set(inputs.stress_names))) == (4, 22)


def test_same_text_gives_the_same_inputs(inputs):
    """C34: encoding twice gives the same digest; another window gives another."""
    assert encoded().sha256 == inputs.sha256
    assert encoded(window=40).sha256 != inputs.sha256


def bumped(array: np.ndarray) -> np.ndarray:
    """The array with its last element one higher."""
    changed = array.copy()
    changed.flat[-1] += 1
    return changed


CHANGES = {
    "calibration": lambda inputs: {"calibration": with_ids(inputs.calibration)},
    "passages": lambda inputs: {"passages": with_ids(inputs.passages)},
    "masked": lambda inputs: {"masked": replace(inputs.masked, ids=bumped(inputs.masked.ids))},
    "hidden words": lambda inputs: {"masked": replace(inputs.masked, labels=bumped(inputs.masked.labels))},
    "sentences": lambda inputs: {"sentences": with_ids(inputs.sentences)},
    "scores": lambda inputs: {"scores": bumped(inputs.scores)},
    "stress": lambda inputs: {"stress": bumped(inputs.stress)},
    "prompt": lambda inputs: {"prompt": bumped(inputs.prompt)},
    "no sentences": lambda _: {"sentences": None, "scores": None},
}


def with_ids(rows: Encoded) -> Encoded:
    return replace(rows, ids=bumped(rows.ids))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_digest_changes_with_one_value(inputs, change):
    """C34: one id, one hidden word or one score makes other inputs."""
    assert replace(inputs, **change(inputs)).sha256 != inputs.sha256


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (FEW._replace(passages=13), ("13 passages are asked for and 12",)),
        (FEW._replace(calibration=13), ("13 passages are asked for and 12",)),
        (FEW._replace(pairs=9), ("tiny text", "9 sentence pairs are asked for and 8 are there")),
    ],
)
def test_more_samples_than_there_are(samples, words):
    """One line says how many there are and what asks for fewer; never fewer rows unseen."""
    with tiny.one_line(InputError, *words, "--samples N asks for fewer"):
        encoded(samples)


@pytest.mark.parametrize(("samples", "pairs"), [(FEW, None), (FEW._replace(pairs=0), 8)])
def test_text_without_pairs_has_no_sentences(samples, pairs):
    """A source without pairs, and a run that asks for none, still has the rest."""
    found = encoded(samples, pairs=pairs)
    assert (found.sentences, found.scores) == (None, None)
    assert len(found.passages.ids) == FEW.passages


# ---- a forward pass


def telling(ids: torch.Tensor) -> torch.Tensor:
    """Features that say where they are from: (id, row's first id, position)."""
    place = torch.arange(ids.shape[1]).expand_as(ids)
    return torch.stack([ids, ids[:, :1].expand_as(ids), place], -1).float()


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_every_row_lands_in_its_place(batch):
    """CLS and masked features are those of their row and position, in order, whatever the batch."""
    ids = torch.arange(4 * 6).reshape(4, 6).numpy()
    positions = np.zeros((4, 6), np.bool_)
    positions[[0, 2, 2, 3], [5, 1, 4, 2]] = True
    found = tasks.run(telling, ids, positions, batch)
    assert found.cls.tolist() == [[row * 6, row * 6, 0] for row in range(4)]
    assert found.masked.tolist() == [[5, 0, 5], [13, 12, 1], [16, 12, 4], [20, 18, 2]]
    assert found.nonfinite.tolist() == [False] * 4
    first = found.first(3, 3)
    assert (len(first.cls), first.masked.tolist(), len(first.nonfinite)) == (3, found.masked[:3].tolist(), 3)


@pytest.mark.parametrize("bad", [NAN, float("inf")])
def test_one_value_marks_its_row(bad):
    """C08: a value that is not finite anywhere in a row's features marks that row, also where CLS is finite."""

    def forward(ids: torch.Tensor) -> torch.Tensor:
        features = telling(ids)
        features[ids[:, 0] == 12, 4, 1] = bad
        return features

    found = tasks.run(forward, torch.arange(4 * 6).reshape(4, 6).numpy(), batch=2)
    assert found.nonfinite.tolist() == [False, False, True, False]
    assert found.cls.isfinite().all()
    assert figures.nonfinite(found, None, found).value == 0.25


@pytest.mark.parametrize("rows", [7, 9])
def test_batch_that_is_not_filled_is_refused(rows):
    """An engine's batch is fixed: 7 rows, or 9, do not make batches of 8."""
    with tiny.one_line(InputError, f"{rows} rows do not fill batches of 8", "--samples"):
        tasks.run(telling, np.zeros((rows, 6), np.int64), batch=8)


def test_only_what_is_kept_stays_in_memory():
    """A row's whole window is given up before the one after next is computed: 2,758 rows would be 4 GB."""
    given: list[weakref.ref] = []

    def forward(ids: torch.Tensor) -> torch.Tensor:
        assert sum(each() is not None for each in given) <= 1
        features = telling(ids)
        given.append(weakref.ref(features.untyped_storage()))
        return features

    tasks.run(forward, np.zeros((5, 6), np.int64), np.ones((5, 6), np.bool_))


# ---- masked words


def identity(features: torch.Tensor) -> torch.Tensor:
    """A head whose logits are the features, so that a test writes logits."""
    return features


COUNTS = (2, 1, 3, 2, 1, 3, 2, 2)  # masks in each of 8 passages
POSITIONS = np.arange(6) < np.array(COUNTS)[:, None]
LOGITS = 2 * torch.randn(sum(COUNTS), 12, generator=torch.Generator().manual_seed(0))


def outputs(masked: torch.Tensor, cls: torch.Tensor | None = None) -> Outputs:
    cls = torch.randn(8, 5, generator=torch.Generator().manual_seed(1)) if cls is None else cls
    return Outputs(cls, masked, ~cls.isfinite().all(1))


def words(engine: torch.Tensor) -> MaskedWords:
    return tasks.masked_words(identity, outputs(LOGITS), outputs(engine), POSITIONS)


def test_same_outputs_agree_everywhere():
    """KL 0 and full agreement, and every masked token knows its passage."""
    found = words(LOGITS)
    assert (found.kl.max(), found.agrees.all()) == (0.0, True)
    assert found.passage.tolist() == np.repeat(np.arange(8), COUNTS).tolist()


@pytest.mark.parametrize(("swapped", "passages"), [((0, 1), {0}), ((0, 2), {0, 1}), ((4, 14), {2, 7})])
def test_swapped_tokens_are_found(swapped, passages):
    """Two masked tokens that changed places, within a passage or between two, spoil exactly those passages."""
    engine = LOGITS.clone()
    engine[list(swapped)] = LOGITS[list(reversed(swapped))]
    found = words(engine)
    assert set(np.flatnonzero(found.kl > 0.1)) == set(swapped)
    assert set(found.passage[found.kl > 0.1]) == passages


def test_passage_left_out_is_not_compared_with_the_next():
    """Outputs of other positions than the masks are an error, never figures of shifted rows."""
    with pytest.raises(RuntimeError, match="split"):
        words(LOGITS[2:])


# ---- similarity

ANGLES = torch.tensor([0.1, 0.5, 0.9, 1.3])
SCORES = np.array([5.0, 3.0, 2.0, 0.0])


def sentence_pairs(angles: torch.Tensor, length: float = 1.0) -> Outputs:
    """Pairs of vectors at these angles, first and second in turn."""
    first = torch.tensor([[1.0, 0.0]]).expand(len(angles), 2)
    second = torch.stack([angles.cos(), angles.sin()], 1)
    return outputs(torch.empty(0), length * torch.stack([first, second], 1).flatten(0, 1))


def test_similarity_of_known_vectors():
    """Angles that grow as scores fall have a Spearman of 1, reversed -1, and the loss is the reference's less it."""
    reference = sentence_pairs(ANGLES)
    assert tasks.similarity(reference, sentence_pairs(ANGLES), SCORES) == Similarity(1.0, 0.0, 4, 1.0, 8)
    reversed_ = tasks.similarity(reference, sentence_pairs(ANGLES.flip(0)), SCORES)
    assert (reversed_.spearman, reversed_.loss) == (-1.0, 2.0)
    assert reversed_.within_bar == 0.5  # the firsts


@pytest.mark.parametrize(("length", "within"), [(1.039, 1.0), (1.041, 0.0)])
def test_quality_bar_is_4_percent(length, within):
    """C08: the bar is a relative error, so it sees a length that cosine and Spearman do not."""
    found = tasks.similarity(sentence_pairs(ANGLES), sentence_pairs(ANGLES, length), SCORES)
    assert (found.within_bar, found.spearman) == (within, 1.0)


def test_bar_is_over_the_first_400_sentences():
    """The study's count: what comes after does not move the share."""
    angles = torch.linspace(0.01, 1.5, 250)
    engine = sentence_pairs(angles)
    engine.cls[400:] *= 2
    found = tasks.similarity(sentence_pairs(angles), engine, -angles.numpy())
    assert (found.within_bar, found.sentences, found.pairs) == (1.0, 400, 250)


# ---- quality and its figures


def quality(inputs: Inputs, engine: Outputs, sentences: Outputs | None = None) -> Quality:
    """Of an engine's outputs against `outputs(LOGITS)` on passages masked as in POSITIONS."""
    masked = replace(inputs.masked, positions=POSITIONS)
    reference = outputs(LOGITS), sentence_pairs(ANGLES)
    return tasks.quality(identity, replace(inputs, masked=masked, scores=SCORES), reference, (engine, sentences))


def test_quality_of_the_reference_itself(inputs, monkeypatch):
    """Every figure is perfect, and named as in the study's table."""
    monkeypatch.setattr(figures, "FEWEST", len(SCORES))
    found = figures.of_quality(quality(inputs, outputs(LOGITS), sentence_pairs(ANGLES)))
    assert {name: measured.value for name, measured in found.items()} == pytest.approx(
        {"kl_mean": 0, "kl_p99": 0, "agreement": 1, "cls_cosine_mean": 1, "cls_cosine_min": 1, "cls_relative_l2": 0}
        | {"collapsed_share": 0, "sts_spearman": 1, "sts_spearman_loss": 0, "cls_bar_share": 1}
    )
    words = dict.fromkeys(["kl_mean", "kl_p99", "agreement"], sum(COUNTS))
    assert {name: measured.samples for name, measured in found.items()} == dict.fromkeys(list(found)[:7], 8) | words | {
        "sts_spearman": 4,
        "sts_spearman_loss": 4,
        "cls_bar_share": 8,
    }


def test_few_pairs_rank_nothing(inputs):
    """Spearman's correlation of four pairs is no figure, while the bar counts every sentence."""
    found = figures.of_quality(quality(inputs, outputs(LOGITS), sentence_pairs(ANGLES)))
    assert "cls_bar_share" in found
    assert not {"sts_spearman", "sts_spearman_loss"} & found.keys()


def test_quality_without_sentences(inputs):
    """No figure of sentences where there are none."""
    assert quality(inputs, outputs(LOGITS)).similarity is None
    assert not {"sts_spearman", "cls_bar_share"} & figures.of_quality(quality(inputs, outputs(LOGITS))).keys()


def test_fewer_passages_are_compared_with_the_same_ones(inputs):
    """A batch of the first 4 passages is held against the reference's first 4, masks and all."""
    engine = outputs(LOGITS).first(4, sum(COUNTS[:4]))
    found = quality(inputs, engine)
    assert (found.passages, found.words.kl.max(), found.relative_l2.max()) == (4, 0.0, 0.0)
    assert found.words.passage.max() == 3


@pytest.mark.parametrize("bad", [NAN, float("inf")])
def test_row_that_is_not_finite_leaves_no_figures(inputs, bad):
    """C23: one passage of eight that is not finite is counted, and there is no figure at all, even of the others."""
    engine = outputs(LOGITS)
    engine.cls[3, 2] = bad
    found = quality(inputs, Outputs(engine.cls, engine.masked, ~engine.cls.isfinite().all(1)))
    assert found.nonfinite == 1
    assert figures.of_quality(found) == {}


def test_collapsed_rows_are_counted(inputs):
    """C07: finite, constant and wrong: two passages that both got one vector."""
    engine = outputs(LOGITS)
    engine.cls[[2, 6]] = 1.0
    assert quality(inputs, engine).collapsed == 2


def test_nonfinite_share_is_of_all_rows():
    """Over passages, sentences and stress rows alike, without the parts a case has not; exact, since it is a count."""
    flags = [torch.tensor([True, False]), torch.tensor([False] * 6)]
    parts = [Outputs(torch.empty(0), torch.empty(0), each) for each in flags]
    share = figures.nonfinite(parts[0], None, parts[1])
    assert (share.value, share.samples, share.interval, share.exact) == (0.125, 8, None, True)


def judged(kl: np.ndarray, agrees: np.ndarray) -> Quality:
    """A case of 8 passages with these values a masked token."""
    made = MaskedWords(kl, agrees, np.repeat(np.arange(8), COUNTS))
    unused = {field.name: None for field in fields(Quality)}
    return Quality(**unused | {"passages": 8, "nonfinite": 0, "words": made})


RANDOM = np.random.default_rng(0)
KL = RANDOM.lognormal(sigma=2.0, size=sum(COUNTS))
RIGHT = np.ones(sum(COUNTS), np.bool_)


def test_mean_kl_is_of_tokens_and_its_interval_of_passages():
    """A mean over masked tokens, not over passages, whose interval resamples whole passages."""
    found = figures._per_token(KL, judged(KL, RIGHT).words)
    sums = np.bincount(np.repeat(np.arange(8), COUNTS), KL)
    value, interval = bootstrap_ratio_interval(sums, COUNTS)
    assert found.value == pytest.approx(KL.mean())
    assert (found.value, found.interval, found.samples, found.exact) == (value, interval, sum(COUNTS), False)


def test_kl_ratio_is_paired():
    """Half of every passage's KL is a ratio of 0.5 and nothing else, however far passages differ; a part that varies on
    its own has an interval."""
    half = figures.kl_ratio(judged(KL / 2, RIGHT), judged(KL, RIGHT))
    assert (half.value, half.interval, half.exact) == (pytest.approx(0.5), None, True)
    other = figures.kl_ratio(judged(KL[::-1].copy(), RIGHT), judged(KL, RIGHT))
    assert other.interval.low < 1 < other.interval.high


def test_agreement_loss_is_paired():
    """Tokens that both variants get wrong cost nothing; what FP8 alone gets wrong is the loss, with an interval."""
    both_wrong = RIGHT.copy()
    both_wrong[[0, 3, 9]] = False
    assert figures.agreement_loss(judged(KL, both_wrong), judged(KL, both_wrong)).value == 0.0
    quantized = both_wrong.copy()
    quantized[[1, 4, 14, 15]] = False
    loss = figures.agreement_loss(judged(KL, both_wrong), judged(KL, quantized))
    assert loss.value == pytest.approx(4 / sum(COUNTS))
    assert 0 <= loss.interval.low < loss.value < loss.interval.high
    assert loss.samples == sum(COUNTS)


def test_gain_in_agreement_is_a_negative_loss():
    """The sign: FP8 right where half precision is wrong."""
    half = RIGHT.copy()
    half[:3] = False
    assert figures.agreement_loss(judged(KL, half), judged(KL, RIGHT)).value == pytest.approx(-3 / sum(COUNTS))


@pytest.mark.parametrize("which", [0, 1])
def test_rows_that_are_not_finite_are_no_loss_of_agreement(which):
    """C23: they agree with nothing, so the difference would hold FP8's claim or flip it; it is judged as neither."""
    sides = [judged(KL, RIGHT), judged(KL, RIGHT)]
    sides[which] = replace(judged(KL, ~RIGHT), nonfinite=8)
    found = figures.agreement_loss(*sides)
    assert found.problems == ("8 of 8 rows are not finite",)
    assert found.judged(Limits(0.01, None, "made up"), Outcome.FLIPPED) is Outcome.INVALID


def test_graph_figures_are_arithmetic():
    """FP8 weights in MB and the change of all constants follow from the shapes."""
    quantized, half = (figures.facts(tiny.graph(variant)) for variant in ("fp8", "fp16"))
    weights = 2 * tiny.LAYERS * tiny.HIDDEN * tiny.INNER
    scales = 2 * 2 * tiny.LAYERS * 2  # fp16, one for each weight and each input
    found = figures.of_graph(quantized)
    assert found["fp8_gemms"].value == 2 * tiny.LAYERS
    assert found["fp8_weights"].value == pytest.approx((weights + 1) / 1e6)  # and a zero point
    assert quantized.constant_bytes == half.constant_bytes - weights + scales + 1
    change = figures.constant_bytes_change(quantized, half)
    assert change.value == pytest.approx((scales + 1 - weights) / half.constant_bytes)


def test_cls_figures_have_intervals_over_passages(inputs):
    """CLS cosine and relative error: the mean of passages, with its bootstrap interval."""
    engine = outputs(LOGITS, outputs(LOGITS).cls * torch.linspace(1.0, 1.1, 8)[:, None])
    found = figures.of_quality(quality(inputs, engine))["cls_relative_l2"]
    value, interval = bootstrap_mean_interval(np.linspace(0.0, 0.1, 8))
    assert found.value == pytest.approx(value, rel=1e-5)
    assert (found.interval.low, found.interval.high) == pytest.approx((interval.low, interval.high), rel=1e-4)
