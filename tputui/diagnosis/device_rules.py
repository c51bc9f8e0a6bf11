"""Rules about the TPU cores as their runtime reports them: idle time, throttling, links between chips.

Read from outside the training processes, so they hold for any framework. How long cores wait for each other inside a
program cannot be read: a core that waits in a collective is busy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from msgspec.structs import replace

from tputui import formatting as fmt
from tputui.diagnosis.diagnosed_run import STEPS_MIN, DiagnosedRun
from tputui.diagnosis.verdict import RuleName, Verdict
from tputui.telemetry.events import CoreSample

IDLE_SHARE = 0.10
"""Share of the time in which the cores compute nothing from which it is a finding: XProf's bound for an idle device."""
SAMPLES_MIN = 6
"""Samples of the duty cycle that the share needs, 30 s of training."""
LINK_TRANSIENT_MAX = 5
"""Health of a link up to which its problem is transient, as libtpu documents the score: a hint; above, a finding."""
LINK_UNUSABLE = 10
HOST_RULES: frozenset[RuleName] = frozenset(
    {"input", "tracing", "sync", "fallback", "recompile", "extra_execution", "graph_break", "compile_limit"}
)
"""Rules about a host that keeps the device waiting: one that found something explains idle time."""
EVIDENCE_RULES: frozenset[RuleName] = frozenset({"input", "tracing"})
"""Rules whose finding means that the device waits: its idle time is evidence."""


def with_idle_time(run: DiagnosedRun, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """The verdicts, with idle time of the TPU as evidence; a verdict of its own if no rule about the host explains it.

    Idle time of more than 10 % without a cause on the host is what XProf reports as an idle device.
    """
    idle = idle_of(run)
    if idle is None or idle[0] <= IDLE_SHARE:
        yield from verdicts
        return
    share, num_samples = idle
    text = f"the TPU cores are idle for {share * 100:.0f} % of the time"
    measured = f"{text}, by {fmt.counted(num_samples, 'sample')} of their duty cycle"
    for verdict in verdicts:
        is_evidence = verdict.status == "found" and verdict.rule in EVIDENCE_RULES
        yield replace(verdict, evidence=[*verdict.evidence, measured]) if is_evidence else verdict
    if any(verdict.status == "found" and verdict.rule in HOST_RULES for verdict in verdicts):
        return
    lost_s = share * run.steady_s if run.steady_s is not None else None
    yield run.verdict(
        "device_idle",
        f"{text}, and the host shows no cause",
        lost_s=lost_s,
        evidence=[f"{fmt.counted(num_samples, 'sample')} of the duty cycle during training"],
        fix="give each program more work, with a larger batch per core or several steps per program; profile some "
        "steps to see what the host does between two programs",
        **run.gain(lost_s, run.steady_s),
    )


def idle_of(run: DiagnosedRun) -> tuple[float, int] | None:
    """The share of their time for which cores are idle after the first steps, and the number of samples; None without
    readings, and before there are enough.

    It is the median over the samples of the mean over the cores, so that evaluations and saves do not count.
    """
    throughput = run.snapshot.throughput
    if throughput is None or run.is_early:
        return None
    plan = run.snapshot.plan
    first = max(0, plan.first_step - 1) if plan is not None else 0
    steady = [point.t for point in throughput.history if point.step - first >= STEPS_MIN]
    until = throughput.history[-1].t if throughput.history else 0.0
    duty = [
        point.duty_cycle_percent for point in run.snapshot.device_history if steady and steady[0] <= point.t <= until
    ]
    if len(duty) < SAMPLES_MIN:
        return None
    return 1.0 - min(max(median(duty), 0.0), 100.0) / 100.0, len(duty)


def throttling(run: DiagnosedRun) -> Iterator[Verdict]:
    """Cores that run slower than they could, because they are too hot or take too much power."""
    slow = [core for core in _cores(run) if (core.throttle_score or 0) > 0]
    if not slow:
        return
    worst = max(min(core.throttle_score or 0, 10) for core in slow)
    yield run.verdict(
        "throttling",
        f"{fmt.cores([core.core for core in slow])}: throttled by up to {10 * worst} %",
        evidence=[f"core {core.core}: throttle score {core.throttle_score} of 10" for core in slow[:8]],
        fix="nothing in the program causes this; if it lasts, move the run to another TPU, and report this one",
    )


def link_health(run: DiagnosedRun) -> Iterator[Verdict]:
    """Links to other chips with a problem: collectives wait for the slowest link."""
    ill = [core for core in _cores(run) if (core.ici_link_health or 0) > 0]
    if not ill:
        return
    worst = max(core.ici_link_health or 0 for core in ill)
    meaning = "transient problem" if worst <= LINK_TRANSIENT_MAX else "persistent problem"
    meaning = "link is not usable" if worst >= LINK_UNUSABLE else meaning
    yield run.verdict(
        "link_health",
        f"{fmt.cores([core.core for core in ill])}: {meaning} of a link to another chip",
        status="hint" if worst <= LINK_TRANSIENT_MAX else "found",
        fatal=worst >= LINK_UNUSABLE,
        evidence=[f"core {core.core}: ICI link health {core.ici_link_health}, 0 is healthy" for core in ill[:8]],
        fix="nothing in the program causes this; save a checkpoint and, if it lasts, move the run to another TPU",
    )


def _cores(run: DiagnosedRun) -> list[CoreSample]:
    """The newest readings of all cores."""
    return run.snapshot.devices.cores if run.snapshot.devices is not None else []
