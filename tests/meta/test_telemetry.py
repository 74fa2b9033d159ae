"""What the GPU's state says about a measurement, on a stand-in for NVML; only processes are real."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from threading import Event
from types import SimpleNamespace

import pynvml
import pytest

from fixtures.telemetry import REASONS, Monitor, Sample, problems

IDLE_MHZ, BUSY_MHZ, MEMORY_MHZ = 345, 1980, 3201
BITS = {name: bit for bit, name in REASONS.items()}
GPU_0, GPU_3, DIVIDED = "GPU-0000", "GPU-3333", "GPU-4444"
ME, FOREIGN = os.getpid(), os.getppid()


@dataclass
class Reading:
    """What NVML says of one GPU; `unsupported` names the queries that it refuses."""

    sm_clock_mhz: int = BUSY_MHZ
    reasons: int = 0
    processes: tuple[int, ...] = (ME,)
    mig: bool = False
    unsupported: tuple[str, ...] = ()


@dataclass
class FakeNvml:
    """An NVML with these GPUs by UUID. It can be asked by UUID only: an index would be another GPU's."""

    gpus: dict[str, Reading] = field(default_factory=dict)
    error: int | None = None
    on_sample: Callable[[int], object] = str
    samples: int = 0
    started: int = 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.error is not None:
            raise pynvml.NVMLError(self.error)
        self.started += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.started -= 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Reading:  # noqa: N802
        raise AssertionError(f"asked for GPU {index}, whatever that is")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Reading:  # noqa: N802
        if uuid not in self.gpus:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self.gpus[uuid]

    def nvmlDeviceGetMigMode(self, gpu: Reading) -> list[int]:  # noqa: N802
        return [int(gpu.mig), 0]

    def nvmlDeviceGetClockInfo(self, gpu: Reading, clock: int) -> int:  # noqa: N802
        self._asked(gpu, "clocks")
        return gpu.sm_clock_mhz if clock == pynvml.NVML_CLOCK_SM else MEMORY_MHZ

    def nvmlDeviceGetTemperature(self, gpu: Reading, _: int) -> int:  # noqa: N802
        self._asked(gpu, "temperature")
        return 41

    def nvmlDeviceGetPowerUsage(self, gpu: Reading) -> int:  # noqa: N802
        self._asked(gpu, "power")
        return 350_500

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: Reading) -> int:  # noqa: N802
        self._asked(gpu, "reasons")
        return gpu.reasons

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: Reading) -> list[SimpleNamespace]:  # noqa: N802
        self.samples += 1  # the last query of a sample
        self.on_sample(self.samples)
        self._asked(gpu, "processes")
        return [SimpleNamespace(pid=pid) for pid in gpu.processes]

    def _asked(self, gpu: Reading, what: str) -> None:
        if not self.started:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        if what in gpu.unsupported:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.fixture
def watched(monkeypatch) -> Callable[..., Monitor]:
    """Monitors a group that lasts for three samples on a machine with that NVML; gives the monitor, when it is done."""

    def watch(nvml: FakeNvml, uuid: str) -> Monitor:
        for name in filter(lambda name: name.startswith("nvml"), dir(nvml)):
            monkeypatch.setattr(pynvml, name, getattr(nvml, name))
        enough = Event()
        nvml.on_sample = lambda count: enough.set() if count == 4 else None
        with Monitor(uuid, period_s=0.001) as monitor:
            assert monitor.unknown or enough.wait(5)
        assert nvml.started == 0
        return monitor

    return watch


# ------------------------------------------------------------------------------------------ which GPU is read


def test_gpu_is_found_by_uuid(watched, monkeypatch):
    """C18: under CUDA_VISIBLE_DEVICES=3 the clocks, and the throttling, are GPU 3's and not idle GPU 0's."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    gpus = {GPU_0: Reading(IDLE_MHZ, BITS["gpu_idle"]), GPU_3: Reading(BUSY_MHZ, BITS["hw_power_brake_slowdown"])}
    monitor = watched(FakeNvml(gpus), GPU_3)
    assert {sample.sm_clock_mhz for sample in monitor.samples} == {BUSY_MHZ}
    assert "hw_power_brake_slowdown" in problems(monitor.samples)[0]
    assert problems(watched(FakeNvml(gpus), GPU_0).samples) == ()


def test_group_is_sampled_before_during_and_after(watched):
    """One sample before the load, some during it, one after it, in order of time."""
    samples = watched(FakeNvml({GPU_3: Reading()}), GPU_3).samples
    assert [sample.under_load for sample in samples] == [False, *[True] * (len(samples) - 2), False]
    assert len(samples) >= 5
    times = [sample.time_s for sample in samples]
    assert times == sorted(times)
    assert times[0] >= 0
    assert samples[1] == replace(
        samples[1],
        sm_clock_mhz=BUSY_MHZ,
        memory_clock_mhz=MEMORY_MHZ,
        temperature_c=41,
        power_w=350.5,
        throttle_reasons=(),
        other_processes=(),
    )


@pytest.mark.parametrize(
    ("nvml", "uuid", "reason"),
    [
        (FakeNvml(error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND), GPU_3, "Not Found"),
        (FakeNvml({GPU_0: Reading()}), GPU_3, f"no GPU {GPU_3}"),
        (FakeNvml({GPU_0: Reading()}), "", "no GPU without a UUID"),
        (FakeNvml({DIVIDED: Reading(mig=True)}), DIVIDED, "MIG"),
    ],
    ids=["no NVML", "no match", "no UUID", "MIG"],
)
def test_without_a_match_all_is_unknown(watched, nvml, uuid, reason):
    """C18: no NVML, no such GPU, a MIG slice: nothing is known, why is said, and no verdict is given."""
    monitor = watched(nvml, uuid)
    summary = monitor.summary()
    assert (monitor.samples, problems(monitor.samples)) == ((), ())
    assert reason in summary.unknown
    unknown = (summary.sm_clock_mhz, summary.power_w, summary.throttle_reasons, summary.other_processes)
    assert unknown == (None, None, None, None)


@pytest.mark.parametrize("refused", ["clocks", "temperature", "power", "reasons", "processes"])
def test_query_that_is_refused_is_unknown_alone(watched, refused):
    """C18: "not supported" is None, not 0 and not an error, and the rest is still read."""
    sample = watched(FakeNvml({GPU_3: Reading(unsupported=(refused,))}), GPU_3).samples[1]
    read = {
        "clocks": (sample.sm_clock_mhz, sample.memory_clock_mhz),
        "temperature": (sample.temperature_c,),
        "power": (sample.power_w,),
        "reasons": (sample.throttle_reasons,),
        "processes": (sample.other_processes,),
    }
    assert {name for name, values in read.items() if None in values} == {refused}
    assert problems([sample]) == ()


def test_all_refused_has_no_verdict_and_an_unknown_summary(watched):
    """C18: a GPU of which nothing can be read is not a cool, idle GPU at 0 MHz."""
    refused = ("clocks", "temperature", "power", "reasons", "processes")
    monitor = watched(FakeNvml({GPU_3: Reading(unsupported=refused)}), GPU_3)
    summary = monitor.summary()
    assert problems(monitor.samples) == ()
    assert summary == replace(
        summary,
        sm_clock_mhz=None,
        memory_clock_mhz=None,
        temperature_c=None,
        power_w=None,
        throttle_reasons=None,
        other_processes=None,
    )


def test_clock_of_zero_is_unknown(watched):
    """C18: a driver that answers 0 MHz for a GPU at work does not know."""
    assert watched(FakeNvml({GPU_3: Reading(sm_clock_mhz=0)}), GPU_3).samples[1].sm_clock_mhz is None


# ------------------------------------------------------------------------------------------ what counts


def load(*clocks_mhz: int | None, **fields: object) -> list[Sample]:
    """Samples under load with these SM clocks, between an idle one before and one after."""
    idle = Sample(0.0, False, IDLE_MHZ, MEMORY_MHZ, 30, 80.0, ("gpu_idle",), ())
    busy = replace(idle, under_load=True, throttle_reasons=(), **fields)
    return [idle, *(replace(busy, time_s=0.05 * n, sm_clock_mhz=mhz) for n, mhz in enumerate(clocks_mhz, 1)), idle]


def test_idle_clocks_around_the_load_do_not_count():
    """345 MHz before and after 1980 MHz is what idle means; so is an idle moment inside the load."""
    samples = load(BUSY_MHZ, BUSY_MHZ, 1965, BUSY_MHZ)
    pause = replace(samples[2], sm_clock_mhz=IDLE_MHZ, throttle_reasons=("gpu_idle",))
    assert problems([*samples[:2], pause, *samples[2:]]) == ()


@pytest.mark.parametrize(
    "clocks_mhz",
    [[BUSY_MHZ] * 9 + [1188], [1188] + [BUSY_MHZ] * 9, [BUSY_MHZ] * 5 + [1445] * 5, [1188] * 9 + [BUSY_MHZ]],
    ids=["one 40% lower", "the first", "a step of 27%", "one 40% higher"],
)
def test_clock_that_drops_under_load_is_throttling(clocks_mhz):
    """C15: one clock sample 40% below the others, or a step, marks the group."""
    (problem,) = problems(load(*clocks_mhz))
    assert problem.startswith(f"throttled: SM clock from {max(clocks_mhz)} down to {min(clocks_mhz)} MHz under load")


def test_memory_clock_counts_too():
    """A memory clock that steps down slows what is bound by memory."""
    samples = load(BUSY_MHZ, BUSY_MHZ)
    assert "memory clock" in problems([*samples, replace(samples[1], memory_clock_mhz=1593)])[0]


@pytest.mark.parametrize("clocks_mhz", [(None, None), (BUSY_MHZ, None, BUSY_MHZ), ()])
def test_unknown_clocks_are_no_drop(clocks_mhz):
    """C18: None among the clocks is neither 0 MHz nor an error."""
    assert problems(load(*clocks_mhz)) == ()


@pytest.mark.parametrize(
    ("reason", "counts"),
    [
        ("hw_slowdown", True),
        ("sw_thermal_slowdown", True),
        ("hw_thermal_slowdown", True),
        ("hw_power_brake_slowdown", True),
        ("sw_power_cap", False),
        ("applications_clocks_setting", False),
        ("sync_boost", False),
        ("display_clock_setting", False),
        ("board_limit", False),
    ],
)
def test_reasons_that_count_and_reasons_that_do_not(watched, reason, counts):
    """Heat and lack of power make a figure the machine's; a set clock or a cap that lowers nothing does not."""
    monitor = watched(FakeNvml({GPU_3: Reading(reasons=BITS[reason])}), GPU_3)
    assert reason in (monitor.summary().throttle_reasons or {})
    assert bool(problems(monitor.samples)) is counts


def test_power_cap_counts_by_what_it_does_to_the_clock():
    """C18: a power cap that lowered the clock is throttling, and is named."""
    capped = replace(load(1400)[1], throttle_reasons=("sw_power_cap",))
    (problem,) = problems([*load(BUSY_MHZ, BUSY_MHZ), capped])
    assert "sw_power_cap" in problem


def test_reason_of_a_later_driver_is_kept_by_its_bit(watched):
    """A bit that nobody knew of is recorded, not dropped."""
    monitor = watched(FakeNvml({GPU_3: Reading(reasons=0x1004)}), GPU_3)
    assert monitor.samples[1].throttle_reasons == ("sw_power_cap", "0x1000")


def test_throttling_outside_the_load_does_not_count():
    """Heat of what ran before is no fault of a group in which it no longer shows."""
    samples = load(BUSY_MHZ, BUSY_MHZ)
    assert problems([replace(samples[0], throttle_reasons=("hw_thermal_slowdown",)), *samples[1:]]) == ()


# ------------------------------------------------------------------------------------------ processes


@pytest.fixture
def child() -> Iterator[int]:
    """The id of a process that this one's child started, as a build's helpers are."""
    command = (
        "import subprocess, sys\n"
        "with subprocess.Popen([sys.executable, '-c', 'input()'], stdin=0) as grandchild:\n"
        "    print(grandchild.pid, flush=True)"
    )
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield int(process.stdout.readline())
    process.communicate("\n", timeout=10)


def test_own_process_and_what_it_started_are_not_foreign(watched, child):
    """This process, its children and theirs are the suite's own load."""
    monitor = watched(FakeNvml({GPU_3: Reading(processes=(ME, child))}), GPU_3)
    assert monitor.summary().other_processes == ()
    assert problems(monitor.samples) == ()


def test_foreign_process_is_a_problem_at_any_time(watched):
    """A process that is there before or after the load may have been at work during it."""
    monitor = watched(FakeNvml({GPU_3: Reading(processes=(ME, FOREIGN, 2**22 + 1))}), GPU_3)
    assert problems(monitor.samples) == (f"other processes on the GPU: {FOREIGN}, {2**22 + 1}",)
    assert problems(monitor.samples[:1]) != ()


@pytest.mark.parametrize("processes", [(), (FOREIGN,), (2**22 + 1, 2**22 + 2)])
def test_list_without_this_process_is_unknown(watched, processes):
    """In a container the ids are the host's, or none: this process would be its own foreigner, or nobody would be."""
    monitor = watched(FakeNvml({GPU_3: Reading(processes=processes)}), GPU_3)
    assert monitor.summary().other_processes is None
    assert problems(monitor.samples) == ()


# ------------------------------------------------------------------------------------------ the record


def test_summary_is_of_the_load():
    """Idle clocks and idle power are not mixed into the record of the load."""
    monitor = Monitor(GPU_3)
    monitor._samples = load(BUSY_MHZ, 1965, power_w=600.0, temperature_c=55, other_processes=None)
    summary = monitor.summary()
    assert (summary.samples, summary.sm_clock_mhz, summary.memory_clock_mhz) == (4, (1965, 1980), (3201, 3201))
    assert (summary.temperature_c, summary.throttle_reasons, summary.other_processes) == (55, {}, ())
    assert summary.power_w is not None
    assert math.isclose(summary.power_w, 600)
