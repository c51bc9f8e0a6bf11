"""Rules about programs: compilations after warm-up, and steps that run more programs than they need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tputui import formatting as fmt
from tputui.diagnosis.facts import STEPS_MIN, Facts, speedup_of
from tputui.diagnosis.verdict import Verdict
from tputui.state.evidence_groups import CompileGroup
from tputui.telemetry.events import ChangedInput, ProgramObserved

STORM_MIN = 4
"""Compilations of one program from which they are called a storm, unless they come once or twice per epoch. Fewer can
be a few lengths of texts, which compile once each."""
COUNTED_SHARE_MIN = 0.01
"""Share of the wall time from which a single compilation without a line is a finding."""
PER_EPOCH_MAX = 2
"""Compilations per epoch that the end of an epoch explains: its last batch, and the evaluation."""
GROWING_MIN = 3
"""Programs in a row with more operations each, from which the graph grows with every step."""
TINY_OPERATIONS = 20
"""Operations of a program below which starting it costs more than running it. A training step of a linear layer with
SGD has about 40."""
TINY_EXECUTES = 3
"""Programs per step that are worth joining, if most of them are tiny."""
_SPEC = re.compile(r"([a-z]+[0-9a-z]*)\[([0-9,]*)\]")
_SIZE = re.compile(r"size [0-9]+ in dimension ([0-9]+)")
"""How `torch.compile` reports a shape that changed."""
_BATCHES = "use batches of one size: drop_last=True in training, padding and a mask in evaluation"
_LENGTHS = "pad to a few fixed lengths (buckets), so that each shape compiles once"
_BREAK = "remove the graph break: the rest of the function is compiled for each number that it passes on"
_NO_VARIABLE = re.compile(r"an? |constant of |aten::|xla::|operations$|the function")
"""Names of changes that are not those of a variable."""
_PASSED_ON = "___stack"
"""How `torch.compile` names what one part of a function passes to the next."""
_CAUSES = {
    "sync": "at an explicit sync",
    "step_end": "at the end of a step, in the loader",
    "value_read": "because a value was read before the sync",
    "call": "at a call with inputs that it was not compiled for",
    "unknown": "for an unknown cause",
}


def recompiles(facts: Facts) -> Iterator[Verdict]:
    """Compilations after warm-up, by line."""
    late = [group for group in facts.evidence.compiles if not group.warm_up and group.count > group.num_cached]
    if not late:
        yield from _counted_only(facts)
        return
    for group in _attributed(late):
        lost_s = _seconds(group)
        program = _name(group.program, "the program")
        times = "once" if group.count == 1 else f"{fmt.count(group.count)} times"
        kind = _kind(group)
        change = f": {_change(group.changes[0])}" if group.changes else ""
        yield facts.verdict(
            "recompile",
            f"{program} compiles again {times} after warm-up{kind and f', {kind}'}{change}",
            line=group.line,
            lost_s=lost_s,
            evidence=list(_evidence(group)),
            fix=_fix(facts, group),
            speedup=speedup_of(lost_s, facts.training_s(lost_s)) if lost_s is not None else None,
        )


def _attributed(groups: Sequence[CompileGroup]) -> list[CompileGroup]:
    """The groups; those from before their cause was found are joined to the one whose cause was, if there is just one.

    The line of a read, and the input that changed, are found once something has compiled again.
    """
    made = list(groups)
    for explains in (_has_line, _has_changes):
        for group in [one for one in made if not explains(one)]:
            found = [one for one in made if explains(one) and _may_explain(one, group)]
            if len(found) == 1:
                made = [group.join(one) if one is found[0] else one for one in made if one is not group]
    return made


def _has_line(group: CompileGroup) -> bool:
    return bool(group.line.file)


def _has_changes(group: CompileGroup) -> bool:
    return bool(group.changes)


def _may_explain(later: CompileGroup, group: CompileGroup) -> bool:
    same = (later.runtime, later.program, later.cause) == (group.runtime, group.program, group.cause)
    return same and group.last_step <= later.first_step


def _name(program: str, otherwise: str) -> str:
    """The name of a program as code. That of a program at the top level of a file says nothing."""
    return f"`{program}`" if program and program != "<module>" else otherwise


def _counted_only(facts: Facts) -> Iterator[Verdict]:
    """The verdict of a run whose counters show compilations, but that has no event about them."""
    xla, evidence = facts.snapshot.xla, facts.evidence
    count = max(evidence.late_compiles, xla.recompiles if xla is not None else 0)
    if count == 0:
        if xla is None and not facts.is_observed:
            text = "this run records no compilations"
            yield Verdict(rule="recompile", status="not available", text=text)
        return
    lost_s = evidence.late_compile_s or None
    if count == 1 and (lost_s or 0.0) < COUNTED_SHARE_MIN * facts.wall_s:
        return
    times = "once" if count == 1 else f"{fmt.count(count)} times"
    yield facts.verdict(
        "recompile",
        f"the runtime compiles again {times} after warm-up",
        lost_s=lost_s,
        line_reason="only the runtime's counters were recorded",
        evidence=[f"recompiles {fmt.count(count)} by the runtime's counters"],
        fix="keep the shapes and types of all inputs constant: drop or pad the last batch, pad texts to fixed lengths",
        speedup=speedup_of(lost_s, facts.training_s(lost_s)) if lost_s is not None else None,
    )


def _seconds(group: CompileGroup) -> float | None:
    """Time inside the compiler; those without a time are assumed to take as long as the others."""
    return group.seconds * group.count / group.num_timed if group.num_timed else None


def _kind(group: CompileGroup) -> str:
    """`once per epoch`, or `a storm`; empty for a few."""
    if group.num_epochs > 1 and group.count <= PER_EPOCH_MAX * group.num_epochs:
        return "once per epoch" if group.count == group.num_epochs else "in every epoch"
    if group.count < STORM_MIN:
        return ""
    if group.first_step == 0:
        return "a storm"
    every = (group.last_step - group.first_step + 1) / group.count
    return f"a storm (every {every:.0f} steps)" if every >= 1.5 else "a storm (in every step)"


def _evidence(group: CompileGroup) -> Iterator[str]:
    yield f"compiled {_CAUSES[group.cause]}"
    if group.first_step == group.last_step > 0:
        yield f"in step {fmt.count(group.first_step)}"
    elif group.first_step > 0:
        epochs = f", in {group.num_epochs} epochs" if group.num_epochs > 1 else ""
        yield f"in steps {fmt.count(group.first_step)} to {fmt.count(group.last_step)}{epochs}"
    if group.num_timed:
        each = fmt.duration(group.seconds / group.num_timed)
        rest = f" ({group.num_timed} of {group.count} timed)" if group.num_timed < group.count else ""
        yield f"{each} in the compiler each{rest}"
    if group.num_cached:
        yield f"{group.num_cached} of them came from the compile cache"
    yield from (_change(change) for change in (group.changes or [])[1:])
    if group.changes is None:
        yield "the inputs were not compared"
    elif not group.changes:
        yield "no input differs in type or shape"


def _change(change: ChangedInput) -> str:
    name = change.name or "an input"
    if name.startswith(_PASSED_ON):
        name = "what the line of a graph break returns"
    elif not _NO_VARIABLE.match(name):
        name = f"input {name}"
    if not change.before:
        return f"{name} is new: {change.now}"
    return f"{name} {change.before} -> {change.now}" if change.now else f"{name} is gone: {change.before}"


def lacks_sync(facts: Facts, group: CompileGroup) -> bool:
    """Whether a read compiles the programs of a loop in which nothing else ends a step, so that each contains all
    steps before it."""
    if group.cause != "value_read" or group.warm_up or group.count < STORM_MIN:
        return False
    causes = {(one.runtime, one.cause) for one in facts.evidence.compiles}
    return causes == {("torch_xla", "value_read")} or _grows(facts.evidence.programs)


def _fix(facts: Facts, group: CompileGroup) -> str:
    """The advice for the newest changed input, or for the cause."""
    if lacks_sync(facts, group):
        return "end every step with torch_xla.sync(): without it, each graph contains all steps before"
    change = group.changes[0] if group.changes else None
    if change is None:
        if group.cause == "value_read":
            return "read the value after the sync, or keep it on the device (torch.where in place of if)"
        return "keep the shapes and types of all inputs constant, and pass changing numbers as tensors"
    if change.name.startswith(_PASSED_ON):
        return _BREAK
    if not change.before or not change.now:
        return "give the step the same inputs every time: create optimizer state and optional inputs before warm-up"
    if size := _SIZE.fullmatch(change.now):
        return _BATCHES if int(size[1]) == 0 else _LENGTHS
    before, now = _SPEC.fullmatch(change.before), _SPEC.fullmatch(change.now)
    if before is None or now is None:
        return "pass the changing number as a tensor on the device: as a constant it is part of the program"
    if before[1] != now[1]:
        return f"use one type for {change.name or 'the input'}: cast it before the step"
    old, new = before[2].split(","), now[2].split(",")
    if len(old) == len(new) and old[1:] == new[1:]:
        return _BATCHES
    return _LENGTHS


def _grows(programs: Sequence[ProgramObserved]) -> bool:
    sizes = [program.num_operations for program in sorted(programs, key=lambda one: one.t)]
    known = [size for size in sizes if size is not None][-GROWING_MIN - 1 :]
    return len(known) > GROWING_MIN and all(left < right for left, right in pairwise(known))


def graph_breaks(facts: Facts) -> Iterator[Verdict]:
    """Lines at which `torch.compile` makes several programs of a function, or gives up."""
    for group in facts.evidence.breaks:
        function = _name(group.program, "a function")
        if group.reason:
            yield facts.verdict(
                "graph_break",
                f"{function} is compiled in parts, because of this line",
                line=group.line,
                evidence=[group.reason, f"in {fmt.counted(group.count, 'compilation')}"],
                fix="move it out of the compiled function, or keep the value on the device: torch.where, not if",
            )
            continue
        is_passed_on = any(change.name.startswith(_PASSED_ON) for change in group.changes or [])
        most = f" {fmt.counted(group.limit, 'program')}" if group.limit is not None else " the maximum of programs"
        yield facts.verdict(
            "compile_limit",
            f"{function} runs as Python for new inputs: it was compiled to{most} already",
            line=group.line,
            evidence=[_change(change) for change in group.changes or []] or ["the inputs were not compared"],
            fix=_BREAK
            if is_passed_on
            else "keep the shapes and types of its inputs constant, and pass changing numbers as tensors",
        )


def extra_executions(facts: Facts) -> Iterator[Verdict]:
    """Steps that execute more programs than they need."""
    xla = facts.snapshot.xla
    if xla is None or xla.steps is None:
        return
    if xla.steps.steps < STEPS_MIN:
        if facts.is_early and xla.has_extra_executes:
            yield facts.too_early("extra_execution")
        return
    executes, expected = xla.executes_a_step, xla.expected_a_step
    if not xla.has_extra_executes or executes is None or expected is None:
        return
    sizes = [program.num_operations for program in facts.evidence.programs if program.num_operations is not None]
    tiny = [size for size in sizes if size < TINY_OPERATIONS]
    evidence = [f"{executes:.3g} programs per step in place of {expected:.3g}, over {fmt.count(xla.steps.steps)} steps"]
    text = f"a step runs {executes:.3g} programs in place of {expected:.3g}"
    if executes >= TINY_EXECUTES and len(tiny) * 2 > len(sizes):
        text += f", most of them tiny (fewer than {TINY_OPERATIONS} operations)"
        evidence.append(f"{len(tiny)} of {len(sizes)} programs have fewer than {TINY_OPERATIONS} operations")
    has_reads = any(group.compiled for group in facts.evidence.syncs)
    yield facts.verdict(
        "extra_execution",
        text,
        line_reason="the runtime counts executions, but not their lines",
        evidence=evidence,
        fix="read values after torch_xla.sync(), and call it exactly once per step",
        overlap="the reads that run a part of the step" if has_reads else None,
    )
