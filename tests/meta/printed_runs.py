"""Recorded runs made of what the studies print, and of a release that was never there: for tests alone, since no record
may hold a figure that this suite did not measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date

from fixtures.baselines import Figure, Inputs, Measured, Origin
from fixtures.cases import studies
from fixtures.conclusions import conclusions
from fixtures.documented import documented
from fixtures.fnet.recipe import recipe

SAMPLES = 300
FP8, PART = "fp8", "fp8-no-output-dense"


def printed(study: str = "fnet", gpu: str = "B200", release: str = "11.4") -> Measured:
    """What a record of the study's own run on `gpu` with TensorRT `release` would hold, as far as that is printed."""
    figures: dict[str, dict[str, Figure]] = {}
    known = {case.id: case for case in studies()[study].cases}
    for key, value in documented(study):
        here = key.gpu in (None, gpu) and key.tensorrt in (None, release)
        if here and key.case in known and key.figure in conclusions().units:
            figures.setdefault(key.case, {})[key.figure] = Figure(value.value, value.unit, SAMPLES)
    for id, found in figures.items():
        case = known[id]
        if case.window is None or case.variant not in (FP8, PART):
            continue
        half = figures.get(case.at("fp16" if recipe(FP8, case.window).hidden_scale == 1.0 else "fp16+hs").id, {})
        if "latency" in found and "latency" in half:
            found["speedup"] = Figure(half["latency"].value / found["latency"].value, "x", 9)
        if "agreement" in found and "agreement" in half:
            found["agreement_loss"] = Figure(half["agreement"].value - found["agreement"].value, "share", SAMPLES)
    return Measured(
        study=study,
        engine="tensorrt",
        version=documented(study).tensorrt[release],
        device=f"NVIDIA {gpu}",
        recorded=date(2026, 11, 1),
        environment={"python": "3.12.3", "driver": "580.95", "torch": "2.14.0"},
        inputs=Inputs(
            {"base": Origin("hub google/fnet-base@d89b6fa", "a" * 64)}, {"base-512": Origin("hub wikitext", "b" * 64)}
        ),
        graphs=dict.fromkeys(figures, "c" * 64),
        figures=figures,
        builds=1,
        canaries={case: {"layers": 412, "fp8_gemms": 24 if case.endswith(FP8) else 0} for case in figures},
        telemetry={},
        accepted={},
    )


def invented(before: Measured, speedup: float = 1.22, agreement: float = 0.994) -> Measured:
    """The run after `before`, with a TensorRT 11.5 that nobody released: FP8 is `speedup` times as fast as half
    precision and agrees with PyTorch on `agreement` of the tokens; all else is as it was."""
    figures = {
        case: _better(found, speedup, agreement) if case.endswith(FP8) else dict(found)
        for case, found in before.figures.items()
    }
    canaries = {
        case: {**counts, "layers": 396} if case.endswith(FP8) else counts for case, counts in before.canaries.items()
    }
    return replace(before, version="11.5.0.10", recorded=date(2026, 11, 30), figures=figures, canaries=canaries)


def _better(found: Mapping[str, Figure], speedup: float, agreement: float) -> dict[str, Figure]:
    better = dict(found)
    if "speedup" in found:
        half_ms = found["latency"].value * found["speedup"].value
        better |= {"latency": replace(found["latency"], value=half_ms / speedup)}
        better |= {"speedup": replace(found["speedup"], value=speedup)}
    if "agreement_loss" in found:
        half = found["agreement"].value + found["agreement_loss"].value
        better |= {"agreement": replace(found["agreement"], value=agreement)}
        better |= {"agreement_loss": replace(found["agreement_loss"], value=half - agreement)}
    return better
