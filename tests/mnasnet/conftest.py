"""The MNASNet study of this session."""

import pytest

from fixtures.mnasnet.lab import Lab
from fixtures.setup import Setup


@pytest.fixture(scope="session")
def mnasnet(setup: Setup) -> Lab:
    """Figures of MNASNet's cases; builds and runs what they need when they are asked for."""
    return Lab(setup)
