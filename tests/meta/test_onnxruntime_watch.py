"""The process that watches ONNX Runtime: on a CPU, where it finds no kernel, and with stand-ins for every way it can
end."""

from __future__ import annotations

import json
import sys

import pytest
from safetensors.torch import save_file

from fixtures.engines import onnxruntime_watch
from fixtures.engines.onnxruntime_watch import TRACE, watched
from fixtures.errors import EngineError
from fixtures.fnet.kernels import GROUPS
from fixtures.profiling import LayerTime, Trace, profile
from tests.meta import tiny

RUNS = 4
FEEDS = {"input_ids": tiny.ids()}
FP32, HALF = "tiny-16-b1-fp32", "tiny-16-b1-fp16+hs"
SOUND = Trace((LayerTime(0, "gemm", ("layer.0/output/matmul",), 0.125), LayerTime(0, "copy", (), 0.5)), ("a gap",))
# What a stand-in begins with: `done(case)` leaves a sound trace.
START = f"""
import json, os, pathlib, sys, time
request = json.loads(sys.argv[1])
folder = pathlib.Path(request["folder"])
def done(case):
    (folder / (case + ".json")).write_bytes({TRACE.dump_json(SOUND)!r})
"""


def both(feeds=FEEDS):
    return ((tiny.graph(variant), feeds) for variant in ("fp32", "fp16+hs"))


@pytest.fixture
def instead(monkeypatch, tmp_path):
    """Puts a program of these lines in the place of the one that watches."""

    def put(*lines):
        script = tmp_path / "stand_in.py"
        script.write_text("\n".join([START, *lines]))
        monkeypatch.setattr(onnxruntime_watch, "PROGRAM", (sys.executable, "-S", "-u", str(script)))

    return put


def test_real_process():
    """C19: sessions of two cases are opened, run and watched; a CPU has no kernel, and so the profile says."""
    found = watched(both(), RUNS, device="cpu")
    assert found == [Trace(()), Trace(())]
    assert profile(found[0], GROUPS, RUNS, None).problems == ("incomplete: the trace is empty",)


def test_what_the_program_says_when_it_fails(monkeypatch, capsys, tmp_path):
    """What ONNX Runtime raises is one line behind the prefix that the asking process looks for, with an exit status; it
    names the case, and those that follow are watched all the same."""
    for graph, ids in ((tiny.graph("fp16+hs"), tiny.ids() + 10**6), (tiny.graph("fp32"), tiny.ids())):
        graph.save(tmp_path / f"{graph.case.id}.onnx")
        save_file({"input_ids": ids}, tmp_path / f"{graph.case.id}.safetensors")
    request = {"folder": str(tmp_path), "cases": [HALF, FP32], "runs": RUNS, "device": "cpu"}
    monkeypatch.setattr(sys, "argv", ["", json.dumps(request)])
    monkeypatch.setattr(onnxruntime_watch.os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        onnxruntime_watch.main()
    (line,) = capsys.readouterr().out.splitlines()
    assert ended.value.code == 1
    assert line.startswith(f"{onnxruntime_watch.ERROR}{HALF}: RuntimeError: ")
    assert "1000044" in line
    assert not (tmp_path / f"{HALF}.json").exists()
    assert (tmp_path / f"{FP32}.json").exists()


def test_what_is_asked_for_and_given(instead, monkeypatch):
    """The process has the models with their weights, the inputs, the modules of this one, and no other environment; its
    traces come back in order, and its files are gone."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    monkeypatch.syspath_prepend("/a/place/of/modules")
    instead(
        "for case in request['cases']:",
        "    done(case)",
        "    assert (folder / (case + '.onnx')).stat().st_size > 10_000",
        "    assert (folder / (case + '.safetensors')).stat().st_size > 100",
        "seen = [request, os.environ['CUDA_VISIBLE_DEVICES'], os.environ['PYTHONPATH'].split(':')[:2], str(folder)]",
        "said = json.loads((folder / (case + '.json')).read_text()) | {'problems': [json.dumps(seen)]}",
        "(folder / (case + '.json')).write_text(json.dumps(said))",
    )
    first, second = watched(both(), RUNS)
    assert first == SOUND
    assert second.layers == SOUND.layers
    request, gpu, path, folder = json.loads(second.problems[0])
    assert request == {"folder": folder, "cases": [FP32, HALF], "runs": RUNS, "device": "cuda"}
    assert gpu == "GPU-1"
    assert path == [str(onnxruntime_watch.ROOT), "/a/place/of/modules"]
    assert not onnxruntime_watch.Path(folder).exists()


CRASH = "os.abort()"
FIRST_DONE = "done(request['cases'][0])"
BOTH, SECOND = (FP32, HALF), (HALF,)
ENDINGS = {
    "crash": ([CRASH], BOTH, "crashed (SIGABRT): its last lines: none"),
    "crash in the second": ([FIRST_DONE, CRASH], SECOND, "crashed (SIGABRT)"),
    "crash at the end": (["[done(case) for case in request['cases']]", CRASH], SECOND, "crashed (SIGABRT)"),
    "said before a crash": (
        ["print(*range(9), sep='\\n')", "print('\\x1b[1;31mCUDA failure 800\\x1b[m', file=sys.stderr)", CRASH],
        BOTH,
        "its last lines: 5 | 6 | 7 | 8 | CUDA failure 800",
    ),
    "bytes": (["sys.stdout.buffer.write(b'\\xff\\xfe')", CRASH], BOTH, "its last lines: \ufffd\ufffd"),
    "hang": (["print('waiting')", "time.sleep(60)"], BOTH, "had not ended after 0.5 s and was stopped: its last"),
    "silent hang": (["time.sleep(60)"], BOTH, "was stopped: its last lines: none"),
    "exit": (["sys.exit(7)"], BOTH, "failed (exit status 7)"),
    "reason": (
        ["print('error: Fail: no kernel')", "print('bye')", "sys.exit(1)"],
        BOTH,
        "failed (exit status 1): Fail: no kernel; its last lines: bye",
    ),
    "error in the first": (["done(request['cases'][1])", "print('error: no')", "sys.exit(1)"], (FP32,), "1): no; its"),
    "no trace": ([FIRST_DONE], SECOND, "its trace cannot be read: [Errno 2]"),
}


@pytest.mark.parametrize(("lines", "lost", "words"), ENDINGS.values(), ids=ENDINGS)
def test_every_other_end_is_an_error(instead, lines, lost, words):
    """C19: a crash, a hang and an exit are one line for each case that lost its trace, with its name, the reason and
    what was said; the other case has its trace."""
    instead(*lines)
    found = dict(zip(BOTH, watched(both(), RUNS, limit_s=0.5 if "time.sleep(60)" in lines else 30), strict=True))
    for case, outcome in found.items():
        if case not in lost:
            assert outcome == SOUND
            continue
        with tiny.one_line(EngineError, f"{case}: ", "ONNX Runtime", words):
            raise outcome


@pytest.mark.parametrize("text", ["", TRACE.dump_json(SOUND).decode()[:-9], "[]", '{"layers": [{"run": 0}]}', "null"])
def test_trace_that_is_cut_or_something_else(instead, text):
    """C19: what is not a whole trace is an error, not a profile with less in it."""
    instead("[done(case) for case in request['cases']]", f"(folder / '{FP32}.json').write_text({text!r})")
    cut, whole = watched(both(), RUNS)
    assert whole == SOUND
    with tiny.one_line(EngineError, f"{FP32}: ONNX Runtime was watched, but its trace cannot be read: "):
        raise cut


def test_trace_comes_back_as_it_was():
    """Numbers, names and what is wrong with a trace survive the file."""
    odd = Trace((LayerTime(19, 'a "b"\n/é', (), 1 / 3),), ("not whole",))
    assert TRACE.validate_json(TRACE.dump_json(odd)) == odd
