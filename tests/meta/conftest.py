"""The suite's own tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.meta.processes import Runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Whole runs of the suite, in processes of their own."""
    found = Runs(tmp_path_factory.mktemp("runs"))
    yield found
    found.kill()


@pytest.fixture(scope="session", autouse=True)
def _early(request: pytest.FixtureRequest) -> None:
    """Starts the whole runs first where test_suite.py is among the tests: it runs last, and the machine has another
    core. Where tests are spread over processes, the one that has test_suite.py starts them."""
    spread = hasattr(request.config, "workerinput")
    if not spread and any(item.path.name == "test_suite.py" for item in request.session.items):
        request.getfixturevalue("runs")
