"""Rules about the host: lines that wait for the device, and operations that run on the host CPU."""

from __future__ import annotations

from collections.abc import Iterator

from tputui import formatting as fmt
from tputui.diagnosis.compile_rules import lacks_sync
from tputui.diagnosis.diagnosed_run import STEPS_MIN, DiagnosedRun, speedup_of
from tputui.diagnosis.replacements import replacement
from tputui.diagnosis.verdict import Verdict
from tputui.state.evidence_groups import FallbackGroup, SyncGroup

WINDOW_STEPS_MIN = 4
"""Observed steps that rates per step need."""
REHEARSED_STEPS_MIN = 8
"""The same in a rehearsal, which tells reads in most steps from a burst of them."""
SYNC_EVERY_STEPS = 2
"""A line that reads at least once in so many steps is a finding even if it costs little ..."""
SYNC_SHARE_MIN = 0.01
"""... but all lines together at least this share of the time of all steps; ..."""
SYNC_SHARE = 0.05
"""... and a rarer read from this share on: XProf's advice names debug printing from 5 % of a step."""
HINTED_STEPS_MIN = 50
"""Steps in most of which a line must read on a CPU for a hint, though it costs little there: a small program may have
ended before the host reads, which it has not on a TPU. An evaluation has fewer batches."""
READS_A_STEP_MIN = 0.5
"""Scalars read per step from which the counters alone are a finding."""
FALLBACK_SHARE = 0.01
"""A fallback is a finding from this share of the wall time ..."""
FALLBACKS_MIN = 3
FALLBACK_EVERY_STEPS = 100
"""... or if it came at least `FALLBACKS_MIN` times, and once in so many steps."""
CALLBACKS = frozenset({"io_callback", "pure_callback", "jax.debug.callback", "jax.debug.print"})
"""Operations that are no reads, but calls of the user's functions by a program of JAX."""
ON_CPU = "no gain is predicted: the device is a CPU, which shares its cores with the host, so only a TPU shows it"
"""Why a verdict whose fix lets host and device overlap has no cost on a CPU."""
NOT_FALLBACKS = frozenset({"_local_scalar_dense"})
"""Operators that torch_xla counts as fallbacks although they only read a scalar."""


def slow_host(run: DiagnosedRun) -> Iterator[Verdict]:
    """A host for which the others wait in every step.

    The bounds are those of `tputui.state.slow_host`: 5 % of a step and three median absolute deviations, for 20 steps.
    """
    slow = run.snapshot.slow_host
    if slow is None:
        return
    name = f"host {slow.index} ({slow.name})" if slow.name else f"host {slow.index}"
    does, by, fix = {
        "compute": (
            "computes",
            ", by computing",
            "look for other programs, throttling or slower hardware on that host, or replace it",
        ),
        "data": (
            "waits for batches",
            ", by waiting for batches",
            "look at the disk, network and CPU load of that host, or give it more loader workers",
        ),
        "step": ("takes", "", "report the phases of the steps to see what takes longer"),
    }[slow.part]
    measured = f"{fmt.duration(slow.seconds)} per step more than the median of the others, in the newest steps from "
    measured += f"step {slow.first_step:,} on"
    yield run.verdict(
        "slow_host",
        f"{name} takes {fmt.slower(slow.share).replace('slower', 'longer')} for a step than the other hosts{by}",
        evidence=[f"it {does} {measured}", f"{fmt.counted(slow.waiting, 'host')} wait for it in each step"],
        fix=fix,
        speedup=speedup_of(slow.seconds, run.snapshot.step_s),
        speedup_of="time of steps",
    )


def syncs(run: DiagnosedRun) -> Iterator[Verdict]:
    """Lines that read values from the device, by seconds lost."""
    # Where a sync is missing, its fix is that of the recompiles: without the read, the graph would only grow faster.
    lacking = [(group.line.file, group.line.line) for group in run.evidence.compiles if lacks_sync(run, group)]
    callbacks = [group for group in run.evidence.syncs if group.operation in CALLBACKS]
    yield from filter(None, (_callback(run, group) for group in callbacks))
    reads = [group for group in run.evidence.syncs if group not in callbacks]
    groups = [group for group in reads if (group.line.file, group.line.line) not in lacking]
    if not groups and lacking:
        return
    steps = _window_steps(run, groups)
    if not groups or not (run.is_rehearsal or any(group.each_s for group in groups)):
        yield from _reads_counted_only(run, groups)
        return
    needed = REHEARSED_STEPS_MIN if run.is_rehearsal else WINDOW_STEPS_MIN
    if steps < needed:
        text = f"{steps} of the {needed} observed steps that it needs"
        yield Verdict(rule="sync", status="not enough data yet", text=text)
        return
    waited_a_step = sum(group.each_s * group.count for group in groups) / steps
    # A step that waits takes host time plus waiting time; one that does not takes the longer of both.
    step_s = _steady_step_s(run)
    if step_s <= waited_a_step:
        # The window ran on a busier machine than the steps before it: only its own times fit together.
        step_s = _window_step_s(groups)
    lost_a_step = min(max(0.0, step_s - waited_a_step), waited_a_step)
    scale = _scale(run, groups, steps)
    one_a_report = _reports(run) * waited_a_step * steps / sum(group.count for group in groups)
    run_steps = _steps_of_run(run, groups, steps)
    all_lost_s = max(0.0, lost_a_step * run_steps * scale - one_a_report)
    for group in groups:
        part = group.each_s * group.count / (waited_a_step * steps) if waited_a_step > 0 else 1 / len(groups)
        group_steps = _window_steps(run, [group]) if group.observed_steps else steps
        verdict = _sync(run, group, group_steps, all_lost_s * part, all_lost_s, run_steps * step_s)
        if verdict is not None:
            yield verdict


def _callback(run: DiagnosedRun, group: SyncGroup) -> Verdict | None:
    """The verdict on a Python function that a program of JAX calls on the host."""
    share = group.waited_s / run.wall_s if run.wall_s > 0 else 0.0
    if share < SYNC_SHARE:
        return None
    return run.verdict(
        "sync",
        f"`{group.operation}` calls Python on the host from a compiled program",
        line=group.line,
        lost_s=group.waited_s,
        evidence=[
            f"{fmt.counted(group.count, 'call')}, {fmt.duration(group.waited_s / group.count)} in each",
            "the device waits meanwhile if the callback is ordered or its result is used",
        ],
        fix="call it less often (jax.lax.cond on the step), or return the values and process them after the program",
    )


def _sync(
    run: DiagnosedRun, group: SyncGroup, steps: int, lost_s: float, all_lost_s: float, of_s: float
) -> Verdict | None:
    """The verdict on one line; `all_lost_s` is the loss by all lines, `of_s` the time of all steps."""
    share, all_share = (lost_s / of_s, all_lost_s / of_s) if of_s > 0 else (0.0, 0.0)
    per_step = group.count / steps
    # Of several reads in a step only the first one waits; without it, the next one would.
    is_frequent, is_hint = per_step * SYNC_EVERY_STEPS >= 1, False
    if run.is_rehearsal:
        # Every step is in a window: a checkpoint that reads all weights does so in one window of many.
        if not is_frequent or group.steps * 2 <= steps:
            return None
    elif not (is_frequent and all_share >= SYNC_SHARE_MIN) and share < SYNC_SHARE:
        if not (run.is_on_cpu and is_frequent and group.steps >= HINTED_STEPS_MIN):
            return None
        is_hint = True
    often = f"{per_step:.3g} times per step" if per_step >= 1 else f"every {1 / per_step:.3g} steps"
    often = "in every step" if abs(per_step - 1) < 0.05 else often
    evidence = [
        f"{fmt.count(group.count)} reads in {fmt.count(steps)} observed steps, "
        f"{fmt.duration(group.each_s)} waited in each",
    ]
    if run.is_on_cpu and not run.is_rehearsal:
        evidence.append(ON_CPU)
    elif not run.is_rehearsal:
        evidence.append(
            "the loss is the host time that the waiting keeps from overlapping with the device, "
            "without one read per report"
        )
    if group.compiled:
        evidence.append(f"{fmt.count(group.compiled)} of them made the runtime run a part of the step by itself")
    same = any(compiled.line == group.line and not compiled.warm_up for compiled in run.evidence.compiles)
    return run.verdict(
        "sync",
        f"{_code(group.operation)} waits for the device {often}{_on_ranks(run, group)}",
        line=group.line,
        status="hint" if is_hint else "found",
        lost_s=None if run.is_on_cpu else lost_s,
        evidence=evidence,
        fix="keep the values on the device and read them once per report, after the next step was dispatched",
        **({} if run.is_on_cpu else run.gain(lost_s, of_s)),
        overlap="the recompiles at the same line" if same else None,
    )


def _on_ranks(run: DiagnosedRun, group: SyncGroup) -> str:
    """` on rank 0`, if not all ranks that were observed read there."""
    observed = {rank for window in run.evidence.windows for rank in window.ranks}
    if len(group.ranks) >= len(observed):
        return ""
    if len(group.ranks) == 1:
        return f" on rank {group.ranks[0]}"
    return f" on {len(group.ranks)} of {len(observed)} ranks"


def _reads_counted_only(run: DiagnosedRun, groups: list[SyncGroup]) -> Iterator[Verdict]:
    """The verdict of a run whose counters show reads, but whose events know neither their lines nor their cost."""
    xla = run.snapshot.xla
    if xla is None or xla.steps is None:
        if not run.is_observed and not run.unsupported("reads"):
            text = "this run does not record which values were read"
            yield Verdict(rule="sync", status="not available", text=text)
        return
    reads = xla.reads_a_step
    # The windows saw all ranks, so no line of one was missed.
    num_ranks = max([1, *(len(window.ranks) for window in run.evidence.windows)])
    if reads is None or reads / num_ranks < READS_A_STEP_MIN:
        return
    if run.is_early and xla.steps.steps < STEPS_MIN:
        yield run.too_early("sync")
        return
    reasons = [group.line.reason for group in groups if group.line.reason]
    yield run.verdict(
        "sync",
        f"{reads:.3g} scalars are read from the device per step",
        line_reason=reasons[0] if reasons else "only the runtime's counters were recorded",
        evidence=[f"{fmt.count(xla.steps.scalar_reads)} scalars in {fmt.count(xla.steps.steps)} steps after warm-up"],
        fix="keep the values on the device and read them once per report, after the next step was dispatched",
    )


def _window_steps(run: DiagnosedRun, groups: list[SyncGroup] | list[FallbackGroup]) -> int:
    """Steps that were observed: those of all windows, or as many as a line was seen in; of ranks, of their own."""
    if any(group.observed_steps for group in groups):
        return max(max(group.observed_steps, group.steps) for group in groups)
    runtimes = {group.runtime for group in groups}
    windows = sum(window.steps for window in run.evidence.windows if window.runtime in runtimes)
    return max([windows, *(group.steps for group in groups)])


def _steady_step_s(run: DiagnosedRun) -> float:
    """Wall time of a step without the hooks; with them if that is all that is known, or if the steps before the first
    window, which may contain one-time work, took longer."""
    steady = [
        min(window.steady_step_s, window.window_s / window.steps if window.steps else window.steady_step_s)
        for window in run.evidence.windows
        if window.steady_step_s
    ]
    if steady:
        return max(steady)
    return (
        run.step_s
        if run.step_s is not None
        else _window_step_s([group for group in run.evidence.syncs if group.operation not in CALLBACKS])
    )


def _window_step_s(groups: list[SyncGroup]) -> float:
    return max((group.window_s / group.steps for group in groups if group.steps), default=0.0)


def _steps_of_run(run: DiagnosedRun, groups: list[SyncGroup], steps: int) -> float:
    """Steps of the run, at least those that were observed: steps read from a script's output may be far fewer. A script
    that reports none has as many as its transfers allow, by those in the windows."""
    xla, step_s = run.snapshot.xla, _steady_step_s(run)
    reported = run.steps if run.step_s is not None else 0
    if reported >= steps or xla is None or step_s <= 0:
        return max(reported, steps)
    reads = max(0, xla.transfers_from_device - xla.engine_reads) * steps / _reads_of_all_ranks(groups)
    return max(float(steps), min(reads, run.wall_s / step_s))


def _reads_of_all_ranks(groups: list[SyncGroup]) -> int:
    """Reads in the windows, as the counters of a process count them: of all ranks, of which one is judged."""
    return sum(group.count * max(1, len(group.ranks)) for group in groups)


def _scale(run: DiagnosedRun, groups: list[SyncGroup], steps: int) -> float:
    """Reads per step over the whole run by the counters, divided by those in the windows; 1 without counters."""
    xla, in_windows = run.snapshot.xla, _reads_of_all_ranks(groups) / steps
    reads = xla.reads_a_step if xla is not None else None
    if reads is None or xla is None or xla.scalar_reads == 0 or in_windows == 0:
        return 1.0
    return min(1.0, reads / in_windows)


def _reports(run: DiagnosedRun) -> int:
    throughput = run.snapshot.throughput
    return throughput.num_reports if throughput is not None else 0


def fallbacks(run: DiagnosedRun) -> Iterator[Verdict]:
    """Operations that ran on the host CPU, by seconds lost."""
    xla = run.snapshot.xla
    if xla is None and not run.is_observed:
        if not run.unsupported("fallbacks"):
            text = "this run does not record which operations ran on the host CPU"
            yield Verdict(rule="fallback", status="not available", text=text)
        return
    totals = {_bare(name): count for name, count in xla.fallbacks.items()} if xla is not None else {}
    groups = [group for group in run.evidence.fallbacks if _bare(group.operator) not in NOT_FALLBACKS]
    with_line = {_bare(group.operator) for group in groups}
    steps = _window_steps(run, groups)
    for group in groups:
        same = [other for other in groups if _bare(other.operator) == _bare(group.operator)]
        in_windows = sum(other.count for other in same)
        rate = group.count / steps if steps else 0.0
        of_all = totals.get(_bare(group.operator), 0) / max(1, len(group.ranks))
        total = max(of_all * group.count / in_windows, rate * run.steps, group.count)
        lost_s = None
        if group.seconds is not None and group.each_s is not None:
            lost_s = group.seconds + group.each_s * max(0.0, total - group.count)
        yield from _fallback(run, group, round(total), lost_s, steps)
    for name, count in totals.items():
        if name in with_line or name in NOT_FALLBACKS or not _is_frequent(run, count):
            continue
        yield run.verdict(
            "fallback",
            f"{name} runs on the host CPU ({fmt.count(count)} times)",
            line_reason="only the runtime's counters were recorded",
            evidence=[f"aten::{name} {fmt.count(count)} by the runtime's counters"],
            fix=replacement(name),
        )


def _fallback(
    run: DiagnosedRun, group: FallbackGroup, total: int, lost_s: float | None, steps: int
) -> Iterator[Verdict]:
    lost_s = None if lost_s is None else min(lost_s, run.wall_s)
    is_costly = lost_s is not None and run.wall_s > 0 and lost_s / run.wall_s >= FALLBACK_SHARE
    if (run.is_rehearsal or not is_costly) and not _is_frequent(run, total):
        return
    evidence = [f"{fmt.count(group.count)} times in {fmt.count(steps)} observed steps"]
    if group.transfers is not None:
        evidence.append(f"{fmt.count(group.transfers)} transfers between device and host")
    if group.seconds is not None:
        evidence.append(f"{fmt.duration(group.seconds / group.count)} each there, including the transfers")
    if run.is_on_cpu and not run.is_rehearsal:
        evidence.append(ON_CPU)
    yield run.verdict(
        "fallback",
        f"{_bare(group.operator) or 'an operation'} runs on the host CPU (about {fmt.count(total)} times)",
        line=group.line,
        lost_s=lost_s,
        evidence=evidence,
        fix=replacement(_bare(group.operator)),
        **({} if run.is_on_cpu else run.gain(lost_s, run.steady_s)),
    )


def _is_frequent(run: DiagnosedRun, count: int) -> bool:
    return count >= FALLBACKS_MIN and count * FALLBACK_EVERY_STEPS >= run.steps


def _bare(operator: str) -> str:
    """`nonzero` of `aten::nonzero.out`."""
    return operator.rpartition("::")[2].partition(".")[0]


def _code(operation: str) -> str:
    return f"`{operation}`" if operation else "a read"
