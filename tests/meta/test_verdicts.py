"""Statistics by coverage and by hand, and each rule of the verdict fed the fault it is there for."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fixtures import verdicts
from fixtures.errors import InputError
from fixtures.verdicts import Interval, Limits, Measurement, Outcome, Verdict, band, judge

INF, NAN = math.inf, math.nan
NOT_NUMBERS = [NAN, INF, -INF, True, np.True_, "NaN", "1.0"]
SLOWER = Limits(1.0, None, "FP8 over fp16 time: above 1 FP8 is slower")


def around(centre: float, spread: float, n: int = 9) -> np.ndarray:
    """`n` rounds evenly within `spread` (a share) of `centre`, out of order."""
    return np.random.default_rng(0).permutation(centre * np.linspace(1 - spread, 1 + spread, n))


def interval(low: float, high: float) -> Interval:
    return Interval(low, high, 0.95, "by hand")


def verdict(**changes: object) -> Verdict:
    fields = {
        "claim": "fnet.fp8-gain-is-small",
        "case": "base-512-b1-fp8",
        "figure": "fp16 over fp8",
        "unit": "x",
        "measured": 1.05,
        "interval": interval(1.04, 1.06),
        "limits": Limits(None, 1.15, "FP8 is worth shipping from 1.15x on"),
        "documented": "1.05 (B200, TensorRT 11.4)",
        "baseline": None,
        "samples": 9,
        "outcome": Outcome.HOLDS,
    }
    return Verdict(**(fields | changes))  # type: ignore[arg-type]


# Limits and bands


@pytest.mark.parametrize("bad", NOT_NUMBERS)
@pytest.mark.parametrize("field", ["low", "high"])
def test_limit_that_is_no_finite_number_is_refused_by_name(field, bad):
    """C23: a limit of NaN or infinity, a boolean or a text compares with nothing."""
    with pytest.raises(InputError, match=f"limits: {field} is"):
        Limits(**({"low": 0.0, "high": 1.0, "reason": "why"} | {field: bad}))


@pytest.mark.parametrize(
    ("low", "high", "reason", "message"),
    [
        (None, None, "why", "both None"),
        (2.0, 1.0, "why", "low 2 is above high 1"),
        (0.0, 1.0, " ", "reason is empty"),
        (0.0, 1.0, None, "reason is empty"),
    ],
)
def test_limits_that_allow_anything_or_nothing_or_say_no_reason_are_refused(low, high, reason, message):
    """Every limit excludes something, allows something and says where it comes from."""
    with pytest.raises(InputError, match=message):
        Limits(low, high, reason)


@pytest.mark.parametrize(
    ("baseline", "relative", "absolute", "low", "high"),
    [
        (28.0, 0.02, 0.1, 27.44, 28.56),
        (0.1, 0.02, 0.1, 0.0, 0.2),
        (-2.0, 0.5, 0.0, -3.0, -1.0),
        (0.0, 0.02, 0.01, -0.01, 0.01),
        (61, 0.0, 0.0, 61, 61),
    ],
)
def test_band_has_two_sides_and_survives_a_zero_baseline(baseline, relative, absolute, low, high):
    """C14, C23: the wider tolerance counts, a gain is as far out as a loss, and nothing is divided by the baseline."""
    limits = band(baseline, relative, absolute, "why")
    assert (limits.low, limits.high) == pytest.approx((low, high))


@pytest.mark.parametrize("bad", [*NOT_NUMBERS, None])
@pytest.mark.parametrize("field", ["baseline", "relative", "absolute"])
def test_band_refuses_by_name_what_is_no_finite_number(field, bad):
    """C23: baseline values NaN, null, "NaN", Infinity and booleans are all refused."""
    with pytest.raises(InputError, match=f"band: {field} is"):
        band(**({"baseline": 1.0, "relative": 0.1, "absolute": 0.0, "reason": "why"} | {field: bad}))


@pytest.mark.parametrize("field", ["relative", "absolute"])
def test_band_refuses_a_negative_tolerance(field):
    """A negative tolerance is a slip, not a narrower band."""
    with pytest.raises(InputError, match=f"band: {field} is -0.1"):
        band(**({"baseline": 1.0, "relative": 0.2, "absolute": 0.2, "reason": "why"} | {field: -0.1}))


# Rounds


@pytest.mark.parametrize(
    ("n", "first", "coverage"), [(6, 1, 0.9688), (8, 1, 0.9922), (9, 2, 0.9609), (20, 6, 0.9586), (27, 8, 0.9808)]
)
def test_rounds_give_the_narrowest_ordered_pair_with_95_percent(n, first, coverage):
    """The 2nd to the 8th of 9 (96%), and the same rule for any number of rounds."""
    median, found = verdicts.paired_ratio_interval(np.random.default_rng(n).permutation(np.arange(1.0, n + 1)))
    assert median == (n + 1) / 2
    assert found is not None
    assert (found.low, found.high) == (first, n + 1 - first)
    assert found.confidence == pytest.approx(coverage, abs=5e-4)


def test_round_interval_covers_the_median_of_a_skewed_distribution():
    """Coverage of 95% or more without assuming a shape: 2,000 sets of 9 rounds."""
    rng = np.random.default_rng(0)
    found = [verdicts.paired_ratio_interval(rounds)[1] for rounds in rng.lognormal(0, 1, (2000, 9))]
    assert np.mean([one is not None and one.low <= 1 <= one.high for one in found]) >= 0.95


@pytest.mark.parametrize("n", [1, 2, 5])
def test_too_few_rounds_have_an_unknown_spread(n):
    """C25: one round has spread 0, which is unknown, and decides nothing."""
    value, found = verdicts.paired_ratio_interval([1.2] * n)
    assert (value, found) == (1.2, None)
    assert judge(value, found, SLOWER, outside=Outcome.FLIPPED) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("position", [0, 4, 8])
def test_one_nonfinite_round_makes_the_verdict_invalid(bad, position):
    """C23: a latency list with one NaN is neither shortened nor sorted out of sight."""
    ratios = around(1.0, 0.01)
    ratios[position] = bad
    value, found = verdicts.paired_ratio_interval(ratios)
    assert judge(value, found, band(1.0, 0.1, 0, "why"), outside=Outcome.MOVED) is Outcome.INVALID


@pytest.mark.parametrize("bad", [True, np.True_, "NaN", "1.0", None, [1.0]])
def test_lists_take_numbers_only(bad):
    """C23: a boolean, a text, null or a nested list where a number belongs is refused by the list's name."""
    with pytest.raises(InputError, match="ratios: "):
        verdicts.paired_ratio_interval([1.0] * 8 + [bad])
    with pytest.raises(InputError, match="values: "):
        verdicts.bootstrap_mean_interval([1.0] * 8 + [bad])


def test_empty_lists_are_refused():
    """C21: nothing compared is no figure."""
    for statistic in (verdicts.paired_ratio_interval, verdicts.bootstrap_mean_interval):
        with pytest.raises(InputError, match="nothing was compared"):
            statistic([])


def test_two_outliers_of_70_ms_do_not_move_the_verdict():
    """C15 a: 998 calls of 2 ms and two of 70 ms in one variant, 20 rounds of 50 calls, the round's mean taken."""
    calls = np.full((20, 50), 2.0)
    calls[3, 10] = calls[11, 40] = 70.0
    value, found = verdicts.paired_ratio_interval(calls.mean(1) / 2.0)
    assert calls.mean() > 2.1
    assert judge(value, found, band(1.0, 0.02, 0, "why"), outside=Outcome.MOVED) is Outcome.HOLDS


def test_nine_rounds_bear_one_bad_round_and_never_call_two_a_movement():
    """C15 a with the default 9 rounds: two bad rounds are a reason to measure again, not a verdict."""
    ratios, limits = around(1.0, 0.005), band(1.0, 0.02, 0, "why")
    ratios[2] = 1.68
    assert judge(*verdicts.paired_ratio_interval(ratios), limits, outside=Outcome.MOVED) is Outcome.HOLDS
    ratios[5] = 1.68
    assert judge(*verdicts.paired_ratio_interval(ratios), limits, outside=Outcome.MOVED) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("latency_ms", "expected"),
    [
        pytest.param(0.651, Outcome.HOLDS, id="fp8, 4.9% slower"),
        pytest.param(0.626, Outcome.INCONCLUSIVE, id="int8, 0.9%: indistinguishable"),
        pytest.param(0.590, Outcome.FLIPPED, id="5% faster"),
    ],
)
def test_slower_is_said_only_beyond_the_spread(latency_ms, expected):
    """C15 c: three latencies against fp16's 0.621 ms with a round spread of 2%."""
    value, found = verdicts.paired_ratio_interval(around(latency_ms / 0.621, 0.02))
    assert judge(value, found, SLOWER, outside=Outcome.FLIPPED) is expected


# Bootstrap and shares


def test_bootstrap_is_seeded_and_names_its_method():
    """The same examples give the same interval, run after run."""
    values = np.random.default_rng(1).random(50)
    first, second = verdicts.bootstrap_mean_interval(values), verdicts.bootstrap_mean_interval(list(values))
    assert first == second
    assert first[0] == pytest.approx(values.mean())
    assert first[1] is not None
    assert "50 examples" in first[1].method


def test_bootstrap_of_a_ratio_covers_it_on_skewed_figures():
    """About half the KL on the same 30 passages: the interval holds the truth in 88% or more of 100 tries."""
    rng, hits = np.random.default_rng(0), 0
    for _ in range(100):
        full = rng.lognormal(0, 1, 30)
        value, found = verdicts.bootstrap_ratio_interval(0.5 * full * rng.lognormal(-0.08, 0.4, 30), full)
        assert found is not None
        assert found.low <= value <= found.high
        hits += found.low <= 0.5 <= found.high
    assert hits >= 88


def test_bootstrap_ratio_uses_the_pairing():
    """Figures that rise and fall together have a narrow ratio; shuffled, the same figures have a wide one."""
    rng = np.random.default_rng(0)
    full = rng.lognormal(0, 1, 100)
    half = 0.5 * full * rng.normal(1, 0.02, 100)
    widths = []
    for numerators in (half, rng.permutation(half)):
        found = verdicts.bootstrap_ratio_interval(numerators, full)[1]
        assert found is not None
        widths.append(found.high - found.low)
    assert widths[0] < 0.1 * widths[1]


def test_bootstrap_resamples_whole_passages():
    """10 passages of 50 tokens that stand or fall together are 10 examples: far wider than 500 tokens would be."""
    agreeing, tokens = np.array([50.0] * 8 + [0.0] * 2), np.full(10, 50.0)
    value, found = verdicts.bootstrap_ratio_interval(agreeing, tokens)
    assert value == 0.8
    assert found is not None
    assert found.high - found.low > 5 * (0.8 * 0.2 / 500) ** 0.5


@pytest.mark.parametrize("values", [[0.1, 0.2, 0.1, 0.3, 0.2], [0.1] * 8, [1.0] * 8])
def test_bootstrap_without_known_spread_gives_no_interval(values):
    """C25: five passages, or eight that all agree, prove nothing about the next one."""
    value, found = verdicts.bootstrap_mean_interval(values)
    assert value == pytest.approx(np.mean(values))
    assert found is None


def test_bootstrap_over_mostly_zero_denominators_is_invalid():
    """C14: one passage with a divergence in eight leaves resamples without any, whose ratio is infinite."""
    value, found = verdicts.bootstrap_ratio_interval([1.0, 2.0] * 4, [1.0] + [0.0] * 7)
    assert value == 12.0
    assert judge(value, found, Limits(0.0, None, "why"), outside=Outcome.MOVED) is Outcome.INVALID


@pytest.mark.parametrize("bad", [NAN, INF])
def test_bootstrap_drops_no_nonfinite_example(bad):
    """C23: NaN in one of 256 samples makes the verdict invalid, in numerator and denominator."""
    values = np.random.default_rng(0).random(256)
    spoiled = values.copy()
    spoiled[17] = bad
    for found in (
        verdicts.bootstrap_mean_interval(spoiled),
        verdicts.bootstrap_ratio_interval(spoiled, values),
        verdicts.bootstrap_ratio_interval(values, spoiled),
    ):
        assert judge(*found, Limits(None, 10.0, "why"), outside=Outcome.MOVED) is Outcome.INVALID


def test_bootstrap_over_a_zero_denominator_is_invalid():
    """C14, C23: a zero baseline neither raises nor passes."""
    found = verdicts.bootstrap_ratio_interval([1.0] * 8, [0.0] * 8)
    assert judge(*found, Limits(0.0, None, "why"), outside=Outcome.MOVED) is Outcome.INVALID


def test_bootstrap_refuses_unpaired_lists():
    """Examples are paired one to one or not at all."""
    with pytest.raises(InputError, match="8 numerators, 9 denominators"):
        verdicts.bootstrap_ratio_interval([1.0] * 8, [1.0] * 9)


def test_share_has_the_exact_interval():
    """293 of 300 by hand (Clopper-Pearson), and a share of 1 that is not taken for certain."""
    share, found = verdicts.share_interval(293, 300)
    assert (share, found.low, found.high) == pytest.approx((0.97667, 0.95251, 0.99056), abs=1e-5)
    assert verdicts.share_interval(8, 8)[1].low == pytest.approx(0.025 ** (1 / 8))


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_share_of_nothing_or_of_too_few_is_refused(successes, n):
    """C21: 0 of 0 is not a share."""
    with pytest.raises(InputError, match=f"share: {successes} of {n}"):
        verdicts.share_interval(successes, n)


def test_paired_share_interval_agrees_with_published_software():
    """The example of R's statpsych::ci.prop.ps: 26 and 4 discordant of 48 give 0.2548067 to 0.6251933."""
    difference, found = verdicts.paired_share_interval(26, 4, 48)
    assert difference == 22 / 48
    assert (found.low, found.high) == pytest.approx((0.2548067, 0.6251933), abs=1e-6)


def test_paired_share_interval_covers_the_difference():
    """95% coverage within sampling error on 300 examples with 3% and 1% of discordant pairs."""
    draws = np.random.default_rng(0).multinomial(300, [0.03, 0.01, 0.96], 1000)
    found = [verdicts.paired_share_interval(int(a), int(b), 300)[1] for a, b, _ in draws]
    assert np.mean([one.low <= 0.02 <= one.high for one in found]) >= 0.93


def test_engines_that_always_agree_still_have_an_interval():
    """No discordant example in 100 bounds the difference, and does not prove it to be 0."""
    difference, found = verdicts.paired_share_interval(0, 0, 100)
    assert difference == 0.0
    assert found.low < -0.01 < 0.01 < found.high


@pytest.mark.parametrize(("a_only", "b_only", "n"), [(0, 0, 0), (-1, 2, 10), (6, 5, 10)])
def test_paired_share_refuses_impossible_counts(a_only, b_only, n):
    """More discordant examples than examples, or none at all, is a slip in the counting."""
    with pytest.raises(InputError, match="paired shares"):
        verdicts.paired_share_interval(a_only, b_only, n)


# Judging


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.00, 1.10, Outcome.HOLDS),
        (1.02, 1.08, Outcome.HOLDS),
        (0.99, 1.05, Outcome.INCONCLUSIVE),
        (1.05, 1.11, Outcome.INCONCLUSIVE),
        (0.90, 1.20, Outcome.INCONCLUSIVE),
        (0.90, 0.99, Outcome.MOVED),
        (1.11, 1.20, Outcome.MOVED),
    ],
)
def test_interval_inside_holds_outside_moves_and_straddling_decides_nothing(low, high, expected):
    """Both sides count, the ends of the limits are inside."""
    limits = Limits(1.0, 1.1, "why")
    assert judge((low + high) / 2, interval(low, high), limits, outside=Outcome.MOVED) is expected


@pytest.mark.parametrize("bad", [*NOT_NUMBERS, None])
def test_value_that_is_no_finite_number_is_invalid(bad):
    """C23: metric NaN, infinite, boolean, text or null against a limit it could seem to satisfy."""
    for limits in (Limits(None, 0.01, "why"), Limits(0.0, None, "why")):
        assert judge(bad, None, limits, outside=Outcome.MOVED, exact=True) is Outcome.INVALID
        assert judge(bad, interval(0.001, 0.002), limits, outside=Outcome.MOVED) is Outcome.INVALID


@pytest.mark.parametrize(("low", "high"), [(NAN, 1.0), (0.5, NAN), (NAN, NAN), (-INF, 1.0), (0.5, INF)])
def test_interval_with_a_nonfinite_end_is_invalid(low, high):
    """C23: NaN in the interval does not pass where the value alone would."""
    assert judge(0.7, interval(low, high), Limits(None, 1.0, "why"), outside=Outcome.MOVED) is Outcome.INVALID


def test_interval_with_swapped_ends_is_refused():
    """An interval from 1.2 to 0.9 would lie inside 0.8 to 1.1 end by end."""
    with pytest.raises(InputError, match=r"low 1\.2 is above high 0\.9"):
        interval(1.2, 0.9)


def test_value_outside_its_own_interval_decides_nothing():
    """A value and an interval that contradict each other are no evidence for either."""
    assert judge(1.5, interval(1.0, 1.05), Limits(None, 1.1, "why"), outside=Outcome.MOVED) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(("value", "expected"), [(61, Outcome.HOLDS), (62, Outcome.MOVED), (60, Outcome.MOVED)])
def test_exact_value_needs_no_interval(value, expected):
    """A count is judged alone when the caller says that it is exact, and not otherwise."""
    limits = band(61, 0, 0, "layers are counted")
    assert judge(value, None, limits, outside=Outcome.MOVED, exact=True) is expected
    assert judge(value, None, limits, outside=Outcome.MOVED) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("noise", "expected"), [(0.004, Outcome.HOLDS), (0.02, Outcome.INVALID), (NAN, Outcome.INVALID)]
)
def test_band_tighter_than_the_noise_is_invalid(noise, expected):
    """A band of 1% cannot be judged on a machine whose A/A ratio strays by 2%, nor by an unknown amount."""
    limits = band(2.0, 0.01, 0, "why")
    assert judge(2.0, interval(1.99, 2.01), limits, outside=Outcome.MOVED, noise=noise) is expected


def test_noise_floor_is_the_farthest_reach_of_the_same_engine_twice():
    """The A/A interval's distance from 1, on whichever side it is larger; it feeds `judge` directly."""
    _, found = verdicts.paired_ratio_interval(around(0.999, 0.004))
    assert found is not None
    assert verdicts.noise_floor(found) == pytest.approx(1 - found.low)
    assert verdicts.noise_floor(found) > found.high - 1
    assert math.isnan(verdicts.noise_floor(None))


@pytest.mark.parametrize(
    ("limits", "noise", "expected", "said"),
    [
        (Limits(1.0, 1.15, "why"), 0.0, Outcome.HOLDS, ""),
        (Limits(1.0, 1.15, "why"), 0.06, Outcome.HOLDS, ""),
        (Limits(1.0, 1.15, "why"), 0.08, Outcome.INVALID, "up to 8.00% from itself, timed twice, which limits of 1 to"),
        (Limits(None, 1.15, "why"), 0.08, Outcome.HOLDS, ""),
        (Limits(None, 1.15, "why"), NAN, Outcome.INVALID, "not known"),
    ],
)
def test_measurement_knows_the_noise_of_its_group(limits, noise, expected, said):
    """A band narrower than one engine is from itself is no band, and the note says so; noise that is not known is not
    small."""
    measured = Measurement(1.05, 9, interval(1.04, 1.06), noise=noise)
    assert measured.judged(limits, Outcome.FLIPPED) is expected
    assert said in measured.note(limits)
    assert bool(said) == bool(measured.note(limits))
    assert replace(measured, problems=("throttled",)).note(limits).startswith("throttled")


@pytest.mark.parametrize(
    ("new", "spread", "expected"),
    [
        pytest.param(1.17, 0.005, Outcome.HOLDS, id="a: 1.18 to 1.17"),
        pytest.param(0.93, 0.005, Outcome.FLIPPED, id="b: 1.18 to 0.93"),
        pytest.param(1.02, 0.03, Outcome.INCONCLUSIVE, id="c: 1.18 to 1.02 with 3% noise"),
    ],
)
def test_claim_that_fp8_is_slower(new, spread, expected):
    """C05: a gain that flips the claim is as red as a loss, and noise around the limit neither confirms nor flips."""
    value, found = verdicts.paired_ratio_interval(around(new, spread))
    assert judge(value, found, SLOWER, outside=Outcome.FLIPPED) is expected


def test_everything_20_percent_faster_keeps_the_claim_and_moves_the_times():
    """C05 d: the ratio of one interleaved run holds; the absolute time is reported as a movement of its own."""
    fp16_ms, fp8_ms = around(0.8, 0.003), 1.18 * around(0.8, 0.003)
    claim = verdicts.paired_ratio_interval(fp8_ms / fp16_ms)
    assert judge(*claim, SLOWER, outside=Outcome.FLIPPED) is Outcome.HOLDS
    time = verdicts.paired_ratio_interval(fp16_ms)
    assert judge(*time, band(1.0, 0.03, 0, "stored ms"), outside=Outcome.MOVED) is Outcome.MOVED


@pytest.mark.parametrize(
    ("latency_ms", "before", "now"),
    [
        pytest.param(31.0, "8.5.0", "8.5.1", id="a: slower after an upgrade"),
        pytest.param(31.0, "8.5.0", "8.5.0", id="b: slower without one"),
        pytest.param(25.0, "8.5.0", "8.5.1", id="c: faster"),
    ],
)
def test_latency_that_left_its_band_fails_either_way(latency_ms, before, now):
    """C03 a-c: 28.0 ms became 31 or 25: the message names versions, ratio, band and the way to a new baseline."""
    value, found = verdicts.paired_ratio_interval(around(latency_ms, 0.0036) / 28.0)
    limits = band(1.0, 0.015, 0, "rebuild spread 1.5%")
    outcome = judge(value, found, limits, outside=Outcome.MOVED)
    moved = verdict(
        figure="latency over baseline",
        measured=value,
        interval=found,
        limits=limits,
        outcome=outcome,
        baseline=f"28.0 ms (TensorRT {before})",
        note=f"TensorRT {now}",
    )
    assert outcome is Outcome.MOVED
    for part in (before, now, f"{latency_ms / 28.0:.6g}", "0.985 to 1.015", "rebuild spread", "--record"):
        assert part in moved.message()


def test_three_rebuilds_within_their_spread_hold():
    """C03 d: plan size, layers and latency of rebuilds stay inside limits taken from the rebuild spread."""
    plan, layers = Limits(10.05, 10.25, "three rebuilds, widened"), Limits(61, 63, "three rebuilds")
    for size_mib, count, ratio in ((10.10, 61, 1.0), (10.12, 61, 1.007), (10.18, 63, 0.994)):
        assert judge(size_mib, None, plan, outside=Outcome.MOVED, exact=True) is Outcome.HOLDS
        assert judge(count, None, layers, outside=Outcome.MOVED, exact=True) is Outcome.HOLDS
        time = verdicts.paired_ratio_interval(around(ratio, 0.002))
        assert judge(*time, band(1.0, 0.015, 0, "rebuild spread"), outside=Outcome.MOVED) is Outcome.HOLDS


# Margin, message, record


@pytest.mark.parametrize(
    ("value", "limits", "distance", "relative"),
    [
        (1.18, SLOWER, 0.18, 0.18),
        (0.93, SLOWER, -0.07, -0.07),
        (1.08, Limits(1.0, 1.2, "why"), 0.08, 0.08),
        (1.15, Limits(1.0, 1.2, "why"), 0.05, 0.05 / 1.2),
        (1.30, Limits(1.0, 1.2, "why"), -0.1, -0.1 / 1.2),
        (0.5, Limits(0.0, None, "why"), 0.5, None),
        (-3.0, Limits(-4.0, None, "why"), 1.0, 0.25),
    ],
)
def test_margin_is_the_signed_distance_to_the_nearest_limit(value, limits, distance, relative):
    """Positive inside, negative outside; relative to that limit unless it is 0."""
    found = verdicts.margin(value, limits)
    assert (found.distance, found.relative) == pytest.approx((distance, relative))


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_margin_of_a_nonfinite_value_is_never_inside(value):
    """C23: the distance is NaN or negative, so that a comparison with 0 fails."""
    assert not verdicts.margin(value, Limits(0.0, 1.0, "why")).distance >= 0


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.HOLDS])
def test_every_other_outcome_says_what_to_do(outcome):
    """The message carries all that was decided on and the step for that outcome."""
    message = verdict(outcome=outcome, note="clock stepped in round 4").message()
    for part in ("fnet.fp8-gain-is-small", "base-512-b1-fp8", outcome.value, "fp16 over fp8 = 1.05 x", "1.04 to 1.06"):
        assert part in message
    for part in ("at most 1.15: FP8 is worth shipping", "+0.1", "1.05 (B200", "9", "clock stepped in round 4"):
        assert part in message
    assert message.splitlines()[-1].split(maxsplit=1) == ["next", verdicts.next_step("", outcome)]


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome.FLIPPED, "no longer holds here"),
        (Outcome.FLIPPED, "reconsider the decision"),
        (Outcome.MOVED, "--save-graphs"),
        (Outcome.INVALID, "not a regression"),
        (Outcome.INCONCLUSIVE, "larger --samples"),
        (Outcome.INCONCLUSIVE, "three times the rounds already"),
    ],
)
def test_next_step_tells_outcomes_apart(outcome, words):
    """Infrastructure is not regression, and a flip is not a mere movement."""
    assert words in verdict(outcome=outcome).message()


@pytest.mark.parametrize(
    ("claim", "helps", "does_not"),
    [
        (verdicts.UNMOVED, ("--record",), ("remove", "waiver")),
        (verdicts.UNDRIFTED, ("remove baselines/pinned/<device>/", "then --record"), ("waiver",)),
        (verdicts.AS_PRINTED, ("waivers.toml", "erratum in baselines/documented/"), ("--record",)),
    ],
)
def test_next_step_of_a_comparison_is_one_that_helps(claim, helps, does_not):
    """`--record` replaces the newest baseline alone: not a pinned one while its file is there, and never a print."""
    said = verdict(claim=claim, outcome=Outcome.MOVED).message().splitlines()[-1]
    assert [word for word in helps if word not in said] == []
    assert [word for word in does_not if word in said] == []


def test_next_step_names_only_what_is_there():
    """Every file and option that a step speaks of exists."""
    root = Path(__file__).parents[2]
    options = (root / "conftest.py").read_text()
    said = " ".join(verdicts.next_step(claim, outcome) for claim in ("", *verdicts.COMPARISONS) for outcome in Outcome)
    assert [option for option in re.findall(r"--[a-z-]+", said) if f'"{option}"' not in options] == []
    paths = {re.sub("<.*", "", path) for path in re.findall(r"baselines/[\w/<>.-]+", said)}
    assert {path for path in paths if not (root / path).exists()} == set()
    assert len(paths) == 4


@pytest.mark.parametrize(
    "fault",
    [{"measured": NAN}, {"measured": INF}, {"measured": None}, {"limits": None}, {"measured": 1.2}, {"samples": 0}],
)
def test_verdict_cannot_hold_without_a_figure_inside_its_limits(fault):
    """C21, C23: no hand-made `holds` over NaN, nothing measured, no limits, no samples or a figure outside."""
    with pytest.raises(InputError, match="cannot hold"):
        verdict(**fault)


def test_nothing_to_compare_is_invalid_and_readable():
    """C21: no baseline yet is its own red outcome; the message has no crash and no zero in it."""
    message = verdict(measured=None, interval=None, limits=None, samples=0, outcome=Outcome.INVALID).message()
    assert "measured   none" in message
    assert "limits     none" in message


def test_record_is_strict_json_and_complete():
    """C23, C25: every field comes back from a strict parser as what it was."""
    one = verdict(baseline="1.052", note="n")
    record = json.loads(json.dumps(one.as_record(), allow_nan=False))
    assert record["outcome"] == "holds"
    assert record["interval"] == {"low": 1.04, "high": 1.06, "confidence": 0.95, "method": "by hand"}
    assert record["margin"] == pytest.approx({"distance": 0.1, "relative": 0.1 / 1.15})
    assert record["non_finite"] == {}
    assert {field: record[field] for field in ("claim", "case", "figure", "unit", "measured", "samples", "note")} == {
        "claim": one.claim,
        "case": one.case,
        "figure": one.figure,
        "unit": "x",
        "measured": 1.05,
        "samples": 9,
        "note": "n",
    }


def test_record_says_which_numbers_were_not_finite():
    """C23: NaN becomes null with an entry that says so; a null without one was never measured."""
    spoiled = replace(verdict(outcome=Outcome.INVALID), measured=np.float64(NAN), interval=interval(0.5, INF))
    record = json.loads(json.dumps(spoiled.as_record(), allow_nan=False))
    assert record["measured"] is None
    assert record["interval"]["high"] is None
    assert record["non_finite"] == {
        "measured": "nan",
        "interval.high": "inf",
        "margin.distance": "nan",
        "margin.relative": "nan",
    }
    unmeasured = verdict(outcome=Outcome.INVALID, measured=None).as_record()
    assert (unmeasured["measured"], unmeasured["margin"], unmeasured["non_finite"]) == (None, None, {})
