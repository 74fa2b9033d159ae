"""Options, marks, header and summary. What they decide and print is made in fixtures/."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from fixtures import baselines, movement, report
from fixtures.cases import Case, studies
from fixtures.conclusions import Claim, conclusions
from fixtures.engines import runtime
from fixtures.engines.cache import Cache
from fixtures.errors import SuiteError
from fixtures.movement import CaseFigures
from fixtures.setup import DEVICES, ENGINES, Setup, decide, device_name, has_cuda, has_tensorrt
from fixtures.strict import FOLDER
from fixtures.verdicts import Measurement, Outcome, Verdict, judge

SETUP = pytest.StashKey[Setup]()
RECORDED = pytest.StashKey[list[tuple[str, CaseFigures]]]()  # (study, figures) of every case that ran under --record
NOTES = pytest.StashKey[list[str]]()  # what the summary must say about recording


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite", "what is compared")
    group.addoption("--engine", choices=ENGINES, default="auto", help="what runs the graphs")
    group.addoption("--device", choices=DEVICES, default="auto", help="what they run on")
    group.addoption(
        "--checkpoints", metavar="hub|synthetic|DIR", help="weights (default: hub on a GPU, else synthetic)"
    )
    group.addoption("--datasets", metavar="hub|embedded|DIR", help="text (default: hub on a GPU, else embedded)")
    group.addoption("--samples", metavar="N", help="passages a case (default: the study's on a GPU, few without one)")
    group.addoption(
        "--engine-cache", metavar="DIR", type=Path, help="cache (default: .engine-cache beside conftest.py)"
    )
    group.addoption("--save-graphs", metavar="DIR", type=Path, help="write the ONNX file of every case that runs")
    group.addoption("--record", action="store_true", help="write what is measured as this device's baseline")


def pytest_configure(config: pytest.Config) -> None:
    option = config.option
    try:
        chosen, why = decide(option, cuda=has_cuda(), tensorrt=has_tensorrt())
    except SuiteError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[SETUP] = Setup(
        **chosen,
        cache=Cache(option.engine_cache or config.rootpath / ".engine-cache"),
        save_graphs=option.save_graphs,
        say=_progress(config),
        why=why,
    )
    config.stash[RECORDED], config.stash[NOTES] = [], []


def _progress(config: pytest.Config) -> Callable[[str], None]:
    """Writes a line at once, past pytest's capturing: a case takes seconds, and a silent run looks hung."""

    def say(text: str) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        capture = config.pluginmanager.get_plugin("capturemanager")
        if reporter is not None and capture is not None:
            with capture.global_and_fixture_disabled():
                reporter.ensure_newline()
                reporter.write_line(f"  {config.stash[SETUP].stopwatch.elapsed_s:5.0f} s  {text}")

    return say


def pytest_report_header(config: pytest.Config) -> list[str]:
    return report.header(config.stash[SETUP])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives `claim` and `case` to tests marked `claim(id, ...)`, and `case` to those marked `every_case(study)`."""
    if marker := metafunc.definition.get_closest_marker("claim"):
        claims = [conclusions().claims[name] for name in marker.args]
        pairs = [(claim, studies()[claim.study].case(name)) for claim in claims for name in claim.cases]
        once = len({case for _, case in pairs}) == len(pairs)
        ids = [case.id if once else f"{case.id}-{claim.id.partition('/')[2]}" for claim, case in pairs]
        metafunc.parametrize("claim, case", pairs, ids=ids)
    if marker := metafunc.definition.get_closest_marker("every_case"):
        device = metafunc.config.stash[SETUP].device
        metafunc.parametrize("case", studies()[marker.args[0]].cases_on(device), ids=str)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if "claim" in params:
            reason = config.stash[SETUP].cannot_check(cast(Claim, params["claim"]), cast(Case, params["case"]))
            if reason:
                item.add_marker(pytest.mark.skip(reason=f"left out: {reason}"))


@pytest.fixture(scope="session")
def setup(request: pytest.FixtureRequest) -> Setup:
    """What this run compares, as the options decided it."""
    return request.config.stash[SETUP]


@pytest.fixture
def expect(request: pytest.FixtureRequest, claim: Claim, case: Case) -> Callable[[Measurement], None]:
    """Holds a measurement against the test's claim: reports the verdict, and fails unless the claim holds."""

    def check(measured: Measurement) -> None:
        outcome = judge(measured.value, measured.interval, claim.limits, outside=Outcome.FLIPPED, exact=measured.exact)
        verdict = Verdict(
            claim=claim.id,
            case=case.id,
            figure=claim.figure,
            unit=claim.unit,
            measured=measured.value,
            interval=measured.interval,
            limits=claim.limits,
            documented=claim.documented,
            baseline=None,
            samples=measured.samples,
            outcome=outcome,
        )
        request.node.user_properties.append((report.VERDICT, verdict.as_record()))
        verdict.check()

    return check


@pytest.fixture
def unmoved(request: pytest.FixtureRequest, setup: Setup, case: Case) -> Callable[[CaseFigures], None]:
    """Holds a case's figures against this device's baseline, or keeps them for it under `--record`."""

    def check(found: CaseFigures) -> None:
        if request.config.option.record:
            request.config.stash[RECORDED].append((case.study, found))
            return
        engine = runtime(setup.engine, setup.device)
        choice = baselines.choose(
            FOLDER / "measured",
            device_name(setup.device),
            engine.library,
            engine.version,
            case.study,
            found.inputs,
        )
        if choice.measured is None:
            pytest.skip(f"left out: no baseline: {choice.why}; --record writes one")
        verdicts = movement.compare(choice, found)
        request.node.user_properties.extend((report.VERDICT, verdict.as_record()) for verdict in verdicts)
        moved = [verdict.message() for verdict in verdicts if verdict.outcome is not Outcome.HOLDS]
        assert not moved, "\n".join(moved)

    return check


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Under `--record`, writes baselines from a run that was whole and green, and fails any other."""
    config = session.config
    if not config.option.record:
        return
    try:
        config.stash[NOTES] += _record(config, exitstatus)
    except SuiteError as error:
        config.stash[NOTES].append(f"nothing recorded: {error}")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def _record(config: pytest.Config, exitstatus: int) -> list[str]:
    setup, found = config.stash[SETUP], config.stash[RECORDED]
    records = movement.complete(found, setup, green=exitstatus == 0)
    return [f"recorded {baselines.record(FOLDER / 'measured', each)}" for each in records]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reports = [each for group in terminalreporter.stats.values() for each in group if hasattr(each, "user_properties")]
    verdicts = [value for each in reports for name, value in each.user_properties if name == report.VERDICT]
    notes: list[str] = config.stash[NOTES]
    sections = report.sections(verdicts, config.stash[SETUP], notes)
    for title, lines in sections.items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)
