"""Sizes and layers. The graph's constants follow from the shapes alone; what TensorRT made of them needs the engine."""

import pytest

claim = pytest.mark.claim


@claim("mnasnet/fp8-weights")
def test_fp8_weight_bytes(mnasnet, case, expect):
    """Arithmetic: 34 kernels, a byte an element."""
    expect(mnasnet.of_graph(case)["fp8_weights"])


@claim("mnasnet/fp8-constants")
def test_constant_bytes(mnasnet, case, expect):
    """Arithmetic: what FP8 takes off all constants of the graph."""
    expect(mnasnet.of_graph(case)["constant_bytes_change"])


@claim("mnasnet/fp8-plan-smaller-at-batch-1", "mnasnet/fp8-plan-larger-at-batch-128")
def test_plan_bytes(mnasnet, case, expect):
    """What FP8 takes off TensorRT's plan at batch 1, and no longer does at batch 128."""
    expect(mnasnet.plan(case)["plan_change"])


@claim("mnasnet/quantize-layers-do-not-fuse")
def test_quantize_layers_do_not_fuse(mnasnet, case, expect):
    """Layers of the FP8 engine more than of the fp16 one."""
    expect(mnasnet.plan(case)["extra_layers"])


@pytest.mark.usefixtures("tensorrt")
@pytest.mark.every_case("mnasnet")
def test_engine_is_what_was_asked_for(mnasnet, case):
    """Types of convolutions, read from the engine and not from the request."""
    assert mnasnet.bench.built_otherwise(case) is None


@pytest.mark.usefixtures("tensorrt")
@pytest.mark.every_case("mnasnet")
def test_plans_are_as_printed(mnasnet, case, as_documented):
    """Every printed plan size of this GPU and TensorRT version, and every printed count of layers."""
    as_documented(mnasnet.plan(case))
