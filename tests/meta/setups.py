"""Made-up machines, and what options come to on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fixtures.engines.cache import Cache
from fixtures.gpus import Probe, identify
from fixtures.setup import Setup, decide

NO_DRIVER = "there is no NVIDIA driver"
NONE = Probe("none", reason=NO_DRIVER)
BROKEN = Probe("broken", reason="CUDA error: device-side assert")


def having(name: str, capability: tuple[int, int], multiprocessors: int, mig: bool = False) -> Probe:
    """A machine with one GPU that works."""
    return Probe("ok", identify(name, capability, multiprocessors, mig, uuid="GPU-1"))


B200 = having("NVIDIA B200", (10, 0), 148)
B300 = having("NVIDIA B300 SXM6 AC", (10, 3), 148)
H200 = having("NVIDIA H200", (9, 0), 132)


@dataclass(frozen=True)
class Given:
    """Options as the command line leaves them."""

    engine: str = "auto"
    device: str = "auto"
    checkpoints: str | None = None
    datasets: str | None = None
    samples: str | None = None
    markexpr: str = ""


def made(
    folder: Path,
    found: Probe = NONE,
    tensorrt: bool = False,
    say: Callable[[str], None] = lambda _: None,
    **given: str,
) -> Setup:
    """The setup of a run with these options, its cache in `folder`; nothing is timed."""
    decision = decide(Given(**given), found, tensorrt)
    return Setup(**vars(decision), cache=Cache(folder), save_graphs=None, say=say, not_timed="not timed: made up")
