"""The FNet study of one session, on a tiny model: each thing is made once, and a seeded fault turns its claim red."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from fixtures import bench as benches
from fixtures.cases import Case
from fixtures.checkpoints import Checkpoint
from fixtures.conclusions import conclusions
from fixtures.engines import onnxruntime as cpu
from fixtures.errors import InputError
from fixtures.fnet import lab, tasks, weights
from fixtures.fnet.lab import Lab
from fixtures.fnet.reference import Reference
from fixtures.fnet.tasks import STUDY_SAMPLES, Samples
from fixtures.gpus import Probe
from fixtures.graphs import Graph
from fixtures.movement import QUALITY
from fixtures.verdicts import Measurement, Outcome
from tests.meta import tiny
from tests.meta.setups import B200, NONE, made

WINDOW = tiny.OVERFLOW_WINDOW
CASE = Case("fnet", "tiny", WINDOW, 1, "fp16")
VARIANTS = ("fp32", "fp16", "fp16+hs", "fp16+dft32", "fp8", "fp8-no-output-dense")
FEW = Samples(passages=8, calibration=6, pairs=2)
FED = FEW.passages + 2 * FEW.pairs + 1  # rows that the reference sees at a window: with sentences and the prompt


class Bench:
    """Labs on the tiny model that share a cache folder; counts what they make and keeps what they say."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.checkpoint = tiny.plain()
        self.made: Counter[object] = Counter()
        self.said: list[str] = []
        monkeypatch.setitem(weights.SIZES, "tiny", {})
        monkeypatch.setitem(lab.CPU_SAMPLES, "tiny", FEW)
        monkeypatch.setattr(lab, "open_datasets", lambda *_: tiny.text())
        monkeypatch.setattr(lab.synthetic, "checkpoint", self._checkpoint)
        self._count(Reference, "__init__", lambda *_: ("model", "tiny"))
        self._count(Reference, "features", lambda _, ids: ("reference", ids.shape[1]))
        self._count(benches, "open_engine", lambda graph, _: ("engine", graph.case.variant))
        self._count(tasks, "encode", lambda *given: ("inputs", given[3]))
        # ModelOpt itself, whose import takes seconds, has its own tests
        monkeypatch.setattr(Reference, "amax", self._amax)

    def open(self, found: Probe = NONE, **given: str) -> Lab:
        """A session with these options."""
        synthetic = {"checkpoints": "synthetic", "datasets": "embedded"}
        return Lab(made(self.folder, found, say=self.said.append, **synthetic | given))

    def _checkpoint(self, model: str) -> Checkpoint:
        self.made["checkpoint", model] += 1
        return self.checkpoint

    def _amax(self, layers: tuple[str, ...], rows: torch.Tensor) -> dict[str, float]:
        self.made["calibration", len(rows)] += 1
        return dict.fromkeys(layers, 7.0)

    def _count(self, owner: Any, name: str, what: Callable[..., object]) -> None:
        real = getattr(owner, name)

        def counted(*given: Any) -> Any:
            self.made[what(*given)] += 1
            return real(*given)

        self.monkeypatch.setattr(owner, name, counted)


@pytest.fixture
def bench(tmp_path, monkeypatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def outcome(claim: str, measured: Measurement) -> str:
    """What a measurement is against a claim's own limits."""
    return measured.judged(conclusions().claims[f"fnet/{claim}"].limits, Outcome.FLIPPED).value


# ---- each thing once


def test_everything_is_made_once(bench):
    """Six variants, asked twice: one checkpoint, one encoding, one reference, one calibration, and an engine each."""
    session = bench.open()
    for variant in (*VARIANTS, *VARIANTS):
        session.figures(CASE.at(variant))
    once = [("checkpoint", "tiny"), ("model", "tiny"), ("inputs", WINDOW), ("calibration", 6)]
    engines = [("engine", variant) for variant in VARIANTS]
    assert bench.made == dict.fromkeys([*once, *engines], 1) | {("reference", WINDOW): FED}


def test_second_session_reuses_reference_and_scales(bench):
    """What is dear is in the cache: only engines run again, and every figure is the same to the last digit."""
    first = bench.open().record(CASE.at("fp8"))
    bench.made.clear()
    assert bench.open().record(CASE.at("fp8")) == first
    assert not {"reference", "calibration"} & {what for what, _ in bench.made}


def test_each_window_has_its_own(bench):
    """C10: neither the reference nor the scales of one window serve another."""
    session = bench.open()
    for window in (WINDOW, 32):
        session.figures(replace(CASE, window=window).at("fp8"))
    assert bench.made["reference", WINDOW] == bench.made["reference", 32] == FED
    assert bench.made["calibration", 6] == 2


def test_other_weights_have_their_own(bench):
    """C10: one changed checkpoint in the same folder is another reference and another calibration."""
    bench.open().figures(CASE.at("fp8"))
    bench.checkpoint = tiny.checkpoint(seed=1)
    bench.open().figures(CASE.at("fp8"))
    assert (bench.made["reference", WINDOW], bench.made["calibration", 6]) == (2 * FED, 2)


def test_other_epsilon_is_another_model(bench):
    """C10, C32: the same weights with another layer_norm_eps are served nothing from the cache, and are said to be
    another input."""
    before = bench.open()
    before.record(CASE.at("fp8"))
    bench.made.clear()
    bench.checkpoint = replace(bench.checkpoint, config={**bench.checkpoint.config, "layer_norm_eps": 1e-3})
    after = bench.open()
    after.record(CASE.at("fp8"))
    assert (bench.made["reference", WINDOW], bench.made["calibration", 6]) == (FED, 1)
    reason = after.origins(CASE).difference(before.origins(CASE))
    assert reason is not None
    assert reason.startswith("checkpoint 'tiny'")


@pytest.mark.parametrize("kind", ["references", "scales"])
def test_damaged_entry_is_made_again(bench, kind):
    """C11: a payload that was cut is one new computation, the same figures, and a line that says so."""
    first = bench.open().record(CASE.at("fp8"))
    (payload,) = (bench.folder / kind).glob("*/payload")
    payload.write_bytes(payload.read_bytes()[:-1])
    bench.made.clear()
    bench.said.clear()
    assert bench.open().record(CASE.at("fp8")) == first
    again = {"references": ("reference", WINDOW), "scales": ("calibration", 6)}
    assert [what for what in again.values() if bench.made[what]] == [again[kind]]
    (note,) = (line for line in bench.said if "damaged" in line)
    assert f"cache entry {kind}/" in note
    assert "was made again" in note


def test_saved_graph_is_the_one_that_ran(bench, tmp_path):
    """The file for a bug report, named by the case: it runs, and its digest is the record's."""
    session = Lab(replace(bench.open().setup, save_graphs=tmp_path / "graphs"))
    record = session.record(CASE)
    assert [path.name for path in (tmp_path / "graphs").iterdir()] == [f"{CASE.id}.onnx"]
    onnx.checker.check_model(onnx.load(tmp_path / "graphs" / f"{CASE.id}.onnx"))
    assert session.graph(CASE).sha256 == record.graph_sha256


def test_cost_is_of_what_ran(bench):
    """Every row that passed through a model is in the run's cost, by what it was."""
    session = bench.open()
    session.figures(CASE.at("fp8"))
    assert session.setup.stopwatch.rows == {
        f"tiny-{WINDOW} calibration": 6,
        f"tiny-{WINDOW} reference": FED,
        CASE.at("fp8").id: 8 + 4,
        CASE.id: 8 + 4,
    }


# ---- samples


@pytest.mark.parametrize(
    ("found", "given", "expected"),
    [
        (NONE, {}, FEW),
        (B200, {"checkpoints": "hub"}, STUDY_SAMPLES),
        (B200, {"checkpoints": "synthetic"}, Samples(100, 100, 100)),
        (NONE, {"samples": "3"}, Samples(3, 3, 3)),
        (B200, {"samples": "3"}, Samples(3, 3, 3)),
        (NONE, {"samples": "1000"}, Samples(300, 544, 1000)),
    ],
)
def test_samples(bench, found, given, expected):
    """On a GPU the study's counts on its inputs and fewer on others, few without one, and what was asked for."""
    assert bench.open(found, **given).samples("tiny") == expected


def test_asked_for_is_what_is_fed(bench):
    """`--samples 3` is three of each, in every figure's count."""
    session = bench.open(samples="3")
    found = session.figures(CASE.at("fp8"))
    assert (found["cls_relative_l2"].samples, found["outlier_ratio"].samples, found["cls_bar_share"].samples) == (
        3,
        3,
        6,
    )
    assert found["nonfinite_share"].samples == 3 + 2 * 3


def test_graphs_that_cannot_be_saved(bench, tmp_path):
    """One line with the option, the reason and the way out."""
    (tmp_path / "file").touch()
    session = Lab(replace(bench.open().setup, save_graphs=tmp_path / "file"))
    with tiny.one_line(InputError, f"--save-graphs {tmp_path / 'file'}: ", "name another folder"):
        session.record(CASE)


@pytest.mark.parametrize(("samples", "words"), [("13", "13 passages are asked for and 12"), ("9", "9 sentence pairs")])
def test_more_than_there_is(bench, samples, words):
    """Too few rows is a line with both numbers and the way out, and nothing is computed or kept."""
    with tiny.one_line(InputError, words, "--samples"):
        bench.open(samples=samples).figures(CASE)
    assert not list(bench.folder.iterdir())


def test_cut_passages_are_said(bench):
    """C29: 16 to 39 words do not fit 16 tokens with their frame; how many were cut is in the run's output."""
    bench.open().inputs("tiny", WINDOW)
    assert {
        "fnet: 8 of 8 passages are cut at 16 tokens",
        "fnet: 6 of 6 calibration passages are cut at 16 tokens",
    } <= set(bench.said)
    bench.said.clear()
    bench.open().inputs("tiny", 64)
    assert bench.said == ["fnet tiny: weights, synthetic"]


# ---- what a case is fed


def test_batch_of_8_takes_one_batch(bench, monkeypatch):
    """As the study did: the first 8 passages of 12, against the same reference, and nothing else."""
    monkeypatch.setitem(lab.CPU_SAMPLES, "tiny", FEW._replace(passages=12))
    session, case = bench.open(), replace(CASE, batch=8).at("fp8")
    run = session.run(case)
    assert (len(run.passages.cls), run.sentences, run.stress, run.prompt) == (8, None, None, None)
    assert session.figures(case)["cls_relative_l2"].samples == 8


def test_batch_that_cannot_be_filled(bench):
    """Fewer samples than a batch is an error with the number that would do, never a padded batch."""
    with tiny.one_line(InputError, "4 rows do not fill batches of 8", "--samples"):
        bench.open(samples="4").run(replace(CASE, batch=8))


def test_prompt_is_of_one_window(bench, monkeypatch):
    """The study's prompt at the window it was printed for, and an error for a figure of another."""
    with tiny.one_line(InputError, CASE.id, "256-token window"):
        bench.open().prompt_cosine(CASE)
    monkeypatch.setattr(tasks, "PROMPT_WINDOW", WINDOW)
    assert bench.open().figures(CASE)["prompt_cls_cosine"].value > 0.999


def test_stress_inputs_are_scanned(bench, monkeypatch):
    """All 22 are in the scan of the cases that the study scanned, beside passages and sentences; one that is not finite
    shows. Half precision is scanned on passages, which its print is of."""
    monkeypatch.setitem(lab.SCANNED_ON_CPU, CASE.group, ("fp8",))
    session, fp8 = bench.open(), CASE.at("fp8")
    assert session.figures(fp8)["nonfinite_share"].samples == 8 + 4 + 22
    assert session.figures(CASE)["nonfinite_share"].samples == 8
    session.run(fp8).stress.nonfinite[21] = True
    assert session.nonfinite(fp8).value == 1 / 34
    assert outcome("fp8-finite", session.nonfinite(fp8)) == "flipped"


def test_speed_without_a_gpu(bench):
    """A time is never made up: the line says why there is none."""
    with tiny.one_line(InputError, CASE.group, "not timed"):
        bench.open().speed(CASE)


# ---- the case that FP8 is held against


@pytest.mark.parametrize(("window", "variant"), [(512, "fp16+hs"), (256, "fp16"), (128, "fp16")])
def test_half_precision_of_a_group(bench, window, variant):
    """FP8 is compared with the graph that differs from its own by FP8 alone: scaled where it is scaled."""
    case = Case("fnet", "base", window, 1, "fp8")
    assert bench.open().half_precision(case) == case.at(variant)


# ---- seeded faults


def test_nan_in_the_reference_is_no_verdict(bench):
    """C23: a checkpoint whose reference is NaN is bad input, named as such; nothing of it is kept."""
    gain = "encoder.layer.1.output.LayerNorm.weight"
    bench.checkpoint = tiny.checkpoint(put={gain: torch.full((tiny.HIDDEN,), torch.nan)})
    with tiny.one_line(InputError, "the reference is not finite for row 0", "checkpoint"):
        bench.open().figures(CASE)
    assert not list((bench.folder / "references").glob("*/payload"))


def test_known_issue_vanishes_without_half(bench, monkeypatch):
    """An engine that does not round to fp16 hides the overflow, and the claim that it is there flips."""
    bench.checkpoint = tiny.checkpoint(put=tiny.OVERFLOW)
    assert outcome("fp16-not-finite-at-512", bench.open().figures(CASE)["nonfinite_share"]) == "holds"
    monkeypatch.setattr(cpu, "emulate_fp16", lambda graph: graph)
    assert outcome("fp16-not-finite-at-512", bench.open().figures(CASE)["nonfinite_share"]) == "flipped"


def test_no_quality_of_a_case_that_is_not_finite(bench):
    """C23: the share of bad rows is all there is to say of it; the cure has every figure."""
    bench.checkpoint = tiny.checkpoint(put=tiny.OVERFLOW)
    session = bench.open()
    assert session.figures(CASE).keys() == {"nonfinite_share", "dft_abs_max"}
    missing = session.figure(CASE, "kl_mean")
    assert missing.problems == ("100.00% of 8 rows are not finite",)
    assert outcome("fp16-kl-any-inputs", missing) == "invalid"
    cured = session.figures(CASE.at("fp16+hs"))
    assert outcome("fp16-hs-finite-at-512", cured["nonfinite_share"]) == "holds"
    assert {"kl_mean", "agreement", "cls_cosine_min"} < cured.keys()
    assert cured.keys() - session.figures(CASE).keys() <= set(QUALITY)  # what a comparison may find missing
    assert session.figure(CASE.at("fp16+hs"), "kl_mean") == cured["kl_mean"]
    with pytest.raises(KeyError):
        session.figure(CASE.at("fp16+hs"), "kl_median")


def on_the_fourier_branch_only(build: Callable[..., Graph]) -> Callable[..., Graph]:
    """Graphs whose 1/64 is never undone, so that it is on one of the two terms of the residual sum."""

    def built(*given: Any) -> Graph:
        found = build(*given)
        undone = [node for node in found.proto.graph.node if node.name.endswith("/hidden_dft/unscale")]
        assert undone
        return tiny.rewired(
            found,
            {node.name: [onnx.helper.make_node("Identity", node.input[:1], node.output, node.name)] for node in undone},
            {},
        )

    return built


def test_scaling_of_one_branch_alone(bench, monkeypatch):
    """C08: it is finite, and another network: the claims on KL and agreement flip."""
    claims = {"fp16-kl-any-inputs": "kl_mean", "fp16-agreement-any-inputs": "agreement"}
    sound = bench.open().figures(CASE.at("fp16+hs"))
    assert {outcome(claim, sound[figure]) for claim, figure in claims.items()} == {"holds"}
    monkeypatch.setattr(lab.graph, "build", on_the_fourier_branch_only(lab.graph.build))
    faulty = bench.open().figures(CASE.at("fp16+hs"))
    assert {outcome(claim, faulty[figure]) for claim, figure in claims.items()} == {"flipped"}
    assert faulty["nonfinite_share"].value == 0
