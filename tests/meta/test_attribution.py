"""What else changed, and whether the engine is the cause, on made-up runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from math import inf, nan
from typing import Any

import pytest

from fixtures.attribution import (
    BUILT,
    ENGINES,
    GRAPH_MAKERS,
    HASHED_ONLY,
    REFERENCE,
    REFERENCE_ONLY,
    SPEED,
    WITHOUT_ENGINE,
    canary_changes,
    causes,
    changes,
    graph_changes,
    surroundings,
)
from fixtures.baselines import Figure, Inputs, Measured, Origin
from fixtures.cases import studies
from fixtures.conclusions import conclusions
from fixtures.document import SCHEMA, Basis, Change, Document, Found
from fixtures.errors import InputError
from fixtures.movement import PACKAGES, SAME_ENGINE
from fixtures.verdicts import AS_PRINTED, UNDRIFTED, UNMOVED, Limits, Outcome
from tests.meta.tiny import one_line

HOLDS, MOVED, FLIPPED, INVALID = Outcome.HOLDS, Outcome.MOVED, Outcome.FLIPPED, Outcome.INVALID
GPU = "NVIDIA B200"
ENVIRONMENT = {"driver": "570.86", "nvidia-modelopt": "0.47.0", "onnxruntime": "1.31.1", "torch": "2.14.1"}
INPUTS = Inputs({"base": Origin("hub", "a" * 64)}, {"base-512": Origin("WikiText-2", "b" * 64)})
GRID = [case.id for case in studies()["fnet"].cases]
FP8 = "base-512-b1-fp8"
UNITS = conclusions().units

Values = Mapping[str, Mapping[str, float]]
Builds = tuple[float, float]


def run(figures: Values, version: str = "11.4", **other: Any) -> Measured:
    """A record of these values, by case and figure name."""
    spreads = other.pop("spreads", {})
    defaults = {
        "study": "fnet",
        "engine": "tensorrt",
        "device": GPU,
        "recorded": date(2026, 3, 1),
        "environment": ENVIRONMENT,
        "inputs": INPUTS,
        "graphs": dict.fromkeys(figures, "c" * 64),
        "builds": 1,
        "canaries": {},
        "telemetry": {},
        "accepted": {},
    }
    made = {
        case: {
            name: Figure(value, UNITS[name], 9, *spreads.get((case, name), (None, None)))
            for name, value in values.items()
        }
        for case, values in figures.items()
    }
    return Measured(version=version, figures=made, **(defaults | other))


def finding(case: str, figure: str, outcome: Outcome, **other: Any) -> Found:
    defaults = {
        "claim": UNMOVED,
        "study": "fnet",
        "unit": UNITS[figure],
        "measured": None,
        "expected": None,
        "interval": None,
        "limits": None,
        "margin": None,
        "documented": None,
        "baseline": "as recorded",
        "samples": 9,
        "note": "",
        "non_finite": {},
        "test": "test_unmoved",
        "waiver": None,
    }
    return Found(case=case, figure=figure, outcome=outcome, **(defaults | other))


def held_against(before: Measured, here: Measured, tolerance: float = 0.03) -> list[Found]:
    """A verdict a figure, as the suite gives them: moved where it left `tolerance`, a share of the baseline's value."""
    return [
        finding(
            case,
            name,
            HOLDS
            if abs(each.value - before.figures[case][name].value) <= tolerance * abs(before.figures[case][name].value)
            else MOVED,
            measured=each.value,
            expected=before.figures[case][name].value,
        )
        for case, figures in here.figures.items()
        for name, each in figures.items()
    ]


def said(before: Measured, here: Measured, control: Document | None = None) -> list[str]:
    """The sentences for `here` as the suite would judge it, each short and one line."""
    found = causes(before, here, held_against(before, here), control)
    for sentence in found:
        assert len(sentence) <= 230, sentence
        assert "\n" not in sentence
    return found


def latencies(
    ratio: Callable[[str], float], cases: Iterable[str] = GRID, base: float = 0.75
) -> dict[str, dict[str, float]]:
    return {case: {"latency": base * ratio(case)} for case in cases}


def controlled(
    values: Mapping[str, tuple[float, float]],
    figure: str = "latency",
    basis: Mapping[str, Any] | None = None,
    **other: Any,
) -> Document:
    """A control run of ONNX Runtime: by case, the value of its baseline and here."""
    verdicts = [
        finding(case, figure, HOLDS if abs(here - was) <= 0.03 * was else MOVED, measured=here, expected=was)
        for case, (was, here) in values.items()
    ]
    source = {
        "study": "fnet",
        "role": "newest",
        "device": GPU,
        "engine": "onnxruntime",
        "version": "1.31.1",
        "recorded": date(2026, 3, 1),
        "environment": ENVIRONMENT,
        "why": "the same version",
    }
    defaults = {
        "schema": SCHEMA,
        "kind": "run",
        "started": datetime(2026, 3, 2, tzinfo=UTC),
        "elapsed_s": 1.0,
        "command": "pytest",
        "device": GPU,
        "engine": "onnxruntime",
        "version": "1.31.1",
        "environment": ENVIRONMENT,
        "passed": 1,
        "failed": 0,
        "options": {},
        "claims": {},
        "verdicts": verdicts,
        "bases": [Basis(**(source | (basis or {})))],
    }
    lists = (
        "decisions",
        "causes",
        "changes",
        "canaries",
        "rounds",
        "kernels",
        "left_out",
        "failures",
        "waivers",
        "notes",
    )
    return Document(**({name: [] for name in lists} | defaults | other))


def only(sentences: list[str], words: str) -> str:
    """The one sentence that has these words."""
    (found,) = [each for each in sentences if words in each]
    return found


def none_of(sentences: list[str], *words: str) -> bool:
    return not any(word in each for each in sentences for word in words)


ONE = {FP8: {"latency": 28.0}}


class TestChanges:
    def test_versions_that_differ_are_named_with_both_sides(self) -> None:
        """Engine and machine come first, what is equal is left out, and what one side lacks is "not there"."""
        before = {"numpy": "2.4", "torch": "2.14", "tensorrt": "11.4", "driver": "570", "timm": "1.0"}
        here = {"numpy": "2.4", "torch": "2.15", "tensorrt": "11.5", "driver": "580", "pillow": "13"}
        assert changes(before, here) == [
            Change("TensorRT", "11.4", "11.5"),
            Change("driver", "570", "580"),
            Change("PyTorch", "2.14", "2.15"),
            Change("pillow", "not there", "13"),
            Change("timm", "1.0", "not there"),
        ]

    def test_what_older_records_do_not_name_is_no_change(self) -> None:
        """CUDA, cuDNN and the GPU's own name count where both sides have them; and one GPU for another counts once."""
        named = {"gpu": "NVIDIA B200", "cuda": "13.0", "cudnn": "92000"}
        assert changes({}, named) == changes(named, {}) == []
        assert changes(named, named | {"cuda": "13.1", "cudnn": "92100", "gpu": "NVIDIA B200 SXM"}) == [
            Change("CUDA", "13.0", "13.1"),
            Change("cuDNN", "92000", "92100"),
            Change("gpu", "NVIDIA B200", "NVIDIA B200 SXM"),
        ]
        assert changes(named | {"device": "B200"}, named | {"device": "B300", "gpu": "NVIDIA B300"}) == [
            Change("device", "B200", "B300")
        ]

    def test_surroundings_hold_engine_and_device(self) -> None:
        """The engine is named at the version that was loaded, whatever the packages say."""
        found = surroundings(run(ONE, "11.5", environment={"tensorrt": "11.4"}))
        assert found == {"tensorrt": "11.5", "device": GPU}

    def test_graphs_by_hash_and_cases_of_one_side(self) -> None:
        """A changed hash is one line a case; cases that one side alone has are one line a side."""
        before = {FP8: "a" * 64, "gone": "b" * 64}
        here = {FP8: "c" * 64, "new-1": "b" * 64, "new-2": "b" * 64}
        assert graph_changes(before, here) == [
            Change(f"{FP8}: graph", "a" * 12, "c" * 12),
            Change("cases of the baseline alone", "gone", "not there"),
            Change("cases of this run alone", "not there", "new-1 and new-2"),
        ]
        assert graph_changes(before, before) == []

    def test_canaries_by_case_and_name(self) -> None:
        """C03 d: counts of a built engine are compared where both sides have the case."""
        before = {FP8: {"layers": 412, "reformats": 3, "gone": 1}, "other": {"layers": 1}}
        here = {FP8: {"layers": 408, "reformats": 3, "new": 2}}
        assert canary_changes(before, here) == [
            Change(f"{FP8}: layers", "412", "408"),
            Change(f"{FP8}: new", "not there", "2"),
            Change(f"{FP8}: gone", "1", "not there"),
        ]


class TestNothingMoved:
    def test_says_nothing(self) -> None:
        """Versions alone are no cause of anything."""
        assert said(run(ONE), run(ONE, "11.5")) == []

    def test_engines_built_differently_are_told_all_the_same(self) -> None:
        """C03 d: 61 to 63 layers within a latency's tolerance is one sentence and no cause."""
        before = run(ONE, canaries={FP8: {"layers": 61}})
        (sentence,) = said(before, run({FP8: {"latency": 28.3}}, canaries={FP8: {"layers": 63}}))
        assert sentence == f"Built differently although no figure moved: {FP8} (layers 61 to 63)."

    def test_a_claim_that_was_lost_before_is_no_change(self) -> None:
        """A flip within tolerance of the baseline is told as such, and no change is blamed for it."""
        before, here = run({FP8: {"speedup": 1.10}}), run({FP8: {"speedup": 1.10}}, "11.5")
        flip = finding(FP8, "speedup", FLIPPED, claim="fnet/fp8-barely-faster", baseline=None)
        (sentence,) = causes(before, here, [*held_against(before, here), flip])
        assert "within tolerance of the baseline" in sentence

    def test_slow_drift_is_nobodys_upgrade(self) -> None:
        """What left the pinned baseline but not the newest is drift, with its factor."""
        before, here = run(ONE), run({FP8: {"latency": 28.5}})
        drift = finding(FP8, "latency", MOVED, claim=UNDRIFTED, measured=28.5, expected=27.0)
        (sentence,) = causes(before, here, [*held_against(before, here), drift])
        assert sentence.startswith(f"Slow drift: latency of {FP8}")
        assert "1.056x" in sentence

    def test_a_print_is_not_the_baseline(self) -> None:
        """A figure that is not as printed did not therefore move."""
        assert causes(run(ONE), run(ONE), [finding(FP8, "latency", MOVED, claim=AS_PRINTED, baseline=None)]) == []


class TestVersions:
    def test_an_upgrade_alone_is_the_likely_cause(self) -> None:
        """C03 a: both versions, both values and the ratio are named."""
        sentence = only(said(run(ONE, "8.5.0"), run({FP8: {"latency": 31.0}}, "8.5.1")), "likely cause")
        assert sentence == (
            "TensorRT 8.5.0 to 8.5.1 is the only recorded change that could do this, and so the likely cause: "
            f"latency of {FP8} went from 28 ms to 31 ms (1.107x)."
        )

    def test_without_an_upgrade_it_is_not_blamed(self) -> None:
        """C03 b: the same version on both sides and nothing else changed."""
        sentence = only(said(run(ONE, "8.5.1"), run({FP8: {"latency": 31.0}}, "8.5.1")), "without an upgrade")
        assert "TensorRT 8.5.1 on both sides" in sentence
        assert "rebuild noise or the machine" in sentence
        assert "1.107x" in sentence

    def test_a_gain_is_told_as_a_loss_is(self) -> None:
        """C03 c: faster is a change too."""
        found = said(run(ONE, "8.5.0"), run({FP8: {"latency": 25.0}}, "8.5.1"))
        assert "went from 28 ms to 25 ms (0.8929x)" in only(found, "likely cause")

    def test_without_an_upgrade_what_did_change_is_named(self) -> None:
        """C03 b: a driver that changed is named, and the first to put back where there are several."""
        here = run({FP8: {"latency": 31.0}}, environment=ENVIRONMENT | {"driver": "580.65"})
        assert "what changed is driver 570.86 to 580.65" in only(said(run(ONE), here), "without an upgrade")
        both = run({FP8: {"latency": 31.0}}, environment=ENVIRONMENT | {"driver": "580.65", "torch": "2.15.0"})
        assert only(said(run(ONE), both), "undo them one at a time, first driver 570.86 to 580.65.")

    def test_several_changes_are_not_told_apart(self) -> None:
        """The run that would tell them apart is proposed: the old engine with all else new."""
        here = run({FP8: {"latency": 31.0}}, "11.5", environment=ENVIRONMENT | {"driver": "580.65", "torch": "2.15.0"})
        found = said(run(ONE), here)
        assert "TensorRT 11.4 to 11.5, driver 570.86 to 580.65 and PyTorch 2.14.1 to 2.15.0 changed at once" in only(
            found, "cannot be told apart"
        )
        assert only(found, "run TensorRT 11.4 with all else as it is now")
        assert none_of(found, "likely cause")

    def test_many_changes_are_counted(self) -> None:
        """A new environment throughout is three names and a number."""
        other = {**ENVIRONMENT, "driver": "1", "torch": "1", "python": "1", "machine": "1", "cuda": "1"}
        assert "and 3 more changed at once" in only(
            said(
                run(ONE, environment=ENVIRONMENT | {"cuda": "0"}),
                run({FP8: {"latency": 31.0}}, "11.5", environment=other),
            ),
            "told apart",
        )

    def test_packages_that_act_through_hashes_are_cleared(self) -> None:
        """The same graph clears what makes graphs, and a time what computes the reference."""
        here = run({FP8: {"latency": 31.0}}, "11.5", environment=ENVIRONMENT | {"nvidia-modelopt": "0.48", "timm": "1"})
        found = said(run(ONE), here)
        assert only(found, "likely cause")
        assert "ModelOpt 0.47.0 to 0.48 and timm not there to 1" in only(found, "Cleared")

    def test_an_engine_that_did_not_run_is_no_suspect(self) -> None:
        """ONNX Runtime beside TensorRT computes nothing here."""
        here = run({FP8: {"latency": 31.0}}, "11.5", environment=ENVIRONMENT | {"onnxruntime": "1.32.0"})
        assert none_of(said(run(ONE), here), "ONNX Runtime")

    def test_another_gpu_is_a_change_like_any(self) -> None:
        """Two GPUs compared at one version: the device is what changed."""
        found = said(run(ONE), run({FP8: {"latency": 25.0}}, device="NVIDIA B300"))
        assert only(found, "what changed is device NVIDIA B200 to NVIDIA B300")

    def test_the_engine_is_called_by_its_name(self) -> None:
        """On a CPU the engine in question is ONNX Runtime, and no control is asked for."""
        before = run({FP8: {"kl_mean": 0.03}}, "1.30.0", engine="onnxruntime", device="cpu", environment={})
        here = run({FP8: {"kl_mean": 0.05}}, "1.31.1", engine="onnxruntime", device="cpu", environment={})
        found = said(before, here)
        assert only(found, "ONNX Runtime 1.30.0 to 1.31.1 is the only recorded change")
        assert none_of(found, "TensorRT", "control")


class TestLatencies:
    def test_one_factor_is_the_machine(self) -> None:
        """Every variant 10% slower, give or take half a percent: a clock, and the upgrade is not called likely."""
        here = run(latencies(lambda case: 1.10 + 0.005 * case.endswith("fp8")), "11.5")
        found = said(run(latencies(lambda _: 1.0)), here)
        assert found[0].startswith(f"All {len(GRID)} latencies shifted by one factor, 1.1x to 1.105x")
        assert "see above" in only(found, "TensorRT 11.4 to 11.5")

    def test_everything_faster_with_the_same_ratio(self) -> None:
        """C05 d: all 20% faster and the ratio unmoved is one factor, and the ratio says so."""
        group = ("mnasnet_100-b1-fp16", "mnasnet_100-b1-fp8")
        before = {group[0]: {"latency": 1.0}, group[1]: {"latency": 1.18, "latency_ratio": 1.18}}
        after = {group[0]: {"latency": 0.8}, group[1]: {"latency": 0.944, "latency_ratio": 1.18}}
        sentence = said(run(before), run(after))[0]
        assert "one factor, 0.8x" in sentence
        assert "latency_ratio held" in sentence

    def test_builds_that_differ_still_share_a_factor(self) -> None:
        """Factors 4% apart are one where the recorded builds differ as much, and are not where they do not."""
        here = run(latencies(lambda case: 1.10 + 0.04 * case.endswith("fp8")))
        spreads = {(case, "latency"): (0.73, 0.77) for case in GRID}
        builds = run(latencies(lambda _: 1.0), spreads=spreads, builds=3)
        assert only(said(builds, here), "by one factor, 1.1x to 1.14x")
        assert only(said(run(latencies(lambda _: 1.0)), here), "two causes")

    @pytest.mark.parametrize(
        ("shifts", "named", "points"),
        [
            (lambda case: case.endswith("-fp8"), "all 7 fp8 cases", "TensorRT's kernels for fp8 rather"),
            (lambda case: "-fp8" in case, "all 14 fp8* cases", "TensorRT's kernels for fp8* rather"),
            (
                lambda case: "large" in case and case.endswith("-fp8"),
                "all 3 large fp8 cases",
                "kernels for large fp8 rather",
            ),
            (lambda case: case.startswith("large"), "all 14 large cases", "kernels for large, or a power limit"),
            (lambda case: "-b8-" in case, "all 8 batch 8 cases", "kernels for batch 8, or a power limit"),
            (lambda case: "-128-" in case, "all 4 base-128-b1 cases", "kernels for base-128-b1, or a power limit"),
            (lambda case: "-256-" in case, "all 8 window 256 cases", "kernels for window 256, or a power limit"),
        ],
    )
    def test_a_slice_that_shifted_alone(self, shifts: Callable[[str], bool], named: str, points: str) -> None:
        """One variant, model, window or batch that moved while the others stood still is named as that."""
        found = said(run(latencies(lambda _: 1.0)), run(latencies(lambda case: 1.2 if shifts(case) else 1.004)))
        sentence = only(found, "the others did not")
        assert f"Of {len(GRID)} latencies only those of" in sentence
        assert named in sentence
        assert points in sentence
        assert "1.2x" in sentence

    @pytest.mark.parametrize(
        ("odd", "named"),
        [
            ([FP8], f"of {FP8} shifted"),
            (GRID[:4:3], f"of {GRID[3]} and {GRID[0]} shifted"),
            (GRID[::12], f"{GRID[12]}, {GRID[0]} and {GRID[24]} shifted"),
            (GRID[::5], f"of {len(GRID[::5])} of {len(GRID)} cases (one is base-"),
            (GRID[1:], f"of all {len(GRID)} cases but {GRID[0]} shifted"),
            ([case for case in GRID if not case.endswith("fp32")], f"of all {len(GRID)} cases but the 7 fp32 cases"),
        ],
    )
    def test_cases_without_anything_in_common(self, odd: list[str], named: str) -> None:
        """Few are listed, of many one is named, and where nearly all moved, those that did not."""
        found = said(run(latencies(lambda _: 1.0)), run(latencies(lambda case: 1.2 if case in odd else 1.0)))
        assert named in only(found, "would have moved all")

    def test_most_by_one_factor_and_some_by_another(self) -> None:
        """A slower machine and slower kernels at once are told as two causes."""
        here = run(latencies(lambda case: 1.3 if case.endswith("-fp8") else 1.1))
        sentence = only(said(run(latencies(lambda _: 1.0)), here), "two causes")
        assert "all 7 fp8 cases by another (1.3x)" in sentence
        assert "one factor, 1.1x" in sentence

    def test_no_one_factor(self) -> None:
        """All moved, each by its own: no clock does that."""
        here = run(latencies(lambda case: 1.1 + 0.05 * GRID.index(case)))
        assert only(said(run(latencies(lambda _: 1.0)), here), "not by one factor")

    def test_a_clock_that_was_another_one_has_a_part(self) -> None:
        """The recorded SM clocks of a moved group are compared; a few per cent, or an unknown one, say nothing."""

        def timed_at(clock: str, latency: float) -> Measured:
            values = {FP8: {"latency": latency}, GRID[0]: {"latency": 1.0}}
            return run(values, f"11.{clock[0]}", telemetry={"base-512-b1": {"SM clock": clock}})

        found = said(timed_at("1980 MHz", 1.0), timed_at("2 to 1755 MHz", 1.1))
        assert "was 1980 MHz, and is 2 to 1755 MHz here" in only(found, "SM clock")
        assert "see above" in only(found, "TensorRT 11.1 to 11.2")
        for clock in ("1930 MHz", "unknown"):
            assert none_of(said(timed_at("1980 MHz", 1.0), timed_at(clock, 1.1)), "SM clock")

    def test_one_variant_alone_says_nothing_of_the_machine(self) -> None:
        """With one case or one variant timed, a machine and kernels look the same."""
        assert only(said(run(ONE), run({FP8: {"latency": 31.0}})), "Only fp8 was timed")
        cases = [case for case in GRID if case.endswith("-fp8")]
        found = said(run(latencies(lambda _: 1.0, cases)), run(latencies(lambda _: 1.1, cases)))
        assert only(found, "Only fp8 was timed")

    def test_quality_is_not_explained_by_times(self) -> None:
        """Latencies within tolerance are not spoken of where none moved."""
        before = {FP8: {"latency": 1.0, "kl_mean": 0.03}, GRID[0]: {"latency": 1.0}}
        here = {FP8: {"latency": 1.02, "kl_mean": 0.05}, GRID[0]: {"latency": 1.02}}
        assert none_of(said(run(before), run(here)), "latenc")

    def test_a_figure_that_is_not_sound_does_not_count(self) -> None:
        """C18: a throttled group's times, invalid, are left out of every count."""
        before, here = run(latencies(lambda _: 1.0)), run(latencies(lambda case: 9.9 if case == GRID[0] else 1.1))
        found = [
            replace(each, outcome=INVALID) if each.case == GRID[0] else each for each in held_against(before, here)
        ]
        assert only(causes(before, here, found), f"All {len(GRID) - 1} latencies shifted by one factor")

    def test_a_noisy_machine_comes_first(self) -> None:
        """One engine that differs from itself is no engine's doing, and its verdict, which no record has, says so."""
        before, here = run(latencies(lambda _: 1.0)), run(latencies(lambda _: 1.1))
        noisy = finding(GRID[0], SAME_ENGINE, INVALID, claim="fnet/same-engine-twice", measured=1.05)
        noisy = replace(noisy, limits=Limits(0.995, 1.005, "made up"))
        sentence, *_ = causes(before, here, [*held_against(before, here), noisy])
        assert sentence.startswith("One engine timed twice differs from itself")
        assert sentence.endswith(f"1.05x in the group of {GRID[0]}.")
        throttled = replace(noisy, measured=1.0)
        assert none_of(causes(before, here, [*held_against(before, here), throttled]), "timed twice")
        assert only(causes(before, before, [*held_against(before, before), noisy]), "timed twice")


class TestControl:
    BEFORE = run(latencies(lambda _: 1.0))
    HERE = run(latencies(lambda case: 1.2 if case.endswith("-fp8") else 1.0), "11.5")

    def test_absent_says_how_to_get_it(self) -> None:
        """The command that makes a control is in the sentence."""
        sentence = only(said(self.BEFORE, self.HERE), "No control")
        assert "--engine onnxruntime --report DIR" in sentence
        assert "--control DIR/verdicts.json" in sentence

    def test_held_points_at_the_engine(self) -> None:
        """The control's cases and both factors are named, and the driver that changed with it is cleared."""
        here = replace(self.HERE, environment=ENVIRONMENT | {"driver": "580.65"})
        control = controlled(dict.fromkeys(GRID, (2.0, 2.01)), environment=here.environment)
        found = said(self.BEFORE, here, control)
        sentence = only(found, "The control held")
        assert "all 7 fp8 cases: ONNX Runtime 1.31.1 1.005x, TensorRT 1.2x" in sentence
        assert "points at TensorRT" in sentence
        assert "likely cause" in only(found, "the only recorded change")
        assert none_of(found, "No control", "told apart")

    def test_moved_along_points_at_the_machine(self) -> None:
        """About the same factor under both engines: the upgrade is not called likely."""
        found = said(self.BEFORE, self.HERE, controlled(dict.fromkeys(GRID, (2.0, 2.36))))
        assert "the machine or the driver rather than TensorRT" in only(found, "The control moved with it")
        assert "see above" in only(found, "the only recorded change")

    @pytest.mark.parametrize("theirs", [2.14, 1.6])
    def test_another_factor_explains_a_part(self, theirs: float) -> None:
        """A control that moved less, or the other way, settles nothing."""
        found = said(self.BEFORE, self.HERE, controlled(dict.fromkeys(GRID, (2.0, theirs))))
        assert "rather than" not in only(found, "explains a part at most")

    def test_a_uniform_shift_under_a_control_that_held_is_the_engines(self) -> None:
        """One factor alone would be a clock's, but a clock moves the control."""
        here = run(latencies(lambda _: 1.1), "11.5")
        found = said(self.BEFORE, here, controlled(dict.fromkeys(GRID, (2.0, 2.0))))
        assert "would have moved the control" in only(found, "by one factor")
        assert only(found, "likely cause")

    def test_quality_that_moved_along_is_shared(self) -> None:
        """Two engines that leave PyTorch alike share a graph and a reference."""
        before, here = run({FP8: {"kl_mean": 0.03}}), run({FP8: {"kl_mean": 0.05}}, "11.5")
        found = said(before, here, controlled({FP8: (0.03, 0.049)}, "kl_mean"))
        assert "PyTorch's reference" in only(found, "The control moved with it")

    def test_from_zero_the_direction_counts(self) -> None:
        """C14: a share that was zero has no factor; up under both is along, and nothing divides by it."""
        before, here = run({FP8: {"nonfinite_share": 0.0}}), run({FP8: {"nonfinite_share": 0.5}}, "11.5")
        assert only(said(before, here, controlled({FP8: (0.0, 0.4)}, "nonfinite_share")), "The control moved with it")
        assert only(said(before, here, controlled({FP8: (0.0, 0.0)}, "nonfinite_share")), "The control held")

    @pytest.mark.parametrize("outcome", [INVALID, Outcome.INCONCLUSIVE])
    def test_what_it_did_not_measure_soundly_is_no_witness(self, outcome: Outcome) -> None:
        """A throttled control, or one of other cases, vouches for nothing."""
        control = controlled(dict.fromkeys(GRID, (2.0, 2.0)))
        control = replace(control, verdicts=[replace(each, outcome=outcome) for each in control.verdicts])
        sentence = only(said(self.BEFORE, self.HERE, control), "measured nothing of what moved")
        assert "record the control first: the same mark with --engine onnxruntime --record" in sentence

    @pytest.mark.parametrize(
        ("basis", "why"),
        [
            ({"version": "1.30.0"}, "changed as well, from 1.30.0 to 1.31.1"),
            ({"environment": {"driver": "560.1"}}, "its baseline was taken with driver 560.1"),
        ],
    )
    def test_a_control_that_changed_itself_cannot_vouch(self, basis: Mapping[str, Any], why: str) -> None:
        """A control has to have stood still but for the machine, from the same driver on."""
        found = said(self.BEFORE, self.HERE, controlled(dict.fromkeys(GRID, (2.0, 2.4)), basis=basis))
        assert why in only(found, "cannot vouch")
        assert none_of(found, "moved with it")

    @pytest.mark.parametrize(
        ("other", "words"),
        [
            ({"engine": "tensorrt"}, "the engine in question"),
            ({"device": "NVIDIA H200"}, "on NVIDIA H200, and this one is on NVIDIA B200"),
            ({"environment": {"driver": "560.1"}}, "with driver 560.1, and this one has 570.86"),
            ({"environment": {}}, "with driver not there"),
        ],
    )
    def test_a_foreign_control_is_refused(self, other: Mapping[str, Any], words: str) -> None:
        """One of another device, driver or of this engine says nothing, moved or not."""
        for here in (self.HERE, self.BEFORE):
            with one_line(InputError, "--control: ", words):
                said(self.BEFORE, here, controlled({}, **other))


class TestGraphsAndQuality:
    BEFORE = run({case: {"kl_mean": 0.03, "latency": 1.0} for case in GRID})

    def here(self, **other: Any) -> Measured:
        moved = {case: {"kl_mean": 0.045 if case.endswith("-fp8") else 0.03, "latency": 1.0} for case in GRID}
        return run(moved, "11.5", **other)

    def test_the_same_graph_computes_otherwise(self) -> None:
        """Equal graph, weights and inputs leave the engine."""
        sentence = only(said(self.BEFORE, self.here()), "computes otherwise")
        assert sentence.startswith(
            "On the same graph, weights and inputs kl_mean of all 7 fp8 cases went from 0.03 nats to 0.045 nats: "
        )

    def test_or_the_reference_does(self) -> None:
        """Another PyTorch may have moved the other side of the comparison."""
        sentence = only(said(self.BEFORE, self.here(environment=ENVIRONMENT | {"torch": "2.15.0"})), "otherwise")
        assert "or the reference does (PyTorch 2.14.1 to 2.15.0)" in sentence

    def test_another_graph_comes_first_with_what_makes_graphs(self) -> None:
        """A changed hash is the first suspect, its makers are named, and the engine is not called likely."""
        graphs = {case: ("d" if case.endswith("-fp8") else "c") * 64 for case in GRID}
        found = said(self.BEFORE, self.here(graphs=graphs, environment=ENVIRONMENT | {"nvidia-modelopt": "0.48.0"}))
        assert found[0] == (
            "The graph is another one, so look there first: all 7 fp8 cases (ModelOpt 0.47.0 to 0.48.0)."
        )
        assert "the graphs changed at once" in only(found, "told apart")
        assert none_of(found, "computes otherwise", "likely cause", "Cleared")

    def test_another_graph_without_another_maker_is_the_suites(self) -> None:
        """Where no package changed, the code that builds graphs did."""
        found = said(self.BEFORE, self.here(graphs=dict.fromkeys(GRID, "d" * 64)))
        assert "the suite's code did" in found[0]

    def test_a_slower_slice_on_another_graph_is_the_graphs(self) -> None:
        """Kernels are not blamed for what they were given."""
        here = run(latencies(lambda case: 1.2 if case.endswith("-fp8") else 1.0), graphs=dict.fromkeys(GRID, "d" * 64))
        assert "points at their graphs" in only(said(run(latencies(lambda _: 1.0)), here), "the others did not")

    def test_changed_inputs_are_no_regression(self) -> None:
        """C32: other weights, rows or preprocessing are said to be that, and nothing else is said."""
        other = Inputs({"base": Origin("hub", "f" * 64)}, INPUTS.encoded)
        (sentence,) = said(self.BEFORE, self.here(inputs=other))
        assert sentence.startswith("Input changed, so nothing here is a regression of TensorRT: checkpoint 'base'")

    @pytest.mark.parametrize("figure", ["dft_abs_max", "fp8_gemms"])
    def test_figures_without_an_engine_blame_none(self, figure: str) -> None:
        """What the graph or PyTorch's model alone makes is no engine's doing, whatever was upgraded."""
        (sentence,) = said(run({FP8: {figure: 24.0}}), run({FP8: {figure: 12.0}}, "11.5"))
        assert sentence == (
            f"No engine takes part in {figure}, so it is the graph or PyTorch's model: {figure} of {FP8} went from "
            "24 to 12 (0.5x)."
        )


class TestBuilds:
    def test_what_moved_and_was_built_differently(self) -> None:
        """The counts of a moved case's engine stand beside it, those of other cases do not."""
        before = run(latencies(lambda _: 1.0), canaries={case: {"fp8_gemms": 24, "layers": 412} for case in GRID})
        counts = {case: {"fp8_gemms": 12 if case == FP8 else 24, "layers": 408} for case in GRID}
        here = run(latencies(lambda case: 1.2 if case == FP8 else 1.0), "11.5", canaries=counts)
        sentence = only(said(before, here), "built differently")
        assert (
            sentence == f"Of what moved, these are built differently: {FP8} (fp8_gemms 24 to 12 and layers 412 to 408)."
        )

    def test_recorded_builds_that_do_not_explain_it(self) -> None:
        """C03 d: the spread of the baseline's builds is named beside the value."""
        before = run({FP8: {"latency": 0.75}}, spreads={(FP8, "latency"): (0.748, 0.755)}, builds=3)
        sentence = only(said(before, run({FP8: {"latency": 0.81}})), "Building anew")
        assert f"3 builds of {FP8} gave latency 0.748 to 0.755 ms, this run 0.81 ms" in sentence

    def test_one_build_leaves_the_spread_unknown(self) -> None:
        """C25: no spread is not a spread of zero."""
        assert only(said(run(ONE), run({FP8: {"latency": 31.0}})), "not known: the baseline holds one build")

    def test_within_the_recorded_builds_nothing_is_said(self) -> None:
        """A claim that flipped inside what the builds gave is not said to be beyond them."""
        before = run({FP8: {"speedup": 1.0}}, spreads={(FP8, "speedup"): (0.9, 1.1)}, builds=3)
        here = run({FP8: {"speedup": 1.08}})
        found = causes(before, here, [finding(FP8, "speedup", FLIPPED, claim="fnet/x", baseline=None)])
        assert none_of(found, "Building anew")


class TestOddValues:
    @pytest.mark.parametrize("was", [0.0, nan, inf, -1.0])
    @pytest.mark.parametrize("now", [0.0, nan, inf, -1.0, 1.0])
    @pytest.mark.parametrize("figure", ["latency", "kl_mean", "plan_change"])
    def test_no_value_ends_in_an_error(self, figure: str, was: float, now: float) -> None:
        """C14, C23: zero, NaN, infinite and negative values on either side, with a control of the same."""
        before, here = run({FP8: {figure: was}, GRID[0]: {"latency": 1.0}}), run({FP8: {figure: now}})
        found = [finding(FP8, figure, MOVED, measured=now, expected=was)]
        control = controlled({})
        control = replace(control, verdicts=found)
        for witness in (None, control):
            sentences = causes(before, here, found, witness)
            assert only(sentences, "without an upgrade")

    def test_ids_of_another_form(self) -> None:
        """C21, C25: an old record's ids, which say nothing of a variant, are only names."""
        cases = ["fnet-fp8", "a/b[c]", "Größe"]
        found = said(run(latencies(lambda _: 1.0, cases)), run(latencies(lambda case: 1 + len(case) / 10, cases)))
        assert only(found, "All 3 latencies")

    def test_a_part_of_the_cases_is_compared_as_a_part(self) -> None:
        """Cases and figures that one side alone has count on neither."""
        part = [case for case in GRID if case.startswith("base-128")]
        found = said(run(latencies(lambda _: 1.0)), run(latencies(lambda _: 1.1, part)))
        assert only(found, "All 4 latencies shifted by one factor")

    def test_hundreds_of_cases_are_fast(self) -> None:
        """A grid of 600 cases takes well under a second."""
        cases = [
            f"m{m}-{w}-b{b}-{v}" for m in range(10) for w in range(10) for b in (1, 8) for v in ("fp32", "fp16", "fp8")
        ]
        before = run({case: {"latency": 1.0, "kl_mean": 1.0} for case in cases})
        here = run({case: {"latency": 1.0 + (cases.index(case) % 7) / 10, "kl_mean": 2.0} for case in cases}, "11.5")
        started = time.perf_counter()
        said(before, here, controlled(dict.fromkeys(cases, (1.0, 1.0))))
        assert time.perf_counter() - started < 1


def test_every_name_is_a_figure_or_package_of_the_suite() -> None:
    """A figure or package that is renamed elsewhere cannot silently fall out of its kind here."""
    assert (SPEED | BUILT | WITHOUT_ENGINE | {SAME_ENGINE}) <= UNITS.keys()
    assert {*ENGINES, *GRAPH_MAKERS, *HASHED_ONLY, *REFERENCE, *REFERENCE_ONLY} <= {*PACKAGES}
