"""What is quantized, counted in the graph that the engine gets."""

import pytest

claim = pytest.mark.claim


@claim("mnasnet/fp8-convolutions")
def test_fp8_convolutions(mnasnet, case, expect):
    """Pointwise ones with a map larger than 1x1."""
    expect(mnasnet.of_graph(case)["fp8_convolutions"])


@claim("mnasnet/depthwise-stay-fp16")
def test_depthwise_convolutions_stay_fp16(mnasnet, case, expect):
    """TensorRT splits an FP8 depthwise convolution group by group."""
    expect(mnasnet.of_graph(case)["depthwise_convolutions"])
