"""The CPU engine takes exactly what its graph declares, blames the case when it cannot run, and keeps what it gave."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import SimpleNamespace

import onnxruntime
import pytest
import torch
from onnx import helper

from fixtures.engines import open_engine
from fixtures.engines.onnxruntime import CpuEngine, check_cuda_provider, cuda_session, session_options
from fixtures.errors import EngineError, InputError
from tests.meta import tiny


@pytest.fixture(scope="module")
def engine():
    with CpuEngine(tiny.graph(batch=2)) as opened:
        yield opened


IDS = tiny.ids(2)
BAD_FEEDS = {
    "wrong name": ({"ids": IDS}, "not an input: ['ids'], missing: ['input_ids']"),
    "nothing": ({}, "missing: ['input_ids']"),
    "stray mask": ({"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}, "not an input: ['attention_mask']"),
    "token types": ({"input_ids": IDS, "token_type_ids": torch.zeros_like(IDS)}, "not an input: ['token_type_ids']"),
    "int32": ({"input_ids": IDS.int()}, "input_ids is torch.int64 (2, 16), got torch.int32 (2, 16)"),
    "float": ({"input_ids": IDS.float()}, "got torch.float32"),
    "batch": ({"input_ids": IDS[:1]}, "input_ids is torch.int64 (2, 16), got torch.int64 (1, 16)"),
    "window": ({"input_ids": IDS[:, :8]}, "got torch.int64 (2, 8)"),
    "flat": ({"input_ids": IDS.flatten()}, "got torch.int64 (32,)"),
}


@pytest.mark.parametrize(("feeds", "words"), BAD_FEEDS.values(), ids=BAD_FEEDS)
def test_anything_else_than_the_inputs_is_refused(engine, feeds, words):
    """C29: a mask or token types are refused, not ignored; so is any other name, type, batch or length, by name."""
    with tiny.one_line(EngineError, "tiny-16-b2-fp32", words):
        engine.run(feeds)


def test_refused_mask_says_why(engine):
    """C29: the message tells what stands in for a mask."""
    with tiny.one_line(EngineError, "padding is part of the input", "token type 0 is in the graph"):
        engine.run({"input_ids": IDS, "attention_mask": IDS})


def test_failure_while_running_names_the_case(engine):
    """An id that the checkpoint has no embedding for: one line with the case and what ONNX Runtime said."""
    with tiny.one_line(EngineError, "tiny-16-b2-fp32", "could not run", "1000000", "out of"):
        engine.run({"input_ids": torch.full_like(IDS, 10**6)})


@pytest.mark.parametrize(
    ("op_type", "inputs", "words"),
    [
        ("NoSuchOperator", ["input_ids"], "NoSuchOperator"),
        ("Identity", ["nowhere"], "nowhere"),
        ("MatMul", ["encoder.layer.0.intermediate.dense.bias", "embeddings.projection.weight.T"], "features"),
    ],
)
def test_broken_graph_names_the_case(op_type, inputs, words):
    """What ONNX Runtime refuses to load is an EngineError with the case in front."""
    graph = tiny.graph()
    broken = graph.rewritten(
        [helper.make_node(op_type, inputs, [name], name) for name in ("features", "cls")], graph.weights
    )
    with tiny.one_line(EngineError, "tiny-16-b1-fp32: ONNX Runtime refused the graph", words):
        CpuEngine(broken)


def test_engine_that_is_not_there_is_refused():
    """No other engine is put in its place."""
    with tiny.one_line(InputError, "no engine tensorrt on a CPU"):
        open_engine(tiny.graph(), "tensorrt")


def install(folder: Path, *packages: str) -> Path:
    """Packages of one module in a folder, as pip leaves them: the module's files once, and a record for each."""
    module = folder / "onnxruntime" / "__init__.py"
    module.parent.mkdir(parents=True)
    module.touch()
    for package in packages:
        record = folder / f"{package.replace('-', '_')}-1.31.1.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.31.1\n")
        (record / "RECORD").write_text("onnxruntime/__init__.py,,\n")
    return module


def test_cpu_package_on_a_gpu():
    """The package without CUDA says which one is wanted."""
    with tiny.one_line(InputError, "has no CUDA provider", "pip uninstall", "'.[cuda]'"):
        check_cuda_provider()


@pytest.mark.parametrize(
    ("here", "elsewhere", "sound"),
    [
        (["onnxruntime", "onnxruntime-gpu"], [], False),
        (["onnxruntime-gpu"], ["onnxruntime"], True),
        (["onnxruntime-gpu"], [], True),
    ],
    ids=["over each other", "in another folder", "alone"],
)
def test_two_packages_of_one_module(tmp_path, monkeypatch, here, elsewhere, sound):
    """Both packages in one place have written over each other's files, also where CUDA is what is left."""
    module = install(tmp_path / "here", *here)
    install(tmp_path / "elsewhere", *elsewhere)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "here"), str(tmp_path / "elsewhere")])
    monkeypatch.setattr(onnxruntime, "__file__", str(module))
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    if sound:
        check_cuda_provider()
        return
    with tiny.one_line(InputError, "onnxruntime 1.31.1 and onnxruntime-gpu 1.31.1", "over each other", "pip uninstall"):
        check_cuda_provider()


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_cuda_error_is_not_hidden_by_another_try(monkeypatch, capsys):
    """C14: what CUDA said is what is raised; no second try on the CPU, and nothing printed of one."""
    tried = []

    def create(_session: object, providers: list[str], *_: object) -> None:
        tried.append(providers)
        raise RuntimeError("CUDA failure 2: out of memory")

    monkeypatch.setattr(onnxruntime.InferenceSession, "_create_inference_session", create)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    model = tiny.graph().proto.SerializeToString()
    with pytest.raises(RuntimeError, match="out of memory"):
        cuda_session(model, session_options(), SimpleNamespace(cuda_stream=17), captures=True)
    assert len(tried) == 1
    assert capsys.readouterr().out == ""


def test_runtime_is_what_was_loaded(engine):
    """The version is the loaded library's."""
    assert str(engine.runtime) == f"onnxruntime {onnxruntime.__version__} on cpu"


def test_results_stay_and_repeat(engine):
    """The outputs of one call are not overwritten by the next, and the same input gives the same bits."""
    first = engine.run({"input_ids": IDS})
    kept = {name: value.clone() for name, value in first.items()}
    other = engine.run({"input_ids": IDS.flip(1)})
    again = engine.run({"input_ids": IDS})
    assert {name: (value.dtype, tuple(value.shape)) for name, value in first.items()} == {
        "features": (torch.float32, (2, 16, tiny.HIDDEN)),
        "cls": (torch.float32, (2, tiny.HIDDEN)),
    }
    for name, value in kept.items():
        assert torch.equal(first[name], value)
        assert torch.equal(again[name], value)
        assert not torch.equal(other[name], value)


def test_engine_keeps_its_weights_alive():
    """The session reads the arrays where they lie, so they must outlive the graph and the caller's names."""
    expected = tiny.features(tiny.graph("fp8"), tiny.ids())
    with CpuEngine(tiny.graph("fp8", of=tiny.checkpoint())) as engine:
        gc.collect()
        litter = [torch.full((tiny.INNER, tiny.HIDDEN), float("nan")) for _ in range(64)]
        assert torch.equal(engine.run({"input_ids": tiny.ids()})["features"], expected)
        assert len(litter) == 64
