"""Each metric against a value known otherwise, and each of its rules fed the fault it is there for."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from fixtures import metrics
from fixtures.errors import InputError

INF, NAN = math.inf, math.nan


def rows(*values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def logs(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities], dtype=torch.float64).log()


def test_kl_is_the_relative_entropy_of_the_softmax_for_every_row():
    """Agrees with SciPy's entropy over more rows than are worked on at once, and is not symmetric."""
    p, q = noise(150, 40, seed=1), noise(150, 40, seed=2)
    softmax = [torch.softmax(logits.double(), -1).numpy() for logits in (p, q)]
    np.testing.assert_allclose(metrics.kl(p, q), stats.entropy(*softmax, axis=1), rtol=1e-12)
    assert not np.allclose(metrics.kl(p, q), metrics.kl(q, p))


@pytest.mark.parametrize(
    ("reference", "engine", "expected"),
    [
        pytest.param(logs(0.7, 0.3, 0.0), logs(0.7, 0.3, 0.0), 0.0, id="zero in both"),
        pytest.param(logs(0.2, 0.5, 0.3), logs(0.4, 0.6, 0.0), INF, id="zero in the engine only"),
        pytest.param(logs(0.4, 0.6, 0.0), logs(0.2, 0.5, 0.3), 0.4 * math.log(2) + 0.6 * math.log(1.2), id="reference"),
        pytest.param(rows([1e4, 0.0]), rows([1e4, 0.0]), 0.0, id="one-hot, equal"),
        pytest.param(rows([1e4, 0.0]), rows([0.0, 1e4]), 1e4, id="one-hot, opposite"),
        pytest.param(rows([1.0, NAN]), rows([1.0, 0.0]), NAN, id="NaN in the reference"),
        pytest.param(rows([1.0, -INF]), rows([1.0, NAN]), NAN, id="NaN where the reference is zero"),
        pytest.param(rows([1.0, 0.0]), rows([1.0, INF]), NAN, id="+inf"),
        pytest.param(rows([1.0, 0.0]), rows([-INF, -INF]), NAN, id="no class left"),
        pytest.param(rows([1.0, 2.0, 3.0]), rows([0.0, 0.0, 0.0]), None, id="output all zeros"),
    ],
)
def test_kl_of_zeros_infinities_and_nan(reference, engine, expected):
    """C35: a zero contributes 0, a missing class is infinite, NaN stays NaN, and large logits do not overflow."""
    if expected is None:  # a uniform answer is a divergence like any other
        expected = stats.entropy(torch.softmax(reference[0].double(), -1).numpy(), [1 / 3] * 3)
    np.testing.assert_allclose(metrics.kl(reference, engine), [expected], rtol=1e-6)


def test_kl_spoils_only_the_row_with_the_nan():
    """C23: one NaN of 256 rows is in its own row, not dropped and not spread."""
    p, q = noise(256, 8, seed=1), noise(256, 8, seed=2)
    q[200, 3] = NAN
    assert np.flatnonzero(~np.isfinite(metrics.kl(p, q))).tolist() == [200]


def test_tiny_negative_divergence_is_zero_and_a_larger_one_an_error():
    """C35: -1e-9 is rounding and counts as 0; -0.1 cannot come from probabilities; NaN hides neither."""
    np.testing.assert_array_equal(metrics.not_negative(np.array([-1e-9, 0.5, NAN, INF])), [0.0, 0.5, NAN, INF])
    with pytest.raises(InputError, match=r"-0\.1 is below zero"):
        metrics.not_negative(np.array([NAN, -0.1]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_kl_of_equal_logits_is_zero_in_every_type(dtype):
    """Identical engines have no divergence, whatever type their logits have."""
    logits = (noise(5, 1000) * 10).to(dtype)
    np.testing.assert_array_equal(metrics.kl(logits, logits), np.zeros(5))


def test_agreement_compares_the_first_class():
    """The first of equal logits wins on both sides, and a row that is not finite never agrees (C23)."""
    reference = rows([1, 2, 0], [2, 2, 0], [0, 2, 2], [NAN, 1, 0], [0, 1, 0], [INF, 0, 0])
    engine = rows([0, 9, 0], [5, 1, 1], [0, 1, 2], [NAN, 1, 0], [0, 1, -INF], [9, 0, 0])
    assert metrics.agreement(reference, engine).tolist() == [True, True, False, False, False, False]


def test_cosine_is_one_for_any_scale_and_minus_one_for_the_opposite():
    """Length does not count, from the smallest to the largest fp32 values, and rounding never passes 1."""
    a = noise(64, 768)
    assert metrics.cosine(a, 1000 * a) == pytest.approx(1.0)
    assert metrics.cosine(a, -a) == pytest.approx(-1.0)
    assert metrics.cosine(a.double() * 1e-200, a.double() * 1e200) == pytest.approx(1.0)
    assert np.abs(metrics.cosine(a, a)).max() <= 1.0


@pytest.mark.parametrize("value", [0.0, NAN, INF, -INF])
def test_cosine_of_a_zero_or_nonfinite_vector_is_undefined(value):
    """C35: neither 0 nor 1, on either side or on both; the row beside it is untouched."""
    bad, good = rows([value] * 3, [1, 2, 3]), rows([1, 2, 3], [1, 2, 3])
    for a, b in ((bad, good), (good, bad), (bad, bad)):
        np.testing.assert_allclose(metrics.cosine(a, b), [NAN, 1.0])


def test_cosine_of_one_infinite_element_is_undefined():
    """C08: one overflowed element of a long vector does not hide behind the finite ones."""
    a, b = noise(1, 768), noise(1, 768)
    b[0, 0] = INF
    assert np.isnan(metrics.cosine(a, b)).all()


def test_relative_l2_sees_the_scale_that_cosine_does_not():
    """C08: an output left multiplied by 1000 has a perfect cosine and a relative error of 999."""
    a = noise(4, 768)
    assert metrics.relative_l2(a, 1000 * a) == pytest.approx(999.0, rel=1e-5)
    assert metrics.relative_l2(a, a).tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("reference", "engine", "expected"),
    [
        ([3.0, 4.0], [3.0, 4.5], 0.1),
        ([0.0, 0.0], [1.0, 0.0], NAN),
        ([0.0, 0.0], [0.0, 0.0], NAN),
        ([3.0, 4.0], [INF, 0.0], INF),
        ([INF, 0.0], [INF, 0.0], NAN),
        ([INF, 0.0], [1.0, 0.0], NAN),
        ([3.0, 4.0], [NAN, 0.0], NAN),
    ],
)
def test_relative_l2_of_zeros_and_infinities(reference, engine, expected):
    """C35: no division by a zero reference, and nothing that is not finite becomes a number."""
    np.testing.assert_allclose(metrics.relative_l2(rows(reference), rows(engine)), [expected])


def test_spearman_gives_ties_their_average_rank():
    """By hand: ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4."""
    assert metrics.spearman([1, 2, 2, 3], [10, 20, 30, 40]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))


@pytest.mark.parametrize(
    "x",
    [
        pytest.param([2.0] * 4, id="constant"),
        pytest.param([0.0] * 4, id="zero"),
        pytest.param([1.0, 1 - 2e-16, 1 - 1e-16, 1.0], id="constant up to rounding"),
        pytest.param([1.0, NAN, 2.0, 3.0], id="NaN"),
        pytest.param([1.0, INF, 2.0, 3.0], id="inf"),
    ],
)
def test_spearman_of_constant_or_nonfinite_input_is_undefined(x):
    """C07, C23: an engine that answers the same to everything has no correlation, least of all from rounding noise."""
    assert math.isnan(metrics.spearman(x, [1.0, 2.0, 3.0, 4.0]))
    assert math.isnan(metrics.spearman([1.0, 2.0, 3.0, 4.0], x))


def test_spearman_of_nothing_and_of_unequal_lists():
    """No pair has no correlation; lists of two lengths are a mistake."""
    assert math.isnan(metrics.spearman([], []))
    with pytest.raises(InputError, match="one length"):
        metrics.spearman([1.0, 2.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_nonfinite_rows_finds_one_element_in_a_whole_window(value, dtype):
    """C08: one infinite element out of 393,216 marks its row and no other."""
    features = noise(3, 512, 768).to(dtype)
    features[1, 0, 0] = value
    assert metrics.nonfinite_rows(features).tolist() == [False, True, False]


def test_pure_fp16_layer_norm_that_overflowed_is_collapsed():
    """C07: the row (300, -300, 150, -150) x 4 has an infinite variance in fp16: finite, constant, wrong."""
    x = torch.tensor([[300, -300, 150, -150] * 4, [1, -1, 2, -2] * 4], dtype=torch.float16)
    variance = (x * x).mean(-1, keepdim=True)
    engine = x / variance.sqrt()
    reference = torch.nn.functional.layer_norm(x.float(), (16,))
    assert torch.isinf(variance[0])
    assert torch.isfinite(engine).all()
    assert metrics.collapsed_rows(reference, engine).tolist() == [True, False]


def test_tokens_that_all_got_the_bias_are_collapsed():
    """C07: two tokens of one row that both return the bias, in fp16 and after a cast, mark that row alone."""
    reference, bias = noise(3, 32, 64), noise(64, seed=9)
    engine = reference.half().float()
    engine[1, 4] = engine[1, 20] = bias.half().float()
    assert metrics.collapsed_rows(reference, engine).tolist() == [False, True, False]


def test_pooled_rows_that_all_got_the_bias_are_collapsed():
    """C07: CLS rows of different inputs with one and the same answer; the others are right."""
    reference = noise(8, 64)
    engine = reference.clone()
    engine[2] = engine[5] = noise(64, seed=9)
    assert np.flatnonzero(metrics.collapsed_rows(reference, engine)).tolist() == [2, 5]


def test_equal_inputs_rounding_and_nan_are_no_collapse():
    """The same sentence twice, fp16 rounding, large offsets and a NaN row are left to the metrics that judge them."""
    reference = noise(6, 64) + 50
    reference[3] = reference[1]
    engine = reference.half()
    engine[5] = NAN
    assert not metrics.collapsed_rows(reference, engine).any()


def test_close_references_merged_by_fp16_are_no_collapse():
    """Two inputs closer than fp16 can tell apart may well get one answer."""
    reference = noise(1, 64).abs().clamp(0, 0.9).add(1).half().float().repeat(2, 1)
    reference[1] += 1e-4
    engine = reference.half()
    assert torch.equal(engine[0], engine[1])
    assert not metrics.collapsed_rows(reference, engine).any()


@pytest.mark.parametrize("metric", [metrics.kl, metrics.agreement, metrics.cosine, metrics.relative_l2])
def test_rows_are_never_broadcast(metric):
    """One row against many would compare each row with the wrong one; refused by shape."""
    with pytest.raises(InputError, match=r"\[1, 8\] against \[4, 8\]"):
        metric(noise(1, 8), noise(4, 8))


def test_summary_of_plain_values():
    """Count, mean, NumPy's linear p99 and extremes; booleans count as 0 and 1."""
    values = np.arange(101.0)
    assert metrics.summarize(values) == metrics.Summary(n=101, nonfinite=0, mean=50.0, p99=99.0, min=0.0, max=100.0)
    assert metrics.summarize([True, False, True, True]).mean == 0.75


def test_summary_counts_a_nan_and_drops_nothing():
    """C23: one NaN of 256 makes every figure NaN and is counted; a maximum must not skip it."""
    values = np.ones(256)
    values[100] = NAN
    summary = metrics.summarize(values)
    assert (summary.n, summary.nonfinite) == (256, 1)
    assert all(math.isnan(figure) for figure in (summary.mean, summary.p99, summary.min, summary.max))


def test_summary_keeps_infinity_in_the_mean():
    """C35: a true infinity fails the mean and is counted, even where the p99 does not reach it."""
    summary = metrics.summarize([1.0] * 999 + [INF])
    assert (summary.nonfinite, summary.mean, summary.p99, summary.max) == (1, INF, 1.0, INF)


def test_summary_of_nothing_is_an_error():
    """C21: nothing compared is no figure."""
    with pytest.raises(InputError, match="nothing was compared"):
        metrics.summarize([])
