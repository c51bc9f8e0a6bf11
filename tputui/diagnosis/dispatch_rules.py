"""Rules about what each step of JAX gives the device outside of compiled functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from tputui import formatting as fmt
from tputui.diagnosis.diagnosed_run import DiagnosedRun
from tputui.diagnosis.verdict import Verdict, VerdictStatus
from tputui.state.evidence_groups import Line
from tputui.telemetry.events import DispatchedCalls

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
    counted = run.evidence.dispatches
    lines = [one for one in counted.lines if one.kind == "operation"] if counted is not None else []
    num = sum(one.count for one in lines)
    if counted is None or num < OPERATIONS_MIN * counted.steps:
        return
    lines.sort(key=lambda one: -one.count)
    per_line = [f"{one.count / counted.steps:.3g} at {_where(run, one)}" for one in lines[:LINES_NAMED]]
    per_line += [f"{len(lines) - LINES_NAMED} more lines"] if len(lines) > LINES_NAMED else []
    names = list(dict.fromkeys(name for one in lines for name in one.names))[:NAMES_SHOWN]
    text = f"{num / counted.steps:.3g} operations per step run one by one, outside of `jax.jit`"
    evidence = f"{', '.join(per_line)}, such as {', '.join(names)}: each is a program of its own"
    yield _verdict(run, "op_by_op", text, lines, evidence, _JIT)


def copies(run: DiagnosedRun) -> Iterator[Verdict]:
    """Lines that move an array of the device, or copy the same values to it, in every step."""
    counted = run.evidence.dispatches
    for one in counted.lines if counted is not None else ():
        if counted is None or one.kind == "operation" or one.count * 2 < counted.steps:
            continue
        if (num_bytes := one.num_bytes / counted.steps) >= BYTES_MIN:
            moved = one.kind == "moved"
            what = "on the device move to another device or sharding" if moved else "of equal values go to the device"
            text = f"{fmt.size(num_bytes)} {what} in every step"
            evidence = f"{fmt.counted(one.count, 'call')} of {', '.join(one.names[:NAMES_SHOWN])}"
            yield _verdict(run, "device_put", text, [one], evidence, _MOVED if moved else _PUT)


def _verdict(
    run: DiagnosedRun,
    rule: Literal["op_by_op", "device_put"],
    text: str,
    lines: Sequence[DispatchedCalls],
    evidence: str,
    fix: str,
) -> Verdict:
    """A finding if the thread was seen at the lines often enough; a rehearsal has no times. A copy of equal values is a
    hint, since a benchmark may mean it."""
    counted = run.evidence.dispatches
    assert counted is not None
    seen = min(sum(one.samples or 0 for one in lines), counted.samples)
    is_found = lines[0].kind != "constant" and (run.is_rehearsal or seen >= SHARE_MIN * counted.samples)
    share = f": the host is there {100 * seen / counted.samples:.0f} % of the time" if seen else ""
    share = "" if run.is_rehearsal else share
    of = f"calls of `{counted.program}`" if counted.program else "rounds of the same operations"
    where = f"counted in {fmt.count(counted.steps)} {of}; the time by {fmt.count(counted.samples)} samples before"
    status: VerdictStatus = "found" if is_found else "hint"
    line = Line.of(lines[0].user_frame, None)
    return run.verdict(rule, f"{text}{share}", line=line, status=status, evidence=[evidence, where], fix=fix)


def _where(run: DiagnosedRun, one: DispatchedCalls) -> str:
    return f"{run.short_path(one.user_frame.file)}:{one.user_frame.line}" if one.user_frame is not None else "no line"
