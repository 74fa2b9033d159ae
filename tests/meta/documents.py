"""Made-up documents: the runs that a report has to tell apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

from fixtures.decisions import Decided, Ground, State
from fixtures.document import (
    SCHEMA,
    Basis,
    Change,
    ClaimText,
    Document,
    Failure,
    Found,
    Kernels,
    LeftOut,
    Option,
    Rounds,
    Waived,
)
from fixtures.verdicts import AS_PRINTED, UNDRIFTED, UNMOVED, Interval, Limits, Outcome, margin

Times = Mapping[str, Mapping[str, float]]


HOLDS, MOVED, FLIPPED = Outcome.HOLDS, Outcome.MOVED, Outcome.FLIPPED

CLAIMS = {
    "fnet/fp16-not-finite-at-512": ClaimText(
        study="fnet",
        statement="Plain fp16 returns NaN for nearly every passage padded to 512 tokens.",
        figure="nonfinite_share",
        unit="share",
        documented="293/300 base, 300/300 large; 98/100 base on TensorRT 11.1",
        reason="the lowest printed share is 0.977; under 0.9 the overflow would be an exception and the scaling a "
        "matter of taste",
        known_issue=True,
    ),
    "fnet/fp16-hs-finite-at-512": ClaimText(
        study="fnet",
        statement="With hidden-axis scaling, fp16 is finite at 512 tokens.",
        figure="nonfinite_share",
        unit="share",
        documented="no NaN",
        reason="the fix is a fix only if no passage is left",
        known_issue=False,
    ),
    "fnet/fp16-kl": ClaimText(
        study="fnet",
        statement="Half precision predicts masked tokens as PyTorch does: mean KL stays in the 1e-5 class.",
        figure="kl_mean",
        unit="nats",
        documented="5.9e-06 and 4.6e-06 at 512, 1.2e-05 and 2.9e-05 at 256",
        reason="over three times the largest printed fp16 value, and 57 times under the smallest of FP8 (0.0057)",
        known_issue=False,
    ),
    "fnet/fp8-agreement-below-97": ClaimText(
        study="fnet",
        statement="FP8 agrees with PyTorch on clearly fewer than 99% of masked tokens.",
        figure="agreement",
        unit="share",
        documented="93.99%, 95.55%, 89.48%, 83.52%",
        reason="midway between the highest printed (95.55%) and the study's 99%, rounded down: near it the conclusion "
        "is in play",
        known_issue=False,
    ),
    "fnet/look-again-2": ClaimText(
        study="fnet",
        statement="No recipe that quantizes output.dense keeps top-1 agreement above 99% (the study's second reason to "
        "look again).",
        figure="agreement",
        unit="share",
        documented="99% to look again; 95.55% at best",
        reason="the study's own threshold",
        known_issue=False,
    ),
    "fnet/fp8-gemms-base": ClaimText(
        study="fnet",
        statement="The FP8 recipe quantizes the 24 feed-forward products of base and nothing else.",
        figure="fp8_gemms",
        unit="count",
        documented="24",
        reason="a count: two in each of 12 layers",
        known_issue=False,
    ),
    "fnet/fp8-barely-faster": ClaimText(
        study="fnet",
        statement="FP8 is faster than half precision, but not by enough to be worth shipping, at batch 1.",
        figure="speedup",
        unit="x",
        documented="1.03x to 1.11x",
        reason="below 1.0 FP8 gains nothing; 1.15x, chosen here, is 4 points above the highest printed, 20 times the "
        "timing noise",
        known_issue=False,
    ),
    "fnet/fp8-no-output-dense-slower": ClaimText(
        study="fnet",
        statement="FP8 that leaves output.dense in fp16 is slower than half precision, at batch 1.",
        figure="speedup",
        unit="x",
        documented="0.92x to 0.98x",
        reason="slower is below 1; the highest by the printed batch-1 times is 0.973x",
        known_issue=False,
    ),
    "fnet/fp16-dft32-much-slower": ClaimText(
        study="fnet",
        statement="The hidden-axis DFT in fp32 costs two fifths more time, which is why the scaling is the fix.",
        figure="latency_ratio",
        unit="x",
        documented="1.41x to 1.47x",
        reason="half the printed cost still decides for the scaling; half as much again would be another kernel",
        known_issue=False,
    ),
    "mnasnet/fp8-slower": ClaimText(
        study="mnasnet",
        statement="FP8 is slower than fp16 at every batch size.",
        figure="speedup",
        unit="x",
        documented="0.90x at batch 1, 0.86x to 0.90x at batch 32 and 128",
        reason="slower is below 1: from there on the conclusion has lost its first leg",
        known_issue=False,
    ),
    "mnasnet/fp8-changes-predictions": ClaimText(
        study="mnasnet",
        statement="FP8 changes the predicted class of clearly more images than rounding would.",
        figure="agreement",
        unit="share",
        documented="92.60%",
        reason="two fifths of the printed share of changed images; above it quality would no longer speak against FP8",
        known_issue=False,
    ),
}
LIMITS = {
    "fnet/fp16-not-finite-at-512": (0.9, None),
    "fnet/fp16-hs-finite-at-512": (None, 0.0),
    "fnet/fp16-kl": (None, 1e-4),
    "fnet/fp8-agreement-below-97": (None, 0.97),
    "fnet/look-again-2": (None, 0.99),
    "fnet/fp8-gemms-base": (24.0, 24.0),
    "fnet/fp8-barely-faster": (1.0, 1.15),
    "fnet/fp8-no-output-dense-slower": (None, 1.0),
    "fnet/fp16-dft32-much-slower": (1.2, 1.7),
    "mnasnet/fp8-slower": (None, 1.0),
    "mnasnet/fp8-changes-predictions": (None, 0.97),
}

# Milliseconds a call on a B200 with TensorRT 11.4, as the studies print them.
PRINTED_MS = {
    "base-512-b1": {"fp16+hs": 0.752, "fp8": 0.715, "fp8-no-output-dense": 0.775, "fp16+dft32": 1.083},
    "base-256-b1": {"fp16": 0.507, "fp8": 0.466, "fp8-no-output-dense": 0.525},
    "base-128-b1": {"fp16": 0.413, "fp8": 0.371, "fp8-no-output-dense": 0.447},
    "large-512-b1": {"fp16+hs": 1.598, "fp8": 1.547, "fp8-no-output-dense": 1.649},
    "large-256-b1": {"fp16": 1.058, "fp8": 1.019, "fp8-no-output-dense": 1.110},
    "mnasnet_100-b1": {"fp16": 0.221, "fp8": 0.244},
    "mnasnet_100-b128": {"fp16": 1.414, "fp8": 1.576},
}
# The same with a TensorRT in which FP8 reaches 1.22x on FNet.
FASTER_MS = {
    group: times | ({} if group.startswith("mnasnet") else {"fp8": next(iter(times.values())) / 1.22})
    for group, times in PRINTED_MS.items()
}
PRINTED_AGREEMENT = {
    "base-512-b1-fp8": 0.9399,
    "large-512-b1-fp8": 0.9555,
    "base-256-b1-fp8": 0.8948,
    "large-256-b1-fp8": 0.8352,
}

ENVIRONMENT = {
    "python": "3.12.9",
    "machine": "x86_64",
    "torch": "2.14.0",
    "tensorrt": "11.4.0.106",
    "transformers": "5.17.0",
    "nvidia-modelopt": "0.46.1",
    "onnx": "1.23.0",
    "driver": "615.33.02",
}
BASELINE = "tensorrt 11.4.0.106 on NVIDIA B200, recorded 2026-11-10"


def claimed(claim: str, case: str, measured: float | None, outcome: Outcome = HOLDS, **changes: Any) -> Found:
    """A verdict on a claim, with an interval of 0.3% where it is a ratio of times."""
    text, limits = CLAIMS[claim], Limits(*LIMITS[claim], CLAIMS[claim].reason)
    timed = text.unit == "x" and measured is not None
    interval = Interval(measured * 0.9985, measured * 1.0015, 0.961, "ordered ratios 2 and 8 of 9") if timed else None
    found = Found(
        claim=claim,
        study=text.study,
        case=case,
        figure=text.figure,
        unit=text.unit,
        measured=measured,
        expected=None,
        interval=interval,
        limits=limits,
        margin=None if measured is None else margin(measured, limits),
        documented=text.documented,
        baseline=None,
        samples=9 if timed else 300,
        outcome=outcome,
        note="",
        non_finite={},
        test=f"tests/{text.study}/test_conclusion.py::test_{claim.partition('/')[2].replace('-', '_')}[{case}]",
        waiver=None,
    )
    return replace(found, **changes)


def compared(
    figure: str, case: str, measured: float, expected: float, relative: float, unit: str = "ms", claim: str = UNMOVED
) -> Found:
    """A figure held against its baseline or its print, moved where it is further off than `relative`."""
    limits = Limits(expected - relative * abs(expected), expected + relative * abs(expected), "made up: rebuild noise")
    room = margin(measured, limits)
    study = "mnasnet" if case.startswith("mnasnet") else "fnet"
    return Found(
        claim=claim,
        study=study,
        case=case,
        figure=figure,
        unit=unit,
        measured=measured,
        expected=expected,
        interval=None,
        limits=limits,
        margin=room,
        documented=f"{expected:g}" if claim == AS_PRINTED else None,
        baseline=None if claim == AS_PRINTED else f"{expected:g} {unit} ({BASELINE})",
        samples=300,
        outcome=HOLDS if room.distance >= 0 else MOVED,
        note="",
        non_finite={},
        test=f"tests/{study}/test_speed.py::test_unmoved[{case}]",
        waiver=None,
    )


def timed(group: str, taken: Times = PRINTED_MS, **changes: Any) -> Rounds:
    """Nine rounds of a group at these times, with 0.1% of made-up noise."""
    levels = {f"{group}-{variant}": ms for variant, ms in taken[group].items()}
    entries = [*levels.items(), next((f"{case} again", ms) for case, ms in levels.items())]
    rounds_ms = {
        case: [ms * (1 + 0.001 * math.sin(2.3 * turn + 1.7 * place)) for turn in range(9)]
        for place, (case, ms) in enumerate(entries)
    }
    found = Rounds(
        group=group,
        rounds_ms=rounds_ms,
        plain_ms={case: 1.12 * ms for case, ms in levels.items()},
        calls_per_round=50,
        warmup_calls=111,
        input_sha256="3f" * 32,
        timer="cuda events, device only",
        attempts=1,
        telemetry={
            "SM clock": "1965 MHz",
            "memory clock": "3996 MHz",
            "temperature": "at most 47 °C",
            "power": "611 W",
            "throttling": "none",
            "other processes": "none",
        },
        problems=[],
        notes=[],
    )
    return replace(found, **changes)


def kernels(case: str, ffn: float, others: Mapping[str, float], **changes: Any) -> Kernels:
    groups = {"sequence_dft": others["dft"], "hidden_dft": 0.136, "ffn": ffn, "projection": 0.006, "other": 0.172}
    total = sum(groups.values())
    return replace(Kernels(case, groups, 0.994, total * 0.9, []), **changes)


STANDS = Decided(
    id="fnet/do-not-ship-fp8",
    study="fnet",
    statement="Do not ship FP8 for FNet.",
    state=State.STANDS,
    headline='STANDS: "Do not ship FP8 for FNet": FP8 gains little, and predicts other tokens than PyTorch does.',
    grounds=[
        Ground("FP8 is hardly faster than half precision", ["fnet/fp8-barely-faster"], fallen=False, checked=True),
        Ground(
            "FP8 changes too many predictions",
            ["fnet/fp8-agreement-below-97", "fnet/look-again-2"],
            fallen=False,
            checked=True,
        ),
    ],
    flipped=[],
    unchecked=[],
    next="Nothing: keep shipping fp16 with hidden-axis scaling.",
)
MNASNET_STANDS = Decided(
    id="mnasnet/do-not-ship-fp8",
    study="mnasnet",
    statement="Do not ship FP8 for MNASNet.",
    state=State.STANDS,
    headline='STANDS: "Do not ship FP8 for MNASNet": FP8 is slower at every batch size, and top-1 does not gain.',
    grounds=[
        Ground("FP8 is slower than fp16", ["mnasnet/fp8-slower"], fallen=False, checked=True),
        Ground("FP8 changes predictions", ["mnasnet/fp8-changes-predictions"], fallen=False, checked=True),
    ],
    flipped=[],
    unchecked=[],
    next="Nothing: keep shipping fp16.",
)


def _claims() -> Iterator[Found]:
    """What the study found, as verdicts."""
    for group, times in PRINTED_MS.items():
        half = next(iter(times.values()))
        study = "mnasnet" if group.startswith("mnasnet") else "fnet"
        barely = "mnasnet/fp8-slower" if study == "mnasnet" else "fnet/fp8-barely-faster"
        yield claimed(barely, f"{group}-fp8", half / times["fp8"])
        if "fp8-no-output-dense" in times:
            case = f"{group}-fp8-no-output-dense"
            yield claimed("fnet/fp8-no-output-dense-slower", case, half / times["fp8-no-output-dense"])
    yield claimed("fnet/fp16-dft32-much-slower", "base-512-b1-fp16+dft32", 1.083 / 0.752)
    for case, agreement in PRINTED_AGREEMENT.items():
        yield claimed("fnet/fp8-agreement-below-97", case, agreement)
        yield claimed("fnet/look-again-2", case, agreement)
    for case, share in (("base-512-b1-fp16", 293 / 300), ("large-512-b1-fp16", 1.0)):
        yield claimed("fnet/fp16-not-finite-at-512", case, share)
    for case, kl in (("base-512-b1-fp16+hs", 5.9e-6), ("large-512-b1-fp16+hs", 4.6e-6), ("base-256-b1-fp16", 1.2e-5)):
        yield claimed("fnet/fp16-kl", case, kl)
    for case in ("base-512-b1-fp16+hs", "large-512-b1-fp16+hs"):
        yield claimed("fnet/fp16-hs-finite-at-512", case, 0.0)
    yield claimed("fnet/fp8-gemms-base", "base-512-b1-fp8", 24.0)
    yield claimed("mnasnet/fp8-changes-predictions", "mnasnet_100-b1-fp8", 0.926)


def _figures(taken: Times, agreement: float | None = None) -> Iterator[Found]:
    """Times, speedups and FP8's quality against both baselines and the print, where FP8 has this agreement."""
    for group, times in taken.items():
        half, half_was = next(iter(times.values())), next(iter(PRINTED_MS[group].values()))
        for variant, ms in times.items():
            case, was = f"{group}-{variant}", PRINTED_MS[group][variant]
            for claim in (UNMOVED, UNDRIFTED, AS_PRINTED):
                yield compared("latency", case, ms * 1.002, was, 0.03, claim=claim)
                if variant.startswith("fp8"):
                    yield compared("speedup", case, half / ms, half_was / was, 0.02, unit="x", claim=claim)
    for case, printed in PRINTED_AGREEMENT.items():
        yield compared("agreement", case, agreement or printed, printed, 0.005, unit="share")
        yield compared("kl_mean", case, 0.0009 if agreement else 0.0095, 0.0095, 0.1, unit="nats")
        yield compared("kl_p99", case, 0.0071 if agreement else 0.064, 0.064, 0.2, unit="nats")


def green_gpu() -> Document:
    """The studies' own machine and release, on which all holds."""
    return Document(
        schema=SCHEMA,
        kind="run",
        started=datetime(2026, 11, 28, 9, 14, tzinfo=UTC),
        elapsed_s=1834.0,
        command="pytest -m b200 --report=report",
        device="NVIDIA B200",
        engine="tensorrt",
        version="11.4.0.106",
        options={
            "checkpoints": Option("hub", "-m b200"),
            "datasets": Option("hub", "-m b200"),
            "samples": Option("default", "the study's counts"),
        },
        environment=ENVIRONMENT,
        passed=312,
        failed=0,
        decisions=[STANDS, MNASNET_STANDS],
        claims=CLAIMS,
        verdicts=[*_claims(), *_figures(PRINTED_MS)],
        bases=[
            Basis(
                "fnet",
                "newest",
                "NVIDIA B200",
                "tensorrt",
                "11.4.0.106",
                date(2026, 11, 10),
                ENVIRONMENT,
                "same version",
            ),
            Basis("fnet", "pinned", "NVIDIA B200", "tensorrt", "11.1.0.106", date(2026, 8, 2), ENVIRONMENT, "pinned"),
            Basis(
                "mnasnet",
                "newest",
                "NVIDIA B200",
                "tensorrt",
                "11.4.0.106",
                date(2026, 11, 10),
                ENVIRONMENT,
                "same version",
            ),
        ],
        causes=[],
        changes=[],
        canaries=[],
        rounds=[timed(group) for group in PRINTED_MS],
        kernels=[
            kernels("base-512-b1-fp16+hs", 0.199, {"dft": 0.337}),
            kernels("base-512-b1-fp8", 0.170, {"dft": 0.340}),
            kernels("base-256-b1-fp16", 0.170, {"dft": 0.144}),
            kernels("base-256-b1-fp8", 0.146, {"dft": 0.145}),
        ],
        left_out=[LeftOut("TensorRT 11.1 against 11.4 needs two recorded runs", 4)],
        failures=[],
        waivers=[],
        notes=[],
    )


def upgrade() -> Document:
    """TensorRT 11.5, in which FP8 reaches 1.22x and 99.4% on FNet: its decision is reversed, MNASNet's stands."""

    def seen(found: Found) -> Found:
        if found.claim == "fnet/fp8-barely-faster":
            return claimed(found.claim, found.case, 1.22, FLIPPED)
        if found.claim in ("fnet/fp8-agreement-below-97", "fnet/look-again-2"):
            return claimed(found.claim, found.case, 0.994, FLIPPED)
        return found

    flipped = ["fnet/fp8-barely-faster", "fnet/fp8-agreement-below-97", "fnet/look-again-2"]
    here = ENVIRONMENT | {"tensorrt": "11.5.0.90", "driver": "618.10.01"}
    return replace(
        green_gpu(),
        version="11.5.0.90",
        environment=here,
        passed=270,
        failed=42,
        decisions=[
            replace(
                STANDS,
                state=State.REVERSED,
                headline="REVERSED: FP8 is worth shipping for FNet: speedup 1.22x (limit 1.15x), agreement 99.4%.",
                grounds=[replace(ground, fallen=True) for ground in STANDS.grounds],
                flipped=flipped,
                next="Run once more to confirm, with --save-graphs DIR to keep the graphs. If it repeats, shipping FP8 "
                "for FNet on TensorRT 11.5 is worth a proposal; then record the new baseline with "
                '--record --accept-flip "TensorRT 11.5 has FP8 kernels that pay".',
            ),
            MNASNET_STANDS,
        ],
        verdicts=[*map(seen, _claims()), *_figures(FASTER_MS, 0.994)],
        bases=[replace(basis, why="newest older version") for basis in green_gpu().bases],
        causes=[
            "TensorRT is the likely cause: it went from 11.4.0.106 to 11.5.0.90, and the figures that moved are those "
            "of variant fp8 alone.",
            "The driver changed too, from 615.33.02 to 618.10.01; it would move every variant, and fp16 did not move.",
            "It was not the machine: clocks held at 1965 MHz, and one engine against itself is 1.0001.",
        ],
        changes=[Change("tensorrt", "11.4.0.106", "11.5.0.90"), Change("driver", "615.33.02", "618.10.01")],
        canaries=[
            Change("base-512-b1-fp8: reformat layers", "26", "2"),
            Change("base-512-b1-fp8: Quantize layers left alone", "12", "0"),
        ],
        rounds=[timed(group, FASTER_MS) for group in PRINTED_MS],
        kernels=[
            kernels("base-512-b1-fp16+hs", 0.199, {"dft": 0.337}),
            kernels("base-512-b1-fp8", 0.081, {"dft": 0.310}),
            kernels("base-256-b1-fp16", 0.170, {"dft": 0.144}),
            kernels("base-256-b1-fp8", 0.064, {"dft": 0.131}),
        ],
        notes=["no baseline was written: a claim flipped, and --accept-flip was not given"],
    )


def green() -> Document:
    """A laptop without a GPU: everything that can be decided there holds."""
    untimed = [
        found
        for found in [*_claims(), *_figures(PRINTED_MS)]
        if found.figure not in ("speedup", "latency", "latency_ratio")
    ]
    undecided = [
        replace(
            decision,
            state=State.UNDECIDED,
            headline=f'UNDECIDED: "{decision.statement}": what was checked holds, but speed was not measured here.',
            grounds=[replace(decision.grounds[0], checked=False), decision.grounds[1]],
            unchecked=[decision.grounds[0].claims[0]],
            next="Run pytest -m b200 on a machine with a B200 and TensorRT to decide the rest.",
        )
        for decision in (STANDS, MNASNET_STANDS)
    ]
    cpu = {"python": "3.11.7", "machine": "x86_64", "torch": "2.14.1", "onnxruntime": "1.31.1", "onnx": "1.23.0"}
    return replace(
        green_gpu(),
        elapsed_s=153.2,
        command="pytest --report=report",
        device="cpu",
        engine="onnxruntime",
        version="1.31.1",
        options={
            "engine": Option("onnxruntime", "no TensorRT with a GPU"),
            "device": Option("cpu", "no CUDA GPU"),
            "checkpoints": Option("synthetic", "default without a GPU"),
            "datasets": Option("embedded", "default without a GPU"),
            "samples": Option("default", "few, as each takes seconds"),
        },
        environment=cpu,
        passed=128,
        decisions=undecided,
        verdicts=untimed,
        bases=[
            Basis(study, "newest", "cpu", "onnxruntime", "1.31.1", date(2026, 11, 30), cpu, "same version")
            for study in ("fnet", "mnasnet")
        ],
        rounds=[],
        kernels=[],
        left_out=[
            LeftOut("it is a claim about TensorRT engines", 61),
            LeftOut("it is a claim about the study's own inputs: --checkpoints hub --datasets hub", 58),
            LeftOut("not timed: speed is a figure of a GPU", 18),
        ],
    )


def untimed() -> Document:
    """A GPU run under pytest-xdist: quality was checked, and nothing was timed."""
    return replace(
        green(),
        device="NVIDIA B200",
        engine="tensorrt",
        version="11.4.0.106",
        left_out=[
            LeftOut("not timed: pytest-xdist runs tests side by side, and they would share the GPU; run without -n", 57)
        ],
    )


def throttled() -> Document:
    """A GPU that was too hot, another process on it, an engine that did not build, and a NaN."""

    def seen(found: Found) -> Found:
        if found.case.startswith("large-512") and found.unit in ("x", "ms"):
            note = "throttled: hw_thermal_slowdown in 41 of 63 samples under load"
            return replace(found, outcome=Outcome.INVALID, note=note)
        if found.claim == "fnet/fp16-kl" and found.case == "base-512-b1-fp16+hs":
            return claimed(found.claim, found.case, None, Outcome.INVALID, non_finite={"measured": "nan"})
        if found.claim == "fnet/fp8-barely-faster" and found.case == "base-128-b1-fp8":
            wide = Interval(1.08, 1.17, 0.961, "ordered ratios 2 and 8 of 9")
            return replace(
                found, measured=1.13, interval=wide, outcome=Outcome.INCONCLUSIVE, margin=margin(1.13, found.limits)
            )
        return found

    hot = timed("large-512-b1")
    stepped = {
        case: [ms * (1.0 if turn < 4 else 1.21) for turn, ms in enumerate(times)]
        for case, times in hot.rounds_ms.items()
    }
    hot = replace(
        hot,
        rounds_ms=stepped,
        attempts=3,
        telemetry=hot.telemetry
        | {"SM clock": "1320 to 1965 MHz", "temperature": "at most 91 °C", "throttling": "hw_thermal_slowdown 41"},
        problems=[
            "throttled: hw_thermal_slowdown in 41 of 63 samples under load",
            "throttled: SM clock from 1965 down to 1320 MHz under load (-33%, hw_thermal_slowdown)",
            "large-512-b1-fp8: times moved by +21.0% inside the group (clock step, drift or warm-up)",
        ],
    )
    shared = timed("base-256-b1", attempts=3, problems=["other processes on the GPU: 40122, 40123"])
    return replace(
        green_gpu(),
        passed=281,
        failed=27,
        decisions=[
            replace(
                STANDS,
                state=State.UNDECIDED,
                headline='UNDECIDED: "Do not ship FP8 for FNet": what was checked holds, but 1 of 3 claims was not.',
                grounds=[replace(STANDS.grounds[0], checked=False), STANDS.grounds[1]],
                unchecked=["fnet/fp8-barely-faster"],
                next="Cool the GPU, end the other process, and run again.",
            ),
            MNASNET_STANDS,
        ],
        verdicts=[seen(found) for found in [*_claims(), *_figures(PRINTED_MS)]],
        causes=["It was the machine: 2 of 7 timed groups were throttled or shared, and their figures were set aside."],
        rounds=[
            hot if each.group == "large-512-b1" else shared if each.group == "base-256-b1" else each
            for each in green_gpu().rounds
        ],
        kernels=[
            kernels("base-512-b1-fp16+hs", 0.199, {"dft": 0.337}),
            kernels(
                "base-512-b1-fp8",
                0.170,
                {"dft": 0.340},
                coverage=0.61,
                problems=["39% of the time is in layers of no known group; incomplete"],
            ),
        ],
        failures=[
            Failure(
                "tests/fnet/test_plan.py::test_plan_size[large-512-b8-fp8]",
                "EngineError: large-512-b8-fp8: the build did not end within 1800 s and was stopped",
                infrastructure=True,
            ),
            Failure(
                "tests/mnasnet/test_quality.py::test_top1[mnasnet_100-b1-fp8]",
                "InputError: clip-benchmark/wds_imagenet1k: shard 7 is not in the offline cache; fetch it once online",
                infrastructure=True,
            ),
            Failure(
                "tests/fnet/test_recipe.py::test_quantized_names[base-512-b1-fp8]",
                "AssertionError: layer.3/output/matmul is quantized twice",
                infrastructure=False,
            ),
        ],
        waivers=[
            Waived(
                id="fnet-large-256-agreement",
                claim="fnet/look-again-2",
                issue="https://github.com/NVIDIA/TensorRT/issues/4730",
                reason="two builds differ; NVIDIA is looking at it",
                expires=date(2026, 11, 1),
                covered=0,
                holds_again=True,
            )
        ],
    )


ODD = "mod<b>èle & Söhne/[512|b1]-`fp16`-" + "x" * 240


def odd_names() -> Document:
    """Ids with what HTML and Markdown give a meaning to, letters beyond ASCII, and no place to wrap."""
    claim = "fnet/<script>alert(1)</script>|`odd`-" + "é" * 120
    text = replace(
        CLAIMS["fnet/fp8-barely-faster"],
        statement="FP8 <i>is</i> | `fast` & *bold*\nin two lines",
        reason="a | b `c` <d>",
    )
    waived = replace(
        claimed("fnet/look-again-2", ODD, 0.994, FLIPPED), waiver="odd|waiver", note="note <em>with</em> | `marks`"
    )
    document = upgrade()
    return replace(
        document,
        command="pytest -k 'a|b' --report=\"<out>\" ```",
        device="NVIDIA <B200> | MIG 1g.23gb",
        claims={**CLAIMS, claim: text},
        verdicts=[
            replace(claimed("fnet/fp8-barely-faster", ODD, 1.22, FLIPPED), claim=claim, documented="1.03x | `1.11x`"),
            waived,
            compared("latency", ODD, 0.8, 0.7, 0.03),
        ],
        rounds=[
            replace(
                timed("base-512-b1"),
                group=ODD[:80],
                rounds_ms={ODD: [1.0, 1.01, 0.99], f"{ODD} again": [1.0, 1.0, 1.0]},
                plain_ms={},
            )
        ],
        kernels=[Kernels(ODD, {"<sequence> & dft": 0.3, "öther": 0.0}, 0.9, None, ["a <problem> | `here`"])],
        causes=["<b>bold</b> | `cause` & more"],
        changes=[Change("a|b", "<before>", "`here`")],
        failures=[
            Failure(f"tests/x.py::test[{ODD}]", "Error: <boom> | `tick`\nsecond line ``` fence", infrastructure=True)
        ],
        waivers=[
            Waived(
                "odd|waiver",
                "fnet/look-again-2",
                "javascript:alert(1)",
                "<b>why</b> | `so`",
                date(2027, 1, 1),
                1,
                False,
            )
        ],
        left_out=[LeftOut("<reason> | `why` & so on", 3)],
    )


def comparison() -> Document:
    """TensorRT 11.4 held against 11.5 from two recorded runs: nothing was run, timed or built."""
    document = upgrade()
    return replace(
        document,
        kind="compare",
        elapsed_s=0.8,
        command="pytest tests/compare --before=baselines/a --here=baselines/b",
        passed=30,
        failed=12,
        bases=[
            Basis(
                study, "before", "NVIDIA B200", "tensorrt", "11.4.0.106", date(2026, 11, 10), ENVIRONMENT, "asked for"
            )
            for study in ("fnet", "mnasnet")
        ],
        verdicts=[found for found in document.verdicts if found.claim not in (UNDRIFTED, AS_PRINTED)],
        rounds=[],
        kernels=[],
        left_out=[],
        options={},
        notes=[],
    )


def empty() -> Document:
    """A run that compared nothing at all."""
    return replace(
        green(),
        passed=0,
        failed=1,
        decisions=[],
        claims={},
        verdicts=[],
        bases=[],
        environment={},
        options={},
        left_out=[],
        failures=[Failure("tests", "InputError: nothing was compared; check what was selected", infrastructure=True)],
    )


def many(verdicts: int, of_claims: int) -> Document:
    """`verdicts` verdicts, `of_claims` of them each on a claim of its own that flipped, the rest moved figures."""
    document = upgrade()
    claims = {f"fnet/made-up-claim-number-{n}": CLAIMS["fnet/fp8-barely-faster"] for n in range(of_claims)}
    flipped = [
        replace(claimed("fnet/fp8-barely-faster", "base-512-b1-fp8-no-output-dense", 1.22, FLIPPED), claim=id)
        for id in claims
    ]
    moved: Iterable[Found] = (
        compared("speedup", f"base-512-b1-fp8-no-output-dense-{n}", 1.2, 1.0, 0.02, unit="x")
        for n in range(verdicts - of_claims)
    )
    return replace(document, claims={**CLAIMS, **claims}, verdicts=[*flipped, *moved])


ALL = (green_gpu, upgrade, green, untimed, throttled, odd_names, comparison, empty)
