"""What moved against the baseline of this device, engine and inputs."""

import pytest


@pytest.mark.every_case("mnasnet")
def test_no_figure_moved(mnasnet, case, unmoved):
    """Every figure of every case lies within its tolerance of what was recorded, better or worse."""
    unmoved(mnasnet.record(case))
