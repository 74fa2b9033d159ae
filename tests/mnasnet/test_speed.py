"""Time on a GPU: ratios between variants in the same interleaved rounds, and times as the study prints them."""

import pytest

from fixtures.timing import GPU_TIME, ROUNDS

pytestmark = pytest.mark.usefixtures("timed")
claim = pytest.mark.claim
LONGER = 3 * ROUNDS  # where an interval straddles a limit


@claim("mnasnet/same-engine-twice")
def test_same_engine_twice(mnasnet, case, expect):
    """The noise floor: one engine against itself, in every group."""
    expect(mnasnet.bench.same_engine_twice(case), lambda: mnasnet.bench.same_engine_twice(case, LONGER))


@claim("mnasnet/fp8-slower")
def test_fp8_is_slower(mnasnet, case, expect):
    """FP8 against fp16, at every batch size."""
    expect(mnasnet.speed(case)["speedup"], lambda: mnasnet.speed(case, LONGER)["speedup"])


@claim("mnasnet/fp8-slower-at-level-3")
def test_fp8_is_slower_at_level_3(mnasnet, case, expect):
    """Both at the level that makes fp16 faster still."""
    figure = "speedup_at_level_3"
    expect(mnasnet.speed(case)[figure], lambda: mnasnet.speed(case, LONGER)[figure])


@claim("mnasnet/fp16-faster-at-level-3")
def test_fp16_is_faster_at_level_3(mnasnet, case, expect):
    """The optimization level alone is worth more than FP8."""
    expect(mnasnet.speed(case)["latency_ratio"], lambda: mnasnet.speed(case, LONGER)["latency_ratio"])


@pytest.mark.every_case("mnasnet")
def test_times_are_as_printed(mnasnet, case, as_documented):
    """Every printed latency and ratio of this GPU and TensorRT version."""
    as_documented(mnasnet.speed(case))


@pytest.mark.benchmark(group="mnasnet", timer=GPU_TIME)
@pytest.mark.every_case("mnasnet")
def test_publish(mnasnet, case, published, evidence):
    """One pytest-benchmark entry a case: its rounds in GPU time, for `--benchmark-json`, compare and histogram."""
    timing = mnasnet.bench.timing(case.group, ROUNDS)
    if case.id == next(iter(timing.rounds_ms)):  # one of each group
        evidence("rounds", mnasnet.bench.rounds(case.group))
    published(timing.times_ms(case.id), mnasnet.bench.latency(case).problems)
