"""Options, marks, header and summary. What they decide and print is made in fixtures/."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures import baselines, movement, report
from fixtures.cases import Case, studies
from fixtures.conclusions import Claim, conclusions
from fixtures.engines import runtime
from fixtures.engines.cache import Cache
from fixtures.errors import SuiteError
from fixtures.gpus import gate, probe
from fixtures.movement import CaseFigures
from fixtures.setup import DEVICES, ENGINES, IMPLIED, Setup, decide, has_tensorrt
from fixtures.strict import FOLDER
from fixtures.timing import GPU_TIME, not_timed_reason
from fixtures.verdicts import Measurement, Outcome, Verdict

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
        decision = decide(option, probe(), has_tensorrt())
    except SuiteError as error:
        raise pytest.UsageError(str(error)) from error
    workers = config.getoption("numprocesses", 0) or int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0))
    if option.record and workers:
        raise pytest.UsageError("--record: a baseline is the work of one process; run without -n")
    config.stash[SETUP] = Setup(
        **vars(decision),
        cache=Cache(option.engine_cache or config.rootpath / ".engine-cache"),
        save_graphs=option.save_graphs,
        say=_progress(config),
        not_timed=not_timed_reason(
            on_gpu=decision.device == "cuda",
            workers=workers,
            has_benchmark=config.pluginmanager.hasplugin("benchmark"),
            benchmark_disabled=any(config.getoption(f"benchmark_{word}", False) for word in ("disable", "skip")),
        ),
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
    try:
        return report.header(config.stash[SETUP])
    except SuiteError as error:  # the engine's library is installed and does not load
        raise pytest.UsageError(str(error)) from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives `claim` and `case` to tests marked `claim(id, ...)`, and `case` to those marked `every_case(study)`."""
    if marker := metafunc.definition.get_closest_marker("claim"):
        claims = [conclusions().claims[name] for name in marker.args]
        pairs = [(claim, studies()[claim.study].case(name)) for claim in claims for name in claim.cases]
        once = len({case for _, case in pairs}) == len(pairs)
        ids = [case.id if once else f"{case.id}-{claim.id.partition('/')[2]}" for claim, case in pairs]
        metafunc.parametrize("claim, case", pairs, ids=ids)
    if marker := metafunc.definition.get_closest_marker("every_case"):
        setup = metafunc.config.stash[SETUP]
        metafunc.parametrize("case", studies()[marker.args[0]].cases_on(setup.device, setup.engine), ids=str)


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what a GPU gate is made of, leaves out what this run cannot check, and on a GPU sorts by group.

    Engines that are timed against each other have to be in memory together, so a group's tests run side by side.
    """
    setup = config.stash[SETUP]
    groups: dict[str, int] = {}
    for item in items:
        params = _params(item)
        case = params.get("case")
        if not isinstance(case, Case):
            continue
        groups.setdefault(case.group, len(groups))
        for slug in IMPLIED:
            item.add_marker(slug)
        reason = setup.cannot_check(params["claim"], case) if "claim" in params else None
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"left out: {reason}"))
    if setup.device == "cuda":
        items.sort(key=lambda item: groups.get(_group(item), -1))


def _params(item: pytest.Item) -> dict[str, Any]:
    """What a test was parametrized with."""
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


def _group(item: pytest.Item) -> str:
    case = _params(item).get("case")
    return case.group if isinstance(case, Case) else ""


@pytest.fixture(scope="session")
def setup(request: pytest.FixtureRequest) -> Setup:
    """What this run compares, as the options decided it."""
    return request.config.stash[SETUP]


@pytest.fixture
def timed(setup: Setup) -> None:
    """For tests of speed: leaves them out, by name, where nothing is timed."""
    if setup.not_timed:
        if setup.asked:
            pytest.fail(setup.not_timed, pytrace=False)  # a gate without times must not be green
        pytest.skip(f"left out: {setup.not_timed}")


@pytest.fixture
def tensorrt(setup: Setup) -> None:
    """For tests of what TensorRT built: leaves them out, by name, on another engine."""
    if setup.engine != "tensorrt":
        pytest.skip("left out: plans are TensorRT's")


@pytest.fixture
def expect(request: pytest.FixtureRequest, claim: Claim, case: Case) -> Callable[..., None]:
    """Holds a measurement against the test's claim: reports the verdict, and fails unless the claim holds.

    `longer`, if given, measures again with more rounds where the first interval straddles a limit; `why` looks for the
    cause of a verdict that does not hold.
    """

    def check(
        measured: Measurement,
        longer: Callable[[], Measurement] | None = None,
        why: Callable[[], str] | None = None,
    ) -> None:
        if longer is not None and measured.judged(claim.limits, Outcome.FLIPPED) is Outcome.INCONCLUSIVE:
            measured = longer()
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
            outcome=measured.judged(claim.limits, Outcome.FLIPPED),
            note="; ".join(measured.problems),
        )
        if why is not None and verdict.outcome is not Outcome.HOLDS:
            verdict = replace(verdict, note=why())
        request.node.user_properties.append((report.VERDICT, verdict.as_record()))
        if verdict.outcome is not Outcome.HOLDS:
            pytest.fail(verdict.message(), pytrace=False)

    return check


@pytest.fixture
def as_documented(
    request: pytest.FixtureRequest, setup: Setup, case: Case
) -> Callable[[Mapping[str, Measurement]], None]:
    """Holds a case's figures against what its study prints, within the tolerance of each figure.

    Documented figures apply to the study's own inputs, and times to the GPU and TensorRT version they were printed for.
    """

    def check(found: Mapping[str, Measurement]) -> None:
        verdicts = movement.against_print(case, found, setup)
        if not verdicts:
            pytest.skip(f"left out: the study prints none of {', '.join(found)} for {case} here")
        request.node.user_properties.extend((report.VERDICT, verdict.as_record()) for verdict in verdicts)
        moved = [verdict.message() for verdict in verdicts if verdict.outcome is not Outcome.HOLDS]
        if moved:
            pytest.fail("\n".join(moved), pytrace=False)

    if (setup.checkpoints, setup.datasets) != ("hub", "hub"):
        pytest.skip("left out: printed figures are of the study's own inputs: --checkpoints hub --datasets hub")
    if not movement.printed_for(case, setup):
        pytest.skip(f"left out: the study prints nothing for {case} that this run could be held against")
    return check


@pytest.fixture
def published(request: pytest.FixtureRequest) -> Callable[[Sequence[float]], None]:
    """Hands rounds that were timed on the GPU, in milliseconds a call, to pytest-benchmark as this test's benchmark."""
    benchmark = request.getfixturevalue("benchmark")

    def publish(rounds_ms: Sequence[float]) -> None:
        seconds = iter([ms / 1e3 for ms in rounds_ms])
        benchmark.pedantic(lambda: GPU_TIME.advance(next(seconds)), rounds=len(rounds_ms), iterations=1)

    return publish


@pytest.fixture
def unmoved(request: pytest.FixtureRequest, setup: Setup, case: Case) -> Callable[[CaseFigures], None]:
    """Holds a case's figures against this device's baseline, or keeps them for it under `--record`."""

    def check(found: CaseFigures) -> None:
        if request.config.option.record:
            request.config.stash[RECORDED].append((case.study, found))
            return
        engine = runtime(setup.engine, setup.device)
        choice = baselines.choose(
            FOLDER / "measured", setup.device_name, engine.library, engine.version, case.study, found.inputs
        )
        if choice.measured is None:
            missing = f"no baseline: {choice.why}; --record writes one"
            if setup.asked:
                pytest.fail(missing, pytrace=False)  # a gate that compares nothing must not be green
            pytest.skip(f"left out: {missing}")
        verdicts = movement.compare(choice, found)
        request.node.user_properties.extend((report.VERDICT, verdict.as_record()) for verdict in verdicts)
        moved = [verdict.message() for verdict in verdicts if verdict.outcome is not Outcome.HOLDS]
        if moved:
            pytest.fail("\n".join(moved), pytrace=False)

    return check


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A SuiteError says what is wrong and the way out on one line; how the suite came to it helps nobody."""
    found = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, SuiteError):
        found.longrepr = f"{item.nodeid}: {type(call.excinfo.value).__name__}: {call.excinfo.value}"
    return found


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Under `--record`, writes baselines from a run that was whole and green. A gate that compared nothing fails."""
    config = session.config
    setup, notes, recorded = config.stash[SETUP], config.stash[NOTES], config.stash[RECORDED]
    try:
        if config.option.record:
            records = movement.complete(recorded, setup, green=exitstatus == 0)
            notes += [f"recorded {baselines.record(FOLDER / 'measured', each)}" for each in records]
        elif setup.asked and not config.option.collectonly:
            verdicts = _verdicts(config)
            compared = [each for each in verdicts if each["outcome"] != Outcome.INVALID]
            if problem := gate(setup.asked, probe(), None, len(compared), len(verdicts)):
                raise SuiteError(problem)
    except SuiteError as error:
        notes.append(f"failed: {error}")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def _verdicts(config: pytest.Config) -> list[dict[str, Any]]:
    """Every verdict of the run, from the tests' reports, whichever process they ran in."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    stats = reporter.stats.values() if reporter is not None else ()
    # A test's properties are in the reports of its setup and teardown too.
    reports = [each for group in stats for each in group if getattr(each, "when", None) == "call"]
    return [value for each in reports for name, value in each.user_properties if name == report.VERDICT]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    notes = config.stash[NOTES]
    sections = report.sections(_verdicts(config), config.stash[SETUP], notes)
    for title, lines in sections.items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)
