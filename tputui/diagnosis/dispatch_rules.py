"""Rules about what each step of JAX gives the device outside of compiled functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from tputui import formatting as fmt
from tputui.diagnosis.diagnosed_run import DiagnosedRun
from tputui.diagnosis.verdict import Verdict, VerdictStatus
from tputui.state.evidence_groups import Line
from tputui.telemetry.events import DispatchedCalls, DispatchesCounted

OPERATIONS_MIN = 10
"""Operations in a step from which they are reported: splitting a key, counting and summing up the loss are fewer."""
SHARE_MIN = 0.05
"""Share of the samples from which they are a finding: XProf's advice names what takes 5 % of a step."""
BYTES_MIN = 1 << 10
"""Bytes that a line moves in a step from which it is reported: not a loss."""
LINES_NAMED = NAMES_SHOWN = 4
_JIT = "compile the whole step with jax.jit: the gradient, the update of the optimizer and the metrics"
_MOVED = "create it in the sharding that the step needs, or move it once, before the loop"
_PUT = "put it there once, before the loop"


def operations(run: DiagnosedRun) -> Iterator[Verdict]:
    """Operations that run one by one in each step: a verdict on all, at the line with most."""
    if (counted := run.evidence.dispatches) is None:
        return
    lines = [calls for calls in counted.lines if calls.kind == "operation"]
    num = sum(calls.count for calls in lines)
    if num < OPERATIONS_MIN * counted.steps:
        return
    lines.sort(key=lambda calls: -calls.count)
    per_line = [f"{calls.count / counted.steps:.3g} at {_where(run, calls)}" for calls in lines[:LINES_NAMED]]
    per_line += [f"{len(lines) - LINES_NAMED} more lines"] if len(lines) > LINES_NAMED else []
    names = list(dict.fromkeys(name for calls in lines for name in calls.names))[:NAMES_SHOWN]
    text = f"{num / counted.steps:.3g} operations per step run one by one, outside of `jax.jit`"
    evidence = f"{', '.join(per_line)}, such as {', '.join(names)}: each is a program of its own"
    yield _verdict(run, counted, "op_by_op", text, lines, evidence, _JIT)


def copies(run: DiagnosedRun) -> Iterator[Verdict]:
    """Lines that move an array of the device, or copy the same values to it, in every step."""
    if (counted := run.evidence.dispatches) is None:
        return
    for calls in counted.lines:
        num_bytes = calls.num_bytes / counted.steps
        if calls.kind == "operation" or calls.count * 2 < counted.steps or num_bytes < BYTES_MIN:
            continue
        moved = calls.kind == "moved"
        what = "on the device move to another device or sharding" if moved else "of equal values go to the device"
        text = f"{fmt.size(num_bytes)} {what} in every step"
        evidence = f"{fmt.counted(calls.count, 'call')} of {', '.join(calls.names[:NAMES_SHOWN])}"
        yield _verdict(run, counted, "device_put", text, [calls], evidence, _MOVED if moved else _PUT)


def _verdict(
    run: DiagnosedRun,
    counted: DispatchesCounted,
    rule: Literal["op_by_op", "device_put"],
    text: str,
    lines: Sequence[DispatchedCalls],
    evidence: str,
    fix: str,
) -> Verdict:
    """A finding if the thread was seen at the lines often enough; a rehearsal has no times. A copy of equal values is a
    hint, since a benchmark may mean it."""
    seen = min(sum(calls.samples or 0 for calls in lines), counted.samples)
    is_found = lines[0].kind != "constant" and (run.is_rehearsal or seen >= SHARE_MIN * counted.samples)
    is_timed = seen and not run.is_rehearsal
    share = f": the host is there {100 * seen / counted.samples:.0f} % of the time" if is_timed else ""
    of = f"calls of `{counted.program}`" if counted.program else "rounds of the same operations"
    where = f"counted in {fmt.count(counted.steps)} {of}; the time by {fmt.count(counted.samples)} samples before"
    status: VerdictStatus = "found" if is_found else "hint"
    line = Line.of(lines[0].user_frame, None)
    return run.verdict(rule, f"{text}{share}", line=line, status=status, evidence=[evidence, where], fix=fix)


def _where(run: DiagnosedRun, calls: DispatchedCalls) -> str:
    frame = calls.user_frame
    return f"{run.short_path(frame.file)}:{frame.line}" if frame is not None else "no line"
