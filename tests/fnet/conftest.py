"""The FNet study of this session."""

import pytest

from fixtures.fnet.lab import Lab
from fixtures.setup import Setup


@pytest.fixture(scope="session")
def fnet(setup: Setup) -> Lab:
    """Figures of FNet's cases; builds and runs what they need when they are asked for."""
    return Lab(setup)
