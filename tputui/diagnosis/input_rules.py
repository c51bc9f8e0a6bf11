"""Rules about where the host's time goes: waiting for batches, tracing, and padded evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.diagnosis.diagnosed_run import TRAINING_SECTIONS, DiagnosedRun, speedup_of
from tputui.diagnosis.verdict import Verdict
from tputui.telemetry.events import Phase

INPUT_SHARE = 0.10
"""Share of a step: XProf calls a program input-bound from 10 % on."""
INPUT_SHARE_VIRTUAL = 0.20
"""On virtual cores, whose steps and loader share the host's CPUs, from 20 % on: XProf's bound of `highly`."""
TRACING_SHARE = 0.90
"""Share of a step from which tracing leaves the device idle for the rest at most: XProf accepts 10 % of idle time."""
TRAINING_MIN_S = 1.0
"""Time in steps that shares of it need."""
BEATS_MIN = 60
"""Heartbeats that a share of sampled phases needs: a standard error of at most 6.5 %."""
PADDING_SHARE = 0.25
"""Share of padded examples in evaluation from which it is a finding, ..."""
PADDING_WALL_SHARE = 0.02
"""... if it costs so much of the wall time."""
WORKERS = 8
"""Threads of the loader that are proposed at most, if there are not half as many already."""
PHASES: dict[str, Phase] = {"data": "data", "trace": "tracing"}
_STEP_PHASES: tuple[Phase, ...] = ("data", "tracing", "executing", "reporting")
_STAGE_FIXES = {
    "read": "read from a faster disk or from memory, or store the examples in fewer, larger files",
    "decode": "decode with more threads, or store the examples decoded and in their final size",
    "augment": "augment with more threads, or on the device as a part of the step",
    "collate": "collate with more threads, into tensors that are allocated once",
    "copy": "copy further ahead: more prefetched batches, fewer and larger tensors, smaller types such as uint8",
}


class TimeShare(NamedTuple):
    """The share of a part of the steps."""

    share: float
    """At least."""
    seconds: float
    of: str
    """What it was measured on, in words."""


def input_bound(run: DiagnosedRun) -> Iterator[Verdict]:
    """Steps that wait for their batch."""
    waiting = _waiting(run)
    if waiting is None:
        if run.is_early and run.steps:
            yield run.too_early("input")
        else:
            yield Verdict(rule="input", status="not available", text="this run does not record the wait for batches")
        return
    if waiting.share < (INPUT_SHARE if run.is_on_tpu else INPUT_SHARE_VIRTUAL):
        return
    stage, evidence = _slowest_stage(run)
    in_stage = f"; most of the loader's time goes to {stage}" if stage else ""
    speedup = speedup_of(waiting.share, 1.0)
    yield run.verdict(
        "input",
        f"steps wait for their batch for {waiting.share * 100:.0f} % of their time{in_stage}",
        lost_s=waiting.seconds,
        evidence=[f"{fmt.duration(waiting.seconds)} of waiting {waiting.of}", *evidence],
        fix=_STAGE_FIXES.get(stage, "load with more threads or processes, and further ahead of the step"),
        speedup=speedup,
        speedup_of="time of steps",
        change=_change(run, stage, speedup or 1.0),
    )


def _change(run: DiagnosedRun, stage: str, speedup: float) -> str | None:
    """The change of the configuration that helps the slowest stage of the loader, if the loader is the engine's."""
    measured = run.evidence.input
    if measured is None or not stage:
        return None
    if stage != "copy":
        threads = max(1, measured.threads)
        return run.change("data.workers", min(math.ceil(threads * max(speedup, 1.1)), max(WORKERS, 2 * threads)))
    data = run.snapshot.config.get("data")
    ahead = data.get("prefetch_batches") if isinstance(data, dict) else None
    return run.change("data.prefetch_batches", 2 * ahead) if isinstance(ahead, int) and ahead > 0 else None


def _waiting(run: DiagnosedRun) -> TimeShare | None:
    measured = run.evidence.input
    if measured is not None and run.steady_s and run.steady_s >= TRAINING_MIN_S and not run.is_early:
        waited_s = min(measured.waited_s, run.steady_s)
        return TimeShare(waited_s / run.steady_s, waited_s, f"in {fmt.count(measured.batches)} batches")
    return _share_of(run, "data")


def _slowest_stage(run: DiagnosedRun) -> tuple[str, list[str]]:
    """The stage that takes the most time of the loader's threads, and what it was concluded from."""
    measured = run.evidence.input
    spent = {name: seconds for name, seconds in measured.stages_s.items() if seconds > 0} if measured else {}
    if measured is None or not spent:
        return "", []
    total = sum(spent.values())
    parts = ", ".join(f"{name} {fmt.duration(s)}" for name, s in sorted(spent.items(), key=lambda item: -item[1]))
    stage = max(spent, key=lambda name: (spent[name], name))
    in_threads = f"in {fmt.counted(measured.threads, 'thread')}"
    per_batch = f", {fmt.duration(total / measured.batches)} per batch" if measured.batches else ""
    return stage, [f"the loader spent {parts} {in_threads}{per_batch}"]


def tracing_bound(run: DiagnosedRun) -> Iterator[Verdict]:
    """Steps that consist of tracing: the device waits for the host."""
    tracing = tracing_share(run)
    if tracing is None or tracing.share < TRACING_SHARE:
        return
    parts: dict[str, float] = {}
    for epoch in run.snapshot.epochs:
        for name, seconds in epoch.trace_s.items():
            parts[name] = parts.get(name, 0.0) + seconds
    shown = ", ".join(f"{name} {fmt.duration(s)}" for name, s in sorted(parts.items(), key=lambda item: -item[1]))
    evidence = [
        f"{fmt.duration(tracing.seconds)} of tracing {tracing.of}",
        "the time of the device is hidden behind it",
    ]
    yield run.verdict(
        "tracing",
        f"tracing takes {tracing.share * 100:.0f} % of a step, so the device waits for the host",
        evidence=evidence + ([f"tracing by part: {shown}"] if shown else []),
        fix="trace less Python per step: torch_xla.compile or torch.compile for the step, scan over equal layers, "
        "a larger batch",
    )


def tracing_share(run: DiagnosedRun) -> TimeShare | None:
    """The share of tracing in the training steps; None if it is not recorded."""
    return _share_of(run, "trace")


def _share_of(run: DiagnosedRun, section: str) -> TimeShare | None:
    """The share of a section in the training steps: from the epochs that ended, or from sampled phases."""
    epochs = [epoch for epoch in run.snapshot.epochs if section in epoch.sections_s]
    epochs = epochs[1:] or epochs
    spent = {name: sum(epoch.sections_s.get(name, 0.0) for epoch in epochs) for name in TRAINING_SECTIONS}
    total = sum(spent.values())
    if total >= TRAINING_MIN_S and not run.is_early:
        share = spent[section] / total
        return TimeShare(share, spent[section], f"in {fmt.counted(len(epochs), 'epoch')}")
    phases = run.evidence.phases_s
    sampled, sampled_all = sum(phases.get(phase, 0.0) for phase in _STEP_PHASES), sum(phases.values())
    # Heartbeats while the process imports, builds and compiles sample no steps.
    beats = round(run.evidence.num_beats * sampled / sampled_all) if sampled_all > 0 else 0
    if run.is_early or beats < BEATS_MIN or sampled < TRAINING_MIN_S:
        return None
    share = min(1.0, phases.get(PHASES[section], 0.0) / sampled)
    least = max(0.0, share - 2 * math.sqrt(share * (1 - share) / beats))
    return TimeShare(least, least * sampled, f"by {fmt.count(beats)} heartbeats")


def padding(run: DiagnosedRun) -> Iterator[Verdict]:
    """Evaluations whose batches are mostly padding."""
    plan, epochs = run.snapshot.plan, run.snapshot.epochs
    if plan is None or plan.global_batch <= 0 or plan.valid_examples <= 0:
        return
    batches = -(-plan.valid_examples // plan.global_batch)
    waste = 1 - plan.valid_examples / (batches * plan.global_batch)
    evaluating_s = sum(max(0.0, epoch.sections_s.get("evaluate", 0.0)) for epoch in epochs)
    lost_s = waste * evaluating_s
    if waste < PADDING_SHARE or run.wall_s <= 0 or lost_s / run.wall_s < PADDING_WALL_SHARE:
        return
    batch_noun = "batch" if batches == 1 else "batches"
    yield run.verdict(
        "padding",
        f"{waste * 100:.0f} % of the evaluation is padding",
        lost_s=lost_s,
        evidence=[
            f"{fmt.count(plan.valid_examples)} examples in {fmt.count(batches)} {batch_noun} of "
            f"{fmt.count(plan.global_batch)}, {fmt.duration(evaluating_s)} of evaluation"
        ],
        fix="evaluate with a smaller batch, or less often",
        **run.gain(lost_s, run.training_s(evaluating_s)),
    )
