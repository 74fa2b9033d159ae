"""The TensorRT adapter against a fake of TensorRT: every way it can fail, and when a plan comes from the cache."""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from fixtures.cases import Case
from fixtures.engines import capture, open_gpu_engine, tensorrt, tensorrt_library
from fixtures.engines.cache import Cache, key
from fixtures.engines.tensorrt import LayerTime, TensorRTEngine, plan_parts
from fixtures.errors import EngineError, InputError
from fixtures.gpus import Gpu
from fixtures.graphs import Builder, Graph
from tests.meta import fake_tensorrt as fake

B200 = Gpu("b200", "NVIDIA B200", (10, 0), 148, "GPU-1")
ROOT = Path(__file__).parents[2]
CASE = "base-512-b1-fp16+hs"
MACHINE = {"gpu": "NVIDIA B200", "mig_profile": None, "driver": "580.65.06"}
X = torch.arange(6, dtype=torch.float32).reshape(2, 3)


def doubling(factor: float = 2.0) -> Graph:
    """y = 2 x, which is what the fake engine computes."""
    builder = Builder()
    x = builder.input("x", np.float32, (2, 3))
    builder.op("Mul", "y", x, builder.constant("factor", np.array(factor, np.float32)))
    builder.output("y", np.float32, (2, 3))
    return builder.build(Case("fnet", "base", 512, 1, "fp16+hs"))


@pytest.fixture
def library(monkeypatch, tmp_path):
    """The fake in TensorRT's place, here and in child processes, with a fake of CUDA."""
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    shutil.copy(fake.__file__, stubs / "tensorrt.py")
    monkeypatch.setenv("PYTHONPATH", str(stubs))
    monkeypatch.setitem(sys.modules, "tensorrt", fake)
    forget(monkeypatch)
    monkeypatch.setattr(tensorrt_library, "bindings", lambda _: fake.Symbols("11.4.0.106"))
    monkeypatch.setattr(tensorrt, "machine_parts", lambda _: MACHINE)
    monkeypatch.setattr(tensorrt, "DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "Stream", fake.Stream)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", fake.CUDAGraph)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", fake.Stream)
    monkeypatch.setattr(capture, "kernel_count", len)
    yield monkeypatch
    tensorrt_library.load.cache_clear()


def forget(monkeypatch) -> None:
    """Unload what was imported with another TensorRT, or with none."""
    tensorrt_library.load.cache_clear()
    monkeypatch.delitem(sys.modules, "fixtures.engines.tensorrt_build", raising=False)
    monkeypatch.delattr("fixtures.engines.tensorrt_build", raising=False)


def lib_version(monkeypatch, version: str) -> None:
    """Another library is loaded; what the package says of itself is left alone."""
    tensorrt_library.load.cache_clear()
    monkeypatch.setattr(tensorrt_library, "bindings", lambda _: fake.Symbols(version))


@pytest.fixture
def in_process(library):
    """Builds without the child: for what does not depend on it, and much faster."""
    build = importlib.import_module("fixtures.engines.tensorrt_build")

    def in_child(_case: str, request: dict, _limit_s: float, _progress: object) -> tuple[str, ...]:
        said: list[str] = []
        library.setattr(build, "say", said.append)
        build.build(**request)
        return tuple(line.removeprefix(build.NOTE) for line in said if line.startswith(build.NOTE))

    library.setattr(build, "in_child", in_child)
    return library


def opened(
    tmp_path, graph: Graph | None = None, level: int = 1, gpu: Gpu = B200, build: int = 0, limit_s: float = 30, say=str
) -> TensorRTEngine:
    return TensorRTEngine(graph or doubling(), Cache(tmp_path / "cache"), gpu, level, say, build, limit_s)


def built(engine: TensorRTEngine) -> dict:
    """What the fake builder was told, from the plan."""
    return json.loads(engine.plan.path.read_bytes().removeprefix(fake.MAGIC))


# ---------------------------------------------------------------------------------------------- which TensorRT


def test_not_installed(monkeypatch):
    """C37: without TensorRT the message says how to get it."""
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    forget(monkeypatch)
    with pytest.raises(InputError, match=r"not installed: pip install '\.\[tensorrt\]'"):
        tensorrt_library.load()


@pytest.mark.parametrize(
    "failure",
    ["raise ImportError('libnvinfer.so.11: cannot open')", "import tensorrt_bindings_of_nobody", "Builder = 1"],
)
def test_present_but_broken(monkeypatch, tmp_path, failure):
    """C37: a TensorRT that does not load, or has no library behind it, is broken and not absent."""
    (tmp_path / "tensorrt.py").write_text(failure)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
    forget(monkeypatch)
    try:
        with pytest.raises(EngineError, match="present but broken"):
            tensorrt_library.load()
    finally:
        sys.modules.pop("tensorrt", None)


@pytest.mark.parametrize("name", ["BuilderFlag.TF32", "IBuilderConfig.progress_monitor", "LayerInformationFormat"])
def test_missing_attribute(library, name):
    """C01 d: what this TensorRT lacks is named with its version and the supported ones, before anything is built."""
    owner, _, attribute = name.rpartition(".")
    library.delattr(getattr(fake, owner) if owner else fake, attribute)
    with pytest.raises(EngineError, match=rf"TensorRT 11\.4\.0\.106 has no {name}.*10\.16 to 11\.4"):
        tensorrt_library.load()


def test_strong_typing_is_asked_for_where_it_is_not_implied(in_process, tmp_path):
    """Before 11 strong typing is a flag, and without that flag there is an error; from 11 on it goes without saying."""
    assert built(opened(tmp_path))["network_flags"] == 0
    lib_version(in_process, "10.16.1.11")
    assert built(opened(tmp_path))["network_flags"] == 2
    in_process.delattr(fake.NetworkDefinitionCreationFlag, "STRONGLY_TYPED")
    tensorrt_library.load.cache_clear()
    with pytest.raises(EngineError, match=r"10\.16\.1\.11 has no NetworkDefinitionCreationFlag\.STRONGLY_TYPED"):
        tensorrt_library.load()
    lib_version(in_process, "11.1.0.106")
    assert tensorrt_library.load().version == "11.1.0.106"


def test_version_is_the_loaded_library_s(in_process, tmp_path):
    """C10: the library decides, not the package's metadata, and the difference is noted."""
    lib_version(in_process, "11.1.0.106")
    engine = opened(tmp_path)
    assert engine.runtime.version == "11.1.0.106"
    assert engine.notes[0] == "the tensorrt package says 11.4.0.106, but the library it loaded is 11.1.0.106"
    assert not opened(tmp_path, level=2).plan.hit
    lib_version(in_process, "11.4.0.106")
    assert not opened(tmp_path).plan.hit
    assert opened(tmp_path).plan.hit


def test_symbols_come_from_what_the_bindings_are_linked_to(monkeypatch):
    """The version is read through the bindings' own shared object, wherever the library behind it lies."""
    extension = importlib.import_module("numpy._core._multiarray_umath")
    monkeypatch.setitem(sys.modules, "some.bindings", extension)
    symbols = tensorrt_library.bindings(SimpleNamespace(Builder=SimpleNamespace(__module__="some.bindings")))
    assert symbols["getpid"]() == os.getpid()  # of libc, to which that extension is linked


# ---------------------------------------------------------------------------------------------- the build


@pytest.mark.usefixtures("library")
def test_build(tmp_path, caplog):
    """A real child builds as the study did: TF32 off, level 1, DETAILED, no precision flag; a few lines say how far,
    and the log has what TensorRT said."""
    said: list[str] = []
    with caplog.at_level(logging.INFO):
        engine = opened(tmp_path, say=said.append)
    assert built(engine) == {
        "version": "11.4.0.106",
        "network_flags": 0,
        "flags": [],
        "level": 1,
        "verbosity": "DETAILED",
    }
    assert engine.plan_bytes == engine.plan.path.stat().st_size > 0
    assert (engine.plan.hit, engine.notes) == (False, ("base-512-b1-fp16+hs: timing cache: fresh (none was kept)",))
    assert sorted(path.name for path in engine.plan.path.parent.iterdir()) == ["manifest.json", "payload"]
    shown = [record.getMessage() for record in caplog.records if record.name.endswith("tensorrt_build")]
    assert shown == [
        "base-512-b1-fp16+hs: note: timing cache: fresh (none was kept)",
        "base-512-b1-fp16+hs: phase: Building Engine, 2 steps",
        "base-512-b1-fp16+hs: phase: Timing graph nodes, 10 steps",
        "base-512-b1-fp16+hs: WARNING: almost out of memory",
    ]
    assert said == [
        "base-512-b1-fp16+hs: Building Engine, 2 steps",
        "base-512-b1-fp16+hs: Timing graph nodes, 10 steps",
        f"base-512-b1-fp16+hs: plan {engine.plan.key}, built",
    ]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("crash", r"crashed \(SIGABRT\): its last lines: .*WARNING: almost out of memory"),
        ("hang", r"had not ended after 0\.5 s and was stopped: its last lines: "),
        ("exit", r"failed \(exit status 7\): its last lines: .*WARNING: almost out of memory"),
        ("exception", r"failed \(exit status 1\): MemoryError: host memory"),
        ("parser", r"refused the graph; node 3 \(layer\.0/gelu\): no Gelu here; node 7 \(cls\): wrong type"),
        ("null plan", r"the builder gave no plan; no implementation for node layer\.0/gelu"),
        ("build error", r"gave a plan, but reported errors; Skipping tactic 0x17: out of memory"),
        ("parser error", r"TensorRT reported errors before it built; node 5: an input is ignored"),
        ("flag error", r"TensorRT reported errors before it built; TF32 cannot be cleared"),
    ],
)
def test_failed_build_fails_one_case(library, tmp_path, fault, words):
    """A builder that crashes, hangs, ends or refuses is an error that names the case, and nothing is kept."""
    library.setenv("FAKE_TENSORRT", fault)
    with pytest.raises(EngineError, match=rf"^base-512-b1-fp16\+hs: the TensorRT build .*{words}") as caught:
        opened(tmp_path, limit_s=0.5 if fault == "hang" else 30)
    assert "\n" not in str(caught.value)
    assert {path.suffix for path in (tmp_path / "cache" / "plans").iterdir()} == {".lock"}


def test_full_disk_in_the_build(library, tmp_path):
    """C11: a disk that fills while the child writes is the cache folder's error with its way out, as anywhere else."""
    library.setenv("FAKE_TENSORRT", "disk full")
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\): .* --engine-cache DIR"):
        opened(tmp_path)


# The program that builds, started by one that does nothing else.
PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-P", "-u", *sys.argv[1:]])
time.sleep(60)
"""


def test_build_ends_with_the_run(library, tmp_path):
    """A run that is killed leaves no builder: it would hold the GPU, and nobody would stop it at its time limit."""
    library.setenv("FAKE_TENSORRT", "hang")
    library.setenv("PYTHONPATH", os.pathsep.join([os.environ["PYTHONPATH"], str(ROOT)]))
    doubling().save(tmp_path / "graph.onnx")
    request = {
        "onnx": str(tmp_path / "graph.onnx"),
        "plan": str(tmp_path / "plan"),
        "timing_cache": str(tmp_path / "timings"),
        "optimization_level": 1,
        "strongly_typed_flag": False,
    }
    program = ROOT / "fixtures" / "engines" / "tensorrt_build.py"
    command = [sys.executable, "-c", PARENT, str(program), json.dumps(request)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert "almost out of memory" in next(line for line in parent.stdout if line.startswith("WARNING"))
        parent.kill()
        parent.communicate(timeout=10)  # ends when nobody holds the pipe any more, which the builder does


# ---------------------------------------------------------------------------------------------- the plan's key


@pytest.mark.parametrize(
    "changed",
    [
        {"graph_sha256": doubling(2.5).sha256},
        {"optimization_level": 3},
        {"version": "11.1.0.106"},
        {"machine": MACHINE | {"gpu": "NVIDIA H200"}},
        {"machine": MACHINE | {"mig_profile": "1g.10gb"}},
        {"machine": MACHINE | {"driver": "590.1"}},
        {"machine": MACHINE | {"multiprocessors": 132}},
        {"build": 1},
    ],
    ids=str,
)
@pytest.mark.usefixtures("library")
def test_any_changed_part_is_another_plan(changed):
    """C10: graph, builder settings, library, driver, GPU, slice: one thing changed is another key."""
    parts = {"graph_sha256": doubling().sha256, "optimization_level": 1, "version": "11.4.0.106", "machine": MACHINE}
    assert key(plan_parts(**parts)) == key(plan_parts(**parts))
    assert key(plan_parts(**parts)) != key(plan_parts(**parts | changed))


def test_machine_parts(monkeypatch):
    """C10: the GPU by what it is and not by which one it is; a slice by its profile; the driver by NVML."""
    monkeypatch.setattr("fixtures.gpus.nvml", nullcontext)
    monkeypatch.setattr("pynvml.nvmlSystemGetDriverVersion", lambda: "580.65.06")
    whole = tensorrt.machine_parts(B200)
    assert whole == {
        "gpu": "NVIDIA B200",
        "compute_capability": "10.0",
        "multiprocessors": 148,
        "mig_profile": None,
        "cuda": torch.version.cuda,
        "driver": "580.65.06",
    }
    assert tensorrt.machine_parts(replace(B200, uuid="GPU-2")) == whole
    assert tensorrt.machine_parts(replace(B200, name="NVIDIA B200 MIG 1g.23gb"))["mig_profile"] == "1g.23gb"


@pytest.mark.usefixtures("in_process")
def test_hit_says_its_key(tmp_path):
    """C10: the unchanged case hits and says which engine is timed; another level is another plan."""
    said: list[str] = []
    first = opened(tmp_path)
    again = opened(tmp_path, say=said.append)
    assert (again.plan.hit, again.plan.key, again.notes) == (True, first.plan.key, ())
    assert said == [f"base-512-b1-fp16+hs: plan {first.plan.key}, from the cache"]
    assert built(opened(tmp_path, level=3))["level"] == 3


def refit(engine: TensorRTEngine, content: bytes) -> None:
    """Put `content` in a plan's place as a sound entry, which only TensorRT can refuse."""
    engine.plan.path.write_bytes(content)
    manifest = engine.plan.path.with_name("manifest.json")
    found = json.loads(manifest.read_bytes())
    manifest.write_text(json.dumps(found | {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "magic tag does not match"),
        (b"<html>404</html>", "magic tag does not match"),
        (fake.MAGIC + b'{"version": "10.16.1.11"}', "Version tag does not match: built by 10.16.1.11"),
    ],
    ids=["empty", "html", "foreign version"],
)
@pytest.mark.usefixtures("in_process")
def test_refused_plan_is_built_again_once(tmp_path, content, reason):
    """C11: a plan that TensorRT cannot load is set aside and built once, and the result says so."""
    engine = opened(tmp_path)
    refit(engine, content)
    again = opened(tmp_path)
    home = engine.plan.path.parent
    assert reason in again.notes[0]
    assert again.notes[0].startswith(f"base-512-b1-fp16+hs: plan {engine.plan.key} was refused by TensorRT")
    assert again.plan.hit is False
    assert home.with_name(f"{home.name}.damaged").joinpath("payload").read_bytes() == content
    assert torch.equal(again.run({"x": X})["y"], 2 * X)
    assert opened(tmp_path).notes == ()


@pytest.mark.usefixtures("in_process")
def test_cut_plan_is_built_again_once(tmp_path):
    """C11: a plan cut short never reaches TensorRT."""
    engine = opened(tmp_path)
    engine.plan.path.write_bytes(engine.plan.path.read_bytes()[:20])
    assert "it was damaged (size_bytes differs)" in opened(tmp_path).notes[0]


def test_no_engine_from_a_new_plan(in_process, tmp_path):
    """C11: when the plan just built does not load there is no second try, and never a timing from a null engine."""
    in_process.setenv("FAKE_TENSORRT", "null engine")
    with pytest.raises(EngineError, match=r"fp16\+hs: TensorRT could not load the plan it has built: Serialization"):
        opened(tmp_path)


# ---------------------------------------------------------------------------------------------- the timing cache


def timings(tmp_path, build: str = ""):
    return tmp_path / "cache" / "timing" / f"11.4.0.106-NVIDIA-B200-sm100-148{build}.cache"


def sealed(data: bytes) -> bytes:
    return hashlib.sha256(data).digest() + data


@pytest.mark.usefixtures("in_process")
def test_timing_cache_is_kept_and_united(tmp_path):
    """A second build starts from what the first measured, and adds to it."""
    opened(tmp_path, level=1)
    assert opened(tmp_path, level=2).notes == ()
    assert timings(tmp_path).read_bytes() == sealed(fake.TIMINGS + b"level-1 level-2")


@pytest.mark.usefixtures("in_process")
def test_plan_that_is_built_again(tmp_path):
    """Another build is another plan, and starts from no timing of the first, which would choose its kernels for it."""
    opened(tmp_path)
    first = timings(tmp_path).read_bytes()
    again = opened(tmp_path, build=1)
    assert (again.plan.hit, again.notes) == (False, (f"{CASE}: timing cache: fresh (none was kept)",))
    opened(tmp_path, level=2, build=1)
    assert timings(tmp_path).read_bytes() == first
    assert timings(tmp_path, "-build1").read_bytes() == sealed(fake.TIMINGS + b"level-1 level-2")
    assert opened(tmp_path).plan.hit
    through = open_gpu_engine(doubling(), "tensorrt", Cache(tmp_path / "cache"), B200, str, 1)
    assert (through.plan.hit, through.plan.key) == (True, again.plan.key)


def test_timing_cache_keeps_what_another_build_added(in_process, tmp_path):
    """Two builds at once lose nothing of each other: what was written meanwhile is merged under the lock."""
    opened(tmp_path, level=1)
    build = sys.modules["fixtures.engines.tensorrt_build"]
    attach = build.attach_timings

    def meanwhile(config, path):
        cache = attach(config, path)
        path.write_bytes(sealed(fake.TIMINGS + b"level-9"))
        return cache

    in_process.setattr(build, "attach_timings", meanwhile)
    opened(tmp_path, level=2)
    assert timings(tmp_path).read_bytes() == sealed(fake.TIMINGS + b"level-1 level-2 level-9")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the kept one was damaged"),
        (bytes(range(200)), "the kept one was damaged"),
        (sealed(fake.TIMINGS + b"level-1")[:-1], "the kept one was damaged"),
        (sealed(b"timings of TensorRT 10"), "TensorRT refused the kept one"),
        (sealed(fake.TIMINGS + b"another-gpu"), "TensorRT refused the kept one"),
    ],
    ids=["empty", "random", "cut", "another version", "another GPU"],
)
@pytest.mark.usefixtures("in_process")
def test_bad_timing_cache_is_fresh(tmp_path, content, reason):
    """C11: a bad timing cache never fails a build, but the result says that kernels were timed anew."""
    timings(tmp_path).parent.mkdir(parents=True)
    timings(tmp_path).write_bytes(content)
    assert opened(tmp_path).notes[0] == f"{CASE}: timing cache: fresh ({reason})"
    assert opened(tmp_path, level=2).notes == ()


@pytest.mark.usefixtures("in_process")
def test_timing_cache_that_cannot_be_kept(tmp_path):
    """C11: no place for a timing cache is a note."""
    timings(tmp_path).mkdir(parents=True)
    notes = opened(tmp_path).notes
    assert notes[0].startswith(f"{CASE}: timing cache: fresh (it cannot be read: ")
    assert notes[1].startswith(f"{CASE}: timing cache: not kept (")


def test_timing_cache_that_tensorrt_refuses_to_unite(in_process, tmp_path):
    """C14: a returned False is said: what another build kept meanwhile is gone."""
    build = sys.modules["fixtures.engines.tensorrt_build"]
    attach = build.attach_timings

    def meanwhile(config, path):
        cache = attach(config, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sealed(fake.TIMINGS + b"another-gpu"))
        return cache

    in_process.setattr(build, "attach_timings", meanwhile)
    assert "the kept one is replaced" in opened(tmp_path).notes[1]


def test_build_without_a_timing_cache(in_process, tmp_path):
    """C14: TensorRT takes not even an empty one; the plan is built, the result says so, and no empty one is kept."""
    opened(tmp_path)
    kept = timings(tmp_path).read_bytes()
    in_process.setenv("FAKE_TENSORRT", "no timing cache")
    engine = opened(tmp_path, level=2)
    assert [note.partition("timing cache: ")[2] for note in engine.notes] == [
        "fresh (TensorRT refused the kept one)",
        "none, so nothing is kept (TensorRT refused an empty one)",
    ]
    assert timings(tmp_path).read_bytes() == kept


# ---------------------------------------------------------------------------------------------- running


@pytest.mark.usefixtures("in_process")
def test_run(tmp_path):
    """What is fed comes out, and an earlier result is not written over by a later call."""
    with opened(tmp_path) as engine:
        first = engine.run({"x": X})["y"]
        assert torch.equal(engine.run({"x": X + 1})["y"], 2 * X + 2)
        assert torch.equal(first, 2 * X)


def test_output_that_is_not_written_is_nan(in_process, tmp_path):
    """C14, C16: a call that writes nothing does not pass with the last call's output."""
    engine = opened(tmp_path)
    engine.run({"x": X})
    in_process.setenv("FAKE_TENSORRT", "writes nothing")
    assert engine.run({"x": X})["y"].isnan().all()


@pytest.mark.parametrize("feeds", [{}, {"x": X, "mask": X}, {"x": X.half()}, {"x": X[:1]}])
@pytest.mark.usefixtures("in_process")
def test_wrong_feeds(tmp_path, feeds):
    """Names, types and shapes are the graph's, or the call is refused."""
    with pytest.raises(EngineError, match=r"^base-512-b1-fp16\+hs: "):
        opened(tmp_path).run(feeds)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("no driver", "TensorRT cannot use this GPU: CUDA initialization failure with error: 35"),
        ("null context", "TensorRT could not create an execution context: it gave no reason"),
        ("address", "TensorRT could not take the buffer of x"),
        ("other types", r"the engine has the tensors .*HALF.*, the graph .*FLOAT"),
    ],
)
def test_engine_that_cannot_be_set_up(in_process, tmp_path, fault, words):
    """Every None, False and logged error on the way to a context is an error that names the case."""
    opened(tmp_path).close()
    in_process.setenv("FAKE_TENSORRT", fault)
    with pytest.raises(EngineError, match=rf"^base-512-b1-fp16\+hs: {words}"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("fault", "call", "words"),
    [
        ("enqueue", lambda engine: engine.launch(), "could not enqueue a call: it gave no reason"),
        ("enqueue error", lambda engine: engine.run({"x": X}), "could not enqueue a call: Cuda Runtime"),
        ("enqueue", lambda engine: engine.profile(1), "could not enqueue a call"),
        ("null context", lambda engine: engine.profile(1), "could not create an execution context"),
        ("null inspector", lambda engine: engine.inspect(), "could not create an engine inspector"),
        ("enqueue in capture", lambda engine: engine.capture(), "capture was refused: .*could not enqueue a call"),
        ("empty graph", lambda engine: engine.capture(), "holds no kernel"),
    ],
)
def test_call_that_fails(in_process, tmp_path, fault, call, words):
    """C11, C16: a False or an error from a running engine, in or out of a capture, is an error that names the case."""
    engine = opened(tmp_path)
    engine.bind({"x": X})
    in_process.setenv("FAKE_TENSORRT", fault)
    with pytest.raises(EngineError, match=rf"^base-512-b1-fp16\+hs: .*{words}"):
        call(engine)


@pytest.mark.usefixtures("in_process")
def test_replay_follows_its_input(tmp_path):
    """C16: a replay reads what was bound last, equals a plain call, and ends with its engine."""
    engine = opened(tmp_path)
    engine.bind({"x": X})
    replay = engine.capture()
    assert replay.kernels == 1
    engine.bind({"x": X + 5})
    replay()
    assert torch.equal(engine.outputs["y"], 2 * X + 10)
    assert torch.equal(engine.run({"x": X + 5})["y"], 2 * X + 10)
    engine.close()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        replay()


@pytest.mark.usefixtures("in_process")
def test_profile(tmp_path):
    """Layer times by run, from a context of their own: later calls are not watched."""
    engine = opened(tmp_path)
    engine.bind({"x": X})
    times = engine.profile(2)
    engine.launch()
    expected = [LayerTime(run, *layer) for run in range(2) for layer in (("double", 0.25), ("reformat", 0.5))]
    assert times == expected


@pytest.mark.usefixtures("in_process")
def test_inspect(tmp_path):
    """The engine's layers are read with the graph's own operators."""
    (layer,) = opened(tmp_path).inspect().layers
    assert (layer.name, layer.kind, layer.nodes) == ("double", "other", ("y",))


# ---------------------------------------------------------------------------------------------- counting kernels


def test_kernel_count(monkeypatch):
    """C16: kernels are counted, also in child graphs; copies and events are none."""
    cuda = importlib.import_module("cuda.bindings.runtime")
    kind, success = cuda.cudaGraphNodeType, cuda.cudaError_t.cudaSuccess
    copy, kernel, child = kind.cudaGraphNodeTypeMemcpy, kind.cudaGraphNodeTypeKernel, kind.cudaGraphNodeTypeGraph
    graphs = {1: [(copy, 0), (kernel, 0), (child, 2)], 2: [(kernel, 0), (kernel, 0), (child, 3)], 3: [], 4: [(copy, 0)]}
    fakes = ModuleType("cuda.bindings.runtime")
    fakes.cudaError_t, fakes.cudaGraphNodeType = cuda.cudaError_t, kind
    fakes.cudaGraphGetNodes = lambda graph, size: (success, graphs[graph][:size], len(graphs[graph]))
    fakes.cudaGraphNodeGetType = lambda node: (success, node[0])
    fakes.cudaGraphChildGraphNodeGetGraph = lambda node: (success, node[1])
    monkeypatch.setattr("cuda.bindings.runtime", fakes)
    assert [capture.kernel_count(graph) for graph in (1, 2, 3, 4)] == [3, 2, 0, 0]
    fakes.cudaGraphGetNodes = lambda *_: (cuda.cudaError_t.cudaErrorInvalidValue, None, None)
    with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
        capture.kernel_count(1)
