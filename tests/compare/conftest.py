"""Two recorded runs, named by `--before` and `--here`; without them there is nothing to collect here."""

from __future__ import annotations

import pytest

from fixtures import compare
from fixtures.compare import Pair
from fixtures.errors import SuiteError


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Nothing is compared in a run that names no records."""
    return None if config.option.before else True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives `verdict` to tests of claims, and `pair` and `case_id` to tests of figures."""
    pairs = _pairs(metafunc.config)
    if "verdict" in metafunc.fixturenames:
        verdicts = [verdict for pair in pairs for verdict in pair.claims()]
        metafunc.parametrize("verdict", verdicts, ids=[f"{each.claim}-{each.case}" for each in verdicts])
    else:
        cases = [(pair, case) for pair in pairs for case in pair.here.figures]
        metafunc.parametrize("pair, case_id", cases, ids=[case for _, case in cases])


def _pairs(config: pytest.Config) -> list[Pair]:
    try:
        return compare.pairs(config.option.before, config.option.here)[0]
    except SuiteError as error:
        raise pytest.UsageError(str(error)) from error
