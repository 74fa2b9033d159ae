"""Two recorded runs, named by `--before` and `--here`; without them there is nothing to collect here."""

from __future__ import annotations

import pytest

from fixtures import compare
from fixtures.errors import SuiteError


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Nothing is compared in a run that names no records."""
    return None if config.option.before else True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives `verdict` to tests of claims, and `pair` and `case` to tests of figures."""
    option = metafunc.config.option
    try:
        pairs = compare.pairs(option.before, option.here)
    except SuiteError as error:
        raise pytest.UsageError(str(error)) from error
    if "verdict" in metafunc.fixturenames:
        verdicts = [verdict for pair in pairs for verdict in pair.claims()]
        metafunc.parametrize("verdict", verdicts, ids=[f"{each.claim}-{each.case}" for each in verdicts])
    else:
        cases = [(pair, case) for pair in pairs for case in pair.here.figures]
        metafunc.parametrize("pair, case_id", cases, ids=[case for _, case in cases])
