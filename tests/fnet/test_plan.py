"""Sizes. The graph's constants follow from the shapes alone; a plan's size needs the engine."""

import pytest

claim = pytest.mark.claim


@claim("fnet/fp8-weights-base", "fnet/fp8-weights-large")
def test_fp8_weight_bytes(fnet, case, expect):
    """Arithmetic: 24 or 48 matrices, a byte an element."""
    expect(fnet.figures(case)["fp8_weights"])


@claim("fnet/fp8-constants-base", "fnet/fp8-constants-large")
def test_constant_bytes(fnet, case, expect):
    """Arithmetic: what FP8 takes off all constants of the graph."""
    expect(fnet.figures(case)["constant_bytes_change"])
