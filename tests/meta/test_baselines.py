"""Measured baselines: what is written is read back, what is odd is refused by name, and none serves another run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.baselines import (
    SCHEMA,
    Figure,
    Inputs,
    Measured,
    Origin,
    choose,
    compare,
    device_slug,
    read,
    record,
)
from fixtures.errors import InputError
from fixtures.strict import FOLDER

CASES = [
    f"base-512-b1-{variant}" for variant in ("fp32", "fp16", "fp16+hs", "fp16+dft32", "fp8", "fp8-no-output-dense")
]


def sha(text: str) -> str:
    return (text * 64)[:64]


def inputs(weights: str = "a", rows: str = "b") -> Inputs:
    return Inputs(
        checkpoints={"base": Origin("synthetic seed 0", sha(weights)), "large": Origin("synthetic seed 0", sha("c"))},
        encoded={"held-out-512": Origin("embedded topics", sha(rows)), "held-out-256": Origin("embedded", sha("d"))},
    )


def measured(**changes: Any) -> Measured:
    """A sound record of six cases, with `changes`."""
    latency = Figure(value=0.752, unit="ms", samples=9, low=0.751, high=0.754)
    whole = Measured(
        study="fnet",
        engine="onnxruntime",
        version="1.31.1",
        device="NVIDIA H200",
        recorded=date(2026, 11, 30),
        environment={"python": "3.11.9", "driver": "580.1"},
        inputs=inputs(),
        graphs={case: sha("e") for case in CASES},
        figures={case: {"latency": latency, "kl_mean": Figure(5.9e-06, "nats", 300)} for case in CASES},
        builds=3,
        canaries={CASES[4]: {"layers": 412, "reformat_layers": 3}},
        telemetry={"base-512-b1": {"SM clock": "1980 MHz"}},
        accepted={},
    )
    return replace(whole, **changes)


def only(case: str, figure: Figure) -> dict[str, Any]:
    """Changes for a record of one figure."""
    return {"graphs": {case: sha("e")}, "figures": {case: {"kl_mean": figure}}, "canaries": {}}


def choice(root: Path, **changes: Any) -> tuple[str | None, str]:
    """The version that is chosen for a run on an H200 with ONNX Runtime 1.31.1, and why."""
    run = {"device": "NVIDIA H200", "engine": "onnxruntime", "version": "1.31.1", "study": "fnet", "inputs": inputs()}
    found = choose(root, **(run | changes))
    return found.measured and found.measured.version, found.why


# ---------------------------------------------------------------------------------------------- record and read


def test_record_is_read_back(tmp_path: Path) -> None:
    """Every value comes back as it was, from the design's path, and nothing else is left there."""
    path = record(tmp_path, measured())
    assert path == tmp_path / "nvidia-h200" / "onnxruntime-1.31.1" / "fnet.json"
    assert read(path) == (measured(),)
    assert list(path.parent.iterdir()) == [path]


def test_changed_figure_is_one_changed_line(tmp_path: Path) -> None:
    """A reviewer's diff shows the figure that changed, whole, and nothing else."""
    whole = measured()
    figures = {**whole.figures, CASES[4]: {**whole.figures[CASES[4]], "kl_mean": Figure(0.0095, "nats", 300)}}
    changed = replace(whole, figures=figures)
    before, after = (record(tmp_path, each).read_text().splitlines() for each in (whole, changed))
    assert [new.strip() for old, new in zip(before, after, strict=True) if old != new] == [
        '"kl_mean": {"samples": 300, "unit": "nats", "value": 0.0095},'
    ]


def test_recording_again_changes_nothing(tmp_path: Path) -> None:
    """The same record is the same bytes, whatever the order of its tables, so a diff shows changes alone."""
    before = record(tmp_path, measured()).read_bytes()
    whole = measured()
    turned = replace(whole, figures=dict(reversed(whole.figures.items())), graphs=dict(reversed(whole.graphs.items())))
    assert record(tmp_path, turned).read_bytes() == before


def test_one_file_keeps_a_record_for_each_inputs(tmp_path: Path) -> None:
    """A record replaces the one of the same inputs and leaves those of others as they are."""
    record(tmp_path, measured())
    record(tmp_path, measured(inputs=inputs(rows="f")))
    newer = measured(recorded=date(2026, 12, 1))
    path = record(tmp_path, newer)
    assert sorted(read(path), key=lambda each: each.recorded) == [measured(inputs=inputs(rows="f")), newer]


def test_inputs_are_the_same_wherever_they_lie() -> None:
    """The same weights and rows from another folder are the same inputs."""
    moved = replace(inputs(), checkpoints={n: replace(o, source="folder x") for n, o in inputs().checkpoints.items()})
    assert moved.digest == inputs().digest
    assert moved.difference(inputs()) is None


def test_odd_case_ids_and_a_case_without_parameters(tmp_path: Path) -> None:
    """C25: ids with "/", "[" and letters beyond ASCII are ids like any other, also beside a plain one."""
    cases = ["a/b", "latency[base-512]", "größe-∞", "plain"]
    figures = {case: {"latency": Figure(1.0, "ms", 9)} for case in cases}
    whole = measured(graphs={case: sha("e") for case in cases}, figures=figures, canaries={})
    assert read(record(tmp_path, whole)) == (whole,)
    assert compare(whole.figures, figures).complete


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (only("c", Figure(math.nan, "nats", 3)), "figures.c.kl_mean.value: .*finite number"),
        (only("c", Figure(math.inf, "nats", 3)), "figures.c.kl_mean.value: .*finite number"),
        (only("c", Figure(1.0, "nats", 3, low=math.nan, high=2.0)), "figures.c.kl_mean.low: .*finite number"),
        (only("c", Figure(True, "nats", 3)), "figures.c.kl_mean.value: .*valid number"),
        (only("c", Figure(1.0, "nats", 0)), "figures.c.kl_mean.samples"),
        (only("c", Figure(1.0, "nats", 3, low=1.1, high=1.2)), "figures.c.kl_mean: value 1.0 is outside 1.1..1.2"),
        (only("c", Figure(1.0, "nats", 3, low=0.9)), "figures.c.kl_mean: low and high belong together"),
        ({"figures": {}}, "figures: .*at least 1 item"),
        ({"figures": {"c": {}}, "graphs": {"c": sha("e")}}, "figures.c: .*at least 1 item"),
        ({"graphs": {case: sha("e") for case in CASES[:5]}}, "base-512-b1-fp8-no-output-dense has a graph or figures"),
        ({"graphs": dict.fromkeys(CASES, "unknown")}, "graphs.base-512-b1-fp16: .*pattern"),
        ({"environment": {}}, "environment: .*at least 1 item"),
        ({"environment": {"driver": math.nan}}, "environment.driver: .*valid string"),
        ({"inputs": replace(inputs(), checkpoints={})}, "inputs.checkpoints: .*at least 1 item"),
        ({"study": "../fnet"}, "study: .*pattern"),
        ({"device": " "}, "device name ' ' has no letter"),
        ({"version": "unknown"}, "engine version 'unknown' is not a version"),
    ],
)
def test_unsound_record_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """C23: a value that is not finite, or a record with a part missing, is never written; the file stays as it was."""
    path = record(tmp_path, measured())
    before = path.read_bytes()
    with pytest.raises(InputError, match=message) as caught:
        record(tmp_path, measured(**changes))
    assert "\n" not in str(caught.value)
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]
    assert path.read_bytes() == before


def test_numpy_value_is_recorded(tmp_path: Path) -> None:
    """A float64 from a metric is a number; its NaN is refused all the same."""
    (whole,) = read(record(tmp_path, measured(**only("c", Figure(np.float64(0.25), "nats", 3)))))
    assert whole.figures["c"]["kl_mean"].value == 0.25
    with pytest.raises(InputError, match="finite number"):
        record(tmp_path, measured(**only("c", Figure(np.float64("nan"), "nats", 3))))


def test_interrupted_write_leaves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that dies while it records leaves the baseline as it was."""
    path = record(tmp_path, measured())

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        record(tmp_path, measured(recorded=date(2026, 12, 1)))
    assert read(path) == (measured(),)
    assert list(path.parent.iterdir()) == [path]


def test_recording_over_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    """A file that cannot be read may hold other inputs' records, so it is not overwritten."""
    path = record(tmp_path, measured())
    path.write_text(path.read_text()[:200])
    with pytest.raises(InputError, match="not sound JSON"):
        record(tmp_path, measured())
    assert len(path.read_text()) == 200


# ---------------------------------------------------------------------------------------------- odd files


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a file's only record in place."""
    content = json.loads(path.read_text())
    (entry,) = content["records"].values()
    change(entry)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "NaN", "0.752", True, [0.752], {}])
def test_baseline_value_that_is_no_number_is_refused(tmp_path: Path, value: object) -> None:
    """C23: NaN, an infinity, null, a text or a boolean in a baseline names the file and the field."""
    path = record(tmp_path, measured())
    edit(path, lambda entry: entry["figures"]["base-512-b1-fp8"]["latency"].update(value=value))
    with pytest.raises(InputError, match=r"nvidia-h200/onnxruntime-1.31.1/fnet.json: .*value"):
        read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda entry: entry["figures"]["base-512-b1-fp8"]["latency"].pop("value"), "base-512-b1-fp8.latency.value"),
        (lambda entry: entry["figures"]["base-512-b1-fp8"]["latency"].pop("unit"), "base-512-b1-fp8.latency.unit"),
        (lambda entry: entry["figures"]["base-512-b1-fp8"]["latency"].update(p50=1.0), "latency.p50: Unexpected"),
        (lambda entry: entry.pop("graphs"), "graphs: .*required"),
        (lambda entry: entry["figures"].clear(), "figures: .*at least 1 item"),
        (lambda entry: entry.update(recorded="yesterday"), "recorded: .*date"),
        (lambda entry: entry["inputs"]["encoded"].popitem(), "digest .*edited by hand"),
        (
            lambda entry: entry.update(device="NVIDIA B200"),
            "holds a record of nvidia-b200/onnxruntime-1.31.1/fnet.json",
        ),
        (lambda entry: entry.update(version="1.31.2"), "holds a record of nvidia-h200/onnxruntime-1.31.2/fnet.json"),
        (lambda entry: entry.update(study="mnasnet"), "holds a record of .*/mnasnet.json"),
    ],
)
def test_odd_record_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    """C23, C25: a field too few or too many, or a record that belongs elsewhere, is named, never followed."""
    path = record(tmp_path, measured())
    edit(path, change)
    with pytest.raises(InputError, match=f"fnet.json: .*{message}") as caught:
        read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not sound JSON"),
        ("{}", "schema: .*required"),
        ("[]", "the whole"),
        (f'{{"schema": {SCHEMA}, "records": {{}}}}', "records: .*at least 1 item"),
        (
            f'{{"schema": {SCHEMA - 1}, "cases": []}}',
            f"schema {SCHEMA - 1}, and this suite reads {SCHEMA}; remove it and record anew",
        ),
        (f'{{"schema": {SCHEMA + 1}, "records": {{}}}}', f"schema {SCHEMA + 1}, .*; use the newer suite"),
        ('{"schema": true, "records": {}}', "schema: .*integer"),
        (f'{{"schema": {SCHEMA}, "schema": {SCHEMA}}}', "'schema' is there twice"),
    ],
)
def test_odd_file_is_refused(tmp_path: Path, content: str, message: str) -> None:
    """C21, C25: an empty file, another schema, or a name that is there twice says so."""
    path = record(tmp_path, measured())
    path.write_text(content)
    with pytest.raises(InputError, match=f"fnet.json: .*{message}") as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_cut_file_is_refused_at_every_length(tmp_path: Path) -> None:
    """C25: no part of a file is read as a smaller baseline."""
    path = record(tmp_path, measured())
    text = path.read_text().rstrip()
    for length in range(0, len(text), 97):
        path.write_text(text[:length])
        with pytest.raises(InputError, match="not sound JSON"):
            read(path)


def test_case_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """C25: of two cases with one id neither is the baseline."""
    path = record(tmp_path, measured())
    path.write_text(path.read_text().replace('"base-512-b1-fp16": {', '"base-512-b1-fp8": {'))
    with pytest.raises(InputError, match="'base-512-b1-fp8' is there twice"):
        read(path)


def test_bad_file_does_not_hide_another(tmp_path: Path) -> None:
    """C25: one study's broken file is an error, for that study alone."""
    path = record(tmp_path, measured(study="mnasnet"))
    path.write_text("{")
    record(tmp_path, measured())
    assert choice(tmp_path)[0] == "1.31.1"
    with pytest.raises(InputError, match=r"mnasnet.json: not sound JSON"):
        choice(tmp_path, study="mnasnet")


def test_committed_baselines_are_sound() -> None:
    """Every recorded file of the repository can be read."""
    for path in (FOLDER / "measured").rglob("*.json"):
        assert read(path)


# ---------------------------------------------------------------------------------------------- choice


def test_same_version_is_chosen(tmp_path: Path) -> None:
    """The baseline of the version under test comes first, and the reason names it."""
    for version in ("1.30.0", "1.31.1", "1.32.0"):
        record(tmp_path, measured(version=version))
    assert choice(tmp_path) == ("1.31.1", "onnxruntime 1.31.1 on NVIDIA H200, recorded 2026-11-30")


def test_newest_older_version_is_the_fall_back(tmp_path: Path) -> None:
    """Versions are ordered as versions, not as texts, and a newer one is never a baseline."""
    for version in ("1.9.2", "1.30.0", "1.31.2"):
        record(tmp_path, measured(version=version))
    version, why = choice(tmp_path)
    assert version == "1.30.0"
    assert "the newest recorded one before 1.31.1" in why


def test_newer_version_is_never_chosen(tmp_path: Path) -> None:
    """With newer versions alone there is no baseline, and the reason says so."""
    record(tmp_path, measured(version="1.32.0"))
    assert choice(tmp_path) == (None, "a newer version is never a baseline: 1.32.0")


@pytest.mark.parametrize("device", ["NVIDIA B200", "NVIDIA H200 NVL", "NVIDIA H200 MIG 1g.18gb", "NVIDIA H20", "cpu"])
def test_another_device_has_no_baseline(tmp_path: Path, device: str) -> None:
    """C21: a GPU's baseline serves no other GPU, nor its slice, nor a CPU; the reason lists what is recorded."""
    record(tmp_path, measured())
    assert choice(tmp_path, device=device) == (None, f"nothing is recorded on {device} (recorded on: nvidia-h200)")


def test_device_of_the_same_folder_has_no_baseline(tmp_path: Path) -> None:
    """C39: two names that differ in punctuation alone are one folder, and still two devices."""
    record(tmp_path, measured(device="NVIDIA X+1"))
    assert choice(tmp_path, device="NVIDIA X 1") == (None, "onnxruntime 1.31.1 is recorded on NVIDIA X+1")


def test_absent_folder_is_no_baseline(tmp_path: Path) -> None:
    """C21: a moved or missing folder is "nothing recorded", never a comparison of nothing."""
    assert choice(tmp_path / "moved") == (None, "nothing is recorded on NVIDIA H200 (recorded on: no device)")


@pytest.mark.parametrize("changes", [{"engine": "onnxruntime-cuda"}, {"engine": "tensorrt"}, {"study": "mnasnet"}])
def test_another_engine_or_study_has_no_baseline(tmp_path: Path, changes: dict[str, str]) -> None:
    """An engine's figures serve no other engine, also not one whose name begins like it, and no other study."""
    record(tmp_path, measured())
    version, why = choice(tmp_path, **changes)
    assert version is None
    assert why.startswith("nothing is recorded for")


def test_another_python_keeps_the_baseline(tmp_path: Path) -> None:
    """C21: the interpreter is in the record, not in the place that it is found by."""
    record(tmp_path, measured(environment={"python": "3.12.1"}))
    assert choice(tmp_path)[0] == "1.31.1"


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (inputs(weights="f"), "checkpoint 'base' synthetic seed 0 (aaaaaaaa), here synthetic seed 0 (ffffffff)"),
        (inputs(rows="f"), "encoded rows 'held-out-512' embedded topics (bbbbbbbb), here embedded topics (ffffffff)"),
        (replace(inputs(), encoded={"held-out-128": Origin("x", sha("1"))}), "no encoded rows 'held-out-128', here x"),
    ],
)
def test_other_inputs_have_no_baseline(tmp_path: Path, run: Inputs, why: str) -> None:
    """Figures of other weights or rows are not compared, and the reason says what differs."""
    record(tmp_path, measured())
    version, reason = choice(tmp_path, inputs=run)
    assert version is None
    assert reason.startswith(f"onnxruntime 1.31.1 is recorded for other inputs: {why}")


def test_older_version_with_the_same_inputs_is_chosen(tmp_path: Path) -> None:
    """Inputs come before versions: the same version on other inputs is passed over."""
    record(tmp_path, measured(inputs=inputs(rows="f")))
    record(tmp_path, measured(version="1.30.0"))
    assert choice(tmp_path)[0] == "1.30.0"


def test_run_of_some_cases_has_the_whole_run_as_baseline(tmp_path: Path) -> None:
    """A run that selects one model and window is compared with the record that holds them."""
    record(tmp_path, measured())
    part = inputs()
    part = replace(
        part,
        checkpoints={"base": part.checkpoints["base"]},
        encoded={"held-out-512": part.encoded["held-out-512"]},
    )
    assert choice(tmp_path, inputs=part)[0] == "1.31.1"


def test_unreadable_baseline_is_not_passed_over(tmp_path: Path) -> None:
    """C25: a broken file of the version under test is an error, not a reason to take the next older one."""
    record(tmp_path, measured(version="1.30.0"))
    record(tmp_path, measured()).write_text("{")
    with pytest.raises(InputError, match=r"onnxruntime-1.31.1/fnet.json: not sound JSON"):
        choice(tmp_path)


@pytest.mark.parametrize(
    ("device", "slug"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("nvidia h200\n", "nvidia-h200"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "nvidia-h100-80gb-hbm3-mig-1g.10gb"),
        ("../cpu", "cpu"),
    ],
)
def test_device_slug(device: str, slug: str) -> None:
    """C39: a name keeps all that tells one GPU from another, and nothing that a path could follow."""
    assert device_slug(device) == slug


# ---------------------------------------------------------------------------------------------- comparison


def test_everything_matches() -> None:
    """The same cases and figures on both sides are all compared."""
    found = compare(measured().figures, measured().figures)
    assert found.complete
    assert str(found) == "12 figures compared"


def test_vanished_case_is_named() -> None:
    """C21: a baseline of six cases and a run of five is not complete."""
    five = {case: figures for case, figures in measured().figures.items() if case != "base-512-b1-fp8"}
    found = compare(measured().figures, five)
    assert not found.complete
    assert len(found.matched) == 10
    assert found.only_recorded == ("base-512-b1-fp8: kl_mean", "base-512-b1-fp8: latency")
    assert "only in the baseline: base-512-b1-fp8: kl_mean" in str(found)


def test_renamed_case_is_named_on_both_sides() -> None:
    """C21: a renamed case matches nothing, and both names are shown."""
    figures = {"latency": Figure(0.7, "ms", 9)}
    found = compare({"fnet-fp8": figures}, {"fnet_base-fp8": figures})
    assert not found.complete
    assert str(found) == (
        "0 figures compared; only in the baseline: fnet-fp8: latency; only in this run: fnet_base-fp8: latency"
    )


def test_nothing_is_not_a_comparison() -> None:
    """C21: two empty sides agree on nothing."""
    assert not compare({}, {}).complete


def test_other_unit_is_refused() -> None:
    """A time in microseconds is not compared with one in milliseconds."""
    with pytest.raises(InputError, match="c: latency: the units differ, 'ms' recorded, 'us' here"):
        compare({"c": {"latency": Figure(0.7, "ms", 9)}}, {"c": {"latency": Figure(700, "us", 9)}})
