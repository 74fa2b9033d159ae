"""The suite as its users run it, in processes of its own: what ends at once, what it collects, and what it prints."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from fixtures import document

# ---- bad input ends at once


def test_gate_without_its_gpu(runs):
    """C37: `pytest -m b200` where there is none is a failure within 10 seconds that says so, not a row of skips."""
    run = runs["gate"]
    assert run.code == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: asked for B200, found none: " in run.output
    assert run.seconds < 10


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("unknown engine", ("--engine", "invalid choice: 'magic'", "onnxruntime")),
        ("unknown device", ("--device", "invalid choice: 'tpu'", "cuda")),
        ("unknown folder", ("--checkpoints /no/such/folder: no such folder; give hub, synthetic or a folder",)),
        ("unknown data", ("--datasets synthetic: no such folder; give hub, embedded or a folder",)),
        ("samples", ("--samples x: give a whole number from 1 up",)),
        ("record side by side", ("--record", "run without -n")),
        ("reason without a record", ("--accept-flip: give the reason, together with --record",)),
        ("no reason", ("--accept-flip: give the reason, together with --record",)),
        ("one side", ("--before and --here go together", "--here=FILE")),
        ("nothing to compare", ("--before and --here go together", "--here=FILE")),
        ("no records", ("no/such.json: no measured file there",)),
        ("other tests beside", ("no/such.json: no measured file there",)),
        ("empty option", ("--report", "it is empty; name a path")),
        ("no terminal", ("-p no:terminal", "take -q")),
        ("no control", ("absent.json", "write one with --report DIR")),
    ],
)
def test_bad_option(runs, name, words):
    """One line names the option, what is wrong with it and the way out, before a test is collected."""
    run = runs[name]
    assert run.code == pytest.ExitCode.USAGE_ERROR
    (line,) = (line for line in run.output.splitlines() if words[0] in line and "rror: " in line.lower())
    assert [word for word in words if word not in line] == []
    assert "Traceback" not in run.output


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no weights", ("without-weights: it has no weights; bring model.safetensors",)),
        ("offline", ("google/fnet-base", "HF_HUB_OFFLINE")),
    ],
)
def test_inputs_that_are_not_there(runs, name, words):
    """C34: a failure in one line, never other weights, and the cache is as it was."""
    run = runs[name]
    assert run.code == pytest.ExitCode.TESTS_FAILED
    (line,) = (line for line in run.output.splitlines() if line.startswith("tests/") and ": InputError: " in line)
    assert "Traceback" not in run.output
    assert [word for word in words if word not in line] == []
    assert not runs.engine_cache.exists()


# ---- a gate that says nothing is not green


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gate without verdict", "failed: asked for H200, but no test came to a verdict"),
        ("gate without times", "not timed: benchmarks are off"),
        ("gate without baseline", "no baseline: "),
        ("without pytest-benchmark", "not timed: pytest-benchmark is not loaded"),
    ],
)
def test_gate_is_red(runs, name, words):
    """C21, C22: on the GPU that was asked for, tests that compare nothing, time nothing or find no baseline fail."""
    assert runs[name].code == pytest.ExitCode.TESTS_FAILED
    assert words in runs[name].output


def test_claim_that_is_not_there(runs):
    """A slip in a mark is one line with what it may have meant."""
    run = runs["unknown claim"]
    assert run.code == pytest.ExitCode.INTERRUPTED
    assert "no claim 'fnet/fp16-not-finite-at-521' in baselines/conclusions.toml; it has fnet/fp16-not" in run.output
    assert "Traceback" not in run.output
    assert "conftest.py:" not in run.output


def test_run_that_stops_at_a_failure_is_not_whole(runs):
    """C21: -x leaves tests out that nothing else would name."""
    assert re.search(r"^not a whole run: stopping after 1 failures$", runs["first failure"].output, re.MULTILINE)


def test_sound_times_are_published(runs):
    """Its users' `--benchmark-only` and JSON work: milliseconds a call become its seconds, and its own profiler, which
    calls once more, adds none. Times with problems are no benchmark, and a gate is red for them."""
    (found,) = json.loads(runs.benchmarks.read_text())["benchmarks"]
    assert found["name"].startswith("test_to_publish[")
    assert found["stats"]["data"] == pytest.approx([0.002, 0.004, 0.003])
    assert "not published: throttled: hw_slowdown; the engine is fp16" in runs["published"].output
    assert "1 failed, 1 passed" in runs["published"].output
    assert "1 passed" in runs["published and profiled"].output


def test_gate_with_a_broken_tensorrt(runs):
    """C37: a package that is there and cannot be loaded is one line, not an internal error."""
    run = runs["gate with a broken TensorRT"]
    assert run.code == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: TensorRT is not installed" in run.output
    assert "Traceback" not in run.output


# ---- what is run


def test_plain_run_is_of_the_studies(runs):
    """The suite's own tests are not among them: they say nothing of a GPU."""
    run = runs["collect"]
    assert run.code == pytest.ExitCode.OK
    assert "tests/fnet/test_numerics.py::test_fp16_is_not_finite_at_512[base-512-b1-fp16]" in run.output
    assert "tests/meta" not in run.output


def test_own_tests_run_when_named(runs):
    """`pytest tests/meta` finds them, and no study's."""
    run = runs["collect meta"]
    assert run.code == pytest.ExitCode.OK
    assert "tests/meta/test_cases.py::test_id_and_group" in run.output
    assert "tests/fnet" not in run.output


# ---- what is printed, from two processes at once


def test_failure_shows_the_whole_verdict(runs):
    """Claim, case and outcome, what was measured against what and why, and what to do next."""
    run = runs["side by side"]
    assert run.code == pytest.ExitCode.TESTS_FAILED
    lines = run.output.splitlines()
    start = lines.index("fnet/fp16-not-finite-at-512 [base-512-b1-fp16]: flipped")
    block = [line.strip().split(maxsplit=1) for line in lines[start + 1 : start + 10]]
    assert [name for name, _ in block] == [
        "measured",
        "interval",
        "limits",
        "margin",
        "documented",
        "baseline",
        "samples",
        "note",
        "next",
    ]
    assert block[0][1] == "nonfinite_share = 0.25 share"


def test_summary(runs):
    """C22, C23: every claim once, by its worst case, and every figure counted once, whichever process it came from."""
    output = runs["side by side"].output
    rows = {line.split()[0]: line for line in output.splitlines() if line.startswith("fnet/")}
    assert re.search(r"25% to 100% +65 points past it +flipped$", rows["fnet/fp16-not-finite-at-512"])
    assert re.search(r"not finite \(nan\) in \d of \d +unknown +invalid$", rows["fnet/fp16-hs-finite-at-512"])
    assert re.search(r"55,233 +10,271 to spare +holds$", rows["fnet/dft-fits-fp16-at-256"])
    assert "2 figures compared, 1 outside their tolerance\na-case: latency 2 ms, was 1 ms" in output
    assert "3 failed, 7 passed, 2 skipped" in output


def test_report_has_what_every_process_found(runs):
    """C22: the document of a run in two processes has each verdict once, and the pages are there."""
    assert runs["side by side"].code == pytest.ExitCode.TESTS_FAILED
    found = document.read(runs.report / "verdicts.json")
    assert (found.passed, found.failed) == (7, 3)
    outcomes = {(each.claim, each.case): each.outcome for each in found.verdicts}
    assert len(outcomes) == len(found.verdicts)
    assert outcomes["fnet/fp16-not-finite-at-512", "base-512-b1-fp16"] == "flipped"
    assert outcomes["fnet/fp16-hs-finite-at-512", "base-512-b1-fp16+hs"] == "invalid"
    assert outcomes["unmoved", "a-case"] == "moved"
    assert {path.name for path in runs.report.iterdir()} == {"verdicts.json", "report.html", "report.md"}


def test_verdicts_are_properties_in_the_junit_file(runs):
    """Each as strict JSON, so that a dashboard needs no other file."""
    assert runs["side by side"].code == pytest.ExitCode.TESTS_FAILED
    properties = ElementTree.parse(runs.junit).iterfind(".//testcase/properties/property[@name='verdict']")
    verdicts = [json.loads(each.attrib["value"], parse_constant=pytest.fail) for each in properties]
    assert {(each["claim"], each["outcome"]) for each in verdicts} >= {
        ("fnet/fp16-not-finite-at-512", "flipped"),
        ("fnet/fp16-hs-finite-at-512", "invalid"),
        ("unmoved", "moved"),
    }


def test_decision_is_in_the_summary(runs):
    """What the claims come to: one of two models no longer overflows, which reopens the decision."""
    (line,) = (line for line in runs["side by side"].output.splitlines() if line.startswith("REOPENED: "))
    assert '"Ship fp16 with hidden-axis scaling for FNet at 512 tokens"' in line
    assert "nonfinite share 25% in base-512-b1-fp16 (limit 90%)" in line


def test_speed_is_not_timed_and_says_so(runs):
    """C22: left out by name, and not passed."""
    assert re.search(r"SKIPPED .*left out: not timed: ", runs["side by side"].output)


def test_figure_that_is_printed_elsewhere_is_no_pass(runs):
    """C21: a test whose figures this run has no print of is left out and says which."""
    assert re.search(
        r"SKIPPED .*left out: the study prints none of latency for base-512-b1-fp8", runs["side by side"].output
    )


def test_header(runs):
    """What is compared stands above the results."""
    assert "engine: onnxruntime (no TensorRT with a GPU), device: cpu (no CUDA GPU)" in runs["side by side"].output


# ---- baselines over several runs


def test_recorded_and_run_again_is_green(runs):
    """The first record is pinned too, and the same figures hold against it."""
    assert runs["recorded"].code == pytest.ExitCode.OK
    assert re.findall(
        r"^(recorded|pinned) .*/cpu/onnxruntime-.*/fnet.json$", runs["recorded"].output, re.MULTILINE
    ) == [
        "recorded",
        "pinned",
    ]
    assert runs["again"].code == pytest.ExitCode.OK
    assert re.search(r"^\d+ figures compared, 0 outside their tolerance$", runs["again"].output, re.MULTILINE)


def test_record_of_unchecked_claims_is_refused(runs):
    """A selection that measures every case and checks no claim is no baseline: a flip would go unseen."""
    assert runs["unchecked"].code == pytest.ExitCode.TESTS_FAILED
    assert re.search(r"^failed: fnet/.* was not checked; record a study's whole run", runs["unchecked"].output, re.M)


def test_interrupted_run_leaves_the_baseline_as_it_was(runs):
    """A step of 8% from what was recorded first still holds, so the 16% of the interrupted run are not there."""
    assert runs["interrupted"].code == pytest.ExitCode.INTERRUPTED
    assert not re.search(r"^(recorded|pinned) ", runs["interrupted"].output, re.MULTILINE)
    assert runs["one step"].code == pytest.ExitCode.OK


def test_flip_is_recorded_with_a_reason_alone(runs):
    """Without one the run says which claim flipped; with one the record is written, though the run stays red."""
    assert runs["flip"].code == pytest.ExitCode.TESTS_FAILED
    assert "failed: fnet/fp8-no-output-dense-kl flipped; confirm it" in runs["flip"].output
    assert runs["accepted flip"].code == pytest.ExitCode.TESTS_FAILED
    assert re.search(r"^recorded .*fnet.json$", runs["accepted flip"].output, re.MULTILINE)
    later = "accepted in the baseline, fnet/fp8-no-output-dense-kl: seen on two machines"
    assert later in runs["slow drift"].output.splitlines()


def test_slow_drift_is_red(runs):
    """Two steps of 8% hold each against the record before it, and not against the pinned one."""
    run = runs["slow drift"]
    assert run.code == pytest.ExitCode.TESTS_FAILED
    moved = [line for line in run.output.splitlines() if ": kl_mean 0.0116 nats, was " in line]
    assert moved
    assert all("was pinned at 0.01 nats" in line for line in moved)


def test_notes_are_in_the_result(runs):
    """C11: what a reader must know beside the verdicts is in the summary and in verdicts.json, whichever process noted
    it, and once."""
    note = "fnet: a cache entry was made again"
    for run, folder in (("slow drift", runs.drift), ("side by side", runs.report)):
        assert runs[run].output.splitlines().count(note) == 1
        assert document.read(folder / "verdicts.json").notes.count(note) == 1


def test_case_that_vanished_is_red(runs):
    """C21: a case of the baseline that the study has no more fails the run by name, though all that ran held."""
    run = runs["vanished"]
    assert run.code == pytest.ExitCode.TESTS_FAILED
    assert "failed: base-64-b1-fp8 of the baseline did not run" in run.output
    assert not re.search(r"\d+ failed", run.output)
    assert "did not run" not in runs["one step"].output


def test_older_baseline_is_named_and_hides_nothing(runs):
    """C25: a bad file fails what rests on it, with the way out, and what does not is judged all the same."""
    run = runs["older schema"]
    assert run.code == pytest.ExitCode.TESTS_FAILED
    assert "fnet.json: schema 1, and this suite reads 2; remove it and record anew" in run.output
    assert re.search(r"^fnet/fp8-no-output-dense-kl .*flipped$", run.output, re.MULTILINE)
    assert "INTERNALERROR" not in run.output
    assert "Traceback" not in run.output


def test_report_that_cannot_be_written_loses_nothing_else(runs):
    """A line that says why, a red run, and the summary all the same."""
    run = runs["report that cannot be written"]
    assert run.code == pytest.ExitCode.TESTS_FAILED
    assert "failed: --report /proc/report: it cannot be written" in run.output
    assert re.search(r"^fnet/fp8-no-output-dense-kl .*holds$", run.output, re.MULTILINE)
    assert "Traceback" not in run.output
