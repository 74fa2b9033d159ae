"""Whole runs of the suite, as its users start them, in processes of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
AT_MOST_S = 120  # where a run hangs

# pytest several times in one process, since its imports take longer than what these runs do. The first run's seconds
# are of the whole process; they are the CPU's, so that other work on the machine is not in them.
SCRIPT = """
import json, sys, time, pytest
for arguments in json.loads(sys.argv[1]):
    code = int(pytest.main(arguments))
    print(f"\\n== exit {code} after {time.process_time():.2f} s", flush=True)
"""
END = re.compile(r"\n== exit (\d+) after ([\d.]+) s\n")

# A study's tests in miniature: claims that flip, are not finite and hold, a figure that moved, one that is as printed,
# one that is printed for another machine, and a test of speed.
MADE_UP = """
import pytest
from fixtures import evidence
from fixtures.cases import studies
from fixtures.verdicts import UNMOVED
from fixtures.verdicts import Measurement, Outcome, Verdict, band

claim = pytest.mark.claim
printed = pytest.mark.parametrize("case", [studies()["fnet"].case("base-512-b1-fp8")], ids=str)

@claim("fnet/fp16-not-finite-at-512")
def test_known_issue(case, expect):
    expect(Measurement(0.25 if case.model == "base" else 1.0, 8, exact=True))

@claim("fnet/fp16-hs-finite-at-512")
def test_cure(case, expect):
    expect(Measurement(float("nan"), 8, exact=True))

@claim("fnet/dft-fits-fp16-at-256")
def test_cause(case, expect):
    expect(Measurement(55_233, 8, exact=True))

def test_figure(request):
    moved = Verdict(
        UNMOVED, "a-case", "latency", "ms", 2.0, None, band(1.0, 0.03, 0, "made up"), None, "1 ms", 9, Outcome.MOVED
    )
    request.node.user_properties.append(evidence.as_property(moved, None))

@printed
def test_as_printed(case, as_documented):
    as_documented({"agreement": Measurement(0.94, 8, exact=True), "latency": Measurement(9.9, 9, exact=True)})

@printed
def test_printed_elsewhere(case, as_documented):
    as_documented({"latency": Measurement(9.9, 9, exact=True)})

@pytest.mark.usefixtures("timed")
def test_speed():
    raise AssertionError("ran")

def test_note(setup):
    setup.notes.append("fnet: a cache entry was made again")
"""

# What may not pass where a GPU was asked for: a test without a verdict, one without times, one without a baseline, and
# times that nothing may rest on; beside times that are published.
GATED = """
import pytest
from fixtures.baselines import Inputs, Origin
from fixtures.cases import studies
from fixtures.movement import CaseFigures
from fixtures.timing import GPU_TIME

case = pytest.mark.parametrize("case", [studies()["fnet"].case("base-512-b1-fp8")], ids=str)

@case
def test_without_verdict(case):
    pass

@case
@pytest.mark.usefixtures("timed")
def test_without_times(case):
    pass

@case
def test_without_baseline(case, unmoved):
    unmoved(CaseFigures(case.id, "0" * 64, Inputs({"base": Origin("made up", "0" * 64)}, {}), {}))

@case
@pytest.mark.benchmark(group="made up", timer=GPU_TIME)
@pytest.mark.usefixtures("timed")
def test_to_publish(case, published):
    published((2.0, 4.0, 3.0), ())

@case
@pytest.mark.benchmark(group="made up", timer=GPU_TIME)
@pytest.mark.usefixtures("timed")
def test_not_to_publish(case, published):
    published((2.0, 4.0, 3.0), ("throttled: hw_slowdown", "the engine is fp16"))
"""

# A plugin that makes a machine with an H200 or, for `-m b200`, a B200 and a TensorRT package that cannot be imported.
# It stays for the rest of its process.
MACHINE = """
import sys
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    import conftest
    from tests.meta.setups import B200, H200

    study = config.option.markexpr == "b200"
    conftest.probe = lambda: B200 if study else H200
    conftest.has_tensorrt = lambda: study
    sys.modules["tensorrt"] = None
"""


# A study's figures over several runs: the same, 8% and 16% off, in the form of another suite, and a claim that flips.
# They are kept in a folder of their own, beside this file.
OVER_TIME = """
import json
from pathlib import Path
import pytest
from fixtures import baselines, recording
from fixtures.baselines import Figure, Inputs, Origin
from fixtures.conclusions import claims
from fixtures.movement import CaseFigures
from fixtures.verdicts import Measurement

FOLDER = Path(__file__).parent / "baselines"
every_case = pytest.mark.every_case("fnet")

for module in (baselines, recording):  # for good: records are written after the last test, and the process is its own
    module.MEASURED, module.PINNED = FOLDER / "measured", FOLDER / "pinned"

def figures(case, value):
    origin = Origin("made up", "0" * 64)
    inputs = Inputs({case.model: origin}, {f"{case.model}-{case.window}": origin})
    return CaseFigures(case.id, "1" * 64, inputs, {"kl_mean": Figure(value, "nats", 300)})

def test_poison():
    for path in FOLDER.glob("measured/*/*/*.json"):
        path.write_text(path.read_text().replace('"schema": 2', '"schema": 1'))

@every_case
def test_first(case, unmoved):
    unmoved(figures(case, 0.0100))

def test_extra():
    for path in FOLDER.glob("measured/*/*/fnet.json"):
        found = json.loads(path.read_text())
        for record in found["records"].values():
            for known in (record["figures"], record["graphs"]):
                known["base-64-b1-fp8"] = known["base-256-b1-fp8"]
        path.write_text(json.dumps(found))

def test_interrupt():
    raise KeyboardInterrupt

@every_case
def test_second(case, unmoved):
    unmoved(figures(case, 0.0108))

def test_note(setup):
    setup.notes.append("fnet: a cache entry was made again")

@every_case
def test_third(case, unmoved):
    unmoved(figures(case, 0.0116))

FLIPS = "fnet/fp8-no-output-dense-kl"

@pytest.mark.claim(*(id for id in claims("fnet") if id != FLIPS))
def test_claims(claim, case, expect):
    limits = claim.limits
    expect(Measurement(limits.high if limits.low is None else limits.low, 8, exact=True))

@pytest.mark.claim(FLIPS)
def test_kept(case, expect):
    expect(Measurement(0.6, 8, exact=True))

@pytest.mark.claim(FLIPS)
def test_flip(case, expect):
    expect(Measurement(0.99, 8, exact=True))
"""


@dataclass(frozen=True)
class Ended:
    """One run: its exit code, all that it printed, and the CPU seconds of its process until then."""

    code: int
    output: str
    seconds: float


class Process:
    """pytest with each of some lists of arguments in turn, from the repository's root; started at once."""

    def __init__(self, runs: Mapping[str, list[str]], log: Path, **variables: str) -> None:
        self._names, self._log = list(runs), log
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"} | variables
        arguments = [["-p", "no:cacheprovider", *run] for run in runs.values()]
        with log.open("w") as output:  # a pipe that nobody reads yet would fill up
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-c", SCRIPT, json.dumps(arguments)],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @cached_property
    def ended(self) -> dict[str, Ended]:
        """Every run by its name, once the last one is done."""
        try:
            self._process.wait(AT_MOST_S)
        finally:
            self.kill()
        parts = END.split(self._log.read_text())
        runs = zip(self._names, parts[:-1:3], parts[1::3], parts[2::3], strict=True)
        return {name: Ended(int(code), output, float(seconds)) for name, output, code, seconds in runs}

    def kill(self) -> None:
        """End it if it still runs."""
        self._process.kill()
        self._process.wait()


class Runs:
    """The runs that test_suite.py looks at. `folder` holds what they are given: a checkpoint without weights, an empty
    hub cache, and an engine cache that is not there."""

    def __init__(self, folder: Path) -> None:
        self.engine_cache = folder / "engine-cache"
        weightless, made_up = folder / "without-weights", folder / "test_made_up.py"
        weightless.mkdir()
        (weightless / "config.json").write_text('{"model_type": "fnet"}')
        made_up.write_text(MADE_UP)
        gated = folder / "test_gated.py"
        gated.write_text(GATED)
        (folder / "machine.py").write_text(MACHINE)
        one_case = ["tests/fnet/test_recipe.py", "-k", "outlier and base-512", "--engine-cache", str(self.engine_cache)]
        one_by_one = {
            "gate": ["-m", "b200"],
            "unknown engine": ["--engine", "magic"],
            "unknown device": ["--device", "tpu"],
            "unknown folder": ["--checkpoints", "/no/such/folder"],
            "unknown data": ["--datasets", "synthetic"],
            "samples": ["--samples", "x"],
            "reason without a record": ["--accept-flip", "confirmed"],
            "no reason": ["--record", "--accept-flip", " "],
            "one side": ["--before", "a.json", "--collect-only"],
            "nothing to compare": ["tests/compare"],
            "no records": ["tests/compare", "--before=/no/such.json", "--here=/no/such.json"],
            "other tests beside": ["tests/fnet", "--before=/no/such.json", "--here=/no/such/other.json"],
            "empty option": ["--report="],
            "no terminal": ["-p", "no:terminal", "-o", "addopts="],
            "no control": ["--control", str(folder / "absent.json")],
            "record side by side": ["--record", "-n", "2", "--collect-only", "-q"],
            "collect": ["--collect-only", "-q"],
            "collect meta": ["--collect-only", "-q", "tests/meta", "--ignore-glob", "*/test_[!c]*"],
            "no weights": [*one_case, "--checkpoints", str(weightless)],
            "offline": [*one_case, "--checkpoints", "hub"],
        }
        hub = ["--checkpoints", "hub", "--datasets", "hub"]
        self.junit, self.report = folder / "junit.xml", folder / "report"
        self.benchmarks, self.drift = folder / "benchmarks.json", folder / "drift"
        as_here = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "conftest"]
        on_h200 = [*as_here, "-p", "machine", str(gated), "-m", "h200", "-k"]
        on_a_gpu = {  # last: the machine that they make up stays
            "gate without verdict": [*on_h200, "without_verdict"],
            "gate without times": [*on_h200, "without_times", "--benchmark-disable"],
            "gate without baseline": [*on_h200, "without_baseline"],
            "published": [*on_h200, "to_publish", "--benchmark-only", f"--benchmark-json={self.benchmarks}"],
            "published and profiled": [*on_h200, "to_publish and not not_to", "--benchmark-cprofile=tottime"],
            "without pytest-benchmark": [*on_h200, "to_publish and not not_to", "-p", "no:benchmark"],
            "gate with a broken TensorRT": [*as_here, "-p", "machine", str(gated), "-m", "b200"],
        }
        written = ["--junitxml", str(self.junit), f"--report={self.report}"]
        unknown = folder / "test_unknown_claim.py"
        unknown.write_text('import pytest\n\n@pytest.mark.claim("fnet/fp16-not-finite-at-521")\ndef test(case): ...\n')
        one_by_one |= {
            "unknown claim": [*as_here, str(unknown)],
            "first failure": [*as_here, str(made_up), "-x"],
        }
        side_by_side = {"side by side": [*as_here, "-n", "2", *hub, *written, str(made_up)]}
        path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub"), "PYTHONPATH": path}
        over_time = folder / "test_over_time.py"
        over_time.write_text(OVER_TIME)
        chosen = [*as_here, str(over_time), "-k"]
        in_turn = {
            "recorded": [*chosen, "first or claims or kept", "--record"],
            "unchecked": [*chosen, "first", "--record"],
            "again": [*chosen, "first"],
            "interrupted": [*chosen, "third or claims or kept or interrupt", "--record"],
            "one step": [*chosen, "second"],
            "flip": [*chosen, "second or claims or flip", "--record"],
            "accepted flip": [*chosen, "second or claims or flip", "--record", "--accept-flip", "seen on two machines"],
            "slow drift": [*chosen, "third or note", f"--report={self.drift}"],
            "report that cannot be written": [*chosen, "kept", "--report=/proc/report"],
            "vanished": [*chosen, "extra or second"],
            "older schema": [*chosen, "poison or first or flip", f"--report={folder / 'poisoned'}"],
        }
        self._processes = (
            Process(one_by_one | in_turn | on_a_gpu, folder / "one-by-one.log", **offline),
            Process(side_by_side, folder / "side-by-side.log"),
        )

    def __getitem__(self, name: str) -> Ended:
        return {name: run for process in self._processes for name, run in process.ended.items()}[name]

    def kill(self) -> None:
        """End what still runs."""
        for process in self._processes:
            process.kill()
