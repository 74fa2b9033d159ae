"""Sizes. The graph's constants follow from the shapes alone; a plan's size needs the engine."""

import pytest

claim = pytest.mark.claim


@claim("fnet/fp8-weights-base", "fnet/fp8-weights-large")
def test_fp8_weight_bytes(fnet, case, expect):
    """Arithmetic: 24 or 48 matrices, a byte an element."""
    expect(fnet.figure(case, "fp8_weights"))


@claim("fnet/fp8-constants-base", "fnet/fp8-constants-large")
def test_constant_bytes(fnet, case, expect):
    """Arithmetic: what FP8 takes off all constants of the graph."""
    expect(fnet.figure(case, "constant_bytes_change"))


@claim("fnet/fp8-plan-base", "fnet/fp8-plan-large")
def test_plan_bytes(fnet, case, expect):
    """What FP8 takes off TensorRT's plan, kernels and padding included."""
    expect(fnet.plan(case)["plan_change"])


@pytest.mark.usefixtures("tensorrt")
@pytest.mark.every_case("fnet")
def test_engine_is_what_was_asked_for(fnet, case):
    """Types of products and layers, read from the engine and not from the request."""
    assert fnet.bench.built_otherwise(case) is None


@pytest.mark.usefixtures("tensorrt")
@pytest.mark.every_case("fnet")
def test_plan_sizes_are_as_printed(fnet, case, as_documented):
    """Every printed plan size of this GPU and TensorRT version."""
    as_documented(fnet.plan(case))
