"""What is quantized, and with which scales."""

import pytest

claim = pytest.mark.claim


@claim("fnet/fp8-gemms-base", "fnet/fp8-gemms-large")
def test_fp8_products(fnet, case, expect):
    """Two in each layer, counted in the graph that the engine gets."""
    expect(fnet.figure(case, "fp8_gemms"))


@claim("fnet/no-outlier-scale")
def test_no_outlier_scale(fnet, case, expect):
    """The 20x rule takes no layer out of FP8."""
    expect(fnet.outlier_ratio(case))
