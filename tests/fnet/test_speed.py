"""Time on a GPU: ratios between variants in the same interleaved rounds, and times as the study prints them."""

import pytest

from fixtures.timing import GPU_TIME, ROUNDS

pytestmark = pytest.mark.usefixtures("timed")
claim = pytest.mark.claim
LONGER = 3 * ROUNDS  # where an interval straddles a limit


@claim("fnet/same-engine-twice")
def test_same_engine_twice(fnet, case, expect):
    """The noise floor: one engine against itself, in every group."""
    expect(fnet.bench.same_engine_twice(case), lambda: fnet.bench.same_engine_twice(case, LONGER))


@claim("fnet/fp8-barely-faster", "fnet/fp8-barely-faster-at-batch-8")
def test_fp8_is_barely_faster(fnet, case, expect):
    """FP8 over half precision: faster, and not by enough to ship."""
    expect(fnet.speed(case)["speedup"], lambda: fnet.speed(case, LONGER)["speedup"])


@claim("fnet/fp8-no-output-dense-slower", "fnet/fp8-no-output-dense-not-faster-at-batch-8")
def test_fp8_without_output_dense_is_slower(fnet, case, expect):
    """The recipe that loses less is not faster."""
    expect(fnet.speed(case)["speedup"], lambda: fnet.speed(case, LONGER)["speedup"])


@claim("fnet/fp16-hs-as-fast-as-fp16", "fnet/fp16-dft32-much-slower")
def test_what_the_cures_cost(fnet, case, expect):
    """Hidden-axis scaling is free; the hidden-axis DFT in fp32 is not."""
    expect(fnet.speed(case)["latency_ratio"], lambda: fnet.speed(case, LONGER)["latency_ratio"])


@claim("fnet/tensorrt-11-1-as-11-4")
def test_two_releases_take_the_same_time(fnet, case, expect, recorded_releases):
    """From two recorded runs on this GPU and these inputs: the finding is not of one version."""
    expect(recorded_releases(fnet.origins(case)))


@pytest.mark.every_case("fnet")
def test_times_are_as_printed(fnet, case, as_documented):
    """Every printed latency and ratio of this GPU and TensorRT version."""
    as_documented(fnet.speed(case))


@pytest.mark.benchmark(group="fnet", timer=GPU_TIME)
@pytest.mark.every_case("fnet")
def test_publish(fnet, case, published, evidence):
    """One pytest-benchmark entry a case: its rounds in GPU time, for `--benchmark-json`, compare and histogram."""
    timing = fnet.bench.timing(case.group, ROUNDS)
    if case.id == next(iter(timing.rounds_ms)):  # one of each group
        evidence("rounds", fnet.bench.rounds(case.group))
    published(timing.times_ms(case.id), fnet.bench.latency(case).problems)
