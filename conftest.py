"""Options, marks, header and summary. What they decide and print is made in fixtures/."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import pytest

from fixtures import compare, evidence, movement, publish, recording, report, waivers
from fixtures.baselines import Inputs
from fixtures.cases import Case, studies
from fixtures.conclusions import Claim, conclusions
from fixtures.document import Document
from fixtures.engines import runtime
from fixtures.engines.cache import Cache
from fixtures.errors import SuiteError
from fixtures.evidence import Evidence
from fixtures.gpus import gate, probe
from fixtures.movement import NO_BASELINE, CaseFigures
from fixtures.setup import DEVICES, ENGINES, IMPLIED, Setup, decide, has_tensorrt
from fixtures.timing import GPU_TIME, not_timed_reason
from fixtures.verdicts import UNMOVED, Measurement, Outcome, Verdict
from fixtures.waivers import Waiver

COMPARE = Path(__file__).parent / "tests" / "compare"
SETUP = pytest.StashKey[Setup]()
WAIVERS = pytest.StashKey[tuple[Waiver, ...]]()  # those that apply to this run
KEPT = pytest.StashKey[list[tuple[str, Any]]]()  # entries of `evidence` that a test leaves
EVIDENCE = pytest.StashKey[Evidence]()  # what all tests left
CAUSES = pytest.StashKey[dict[str, list[str]]]()  # what may have moved figures, by title
CONTROL = pytest.StashKey[Document | None]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite", "what is compared")
    group.addoption("--engine", choices=ENGINES, default="auto", help="what runs the graphs")
    group.addoption("--device", choices=DEVICES, default="auto", help="what they run on")
    group.addoption(
        "--checkpoints", metavar="hub|synthetic|DIR", help="weights (default: hub on a GPU, else synthetic)"
    )
    group.addoption(
        "--datasets", metavar="hub|embedded|DIR", help="text and images (default: hub on a GPU, else embedded)"
    )
    group.addoption(
        "--samples", metavar="N", help="passages or images a case (default: each study's own on a GPU, few without one)"
    )
    group.addoption(
        "--engine-cache", metavar="DIR", type=_path, help="cache (default: .engine-cache beside conftest.py)"
    )
    group.addoption("--save-graphs", metavar="DIR", type=_path, help="write the ONNX file of every case that runs")
    group.addoption("--record", action="store_true", help="write what is measured as this device's baseline")
    group.addoption("--accept-flip", metavar="WHY", help="record although a claim flipped; the reason is stored")
    group.addoption("--report", metavar="DIR", type=_path, help="write verdicts.json, report.html and report.md")
    group.addoption("--before", metavar="FILE", type=_path, help="a measured file or folder, for tests/compare")
    group.addoption("--here", metavar="FILE", type=_path, help="what is compared with it")
    group.addoption("--control", metavar="FILE", type=_path, help="verdicts.json of a run with onnxruntime on this GPU")


def _path(text: str) -> Path:
    """An option's path. An empty one, such as of a variable that is not set, would be the working directory."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; name a path, or leave the option out")
    return Path(text)


def pytest_configure(config: pytest.Config) -> None:
    option = config.option
    try:
        decision = decide(option, probe(), has_tensorrt())
    except SuiteError as error:
        raise pytest.UsageError(str(error)) from error
    workers = config.getoption("numprocesses", 0) or int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0))
    not_timed = not_timed_reason(
        on_gpu=decision.device == "cuda",
        workers=workers,
        has_benchmark=config.pluginmanager.hasplugin("benchmark"),
        benchmark_disabled=any(config.getoption(f"benchmark_{word}", False) for word in ("disable", "skip")),
    )
    if problem := _contradiction(option, decision.device, workers, not_timed):
        raise pytest.UsageError(problem)
    if config.pluginmanager.is_blocked("terminal") and not hasattr(config, "workerinput"):
        raise pytest.UsageError("-p no:terminal: the verdicts are gathered from what it keeps; take -q or -qq")
    config.stash[SETUP] = Setup(
        **vars(decision),
        cache=Cache(option.engine_cache or config.rootpath / ".engine-cache"),
        save_graphs=option.save_graphs,
        say=_progress(config),
        builds=recording.BUILDS[decision.device] if option.record else 1,
        not_timed=not_timed,
    )


def _contradiction(option: argparse.Namespace, device: str, workers: int, not_timed: str | None) -> str | None:
    """Why these options do not go together; None where they do."""
    if option.record and workers:
        return "--record: a baseline is the work of one process; run without -n"
    if option.record and device == "cuda" and not_timed:
        return f"--record: a GPU's baseline holds times, and this run is {not_timed}"
    if option.accept_flip is not None and not (option.record and option.accept_flip.strip()):
        return "--accept-flip: give the reason, together with --record"
    paths = (Path(each.partition("::")[0]).resolve() for each in option.file_or_dir)
    compares = any(path.is_relative_to(COMPARE) for path in paths)
    if (option.before is None) != (option.here is None) or (compares and option.before is None):
        return "--before and --here go together: pytest tests/compare --before=FILE --here=FILE"
    if option.before is not None and (option.record or option.control or option.markexpr):
        return "--before and --here compare two recorded runs: leave --record, --control and -m out"
    return None


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


def pytest_sessionstart(session: pytest.Session) -> None:
    """Reads the waivers, the control and, under `--record`, what the record would be written beside, so that a file
    that is not sound ends the run before an hour of work."""
    setup = session.config.stash[SETUP]
    try:
        path = session.config.option.control
        studies(), conclusions()  # what the suite is made of has to be sound
        session.config.stash[CONTROL] = publish.control(path, setup) if path else None
        session.config.stash[WAIVERS] = _applicable(session.config)
        if session.config.option.record:
            recording.check_recorded(setup)
    except SuiteError as error:
        raise pytest.UsageError(str(error)) from error


def _applicable(config: pytest.Config) -> tuple[Waiver, ...]:
    """The waivers for what is judged: this run's device and engine, or those of a record."""
    setup, option = config.stash[SETUP], config.option
    if option.before is not None:
        return compare.waived(compare.pairs(option.before, option.here)[0])
    subject, gpu = runtime(setup.engine, setup.device), setup.gpu.slug if setup.gpu else setup.device
    return waivers.applicable(waivers.read(), gpu, subject.library, subject.version, datetime.now(UTC).date())


def _claim(name: str, test: str) -> Claim:
    """The claim that a test's mark names."""
    known = conclusions().claims
    if name in known:
        return known[name]
    near = ", ".join(get_close_matches(name, known)) or "none like it"
    pytest.fail(f"{test}: no claim {name!r} in baselines/conclusions.toml; it has {near}", pytrace=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives `claim` and `case` to tests marked `claim(id, ...)`, and `case` to those marked `every_case(study)`."""
    if marker := metafunc.definition.get_closest_marker("claim"):
        claims = [_claim(name, metafunc.definition.nodeid) for name in marker.args]
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
    if config.option.before is not None and any(item.path.parent.name != "compare" for item in items):
        raise pytest.UsageError(
            "--before and --here compare two recorded runs: pytest tests/compare, and no other tests"
        )
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
        _leave_out(setup, setup.not_timed)


@pytest.fixture
def tensorrt(setup: Setup) -> None:
    """For tests of what TensorRT built: leaves them out, by name, on another engine."""
    if setup.engine != "tensorrt":
        pytest.skip("left out: plans are TensorRT's")


def _leave_out(setup: Setup, reason: str) -> NoReturn:
    """Ends a test that cannot be decided here: a skip, but a failure under a gate, which may not be green for it."""
    if setup.asked:
        pytest.fail(reason, pytrace=False)
    pytest.skip(f"left out: {reason}")


@pytest.fixture(scope="session")
def waived(request: pytest.FixtureRequest) -> tuple[Waiver, ...]:
    """The waivers that apply to what this run judges."""
    return request.config.stash[WAIVERS]


@pytest.fixture
def hold(request: pytest.FixtureRequest, waived: tuple[Waiver, ...]) -> Callable[[Sequence[Verdict]], None]:
    """Reports verdicts, and fails the test unless each of them holds or is waived."""

    def check(verdicts: Sequence[Verdict]) -> None:
        red = []
        for verdict in verdicts:
            waiver = waivers.covering(waived, verdict.claim, verdict.case, verdict.figure, verdict.outcome)
            request.node.user_properties.append(evidence.as_property(verdict, waiver.id if waiver else None))
            if verdict.outcome is not Outcome.HOLDS and waiver is None:
                red.append(verdict.message())
        if red:
            pytest.fail("\n".join(red), pytrace=False)

    return check


@pytest.fixture
def expect(hold: Callable[[Sequence[Verdict]], None], claim: Claim, case: Case) -> Callable[..., None]:
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
        verdict = movement.of_claim(claim, case.id, measured)
        if why is not None and verdict.outcome is not Outcome.HOLDS and not verdict.note:
            verdict = replace(verdict, note=why())
        hold([verdict])

    return check


@pytest.fixture
def as_documented(
    hold: Callable[[Sequence[Verdict]], None], setup: Setup, case: Case
) -> Callable[[Mapping[str, Measurement]], None]:
    """Holds a case's figures against what its study prints, within the tolerance of each figure.

    Documented figures apply to the study's own inputs, and times to the GPU and TensorRT version they were printed for.
    """

    def check(found: Mapping[str, Measurement]) -> None:
        verdicts = movement.against_print(case, found, setup)
        if not verdicts:
            pytest.skip(f"left out: the study prints none of {', '.join(found)} for {case} here")
        hold(verdicts)

    if (setup.checkpoints, setup.datasets) != ("hub", "hub"):
        pytest.skip("left out: printed figures are of the study's own inputs: --checkpoints hub --datasets hub")
    if not movement.printed_for(case, setup):
        pytest.skip(f"left out: the study prints nothing for {case} that this run could be held against")
    return check


@pytest.fixture
def keep(request: pytest.FixtureRequest) -> Callable[[tuple[str, Any]], None]:
    """Leaves an entry of `evidence` for the end of the run."""
    kept: list[tuple[str, Any]] = request.node.stash.setdefault(KEPT, [])
    return kept.append


@pytest.fixture(name="evidence")
def evidence_kept(keep: Callable[[tuple[str, Any]], None]) -> Callable[[str, Any], None]:
    """Leaves how a group was timed ("rounds") or where a case's kernel time went ("kernels") for the report."""
    return lambda kind, record: keep(evidence.kept(kind, record))


@pytest.fixture
def recorded_releases(setup: Setup, case: Case) -> Callable[[Inputs], Measurement]:
    """A case's latency with one TensorRT release over that with another, from this GPU's records."""

    def ratio(inputs: Inputs) -> Measurement:
        found = compare.recorded_releases(setup.device_name, case, inputs)
        if found is None:
            pytest.skip(
                f"left out: TensorRT {' and '.join(compare.RELEASES)} are not both recorded here on these inputs"
            )
        return found

    return ratio


@pytest.fixture
def published(setup: Setup, benchmark: Any) -> Callable[[Sequence[float], Sequence[str]], None]:
    """Hands rounds that were timed on the GPU, in milliseconds a call, to pytest-benchmark as this test's benchmark.

    Rounds with problems are not published, since nothing in pytest-benchmark's table or JSON would say so. Without that
    plug-in `timed` has left the test out before `benchmark` is asked for.
    """

    def publish(rounds_ms: Sequence[float], problems: Sequence[str]) -> None:
        if problems:
            _leave_out(setup, f"not published: {'; '.join(problems)}")
        seconds = iter([ms / 1e3 for ms in rounds_ms])
        # A profiler of pytest-benchmark's makes one call more, after the rounds.
        benchmark.pedantic(lambda: GPU_TIME.advance(next(seconds, 0.0)), rounds=len(rounds_ms), iterations=1)

    return publish


@pytest.fixture
def unmoved(
    keep: Callable[[tuple[str, Any]], None],
    hold: Callable[[Sequence[Verdict]], None],
    setup: Setup,
    case: Case,
    request: pytest.FixtureRequest,
) -> Callable[[CaseFigures], None]:
    """Holds a case's figures against this device's baselines, the newest and the pinned one; under `--record` they are
    only kept, to become one."""

    def check(found: CaseFigures) -> None:
        if setup.not_timed and setup.device == "cuda":
            _leave_out(setup, f"a GPU's baseline holds times, and this run is {setup.not_timed}")
        keep(evidence.kept_figures(case.study, found))
        if request.config.option.record:
            return
        choices = movement.choices(setup, case.study, found.inputs)
        if choices[UNMOVED].measured is None:
            _leave_out(setup, f"{NO_BASELINE}{choices[UNMOVED].why}; --record writes one")
        hold([verdict for claim, choice in choices.items() for verdict in movement.compare(choice, found, claim)])

    return check


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hands over what the test kept. A SuiteError says what is wrong and the way out on one line; how the suite came to
    it helps nobody."""
    found = yield
    setup = item.config.stash[SETUP]
    of_process = evidence.kept_of_process(setup.notes, setup.opened)
    setattr(found, evidence.KEPT, [*item.stash.get(KEPT, []), of_process])
    if call.excinfo is not None and isinstance(call.excinfo.value, SuiteError):
        setattr(found, evidence.INFRASTRUCTURE, True)
        found.longrepr = f"{item.nodeid}: {type(call.excinfo.value).__name__}: {call.excinfo.value}"
    return found


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Under `--record`, writes baselines from a run that was whole and green; under `--report`, the run's pages. A gate
    that compared nothing fails, and so does a waiver that is out of date. What goes wrong in one of these steps is a
    line of the summary and a red run, and stops none of the others."""
    config = session.config
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    setup, option, applied = config.stash[SETUP], config.option, config.stash[WAIVERS]
    found = config.stash[EVIDENCE] = _evidence(config)
    notes = setup.notes  # this process's, then those of others, then what is found here
    notes += [note for note in found.notes if note not in notes]
    compared: list[publish.Sides] = []
    if ended := recording.CUT_SHORT.get(exitstatus) or session.shouldfail or session.shouldstop:
        notes.append(f"not a whole run: {ended}")
    with _failing(notes):
        compared += publish.sides(found, setup)
        notes += [f"failed: {each.unreadable}" for each in compared if each.unreadable]
        notes += publish.accepted(compared)
        notes += [f"failed: {problem}" for problem in publish.vanished(compared, setup) if not option.record]
    with _failing(notes):
        if option.record:
            written = recording.record(found, setup, exitstatus, option.accept_flip)
            notes += [*written, *publish.replaced(compared)]
        elif setup.asked:
            judged = [each for each in found.verdicts if each.outcome is not Outcome.INVALID]
            if problem := gate(setup.asked, probe(), None, len(judged), len(found.verdicts), len(found.engines)):
                raise SuiteError(problem)
    with _failing(notes):
        known = waivers.read()
        notes += [f"failed: {problem}" for problem in waivers.problems(known, datetime.now(UTC).date())]
        notes += waivers.lines(applied, found.verdicts)
    with _failing(notes):
        command = shlex.join(["pytest", *config.invocation_params.args])
        if option.before is None:
            whole = publish.of_run(found, setup, compared, notes, command, config.stash[CONTROL], applied)
        else:
            pairs, problems = compare.pairs(option.before, option.here)
            notes += [f"failed: {problem}" for problem in problems]
            whole = _comparison(pairs, found, notes, command, applied)
            notes += compare.remarks(pairs)
        config.stash[CAUSES] = publish.causes_by_title(whole)
        if option.report is not None:
            notes += publish.write(option.report, whole, [each.here for each in compared])
    if any(note.startswith("failed: ") for note in notes):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@contextmanager
def _failing(notes: list[str]) -> Iterator[None]:
    """Turns an error of the block into a line that fails the run."""
    try:
        yield
    except (SuiteError, OSError) as error:
        notes.append(f"failed: {error}")


def _comparison(
    pairs: Sequence[compare.Pair], found: Evidence, notes: Sequence[str], command: str, applied: Sequence[Waiver]
) -> Document:
    """The document of a comparison of two recorded runs, as its tests found it."""
    return compare.document_of(
        pairs,
        found.verdicts,
        command,
        found.passed,
        len(found.failed),
        left_out=found.left_out,
        failures=found.failures,
        notes=notes,
        applied=applied,
    )


def _evidence(config: pytest.Config) -> Evidence:
    """What all tests left, whichever process they ran in."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    stats = reporter.stats.values() if reporter is not None else ()
    kinds = (pytest.TestReport, pytest.CollectReport)
    return evidence.collect(each for group in stats for each in group if isinstance(each, kinds))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    setup, found = config.stash[SETUP], config.stash.get(EVIDENCE, Evidence())
    sections = report.sections(found.verdicts, setup, setup.notes, config.stash.get(CAUSES, {}), found.left_out)
    for title, lines in sections.items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)
