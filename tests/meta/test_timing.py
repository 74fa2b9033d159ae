"""The order of rounds, what is refused before and after timing, and what interleaving is for, on simulated GPUs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from fixtures import timing
from fixtures.errors import EngineError, InputError
from fixtures.telemetry import Sample, Summary
from fixtures.timing import AGAIN, CALLS, ROUNDS, SAME_ENGINE_BAND, GroupTiming, measure, order, time_group
from fixtures.verdicts import Outcome, band, judge, noise_floor, paired_ratio_interval

NAN, INF = math.nan, math.inf
FEEDS = {"ids": torch.tensor([[5, 7, 7, 2]])}


class SimulatedClock:
    """A GPU as time: an engine spends milliseconds on it, `speed` of now (ms) times as many, with Gaussian noise."""

    timer = "simulated"

    def __init__(self, speed: Callable[[float], float] | None = None, noise: float = 0.0, seed: int = 0) -> None:
        self.now_ms = 0.0
        self._speed, self._noise, self._random = speed or (lambda _: 1.0), noise, np.random.default_rng(seed)
        self._spent_ms = 0.0

    def spend(self, ms: float) -> None:
        self._spent_ms += ms

    def device_ms(self, call: Callable[[], None], calls: int, _: object) -> float:
        self._spent_ms = 0.0
        call()  # once is enough to know what it costs
        noise = 1 + self._noise * self._random.standard_normal()
        ms = calls * self._spent_ms * self._speed(self.now_ms) * noise
        self.now_ms += ms
        return ms

    def synchronize(self) -> None:
        pass


@dataclass
class Engine:
    """An engine that doubles its input and takes `ms` a call; `replay_ms` in a graph, if that differs."""

    clock: SimulatedClock
    ms: float = 1.0
    replay_ms: float | None = None
    stream: object = None
    outputs: dict[str, torch.Tensor] = field(default_factory=lambda: {"features": torch.zeros(1, 4)})
    launches: int = 0

    def bind(self, feeds: Mapping[str, torch.Tensor]) -> None:
        self.input = feeds["ids"].clone()

    def compute(self) -> torch.Tensor:
        return self.input * 2.0

    def launch(self) -> None:
        self.launches += 1
        self.outputs["features"].copy_(self.compute())
        self.clock.spend(self.ms)

    def replay(self) -> None:
        self.outputs["features"].copy_(self.compute())
        self.clock.spend(self.ms if self.replay_ms is None else self.replay_ms)

    def capture(self) -> Callable[[], None]:
        return self.replay


def timed(engines: Mapping[str, Engine], feeds: Mapping[str, torch.Tensor] = FEEDS, **options: float) -> GroupTiming:
    """Times these engines on their clock; no call of them takes less than 0.01 ms."""
    clock = next(iter(engines.values())).clock
    floors_ms = dict.fromkeys(engines, options.pop("floor_ms", 0.01))
    return time_group(engines, feeds, clock, floors_ms=floors_ms, gpu_uuid="", **options)


def group(clock: SimulatedClock, **ms: float) -> GroupTiming:
    """Times engines that take these milliseconds a call."""
    return timed({name: Engine(clock, cost) for name, cost in ms.items()})


@pytest.fixture(autouse=True)
def machine_state(monkeypatch) -> list[Sample]:
    """What telemetry reads, to be filled in; nothing is known unless it is."""
    samples: list[Sample] = []

    class Monitor:
        unknown = ""

        def __init__(self, _: str) -> None:
            self.samples = samples

        def __enter__(self):
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def summary(self) -> Summary:
            return Summary(len(samples), None, None, None, None, None, None)

    monkeypatch.setattr(timing, "Monitor", Monitor)
    return samples


# ------------------------------------------------------------------------------------------ order


@pytest.mark.parametrize("n", range(1, 8))
def test_order_visits_all_and_balances_places(n):
    """Every round has all; over 2 n rounds each has each place twice, and every two rounds share one mean place."""
    names = [f"v{index}" for index in range(n)]
    turns = order(names, 2 * n)
    assert all(sorted(turn) == names for turn in turns)
    for name in names:
        places = [turn.index(name) for turn in turns]
        assert Counter(places) == dict.fromkeys(range(n), 2)
        assert all(first + second == n - 1 for first, second in zip(places[::2], places[1::2], strict=True))


def test_order_of_nine_rounds_rotates_and_reverses():
    """As documented: rotated, and every second round in the other direction; no pair is in one order throughout."""
    turns = order(["a", "b", "c"], ROUNDS)
    assert turns[:4] == [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["a", "c", "b"]]
    for first, second in (("a", "b"), ("b", "c"), ("a", "c")):
        assert sum(turn.index(first) < turn.index(second) for turn in turns) in (4, 5)


# ------------------------------------------------------------------------------------------ a sound group


def test_sound_group_has_everything_on_record():
    """C14, C16, C17: rounds of each engine and of the first again, plain times, warm-up, calls, input, timer."""
    clock = SimulatedClock(noise=0.0004)
    found = group(clock, fp16=0.75, fp8=0.71)
    assert list(found.rounds_ms) == ["fp16", "fp8", "fp16" + AGAIN]
    assert {len(times) for times in found.rounds_ms.values()} == {ROUNDS}
    assert found.median_ms("fp16") == pytest.approx(0.75, rel=1e-3)
    assert found.plain_ms == pytest.approx({"fp16": 0.75, "fp8": 0.71}, rel=2e-3)
    assert (found.warmup_calls, found.calls_per_round) == (2 * (CALLS + 1) + ROUNDS, CALLS)
    assert (found.timer, len(found.input_sha256)) == ("simulated", 64)
    assert (found.problems, found.notes, found.attempts) == ((), (), 1)


def test_input_hash_is_of_the_values():
    """C17: one token changed is another input."""
    engines = {"fp16": Engine(SimulatedClock())}
    feeds = [FEEDS, {"ids": FEEDS["ids"].clone()}, {"ids": torch.tensor([[5, 7, 7, 3]])}]
    same, copy, other = (timed(engines, each) for each in feeds)
    assert same.input_sha256 == copy.input_sha256 != other.input_sha256


def test_first_calls_are_outside_the_figures():
    """C14: two rounds a hundred times slower, before the GPU is warm, leave no trace."""
    cold = iter([100.0] * 2 * 3)  # two rounds of two engines and the first again
    found = group(SimulatedClock(lambda _: next(cold, 1.0)), fp16=0.75, fp8=0.71)
    assert found.problems == ()
    assert found.rounds_ms["fp16"] == pytest.approx([0.75] * ROUNDS)
    assert found.plain_ms["fp16"] == pytest.approx(0.75)


class LeadInClock(SimulatedClock):
    """A timer that must find its engine at work."""

    def device_ms(self, call: Callable[[], None], calls: int, stream: object) -> float:
        assert self._spent_ms > 0
        ms = super().device_ms(call, calls, stream)
        self._spent_ms = 0
        return ms


def test_gpu_is_at_work_when_the_clock_starts():
    """C14: a call that is not timed goes before each block, so the gap before the first launch is in no figure."""
    assert group(LeadInClock(), fp16=0.75, fp8=0.71).problems == ()


def test_ratio_pairs_rounds_and_survives_a_zero():
    """C14: round by round, and against a zero not a division error but no number."""
    found = replace(group(SimulatedClock(), fp16=1.0), rounds_ms={"a": (2.0, 4.0, 3.0), "b": (1.0, 2.0, 0.0)})
    assert found.ratio("a", "b").tolist() == [2.0, 2.0, INF]
    value, interval = paired_ratio_interval([*found.ratio("a", "b"), *[2.0] * 6])
    assert judge(value, interval, band(2.0, 0.1, 0, "why"), outside=Outcome.MOVED) is Outcome.INVALID


# ------------------------------------------------------------------------------------------ what is refused at once


class RefusedCapture(Engine):
    def capture(self):
        raise EngineError("fp16: the enqueue was refused during capture")


class EmptyGraph(Engine):
    def replay(self) -> None:
        """Zero kernels: very fast, and the outputs stay as they were."""


class StaleGraph(Engine):
    """A graph that holds the input of its capture."""

    def capture(self):
        kept = self.compute()

        def replay() -> None:
            self.outputs["features"].copy_(kept)
            self.clock.spend(self.ms)

        return replay


class WrongGraph(Engine):
    def replay(self) -> None:
        super().replay()
        self.outputs["features"][0, -1] += 0.25


class PartialGraph(Engine):
    def replay(self) -> None:
        self.outputs["features"][0, :3] = self.compute()[0, :3]


class DeafEngine(Engine):
    def compute(self) -> torch.Tensor:
        return torch.ones(1, 4)


class SilentEngine(Engine):
    def launch(self) -> None:
        self.clock.spend(self.ms)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (RefusedCapture, "refused during capture"),
        (EmptyGraph, "fp8: a call wrote nothing to its output features"),
        (StaleGraph, "fp8: a replay of its CUDA graph does not follow its input"),
        (WrongGraph, "fp8: a replay of its CUDA graph does not give what a plain call"),
        (PartialGraph, "fp8: a replay of its CUDA graph does not give what a plain call"),
        (DeafEngine, "fp8: its output does not change with its input"),
        (SilentEngine, "fp8: a call wrote nothing to its output features"),
    ],
)
def test_capture_that_does_not_do_the_work_is_an_error(broken, message):
    """C16: a refused, empty or stale graph, or one that computes something else, is named and never timed; the others
    of its group are."""
    clock = SimulatedClock()
    found = timed({"fp8": broken(clock), "fp16": Engine(clock)})
    with pytest.raises(EngineError, match=message):
        found.times_ms("fp8")
    with pytest.raises(EngineError, match=message):
        found.ratio("fp8", "fp16")
    assert found.rounds_ms.keys() == {"fp16", "fp16 again"}
    assert found.median_ms("fp16") == 1.0


def test_group_without_an_engine_to_time_is_an_error():
    """C16: nothing is timed where no engine can be captured."""
    clock = SimulatedClock()
    with pytest.raises(EngineError, match="refused during capture"):
        timed({"fp16": RefusedCapture(clock), "fp8": RefusedCapture(clock)})
    assert clock.now_ms == 0


def test_replay_may_differ_by_the_declared_tolerance():
    """C16: a replay 0.25 off an output of 14 needs a declared 2%, and gets no more than that."""
    engines = {"fp16": WrongGraph(SimulatedClock())}
    assert not timed(engines, tolerance=0.02).problems
    with pytest.raises(EngineError):
        timed(engines, tolerance=0.01)


class OverflowingEngine(Engine):
    def compute(self) -> torch.Tensor:
        return torch.full((1, 4), NAN)


def test_engine_whose_every_output_is_nan_is_timed_with_a_note():
    """An fp16 engine that overflows is timed too; its NaN is a written output, but shows no input."""
    found = timed({"fp16": OverflowingEngine(SimulatedClock())})
    assert found.problems == ()
    assert found.notes == ("fp16: no output is finite, so that its replay follows its input is unproven",)


def test_original_input_is_bound_while_the_clock_runs():
    """The other input that the check uses is gone before anything is timed."""
    engine = Engine(SimulatedClock())
    timed({"fp16": engine})
    assert torch.equal(engine.input, FEEDS["ids"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.zeros(1, 512, dtype=torch.int64), "all of its 512 values are the same"),
        (torch.full((1, 3, 8, 8), 0.5), "all of its 192 values are the same"),
        (torch.tensor([[7]]), "all of its 1 values are the same"),
        (torch.tensor([[0.1, NAN]]), "holds NaN or infinity"),
        (torch.tensor([[0.1, -INF]]), "holds NaN or infinity"),
        (torch.empty(1, 0), "all of its 0 values are the same"),
    ],
)
def test_degenerate_input_is_refused(values, message):
    """C17: zeros, one distinct value and non-finite input draw other power than real samples, and are refused."""
    with pytest.raises(InputError, match=f"pixels: {message}"):
        timed({"fp16": Engine(SimulatedClock())}, FEEDS | {"pixels": values})


# ------------------------------------------------------------------------------------------ times that cannot be


class StuckClock(SimulatedClock):
    """A timer that did not wait: always the same answer for a block of calls."""

    def __init__(self, block_ms: float) -> None:
        super().__init__()
        self.block_ms = block_ms

    def device_ms(self, *_: object) -> float:
        return self.block_ms


@pytest.mark.parametrize("block_ms", [0.0, -1.0, NAN, INF, 0.005 * CALLS])
def test_time_that_cannot_be_is_a_problem(block_ms):
    """C14: zero, negative, not finite, or 0.005 ms for kernels that sum to 1 ms: refused, with the floor."""
    found = timed({"fp16": Engine(StuckClock(block_ms))}, floor_ms=1.0)
    assert "fp16: " in found.problems[0]
    assert "cannot be (floor 1 ms)" in found.problems[0]


def test_one_round_below_the_floor_is_enough():
    """C14: eight sound rounds do not excuse the ninth."""
    assert "0.4 ms a call in 1 of 9 rounds" in timing.unsound({"fp16": [1.1] * 8 + [0.4]}, {"fp16": 1.0})[0]
    assert timing.unsound({"fp16": [1.1] * 9}, {"fp16": 1.0}) == []


def test_graph_slower_than_plain_calls_is_flagged():
    """C16: both times are kept, and a graph much slower than the plain run is said."""
    found = timed({"fp16": Engine(SimulatedClock(), 0.5, replay_ms=0.75)})
    assert (found.median_ms("fp16"), found.plain_ms["fp16"]) == (0.75, 0.5)
    assert found.notes == ("fp16: its CUDA graph is slower than plain calls, 0.75 against 0.5 ms",)


# ------------------------------------------------------------------------------------------ clocks that move


def warm_up_ms(*ms: float) -> float:
    """Simulated time before the first round of engines that take these milliseconds a call."""
    return CALLS * (2 * (sum(ms) + ms[0]) + sum(ms))


def midway_ms(*ms: float) -> float:
    """Simulated time in the middle of the rounds."""
    return warm_up_ms(*ms) + CALLS * ROUNDS * (sum(ms) + ms[0]) / 2


def one_after_the_other(clock: SimulatedClock, a_ms: float, b_ms: float) -> float:
    """The ratio that all of a's calls before all of b's would have given."""
    a, b = Engine(clock, a_ms), Engine(clock, b_ms)
    for engine in (a, b):
        engine.bind(FEEDS)
    blocks = [[clock.device_ms(engine.launch, CALLS, None) for _ in range(ROUNDS)] for engine in (a, b)]
    return float(np.median(blocks[0]) / np.median(blocks[1]))


def test_clock_step_cancels_in_interleaved_rounds_only():
    """C15 b: across a 27% clock step the true 1.05 comes from interleaved rounds, and 27% off from two halves."""
    fp16, fp8 = 0.75, 0.75 / 1.05

    def step_at(ms: float) -> Callable[[float], float]:
        return lambda now_ms: 1.0 if now_ms < ms else 0.73

    found = group(SimulatedClock(step_at(midway_ms(fp16, fp8)), noise=0.0004), fp16=fp16, fp8=fp8)
    value, interval = paired_ratio_interval(found.ratio("fp16", "fp8"))
    assert interval is not None
    assert [interval.low, value, interval.high] == pytest.approx([1.05] * 3, rel=2e-3)
    halves = one_after_the_other(SimulatedClock(step_at(ROUNDS * CALLS * fp16), noise=0.0004), fp16, fp8)
    assert halves == pytest.approx(1.05 / 0.73, rel=1e-3)
    assert any("fp16: times moved by -27" in problem for problem in found.problems)


def test_drift_cancels_in_interleaved_rounds_only():
    """C15: while the clock creeps by 27% the interleaved ratio stays within 1%, and sequential timing is off by 12%."""
    fp16, fp8 = 0.75, 0.75 / 1.05
    end_ms = 2 * midway_ms(fp16, fp8)
    found = group(SimulatedClock(lambda now_ms: 1 + 0.27 * now_ms / end_ms, noise=0.0004), fp16=fp16, fp8=fp8)
    assert np.median(found.ratio("fp16", "fp8")) == pytest.approx(1.05, rel=0.01)
    end_ms = ROUNDS * CALLS * (fp16 + fp8)
    halves = one_after_the_other(SimulatedClock(lambda now_ms: 1 + 0.27 * now_ms / end_ms), fp16, fp8)
    assert abs(halves / 1.05 - 1) > 0.1
    assert any("fp16: times moved by +" in problem for problem in found.problems)


def rounds(*spans: tuple[int, float], spread: float = 0.002, seed: int = 0) -> list[float]:
    """Rounds at these levels, (how many, ms) each, with that spread."""
    times = np.concatenate([np.full(count, ms) for count, ms in spans])
    return list(times * (1 + spread * np.random.default_rng(seed).standard_normal(times.size)))


@pytest.mark.parametrize("first", range(3, 7))
@pytest.mark.parametrize(("before_ms", "after_ms"), [(6.8, 4.95), (4.95, 6.8), (1.0, 1.05)])
def test_step_inside_a_group_is_found(first, before_ms, after_ms):
    """C15: a level that changes with three rounds or more on either side, up or down, by 5% or by 27%."""
    (problem,) = timing.instability({"fp16": rounds((first, before_ms), (ROUNDS - first, after_ms))})
    size = float(re.search(r"by (\S+)% inside", problem)[1]) / 100
    assert size == pytest.approx(after_ms / before_ms - 1, abs=0.005)


def test_step_is_found_beside_an_outlier():
    """C15: one round at ten times the level neither hides a step nor makes one."""
    stepped = rounds((5, 6.8), (4, 4.95))
    for index in range(ROUNDS):
        assert timing.instability({"fp16": [ms * 10 if n == index else ms for n, ms in enumerate(stepped)]})
        assert not timing.instability(
            {"fp16": [ms * 10 if n == index else ms for n, ms in enumerate(rounds((9, 2.0)))]}
        )


@pytest.mark.parametrize("spread", [0.0005, 0.002, 0.01])
def test_noise_is_no_step(spread):
    """A level that holds is stable at a GPU's spread and at five times that: at most 1 of 500 groups is called."""
    called = [timing.instability({"fp16": rounds((9, 1.0), spread=spread, seed=seed)}) for seed in range(500)]
    assert sum(map(bool, called)) <= 1


def test_too_few_rounds_have_no_level_to_leave():
    """C25: five rounds cannot show a step; that they say too little is the interval's to tell."""
    assert timing.instability({"fp16": [1.0, 1.0, 1.0, 2.0, 2.0]}) == []


def test_outliers_are_reported_and_do_not_move_the_figure():
    """C15 a: two calls of 70 ms among 2.0 ms, in two rounds: the median holds still and the note names the rounds."""
    times = [2.0] * 9
    times[1] = times[5] = 2.0 + 68.0 / CALLS
    assert np.median(times) == 2.0
    assert timing.instability({"fp16": times}) == []
    assert timing.outliers({"fp16": times, "fp8": [1.0] * 9}) == [
        "fp16: outliers beside a median of 2 ms: 3.36 in round 2, 3.36 in round 6"
    ]


def verdict(ratios: Sequence[float], relative: float, noise: float) -> Outcome:
    """What these paired ratios are against 1 and a band of that share around it."""
    value, interval = paired_ratio_interval(ratios)
    return judge(value, interval, band(1.0, relative, 0, "equally fast"), outside=Outcome.MOVED, noise=noise)


def noise_of(found: GroupTiming) -> float:
    same = paired_ratio_interval(found.aa())[1]
    assert same is not None
    return noise_floor(same)


def test_what_noise_hides_is_not_called():
    """C15 c: fp16 0.621, FP8 0.651 and INT8 0.626 ms with 2% between rounds: FP8 is slower, INT8 is not told apart."""
    clock = SimulatedClock(noise=0.007)  # some 2% from the fastest round to the slowest
    found = group(clock, fp16=0.621, fp8=0.651, int8=0.626)
    assert found.problems == ()
    assert verdict(found.ratio("fp8", "fp16"), 0.02, noise_of(found)) is Outcome.MOVED
    assert verdict(found.ratio("int8", "fp16"), 0.02, noise_of(found)) is not Outcome.MOVED


# ------------------------------------------------------------------------------------------ A/A and a planted 1%


@pytest.fixture(scope="module")
def repeats() -> list[GroupTiming]:
    """200 groups of an engine and one that is 1% slower, with 0.04% between an engine's rounds."""
    return [group(SimulatedClock(noise=0.0004, seed=seed), fp16=0.750, fp8=0.7575) for seed in range(200)]


def test_same_engine_twice_is_never_called_moved(repeats):
    """C15: over 200 groups the A/A ratio holds in a band of 0.5%, which is wider than the noise it shows."""
    outcomes = [verdict(found.aa(), SAME_ENGINE_BAND, noise_of(found)) for found in repeats]
    assert Counter(outcomes) == {Outcome.HOLDS: 200}
    assert np.std([np.median(found.aa()) for found in repeats]) < 0.001


def test_planted_slow_down_of_one_percent_is_called_moved(repeats):
    """C15: in the same band, an engine 1% slower is called moved in at least 95% of 200 groups."""
    outcomes = [verdict(found.ratio("fp8", "fp16"), SAME_ENGINE_BAND, noise_of(found)) for found in repeats]
    assert outcomes.count(Outcome.MOVED) >= 190


def test_band_tighter_than_the_noise_is_invalid(repeats):
    """A band that A/A itself would leave says nothing."""
    assert verdict(repeats[0].aa(), noise_of(repeats[0]) / 2, noise_of(repeats[0])) is Outcome.INVALID


# ------------------------------------------------------------------------------------------ again, and not at all


def scripted(*problems: tuple[str, ...]) -> Callable[[], GroupTiming]:
    """Measurements that end with these problems, one after the other."""
    sound = group(SimulatedClock(), fp16=1.0)
    results: Iterator[GroupTiming] = iter([replace(sound, problems=each) for each in problems])
    return lambda: next(results)


@pytest.mark.parametrize(
    ("problems", "attempts", "last"),
    [
        ([()], 1, ()),
        ([("throttled",), ()], 2, ()),
        ([("a",), ("b",), ()], 3, ()),
        ([("a",), ("b",), ("c",), ()], 3, ("c",)),
    ],
)
def test_invalid_group_is_measured_again_up_to_twice(problems, attempts, last):
    """A group with problems is measured again; the third such is reported with its own problems."""
    found = measure(scripted(*problems))
    assert (found.attempts, found.problems) == (attempts, last)


def test_state_of_the_gpu_makes_the_group_invalid(machine_state):
    """C15 d: one clock sample 40% below the others, or another process, and the group has a problem."""
    busy = Sample(0.0, True, 1980, 3201, 40, 500.0, (), ())
    machine_state += [busy, replace(busy, sm_clock_mhz=1188), replace(busy, other_processes=(4711,))]
    problems = group(SimulatedClock(), fp16=1.0).problems
    assert [problem.partition(" ")[0] for problem in problems] == ["throttled:", "other"]


def test_unknown_state_is_noted_and_no_problem(monkeypatch):
    """C18: without NVML the group stands, and says what nobody watched."""
    monkeypatch.setattr(timing.Monitor, "unknown", "NVML Shared Library Not Found")
    found = group(SimulatedClock(), fp16=1.0)
    assert found.problems == ()
    assert found.notes == ("clocks, throttling and other processes unknown: NVML Shared Library Not Found",)


@pytest.mark.parametrize(
    ("workers", "has_benchmark", "benchmark_disabled", "reason"),
    [
        (0, True, False, None),
        (2, True, False, "pytest-xdist"),
        (1, True, True, "pytest-xdist"),
        (0, False, False, "-p no:benchmark"),
        (0, True, True, "--benchmark-disable"),
    ],
)
def test_run_that_cannot_time_says_so(workers, has_benchmark, benchmark_disabled, reason):
    """C22: -n 2, -n 1, -p no:benchmark and --benchmark-disable are "not timed"; -n 0 is timed."""
    said = timing.not_timed_reason(
        on_gpu=True, workers=workers, has_benchmark=has_benchmark, benchmark_disabled=benchmark_disabled
    )
    assert (said is None) == (reason is None)
    if reason is not None:
        assert said.startswith("not timed: ")
        assert reason in said
