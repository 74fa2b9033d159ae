"""Sizes. The graph's constants follow from the shapes alone; a plan's size needs the engine."""

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
