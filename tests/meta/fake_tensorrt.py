"""A stand-in for the `tensorrt` module, as much of it as the adapter touches, with faults to order.

It is put in place of the module in the tests' process, and copied as `tensorrt.py` for the child that builds. Faults
come by name in the variable FAKE_TENSORRT, so that a child has them too. A plan is JSON after a magic word. Its engine
gives y = 2 x, [2, 3] fp32, read and written at the addresses it is bound to; while a fake graph captures (`CAPTURING`)
a call is recorded instead of run.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

__version__ = "11.4.0.106"
MAGIC = b"fake plan "
TIMINGS = b"timings of B200 "
TENSORS = {"x": ("FLOAT", (2, 3)), "y": ("FLOAT", (2, 3))}
CAPTURING: list[list] = []


def fault(name: str) -> bool:
    return name in os.environ.get("FAKE_TENSORRT", "").split(",")


class Symbols(dict):
    """What the loaded library exports: its own version, whatever the package around it says."""

    def __init__(self, version: str) -> None:
        parts = zip(("Major", "Minor", "Patch", "Build"), version.split("."), strict=True)
        super().__init__({f"getInferLib{part}Version": lambda value=value: int(value) for part, value in parts})


class Severity(int):
    @property
    def name(self) -> str:
        return ("INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE")[self]


class ILogger:
    Severity = Severity
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = map(Severity, range(5))

    def __init__(self) -> None:
        self.ready = True

    def log(self, severity: Severity, msg: str) -> None:
        raise NotImplementedError


class IProfiler:
    def __init__(self) -> None:
        self.ready = True

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        raise NotImplementedError


class IProgressMonitor:
    def __init__(self) -> None:
        self.ready = True

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        raise NotImplementedError


class NetworkDefinitionCreationFlag:
    STRONGLY_TYPED = 1


class BuilderFlag:
    TF32, FP16, FP8 = "TF32", "FP16", "FP8"


class ProfilingVerbosity:
    LAYER_NAMES_ONLY, DETAILED = "LAYER_NAMES_ONLY", "DETAILED"


class LayerInformationFormat:
    JSON = "JSON"


class ITimingCache:
    def __init__(self, entries: set[str]) -> None:
        self.entries = entries

    def combine(self, input_cache: ITimingCache, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        if "another-gpu" in input_cache.entries:
            return False
        self.entries |= input_cache.entries
        return True

    def serialize(self) -> bytes:
        return TIMINGS + " ".join(sorted(self.entries)).encode()


class IBuilderConfig:
    builder_optimization_level = 3
    profiling_verbosity = ProfilingVerbosity.LAYER_NAMES_ONLY
    progress_monitor: IProgressMonitor | None = None

    def __init__(self, log: ILogger) -> None:
        self.flags = {"TF32"}
        self.log = log
        self.timings = ITimingCache(set())

    def set_flag(self, flag: str) -> None:
        self.flags.add(flag)

    def clear_flag(self, flag: str) -> None:
        if fault("flag error"):
            self.log.log(ILogger.ERROR, "TF32 cannot be cleared")
        self.flags.discard(flag)

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache | None:
        if serialized_timing_cache and not serialized_timing_cache.startswith(TIMINGS):
            self.log.log(ILogger.ERROR, "Timing cache was made by another TensorRT")
            return None
        return ITimingCache(set(serialized_timing_cache.removeprefix(TIMINGS).decode().split()))

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        if "another-gpu" in cache.entries or fault("no timing cache"):
            self.log.log(ILogger.ERROR, "Timing cache was made on another device")
            return False
        self.timings = cache
        return True


class Builder:
    def __init__(self, logger: ILogger) -> None:
        assert logger.ready
        self.log = logger

    def create_network(self, flags: int = 0) -> SimpleNamespace:
        return SimpleNamespace(flags=flags)

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig(self.log)

    def build_serialized_network(self, network: SimpleNamespace, config: IBuilderConfig) -> bytes | None:
        monitor = config.progress_monitor
        assert monitor is not None
        assert monitor.ready
        monitor.phase_start("Building Engine", None, 2)
        for step in range(500):
            monitor.phase_start("Timing graph nodes", "Building Engine", 10)
            monitor.phase_start(f"node {step}", "Timing graph nodes", 10)
            assert monitor.step_complete("Timing graph nodes", step)
            monitor.phase_finish("Timing graph nodes")
        self.log.log(ILogger.WARNING, "almost out\nof memory")
        self.log.log(ILogger.INFO, "not worth a line")
        if fault("crash"):
            os.abort()
        if fault("hang"):
            time.sleep(60)
        if fault("disk full"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if fault("exit"):
            os._exit(7)
        if fault("exception"):
            raise MemoryError("host memory")
        if fault("build error"):
            self.log.log(ILogger.ERROR, "Skipping tactic 0x17:\n out of memory")
        if fault("null plan"):
            self.log.log(ILogger.INTERNAL_ERROR, "no implementation for node layer.0/gelu")
            return None
        level = config.builder_optimization_level
        config.timings.entries.add(f"level-{level}")
        built = {
            "version": os.environ.get("FAKE_VERSION", __version__),
            "network_flags": network.flags,
            "flags": sorted(config.flags),
            "level": level,
            "verbosity": config.profiling_verbosity,
        }
        return MAGIC + json.dumps(built).encode()


class OnnxParser:
    def __init__(self, network: SimpleNamespace, logger: ILogger) -> None:
        assert (network.flags, logger.ready) in ((0, True), (2, True))
        self.errors: list[str] = []
        self.log = logger

    @property
    def num_errors(self) -> int:
        return len(self.errors)

    def parse_from_file(self, model: str) -> bool:
        assert Path(model).stat().st_size
        if fault("parser error"):
            self.log.log(ILogger.ERROR, "node 5: an input is ignored")
        if fault("parser"):
            self.errors = ["node 3 (layer.0/gelu): no Gelu\n here", "node 7 (cls): wrong type"]
        return not self.errors

    def get_error(self, index: int) -> str:
        return self.errors[index]


class EngineInspector:
    def get_engine_information(self, format: str) -> str:
        assert format == LayerInformationFormat.JSON
        return json.dumps({"Layers": [{"Name": "double", "LayerType": "kgen", "Metadata": "[ONNX Layer: y]"}]})


class IExecutionContext:
    profiler: IProfiler | None = None

    def __init__(self, log: ILogger) -> None:
        self.log = log
        self.addresses: dict[str, int] = {}

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self.addresses[name] = memory
        return not fault("address")

    def execute_async_v3(self, stream_handle: int) -> bool:
        assert stream_handle == 17
        if fault("enqueue") or (CAPTURING and fault("enqueue in capture")):
            return False
        if fault("enqueue error"):
            self.log.log(ILogger.ERROR, "Cuda Runtime (an illegal memory access)")
        if CAPTURING:
            CAPTURING[-1].append(self.work)
        else:
            self.work()
        return True

    def work(self) -> None:
        values = {name: (ctypes.c_float * 6).from_address(address) for name, address in self.addresses.items()}
        if not fault("writes nothing"):
            values["y"][:] = [2 * value for value in values["x"]]
        if self.profiler is not None:
            assert self.profiler.ready
            self.profiler.report_layer_time("double", 0.25)
            self.profiler.report_layer_time("reformat", 0.5)


class ICudaEngine:
    num_io_tensors = len(TENSORS)

    def __init__(self, log: ILogger, built: dict) -> None:
        self.log = log
        self.built = built

    def get_tensor_name(self, index: int) -> str:
        return list(TENSORS)[index]

    def get_tensor_dtype(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name="HALF" if fault("other types") else TENSORS[name][0])

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return TENSORS[name][1]

    def create_execution_context(self) -> IExecutionContext | None:
        return None if fault("null context") else IExecutionContext(self.log)

    def create_engine_inspector(self) -> EngineInspector | None:
        return None if fault("null inspector") else EngineInspector()


class Runtime:
    def __init__(self, logger: ILogger) -> None:
        self.log = logger
        if fault("no driver"):
            logger.log(ILogger.ERROR, "CUDA initialization failure with error: 35")
            raise TypeError("pybind11::init(): factory function returned nullptr")

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> ICudaEngine | None:
        if fault("null engine") or not serialized_engine.startswith(MAGIC):
            self.log.log(ILogger.ERROR, "Serialization assertion failed: magic tag does not match")
            return None
        built = json.loads(serialized_engine.removeprefix(MAGIC))
        if built["version"] != os.environ.get("FAKE_VERSION", __version__):
            self.log.log(ILogger.ERROR, f"Version tag does not match: built by {built['version']}")
            return None
        return ICudaEngine(self.log, built)


# ---------------------------------------------------------------------------------------------- CUDA


class Stream:
    """A stream on which everything has happened already."""

    cuda_stream = 17

    def synchronize(self) -> None:
        pass

    def wait_stream(self, other: object) -> None:
        pass


class CUDAGraph:
    """Records the calls of fake contexts and runs them again."""

    def __init__(self, keep_graph: bool) -> None:
        assert keep_graph
        self.calls: list = []
        self.ready = False

    def capture_begin(self, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        CAPTURING.append(self.calls)

    def capture_end(self) -> None:
        CAPTURING.pop()
        if sys.exc_info()[0] is not None:
            raise RuntimeError("operation failed due to a previous error during capture")

    def raw_cuda_graph(self) -> list:
        return [] if fault("empty graph") else self.calls

    def instantiate(self) -> None:
        self.ready = True

    def replay(self) -> None:
        if not self.ready:
            raise RuntimeError("replay without a preceding successful capture")
        for call in self.calls:
            call()

    def reset(self) -> None:
        self.ready = False
