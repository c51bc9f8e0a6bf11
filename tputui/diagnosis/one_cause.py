"""Joins verdicts with one cause to one.

An operation whose result has another shape in every step runs on the host, and what takes its result compiles again. A
function that compiles again and again is compiled no more at the limit. The rest of a function behind a graph break
compiles for each number that is passed on to it. Programs compile for each shape of a loader's batches. What changes in
the same way at several lines is one batch or one number. Steps that wait for their batch in a rhythm are steps that
wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from tputui.diagnosis.diagnosed_run import DiagnosedRun
from tputui.diagnosis.replacements import replacement
from tputui.diagnosis.rhythm_rules import WAITS
from tputui.diagnosis.verdict import Verdict
from tputui.state.evidence_groups import Line
from tputui.telemetry.events import OF_LOADER, RESULT_OF


def with_one_verdict_per_cause(run: DiagnosedRun, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts; those with one cause are one."""
    by_result = [*_with_one_per_change(run, [*_with_one_per_result(run, verdicts)])]
    return list(_with_one_per_wait(_with_one_per_break([*_with_one_per_limit(by_result)])))


def _with_one_per_wait(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """The verdicts; that on the wait for batches includes the one on the rhythm in which steps wait."""
    every = list(verdicts)
    part = next((one for one in every if one.rule == "slow_steps" and WAITS in one.text), None)
    whole = next((one for one in every if (one.rule, one.status) == ("input", "found")), None)
    for verdict in every:
        if verdict is whole and part is not None:
            yield replace(
                verdict,
                evidence=[*verdict.evidence, part.text, *part.evidence],
                joined=[*verdict.joined, part.rule],
            )
        elif verdict is not part or whole is None:
            yield verdict


def _with_one_per_break(verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """The verdicts; that on a graph break includes those on compilations of what follows it."""
    breaks = [
        (verdict.file, verdict.line)
        for verdict in verdicts
        if (verdict.rule, verdict.status) == ("graph_break", "found")
    ]
    behind = [verdict for verdict in verdicts if _is_behind_break(verdict)]
    rests = {place: [verdict for verdict in behind if (verdict.file, verdict.line) == place] for place in breaks}
    for verdict in verdicts:
        parts = rests.get((verdict.file, verdict.line), [])
        if verdict.rule == "graph_break" and parts:
            yield _including(verdict, max(parts, key=lambda part: part.lost_s or 0.0), fix=verdict.fix)
        elif verdict not in parts:
            yield verdict


def _is_behind_break(verdict: Verdict) -> bool:
    """Whether it is about compilations of the rest of a function, which is named by the line of the break."""
    return verdict.rule in ("recompile", "compile_limit") and f" from line {verdict.line}` " in verdict.text


def _with_one_per_limit(verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """The verdicts; that on a function at its limit of programs includes the one on its compilations before."""
    limits = {_call(verdict): verdict for verdict in verdicts if verdict.rule == "compile_limit" and verdict.file}
    before = {
        _call(verdict): verdict for verdict in verdicts if verdict.rule == "recompile" and _call(verdict) in limits
    }
    for verdict in verdicts:
        part = before.get(_call(verdict))
        if part is not None and verdict is limits[_call(verdict)]:
            yield _including(verdict, part, fix=part.fix if part.status == "found" else verdict.fix)
        elif verdict is not part:
            yield verdict


def _including(verdict: Verdict, part: Verdict, *, fix: str) -> Verdict:
    """A verdict with the cost and the evidence of another one that has its cause."""
    return replace(
        part,
        rule=verdict.rule,
        status=verdict.status,
        text=verdict.text,
        function=verdict.function,
        evidence=[*verdict.evidence, part.text, *(line for line in part.evidence if line not in verdict.evidence)],
        fix=fix,
        joined=[*verdict.joined, *part.joined, *([part.rule] if part.status == "found" else [])],
    )


def _call(verdict: Verdict) -> tuple[object, ...]:
    """The line and the program of a verdict on compilations, whose text begins with the name of the program."""
    return verdict.file, verdict.line, verdict.text.partition("` ")[0]


def _with_one_per_change(run: DiagnosedRun, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """The verdicts; those on compilations for the same changes of sizes or numbers are joined at the first line."""
    changes: dict[tuple[object, ...], object] = {}
    for group in run.evidence.compiles:
        same = frozenset((change.before, change.now) for change in group.changes or ())
        if not group.warm_up and len(same) > 1 and all(before and now for before, now in same):
            changes.setdefault((group.line.file, group.line.line), (group.runtime, group.line.file, same))
    joined: dict[object, list[Verdict]] = {}
    for verdict in verdicts:
        is_recompile = (verdict.rule, verdict.status) == ("recompile", "found")
        cause = changes.get((verdict.file, verdict.line)) if is_recompile else None
        joined.setdefault(cause or id(verdict), []).append(verdict)
    for parts in joined.values():
        parts.sort(key=lambda part: part.line or 0)
        # Of several programs at a line, it is not known which of them changed so.
        if len({part.line for part in parts}) == len(parts) > 1:
            parts = [_join(run, parts[0].fix, parts)]
        yield from parts


def _with_one_per_result(run: DiagnosedRun, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """The verdicts; those on one such operation, or on the batches of one loader, are joined to the first of them, with
    the cost of all."""
    results = _results(run)
    joined: dict[tuple[str, Line], list[Verdict]] = {}
    for verdict in verdicts:
        for line, result in results.items():
            if _is_about(verdict, line, result):
                joined.setdefault((result, line), []).append(verdict)
                break
        else:
            yield verdict
    for (result, _), parts in joined.items():
        # The compilations first: they cost most, and their line is that of the operation.
        parts.sort(key=lambda part: (part.status != "found", part.rule != "recompile", -(part.lost_s or 0.0)))
        yield _join(run, parts[0].fix if result == OF_LOADER else replacement(result), parts)


def _results(run: DiagnosedRun) -> dict[Line, str]:
    """The operators whose results made programs compile again, or `OF_LOADER` for the batches of a loader, by line."""
    return {
        group.line: OF_LOADER if change.name.startswith(OF_LOADER) else change.name.removeprefix(RESULT_OF)
        for group in run.evidence.compiles
        for change in group.changes or []
        if change.name.startswith((RESULT_OF, OF_LOADER)) and group.line.file and not group.warm_up
    }


def _is_about(verdict: Verdict, line: Line, operator: str) -> bool:
    """Whether a verdict is one on the line, or on the same operator elsewhere in the function: `x[mask], y[mask]` may
    stand on two lines."""
    if verdict.rule == "recompile":
        return (verdict.file, verdict.line) == (line.file, line.line)
    same = (verdict.file, verdict.function) == (line.file, line.function)
    return verdict.rule == "fallback" and same and verdict.text.startswith(f"{operator} ")


def _join(run: DiagnosedRun, fix: str, parts: Sequence[Verdict]) -> Verdict:
    """The first one, with the cost and the evidence of all."""
    first, *others = parts
    evidence = list(first.evidence)
    for other in others:
        where = f" at {other.where}" if other.line != first.line else ""
        evidence += [f"{other.text}{where}", *(line for line in other.evidence if line not in evidence)]
    joined = list(dict.fromkeys(other.rule for other in others if other.status == "found" and other.rule != first.rule))
    costs = [part.lost_s for part in parts if part.lost_s is not None and part.status == "found"]
    if first.status != "found" or not costs:
        return replace(first, evidence=evidence, fix=fix, joined=joined)
    lost_s = min(sum(costs), run.wall_s)
    # What host and device do at the same time on a CPU is no gain, so that only the compilations are.
    timed = sum(part.lost_s or 0.0 for part in parts if part.speedup is not None)
    gain = run.gain(min(timed, run.wall_s), run.training_s(timed)) if timed else {}
    share = lost_s / run.wall_s if run.wall_s > 0 else None
    return replace(first, lost_s=lost_s, share=share, evidence=evidence, fix=fix, joined=joined, **gain)
