"""Rules about single steps: those that are slow in a rhythm, and Python's garbage collector."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.diagnosis.diagnosed_run import DiagnosedRun, speedup_of
from tputui.diagnosis.period import STEPS_MIN, Period, period_of
from tputui.diagnosis.verdict import RuleName, Verdict
from tputui.state.evidence_groups import Line
from tputui.state.step_times import TimedSteps, times_of

SHARE_MIN = 0.05
"""Share of the time of steps from which it is a finding: XProf's advice names what takes 5 % of a step."""
EXPLAINED = 0.6
"""Share of the extra time that a measured cause must have taken at least."""
WAITS = ", waiting for its batch"
"""In the text of a verdict on steps that wait for their batch."""
NEAR = 0.25
"""Relative difference up to which reads at a line are as frequent as the slow steps."""


class Rhythm(NamedTuple):
    """The newest steps, one by one."""

    period: Period | None
    num_timed: int
    first: int
    total_s: float
    """Time of the steps whose time is known."""
    waited_s: float
    num_full: int
    collected_s: float

    @property
    def collected_share(self) -> float:
        """Share of the time in garbage collections."""
        return min(1.0, self.collected_s / self.total_s) if self.total_s > 0 else 0.0


@functools.lru_cache(maxsize=8)
def _rhythm_of(reports: tuple[TimedSteps, ...]) -> Rhythm:
    times = times_of(reports)
    known = [seconds for seconds in times if math.isfinite(seconds)]
    return Rhythm(
        period_of(times),
        len(known),
        reports[-1].last - len(times) + 1 if reports else 0,
        math.fsum(known),
        math.fsum(one.waited_s for one in reports),
        sum(one.num_full for one in reports),
        math.fsum(one.collected_s or 0.0 for one in reports),
    )


def rhythm_of(run: DiagnosedRun) -> Rhythm:
    """The newest steps of a run."""
    return _rhythm_of(tuple(run.evidence.times))


def garbage(run: DiagnosedRun) -> Iterator[Verdict]:
    """Garbage collections of Python that take a noticeable part of the steps."""
    rhythm = rhythm_of(run)
    if rhythm.num_timed < STEPS_MIN or (share := rhythm.collected_share) < SHARE_MIN:
        return
    period = rhythm.period if _is_garbage(rhythm) else None
    often = f", {fmt.duration(period.extra_s)} in every {fmt.ordinal(period.steps)} step" if period else ""
    yield _verdict(
        run,
        "garbage",
        f"Python's garbage collector takes {share * 100:.0f} % of the time of steps{often}",
        share,
        [
            f"{fmt.duration(rhythm.collected_s)} in the newest {fmt.counted(rhythm.num_timed, 'step')}, with "
            f"{fmt.counted(rhythm.num_full, 'collection')} of all objects"
        ],
        "call gc.collect() and gc.freeze() after the data set and the model are loaded, which leaves their objects out "
        "of every later collection; keep large lists of numbers in arrays",
    )


def slow_steps(run: DiagnosedRun) -> Iterator[Verdict]:
    """Steps that are slow in a rhythm, with what has the same rhythm."""
    rhythm = rhythm_of(run)
    period = rhythm.period
    if 0 < rhythm.num_timed < STEPS_MIN:
        text = f"{rhythm.num_timed} of the {STEPS_MIN} timed steps that it needs"
        yield Verdict(rule="slow_steps", status="not enough data yet", text=text)
    if period is None or period.share < SHARE_MIN or _has_other_verdict(run, rhythm, period):
        return
    waits = min(rhythm.waited_s, period.lost_s) >= EXPLAINED * period.lost_s
    cause, fix = _input_cause(run, period) if waits else _cause(run, period)
    text = (
        f"every {fmt.ordinal(period.steps)} step takes {fmt.duration(period.extra_s)} longer "
        f"({period.share * 100:.0f} % of the time of steps)"
    )
    evidence = [
        f"{fmt.counted(period.num, 'slow step')} in the rhythm, the first at step {rhythm.first + period.offset:,}, in "
        f"{fmt.counted(rhythm.num_timed, 'timed step')}"
    ]
    if waits:
        evidence.append(f"{fmt.duration(rhythm.waited_s)} of waiting for batches in the same steps")
    elif computes_asynchronously(run):
        evidence.append("the host may only wait there for what the device was given in the steps before")
    known = waits or not computes_asynchronously(run)
    yield _verdict(
        run, "slow_steps", f"{text}{cause}", period.share, evidence, fix, line=_line(run, period), is_known=known
    )


def _verdict(
    run: DiagnosedRun,
    rule: RuleName,
    text: str,
    share: float,
    evidence: list[str],
    fix: str,
    *,
    line: Line | None = None,
    is_known: bool = True,
) -> Verdict:
    """`is_known`: whether the time is lost; else it is a hint."""
    training_s = run.steady_s if run.steady_s is not None else 0.0
    gain = {"speedup": speedup_of(share, 1.0), "speedup_of": "time of steps"} if is_known else {}
    return run.verdict(
        rule,
        text,
        line=line,
        status="found" if is_known else "hint",
        lost_s=share * training_s if is_known else None,
        evidence=evidence,
        fix=fix,
        **gain,
    )


def computes_asynchronously(run: DiagnosedRun) -> bool:
    """Whether the steps of the host end before the device has computed them, so that a step in which the host waits
    makes the ones before it appear too short."""
    topology = run.snapshot.topology
    runtimes = {one.runtime for one in run.evidence.compiles} | {one.runtime for one in run.evidence.windows}
    device = topology.device.upper() if topology is not None else "UNKNOWN"
    return bool(runtimes - {"torch_compile"}) or run.snapshot.xla is not None or device not in ("CPU", "UNKNOWN")


def _is_garbage(rhythm: Rhythm) -> bool:
    return rhythm.period is not None and rhythm.collected_s >= EXPLAINED * rhythm.period.lost_s


def _has_other_verdict(run: DiagnosedRun, rhythm: Rhythm, period: Period) -> bool:
    """Whether the slow steps are the garbage collections, or compile again, which has a verdict with the line."""
    late = [one.count for one in run.evidence.compiles if not one.warm_up and one.last_step >= rhythm.first]
    is_garbage = _is_garbage(rhythm) and rhythm.collected_share >= SHARE_MIN
    return is_garbage or sum(late) * 2 >= period.num


def _input_cause(run: DiagnosedRun, period: Period) -> tuple[str, str]:
    """What is said of steps that wait for their batch: loaders with workers deliver as many at once."""
    fix = "load with more workers, or further ahead; look for what is read once for so many batches"
    data = run.snapshot.config.get("data")
    data = data if isinstance(data, dict) else {}
    threads = run.evidence.input.threads if run.evidence.input is not None else data.get("workers")
    ahead = data.get("prefetch_batches")
    if isinstance(threads, int) and isinstance(ahead, int) and threads > 0 and period.steps == threads * ahead:
        return f"{WAITS}: as often as workers x prefetched batches", fix
    if isinstance(threads, int) and threads > 1 and period.steps == threads:
        return f"{WAITS}: as often as there are workers, {threads}", fix
    return WAITS, fix


def _cause(run: DiagnosedRun, period: Period) -> tuple[str, str]:
    """What else has the period, from what the run reports, and what to do; not a proof."""
    plan = run.snapshot.plan
    saves = [mark.step for mark in run.snapshot.marks if mark.kind == "checkpoint"]
    fix = "do it less often, or let a thread do it"
    if _has_period(saves, period.steps):
        return ": as often as a checkpoint is saved", "save less often, or in a thread"
    if plan is not None and plan.steps_per_epoch and plan.num_epochs > 1 and period.steps == plan.steps_per_epoch:
        return ": once per epoch", "keep the workers of the loader (persistent_workers=True), evaluate less often"
    for metric in run.snapshot.logged:
        if not metric.counted and _has_period([point.last_step for point in metric.points], period.steps):
            return f": as often as {metric.tag} is logged", "log less often, and do not read single values for it"
    return ": look at what the loop does in every so many steps, such as a log, an evaluation or a save", fix


def _has_period(steps: list[int], period: int) -> bool:
    """Whether most of the newest steps are a period apart."""
    distances = [later - before for before, later in pairwise(steps[-9:])]
    return len(distances) >= 3 and sum(distance == period for distance in distances) * 2 > len(distances)


def _line(run: DiagnosedRun, period: Period) -> Line | None:
    """The line that reads from the device as often, if there is only one."""
    lines = {
        one.line
        for one in run.evidence.syncs
        if one.line.file and one.steps and abs(one.count * period.steps / one.steps - 1.0) <= NEAR
    }
    return lines.pop() if len(lines) == 1 else None
