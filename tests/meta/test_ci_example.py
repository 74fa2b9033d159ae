"""The example workflow: what starts it, what it may do, and its scripts, run with stand-ins for pip and pytest."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from fixtures.setup import asked_gpus, decide
from tests.meta.setups import B200, B300, Given

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / ".ci/github-actions.yml").read_text()
WORKFLOW = yaml.safe_load(TEXT)
TRIGGERS = WORKFLOW[True]  # "on" is a truth value in YAML 1.1
JOB = WORKFLOW["jobs"]["gate"]
STEPS = {step.get("name", step.get("uses")): step for step in JOB["steps"]}
SCRIPTS = {name: step["run"] for name, step in STEPS.items() if "run" in step}
MACHINES = {"b200": B200, "b300": B300}

# Stands for pip and pytest: one line an argument, and the exit status that the test asks for.
STAND_IN = """#!/usr/bin/env bash
printf '%s\\n' "$@"
exit "$CODE"
"""


@pytest.fixture
def run(tmp_path: Path):
    """Runs a step's script in an empty workspace as a runner does, on a B200 with TensorRT 11.4 unless told."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("pip", "pytest"):
        (commands / name).write_text(STAND_IN)
        (commands / name).chmod(0o755)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    stands = {"MARK": "b200", "TENSORRT": "11.4", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}

    def script(name: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = JOB["env"] | stands | {"PATH": path, "CODE": str(code)} | variables
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", SCRIPTS[name]]
        return subprocess.run(command, cwd=workspace, env=environment, capture_output=True, text=True, check=False)

    script.workspace, script.summary = workspace, tmp_path / "summary.md"
    return script


def options(said: str) -> dict[str, str]:
    """pytest's arguments, by option."""
    joined = re.sub(r"^-m\n", "-m=", said, flags=re.MULTILINE)
    return dict(line.split("=", 1) for line in joined.splitlines())


# ---- when, where and with what rights


def test_triggers():
    """It runs every week, when a person asks, and for changes of what it runs: each path is one of the repository."""
    assert set(TRIGGERS) == {"schedule", "workflow_dispatch", "pull_request"}
    ((_, _, day_of_month, month, weekday),) = (each["cron"].split() for each in TRIGGERS["schedule"])
    assert (day_of_month, month) == ("*", "*")
    assert weekday in "0123456"
    paths = [path for path in TRIGGERS["pull_request"]["paths"] if not path.startswith(".github/")]
    assert [path for path in paths if not any(ROOT.glob(path.removeprefix("!")))] == []


def test_rights():
    """It reads the repository and nothing more, keeps no credentials, and runs no fork's code on its runners."""
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "permissions" not in JOB
    assert "secrets" not in TEXT.replace("no secrets", "")
    (checkout,) = (step for name, step in STEPS.items() if name.startswith("actions/checkout@"))
    assert checkout["with"]["persist-credentials"] is False
    assert "github.event.pull_request.head.repo.full_name == github.repository" in JOB["if"]


def test_actions_are_pinned():
    """By a commit, with its release beside it: a tag can be moved to other code. The one in the comment too."""
    used = re.findall(r"uses: *(.*)", TEXT)
    assert len(used) == 4
    assert [each for each in used if not re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", each)] == []


def test_one_job_a_gpu():
    """Two jobs on one GPU would spoil each other's times: the second waits, is not cancelled, and none hangs."""
    assert JOB["concurrency"] == {"group": "gpu-${{ matrix.gpu }}", "queue": "max"}
    assert JOB["runs-on"] == ["self-hosted", "gpu", "${{ matrix.gpu }}"]
    assert 60 <= JOB["timeout-minutes"] <= 360  # 360 is what a job has without a word


@pytest.mark.parametrize("gpu", JOB["strategy"]["matrix"]["gpu"])
def test_each_gpu_has_a_gate(gpu, pytestconfig):
    """The matrix names marks that stand for a GPU."""
    assert asked_gpus(gpu) == {gpu}
    assert [line for line in pytestconfig.getini("markers") if line.startswith(f"{gpu}:")]


@pytest.mark.parametrize("name", ["ENGINE_CACHE", "HF_HOME"])
def test_caches_outlive_the_job(name):
    """Checking out empties the workspace, so what is kept between runs lies outside of it."""
    assert Path(JOB["env"][name]).is_absolute()


# ---- what the steps do


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_script(script):
    """It is sound Bash, and takes what is not constant from variables: pasted into a script it would be run."""
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False, capture_output=True).stderr == ""
    assert "${{" not in script


@pytest.mark.parametrize(
    ("asked", "found", "installed"),
    [
        ("11.4", "11.4.0.106", True),
        ("11.4", "11.5.0.60", False),
        ("11", "11.5.0.60", True),
        ("11", "12.0.0.1", False),
        ("11.5.0.60", "11.5.0.60", True),
        ("11.5.0.60", "11.5.0.61", False),
    ],
)
def test_tensorrt_that_is_installed(run, asked, found, installed):
    """The matrix's version stands for those that begin with it, also beyond the range of the project's own extra."""
    command, suite, tensorrt = run("packages", TENSORRT=asked).stdout.splitlines()
    (extra,) = re.fullmatch(r"\.\[(\w+)\]", suite).groups()
    assert command == "install"
    assert extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert Requirement(tensorrt).name == "tensorrt"
    assert Requirement(tensorrt).specifier.contains(found) is installed


@pytest.mark.parametrize("step", ["control", "gate"])
def test_options_are_the_suites(run, step, pytestconfig):
    """No option that pytest, the suite or a plugin it needs does not have; `getoption` raises for such a one."""
    for option in options(run(step).stdout):
        pytestconfig.getoption(option)


@pytest.mark.parametrize(("step", "engine"), [("control", "onnxruntime"), ("gate", "tensorrt")])
@pytest.mark.parametrize("gpu", JOB["strategy"]["matrix"]["gpu"])
def test_what_a_step_compares(run, step, engine, gpu):
    """Control and gate differ in their engine alone: same GPU, weights, data and cache."""
    given: Mapping[str, Any] = options(run(step, MARK=gpu).stdout)
    decision = decide(Given(engine=given.get("--engine", "auto"), markexpr=given["-m"]), MACHINES[gpu], tensorrt=True)
    found = (decision.engine, decision.device, decision.checkpoints, decision.datasets, decision.asked)
    assert found == (engine, "cuda", "hub", "hub", {gpu})
    assert given["--engine-cache"] == JOB["env"]["ENGINE_CACHE"]


def test_gate_is_held_against_the_control(run):
    """It reads the verdicts that the control writes, and all that it writes itself is uploaded."""
    control, gate = options(run("control").stdout), options(run("gate").stdout)
    assert gate["--control"] == f"{control['--report']}/verdicts.json"
    (upload,) = (step["with"]["path"] for name, step in STEPS.items() if name.startswith("actions/upload-artifact@"))
    written = [gate[option] for option in ("--report", "--junitxml", "--benchmark-json")] + [control["--report"]]
    assert [path for path in written if not path.startswith(upload)] == []


@pytest.mark.parametrize("code", [pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED])
def test_red_gate_is_red(run, code):
    """C37: pytest's status is the step's, no tests at all included, and the job does not go on as if it were green."""
    assert run("gate", code=int(code)).returncode == code
    assert "continue-on-error" not in STEPS["gate"]


def test_verdicts_are_of_this_run(run):
    """C37: a report that an earlier run left behind is no result of this one."""
    left = run.workspace / "report/gate/verdicts.json"
    left.parent.mkdir(parents=True)
    left.write_text("{}")
    assert run("verdicts").returncode == 0
    assert run("control", code=1).returncode == 1
    assert run("verdicts").returncode == 1
    assert "::error::" in run("verdicts").stdout


def test_summary_is_the_gates(run):
    """The page of the run shows the gate's report."""
    report = run.workspace / "report/gate/report.md"
    report.parent.mkdir(parents=True)
    report.write_text("FP8 for FNet: stands\n")
    assert run("summary").returncode == 0
    assert run.summary.read_text() == "FP8 for FNet: stands\n"


def test_report_of_a_red_run_is_shown_and_kept():
    """A red run is the one whose report is read: nothing after the gate waits for it to be green."""
    names = list(STEPS)
    after = [STEPS[name] for name in names[names.index("gate") + 1 :]]
    assert len(after) == 3
    assert [step for step in after if step["if"] != "always()"] == []
