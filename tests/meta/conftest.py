"""The suite's own tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.meta.processes import Runs


@pytest.fixture(scope="session", autouse=True)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs | None]:
    """Whole runs of the suite, where test_suite.py is among the tests: started first, since it runs last and the
    machine has another core."""
    if not any(item.path.name == "test_suite.py" for item in request.session.items):
        yield None
        return
    found = Runs(tmp_path_factory.mktemp("runs"))
    yield found
    found.kill()
