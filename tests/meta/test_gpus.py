"""Which GPU it is, which ones a process may see, and the gate's three endings; NVML and CUDA are stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pynvml
import pytest

from fixtures import gpus
from fixtures.baselines import device_slug
from fixtures.errors import InputError
from fixtures.gpus import Gpu, Probe, absent, gate, identify, visible

# ------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("name", "capability", "multiprocessors", "slug"),
    [
        ("NVIDIA B200", (10, 0), 148, "b200"),
        ("NVIDIA B200-SXM-180GB", (10, 0), 148, "b200"),
        ("NVIDIA GB200", (10, 0), 152, "gb200"),
        ("NVIDIA B300 SXM6 AC", (10, 3), 148, "b300"),
        ("NVIDIA GB300", (10, 3), 152, "gb300"),
        ("NVIDIA H200", (9, 0), 132, "h200"),
        ("NVIDIA H200 NVL", (9, 0), 132, "h200-nvl"),
        ("NVIDIA H20", (9, 0), 78, "h20"),
        ("NVIDIA H20-3e", (9, 0), 78, "h20-3e"),
        ("NVIDIA H100 80GB HBM3", (9, 0), 132, "h100"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0), 188, "rtx-pro-6000-server"),
        ("nvidia b200", (10, 0), 148, "b200"),
        ("NVIDIA B200\n", (10, 0), 148, "b200"),
        ("NVIDIA  B300   SXM6 AC ", (10, 3), 148, "b300"),
    ],
)
def test_known_names_are_their_part_and_no_other(name, capability, multiprocessors, slug):
    """C39: declared names map to one part, whatever their case and spacing, and the raw name is kept."""
    gpu = identify(name, capability, multiprocessors, mig=False)
    assert (gpu.slug, gpu.name, gpu.reason) == (slug, name, "")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "\n",
        "B200",
        "NVIDIA B2000",
        "NVIDIA B200X",
        "XNVIDIA B200",
        "NVIDIA GB200 NVL4",
        "NVIDIA GH200 480GB",
        "NVIDIA H200 MAX",
        "NVIDIA H100",
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        "AMD Instinct MI300X",
        "NVIDIA B200 NVIDIA H200",
        "NVIDIA B.00",
    ],
)
def test_unknown_name_is_no_part_and_is_kept(name):
    """C39: no prefix, no suffix, no nearest match: an unknown GPU has no slug, and says so under its raw name."""
    gpu = identify(name, (10, 0), 148, mig=False)
    assert (gpu.slug, gpu.name, gpu.reason) == (None, name, "not a known GPU")
    assert "None" not in str(gpu)


@pytest.mark.parametrize(
    ("name", "capability", "multiprocessors", "reason"),
    [
        ("NVIDIA B200", (10, 0), 132, "132 multiprocessors, B200 has 148"),
        ("NVIDIA B200", (10, 3), 148, "compute capability 10.3, B200 has 10.0"),
        ("NVIDIA B300 SXM6 AC", (10, 3), 152, "152 multiprocessors, B300 has 148"),
        ("NVIDIA H200", (9, 0), 66, "66 multiprocessors, H200 has 132"),
        ("NVIDIA H200 NVL", (10, 0), 132, "compute capability 10.0, H200-NVL has 9.0"),
    ],
)
def test_cross_check_that_disagrees_takes_the_slug(name, capability, multiprocessors, reason):
    """C39: a name alone is not enough; the device has to agree, and the reason says in what it does not."""
    gpu = identify(name, capability, multiprocessors, mig=False)
    assert (gpu.slug, gpu.reason) == (None, reason)


@pytest.mark.parametrize(
    ("name", "mig", "slug"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", True, "h100-mig-1g.10gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", False, "h100-mig-1g.10gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", True, "h100-mig-1g.10gb+me"),
        ("nvidia h200 mig 1c.3g.71gb\n", True, "h200-mig-1c.3g.71gb"),
        ("NVIDIA H200 MIG 7g.141gb", True, "h200-mig-7g.141gb"),
        ("NVIDIA H200", True, None),
        ("NVIDIA H200 MIG", True, None),
        ("NVIDIA H200 MIG 1g", True, None),
        ("NVIDIA X1 MIG 1g.10gb", True, None),
        ("MIG 1g.10gb", True, None),
    ],
)
def test_mig_slice_is_not_its_gpu(name, mig, slug):
    """C39: a slice has its own slug with its profile, or none; it never has its GPU's, not even the 7g slice."""
    assert identify(name, (9, 0), 132, mig).slug == slug


@pytest.mark.parametrize("part", gpus.PARTS, ids=lambda part: part.slug)
def test_one_part_has_one_device_name(part):
    """C39: a part's baselines are found again under each of its names, and it is identified for what it is."""
    found = {
        identify(name, part.capability, part.multiprocessors or 1, mig=False).device_name
        for given in part.names
        for name in (given, given.upper(), f" {given}\n")
    }
    assert found == {f"NVIDIA {part.slug.upper()}"}


def test_device_name_says_what_is_not_a_known_part():
    """C39: what has no slug is named by all that is known of it, and what has one shares no folder with it."""
    others = {
        "NVIDIA X1, compute capability 9.0, 132 multiprocessors": identify("NVIDIA  X1\n", (9, 0), 132, mig=False),
        "NVIDIA X1, compute capability 9.0, 66 multiprocessors": identify("NVIDIA X1", (9, 0), 66, mig=False),
        "NVIDIA H200, compute capability 9.0, 66 multiprocessors": identify("NVIDIA H200", (9, 0), 66, mig=False),
        "NVIDIA H200, compute capability 10.0, 132 multiprocessors": identify("NVIDIA H200", (10, 0), 132, mig=False),
        "NVIDIA H200, compute capability 9.0, 132 multiprocessors, MIG slice": identify(
            "NVIDIA H200", (9, 0), 132, mig=True
        ),
        "NVIDIA H200, compute capability 9.0, 66 multiprocessors, MIG slice": identify(
            "NVIDIA H200", (9, 0), 66, mig=True
        ),
        "NVIDIA X1 MIG 1g.10gb, compute capability 9.0, 16 multiprocessors, MIG slice": identify(
            "NVIDIA X1 MIG 1g.10gb", (9, 0), 16, mig=False
        ),
        "NVIDIA H200-MIG-1G.18GB": identify("NVIDIA H200 MIG 1g.18gb", (9, 0), 16, mig=True),
        "NVIDIA H200-MIG-1G.18GB+ME": identify("NVIDIA H200 MIG 1g.18gb+me", (9, 0), 16, mig=True),
        "a GPU without a name, compute capability 9.0, 132 multiprocessors": identify("\n", (9, 0), 132, mig=False),
    }
    assert [gpu.device_name for gpu in others.values()] == list(others)
    folders = [device_slug(name) for name in (*others, *(f"NVIDIA {part.slug}" for part in gpus.PARTS), "cpu")]
    assert len(set(folders)) == len(folders)


def test_table_has_one_part_a_name_and_a_slug():
    """A name declared twice would silently be the later part's."""
    names = [gpus._folded(name) for part in gpus.PARTS for name in part.names]
    assert len(names) == len(set(names))
    assert len({part.slug for part in gpus.PARTS}) == len(gpus.PARTS)


# ------------------------------------------------------------------------------------------ CUDA_VISIBLE_DEVICES

A, B, C = "GPU-aa11-1", "GPU-aa22-2", "GPU-bb33-3"
SLICES = ("MIG-cc44-4", "MIG-cc55-5")


@pytest.mark.parametrize(
    ("variable", "shown"),
    [
        (None, (A, B, C)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0", (A,)),
        ("2,0", (C, A)),
        (" 1 , 2 ", (B, C)),
        ("3", ()),
        ("0,7,1", (A,)),
        ("0,2,-1,1", (A, C)),
        ("0,,1", (A,)),
        ("1,1", ()),
        (B, (B,)),
        ("GPU-bb", (C,)),
        ("GPU-aa", ()),
        ("GPU-aa2,GPU-aa1", (B, A)),
        ("GPU-aa1,GPU-zz,GPU-bb", (A,)),
        (f"{A},GPU-aa11", ()),
        ("0,GPU-bb33-3", (A, C)),
        ("MIG-cc44-4", ("MIG-cc44-4",)),
        ("MIG-cc5", ("MIG-cc55-5",)),
        ("MIG-zz", ()),
        (f"MIG-{C}/1/0", (f"MIG-{C}/1/0",)),
        ("MIG-GPU-zz/1/0", ()),
        ("GPU", ()),
        ("all", ()),
    ],
)
def test_visible_devices_in_every_legal_form(variable, shown):
    """C18, C37: unset, empty, indices, UUIDs cut short, MIG; an invalid entry ends the list, a repeat voids it."""
    assert visible(variable, (A, B, C), SLICES) == shown


# ------------------------------------------------------------------------------------------ the probe


@dataclass
class FakeDriver:
    """An NVML with these GPUs (UUIDs), some of them divided; `error` is what starting it raises."""

    uuids: tuple[str, ...] = ()
    slices: tuple[str, ...] = ()  # all on the last GPU
    error: int | None = None

    def nvmlInit(self) -> None:  # noqa: N802
        if self.error is not None:
            raise pynvml.NVMLError(self.error)

    def nvmlShutdown(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return self.uuids[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid not in self.uuids + self.slices:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        return handle

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:  # noqa: N802
        if not self.slices:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(handle == self.uuids[-1]), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, _: str) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, _: str, index: int) -> str:  # noqa: N802
        if index >= len(self.slices):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self.slices[index]


@pytest.fixture
def machine(monkeypatch) -> Callable[..., None]:
    """Makes this a machine with that driver, that CUDA_VISIBLE_DEVICES, and a CUDA that works or fails so."""

    def make(driver: FakeDriver, variable: str | None = None, failure: str = "No CUDA GPUs are available") -> None:
        for name in filter(lambda name: name.startswith("nvml"), dir(driver)):
            monkeypatch.setattr(pynvml, name, getattr(driver, name))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if variable is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)

        def cuda():
            raise RuntimeError(failure)

        monkeypatch.setattr(gpus, "_cuda_gpu", cuda)

    return make


NO_DRIVER = FakeDriver(error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040).\nPlease update your GPU driver"
FULL = "CUDA out of memory. Tried to allocate 2.00 MiB."


@pytest.mark.parametrize(
    ("driver", "variable", "failure", "kind", "reason"),
    [
        (NO_DRIVER, None, "Found no NVIDIA driver", "none", "no NVIDIA driver"),
        (FakeDriver(), None, "No CUDA GPUs are available", "none", "sees no GPU"),
        (FakeDriver((A, B)), "", "No CUDA GPUs are available", "none", "CUDA_VISIBLE_DEVICES='' shows none of the 2"),
        (FakeDriver((A,)), "7", "No CUDA GPUs are available", "none", "CUDA_VISIBLE_DEVICES='7' shows none of the 1"),
        (FakeDriver((A,)), None, TOO_OLD, "broken", "too old (found version 11040)."),
        (FakeDriver((A,)), "GPU-aa", FULL, "broken", "out of memory"),
        (FakeDriver((A,)), "0", "Torch not compiled with CUDA enabled", "broken", "not compiled with CUDA"),
        (FakeDriver((A,), SLICES), "MIG-cc4", "CUDA error: unknown error", "broken", "unknown error"),
        (FakeDriver(error=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH), "", "x", "broken", "ersion mismatch"),
        (FakeDriver(error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED), None, "x", "broken", "Driver Not Loaded"),
    ],
)
def test_absent_and_broken_are_two_endings(machine, driver, variable, failure, kind, reason):
    """C37: no GPU, hidden GPUs, an old driver, full memory, a device fault: none and broken are told apart."""
    machine(driver, variable, failure)
    found = gpus.probe()
    assert (found.kind, found.gpu) == (kind, None)
    assert reason in found.reason
    assert "\n" not in found.reason


def test_gpu_that_works_is_ok_without_nvml(machine, monkeypatch):
    """What CUDA could use is ok, also where there is no NVML to ask."""
    machine(NO_DRIVER)
    here = identify("NVIDIA H200", (9, 0), 132, mig=False)
    monkeypatch.setattr(gpus, "_cuda_gpu", lambda: here)
    assert gpus.probe() == Probe("ok", here)


@pytest.mark.parametrize(
    ("driver", "uuid", "mig"),
    [
        (FakeDriver((A, B)), A, False),
        (FakeDriver((A, B), SLICES), A, False),
        (FakeDriver((A, B), SLICES), B, True),
        (FakeDriver((A, B), SLICES), "GPU-cc44-4", True),
        (FakeDriver((A, B), SLICES), "GPU-zz", False),
        (NO_DRIVER, A, False),
    ],
    ids=["whole", "whole beside a divided one", "divided", "the slice's own UUID", "not NVML's", "no NVML"],
)
def test_slice_is_known_by_uuid(machine, driver, uuid, mig):
    """C39: CUDA's device is a slice whether it gives the slice's UUID or its GPU's."""
    machine(driver)
    assert gpus._is_mig(uuid) is mig


@pytest.mark.parametrize(("uuid", "reason"), [("", "without a UUID"), ("GPU-zz", "no GPU"), (B, "divided by MIG")])
def test_handle_is_of_that_whole_gpu_or_refused(machine, uuid, reason):
    """C18: a UUID that NVML does not know, or a divided GPU, has no handle; another GPU's is never given."""
    machine(FakeDriver((A, B), SLICES))
    assert gpus.handle(A) == A
    with pytest.raises(InputError, match=reason):
        gpus.handle(uuid)


# ------------------------------------------------------------------------------------------ the gate

B200 = Gpu("b200", "NVIDIA B200", (10, 0), 148)
HERE = Probe("ok", B200)
NONE = Probe("none", reason="there is no NVIDIA driver")
BROKEN = Probe("broken", reason="CUDA error: unknown error")
OTHER = Probe("ok", Gpu("h200", "NVIDIA H200", (9, 0), 132))
CUT = Probe("ok", identify("NVIDIA B200", (10, 0), 132, mig=False))
NO_TENSORRT = "tensorrt is not installed; pip install '.[tensorrt]'"


@pytest.mark.parametrize("found", [HERE, NONE, BROKEN, OTHER])
def test_not_asked_for_is_no_failure(found):
    """C37: the first ending: without a GPU mark nothing about GPUs fails the run."""
    assert gate(set(), found, NO_TENSORRT, compared=0, executed=0, engines=0) is None


@pytest.mark.parametrize(
    ("found", "tensorrt", "compared", "executed", "engines", "message"),
    [
        (NONE, None, 9, 9, 1, "asked for B200, found none: there is no NVIDIA driver"),
        (
            BROKEN,
            None,
            9,
            9,
            1,
            "asked for B200: the GPU or its driver is present but broken: CUDA error: unknown error",
        ),
        (OTHER, None, 9, 9, 1, "asked for B200, found NVIDIA H200 (h200)"),
        (CUT, None, 9, 9, 1, "asked for B200, found NVIDIA B200 (132 multiprocessors, B200 has 148)"),
        (HERE, NO_TENSORRT, 9, 9, 1, f"asked for B200, but TensorRT cannot be used: {NO_TENSORRT}"),
        (HERE, None, 0, 0, 0, "asked for B200, but no test came to a verdict"),
        (HERE, None, 0, 7, 1, "asked for B200: none of 7 verdicts is sound, so nothing was compared"),
        (HERE, None, 7, 7, 0, "asked for B200: no engine was opened, so none of 7 verdicts is of the GPU"),
    ],
)
def test_asked_for_and_not_had_fails_and_says_which(found, tensorrt, compared, executed, engines, message):
    """C21, C37: absent, broken, another GPU, no TensorRT, all deselected, nothing compared: each its own message."""
    assert gate({"b200"}, found, tensorrt, compared, executed, engines) == message


def test_gate_opens_when_the_asked_gpu_compared_something():
    """The only way through."""
    assert gate({"b200"}, HERE, None, compared=1, executed=1, engines=1) is None
    assert absent({"b200"}, HERE, None) is None


def test_every_gpu_asked_for_has_to_be_there():
    """C37: "b200 or b300" on a B200 does not quietly leave the B300 out."""
    assert absent({"b300", "b200"}, HERE, None) == "asked for B200 and B300, found NVIDIA B200 (b200)"
