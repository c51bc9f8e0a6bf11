"""Rules about programs: compilations after warm-up, and steps that run more programs than they need."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import le

from tputui import formatting as fmt
from tputui.diagnosis.diagnosed_run import STEPS_MIN, DiagnosedRun
from tputui.diagnosis.replacements import advice_on_number
from tputui.diagnosis.verdict import Verdict
from tputui.state.evidence_groups import REDEFINED, TOO_MANY, BreakGroup, CompileGroup, Line
from tputui.state.xla_view import SIZE, SIZES_MAX, SPEC, is_size, late_compiles, num_recompiles
from tputui.telemetry.events import OF_LOADER, ChangedInput, MatmulObserved, ProgramObserved

STORM_MIN = SIZES_MAX + 1
"""Compilations of one program from which they are called a storm, unless they come once or twice per epoch."""
PER_EPOCH_MAX = 2
"""Compilations per epoch that the end of an epoch explains: its last batch, and the evaluation."""
GROWING_MIN = 3
"""Programs in a row with more operations each, from which the graph grows with every step."""
TINY_OPERATIONS = 20
"""Operations of a program below which starting it costs more than running it. A training step of a linear layer with
SGD has about 40."""
TINY_EXECUTES = 3
"""Programs per step that are worth joining, if most of them are tiny."""
OTHERS_NAMED = 3
"""Other programs of a line that are named."""
_BATCHES = "use batches of one size: drop_last=True in training, padding and a mask in evaluation"
_LENGTHS = "pad to a few fixed lengths (buckets), so that each shape compiles once"
_KEEPS = "nothing, if there are no further sizes: each compiles once. To compile before training, run each size once"
_KEEPS_VALUES = "nothing, if there are no further values: each compiles once; else "
_ONE_DEFINITION = "define the compiled function once, outside of the loop or method that calls it"
_ONE_TYPE = "use one dtype from the start: jnp.float32({name}) in place of a number of Python"
_FULL_SIZE = (
    "pad it to a few fixed sizes (buckets), or allocate it once in its full size with a mask: each size is a program"
)
_ONE_LENGTH = "pass lists of one length: pad them, or stack their items into one array, with a mask"
_NO_TEXT = "pass no text that changes: the program is compiled for each one"
_BREAK = "remove the graph break: the rest of the function is compiled for each number that it passes on"
_QUOTES = "'", '"'
"""Begin a text of Python."""
_NO_VARIABLE = re.compile(r"an? |constant of |aten::|xla::|operations$|the ")
"""Names of changes that are not those of a variable."""
_INTENDED = "torch._dynamo.graph_break()"
"""In the reason of a graph break that the code asks for."""
_PASSED_ON = "___stack"
"""How `torch.compile` names what one part of a function passes to the next."""
_CAUSES = {
    "sync": "at an explicit sync",
    "step_end": "at the end of a step, in the loader",
    "value_read": "because a value was read before the sync",
    "call": "at a call with inputs that it was not compiled for",
    "unknown": "for an unknown cause",
}


def recompiles(run: DiagnosedRun) -> Iterator[Verdict]:
    """Compilations after warm-up, by line: findings for programs that compile again and again, hints for those that
    compile once for each of a few inputs."""
    recompiled, first = late_compiles(run.evidence.compiles)
    if not recompiled and not first:
        yield from _counted_only(run)
        return
    for group, *others in recompiled:
        lost_s = _seconds([group, *others])
        kind = _kind(group)
        yield run.verdict(
            "recompile",
            f"{_program(group)} compiles again {_times(group)} after warm-up{kind and f', {kind}'}{_newest(group)}",
            line=group.line,
            lost_s=lost_s,
            evidence=[*_evidence(group), *_others(others)],
            fix=_fix(run, group),
            **run.gain(lost_s, run.training_s(lost_s or 0.0)),
        )
    for group, *others in first:
        when = "for the first time with these inputs" if group.num_states < 2 else "once for each of its new inputs"
        yield run.verdict(
            "recompile",
            f"{_program(group)} compiles {_times(group)} after warm-up, {when}{_newest(group)}",
            line=group.line,
            status="hint",
            evidence=[*_evidence(group), *_others(others)],
            fix=_hint_fix(run, group),
        )


def _hint_fix(run: DiagnosedRun, group: CompileGroup) -> str:
    if not group.changes:
        return "nothing, unless it compiles again"
    if all(map(is_size, group.changes)):
        is_of_loader = group.changes[0].name.startswith(OF_LOADER)
        return f"{_fix(run, group)}; or {_KEEPS}" if is_of_loader else _KEEPS
    return f"{_KEEPS_VALUES if all(map(_is_value, group.changes)) else ''}{_fix(run, group)}"


def _is_value(change: ChangedInput) -> bool:
    """Whether a value that is part of the program is another one, such as a flag that is a static argument."""
    is_spec = SPEC.fullmatch(change.before) or SPEC.fullmatch(change.now) or "weak_type" in change.now
    return bool(change.before and change.now and not is_spec and change.name != REDEFINED)


def _program(group: CompileGroup) -> str:
    """The program in words. torch_xla has no names for programs, so that a script's is named after what syncs."""
    name = _name(group.program, "")
    is_function = group.runtime == "torch_xla" and group.program == group.line.function
    return f"the program of {name}" if name and is_function else name or "the program"


def _times(group: CompileGroup) -> str:
    return "once" if group.total == 1 else f"{fmt.count(group.total)} times"


def _newest(group: CompileGroup) -> str:
    return f": {_change(group.changes[0])}" if group.changes else ""


def _name(program: str, otherwise: str) -> str:
    """The name of a program as code. That of a program at the top level of a file says nothing."""
    return f"`{program}`" if program and program != "<module>" else otherwise


def _counted_only(run: DiagnosedRun) -> Iterator[Verdict]:
    """The verdict of a run whose counters show compilations, but that has no event about them."""
    xla, evidence = run.snapshot.xla, run.evidence
    count = num_recompiles(max(evidence.late_compiles, xla.late_compiles if xla is not None else 0), [])
    if count == 0:
        if xla is None and not run.is_observed and not run.unsupported("compilations"):
            text = "this run records no compilations"
            yield Verdict(rule="recompile", status="not available", text=text)
        return
    lost_s = evidence.late_compile_s or None
    yield run.verdict(
        "recompile",
        f"the runtime compiles again {fmt.count(count)} times after warm-up",
        lost_s=lost_s,
        line_reason="only the runtime's counters were recorded",
        evidence=[f"recompiles {fmt.count(count)} by the runtime's counters"],
        fix="keep the shapes and types of all inputs constant: drop or pad the last batch, pad texts to fixed lengths",
        **run.gain(lost_s, run.training_s(lost_s or 0.0)),
    )


def _seconds(groups: Sequence[CompileGroup]) -> float | None:
    """Time inside the compiler; compilations without a time are assumed to take as long as others of their group."""
    timed = [group.seconds * group.count / group.num_timed for group in groups if group.num_timed]
    return sum(timed) if timed else None


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
        compiler_time = fmt.duration(group.seconds / group.num_timed)
        rest = f" ({group.num_timed} of {group.count} timed)" if group.num_timed < group.count else ""
        yield f"{compiler_time} in the compiler each{rest}"
    if group.total > group.count:
        yield f"{fmt.count(group.count)} of them in the process that lost most"
    if group.num_cached:
        yield f"{group.num_cached} of them came from the compile cache"
    yield from (_change(change) for change in (group.changes or [])[1:])
    if group.changes is None:
        yield "the inputs were not compared"
    elif not group.changes:
        yield "no input differs in type or shape"


def _others(groups: Sequence[CompileGroup]) -> Iterator[str]:
    """The other programs with the cause of a verdict, whose time is in its cost."""
    if groups:
        names = [_name(group.program, "a program") for group in groups[:OTHERS_NAMED]]
        names += [f"{len(groups) - OTHERS_NAMED} more"] if len(groups) > OTHERS_NAMED else []
        count = fmt.counted(sum(group.count for group in groups), "compilation")
        yield f"with {count} of {' and '.join(filter(None, [', '.join(names[:-1]), names[-1]]))} at the same line"


def _change(change: ChangedInput) -> str:
    name = change.name or "an input"
    if name.startswith(_PASSED_ON):
        name = "what the line of a graph break returns"
    elif not _NO_VARIABLE.match(name):
        name = f"input {name}"
    if not change.before:
        return f"{name} is new: {change.now}"
    return f"{name} {change.before} -> {change.now}" if change.now else f"{name} is gone: {change.before}"


def lacks_sync(run: DiagnosedRun, group: CompileGroup) -> bool:
    """Whether a read compiles the programs of a loop in which nothing else ends a step, so that each contains all
    steps before it."""
    if group.cause != "value_read" or group.warm_up or group.count < STORM_MIN:
        return False
    causes = {(compiled.runtime, compiled.cause) for compiled in run.evidence.compiles}
    return causes == {("torch_xla", "value_read")} or _grows(run.evidence.programs.values())


def _mode_advice(change: ChangedInput) -> str | None:
    # Imported here, because commands such as `show` import the rules and must start fast.
    from tputui.logs.torch_guards import mode_advice

    return mode_advice(change)


def _fix(run: DiagnosedRun, group: CompileGroup) -> str:
    """The advice for the newest changed input, or for the cause."""
    if lacks_sync(run, group):
        return "end every step with torch_xla.sync(): without it, each graph contains all steps before"
    change = group.changes[0] if group.changes else None
    if change is None:
        if group.cause == "value_read":
            return "read the value after the sync, or keep it on the device (torch.where in place of if)"
        return "keep the shapes and types of all inputs constant, and pass changing numbers as tensors"
    if change.name.startswith(_PASSED_ON):
        return _BREAK
    if group.runtime == "torch_compile" and (advice := _mode_advice(change)) is not None:
        return advice
    if change.name == REDEFINED:
        return _ONE_DEFINITION
    if "weak_type" in change.before + change.now:
        return _ONE_TYPE.format(name=change.name)
    if not all(item.before for item in group.changes or ()) and not all(item.now for item in group.changes or ()):
        # Their number goes up and down, which a state that is created late does not.
        return _ONE_LENGTH
    if not change.before or not change.now:
        return "give the step the same inputs every time: create optimizer state and optional inputs before warm-up"
    if not change.name.startswith(OF_LOADER) and _is_growing(group.changes or []):
        return _FULL_SIZE
    if size := SIZE.fullmatch(change.now):
        return _BATCHES if int(size[1]) == 0 else _LENGTHS
    if change.name.startswith("len(") or " of length " in change.now:
        return _ONE_LENGTH
    if change.before.startswith(_QUOTES) or change.now.startswith(_QUOTES):
        return _NO_TEXT
    before, now = SPEC.fullmatch(change.before), SPEC.fullmatch(change.now)
    if before is None or now is None:
        if group.runtime == "jax":
            return "pass the changing value as an array: as a static argument it is part of the program"
        return advice_on_number(change.name)
    if before[1] != now[1]:
        return f"use one type for {change.name or 'the input'}: cast it before the step"
    old, new = before[2].split(","), now[2].split(",")
    if len(old) == len(new) and old[1:] == new[1:]:
        return _BATCHES
    return _LENGTHS


def _is_growing(changes: Sequence[ChangedInput]) -> bool:
    """Whether the newest changes, newest first, are those of one input in a row, larger each time, as of a cache."""
    same = [change for change in changes if change.name == changes[0].name]
    in_a_row = all(newer.before == older.now for newer, older in pairwise(same))
    sizes = [(_numbers(change.before), _numbers(change.now)) for change in same if is_size(change)]
    larger = all(len(old) == len(new) and all(map(le, old, new)) and old != new for old, new in sizes)
    return len(sizes) == len(same) >= GROWING_MIN and in_a_row and larger


def _numbers(shape: str) -> list[int]:
    """The numbers of a shape: the sizes, after the dtype, or the size and its dimension."""
    return [int(number) for number in re.findall(r"[0-9]+", shape.partition("[")[2] or shape)]


def _grows(programs: Iterable[ProgramObserved]) -> bool:
    sizes = [program.num_operations for program in sorted(programs, key=lambda program: program.t)]
    newest_sizes = [size for size in sizes if size is not None][-GROWING_MIN - 1 :]
    return len(newest_sizes) > GROWING_MIN and all(left < right for left, right in pairwise(newest_sizes))


def graph_breaks(run: DiagnosedRun) -> Iterator[Verdict]:
    """Lines at which `torch.compile` makes several programs of a function, or gives up."""
    broken: dict[Line, list[BreakGroup]] = {}
    for group in run.evidence.breaks:
        if not group.reason:
            yield _limit(run, group)
        elif (
            group.line.file or group.line.reason == TOO_MANY
        ):  # else it is in a library, and no call of the user led there
            broken.setdefault(group.line, []).append(group)
    for line, groups in broken.items():
        yield _broken(run, line, groups)


def _broken(run: DiagnosedRun, line: Line, groups: Sequence[BreakGroup]) -> Verdict:
    """The verdict on a line, at which several functions may break, such as the parts of one."""
    functions = list(dict.fromkeys(_name(group.program, "a function") for group in groups))
    others = f" and {fmt.counted(len(functions) - 1, 'other function')}" if len(functions) > 1 else ""
    head = f"{functions[0]}{others} {'are' if others else 'is'} compiled in parts"
    reasons = list(dict.fromkeys(group.reason for group in groups))
    evidence = [*reasons, f"in {fmt.counted(sum(group.count for group in groups), 'compilation')}"]
    if all(group.in_library for group in groups):
        text = f"{head}, because of library code that this line calls"
        fix = "nothing if the library intends it, else call it outside of the compiled function"
        return run.verdict("graph_break", text, line=line, evidence=evidence, fix=fix, status="hint")
    if all(_INTENDED in reason for reason in reasons):
        text, fix = f"{head}, because this line asks for it", "remove the call if nothing needs it"
        return run.verdict("graph_break", text, line=line, evidence=evidence, fix=fix, status="hint")
    text = f"{head}, because of this line"
    fix = "move it out of the compiled function, or keep the value on the device: torch.where, not if"
    return run.verdict("graph_break", text, line=line, evidence=evidence, fix=fix)


def _limit(run: DiagnosedRun, group: BreakGroup) -> Verdict:
    is_passed_on = any(change.name.startswith(_PASSED_ON) for change in group.changes or [])
    most = f" {fmt.counted(group.limit, 'program')}" if group.limit is not None else " the maximum of programs"
    return run.verdict(
        "compile_limit",
        f"{_name(group.program, 'a function')} runs as Python for new inputs: it was compiled to{most} already",
        line=group.line,
        evidence=[_change(change) for change in group.changes or []] or ["the inputs were not compared"],
        fix=_BREAK
        if is_passed_on
        else "keep the shapes and types of its inputs constant, and pass changing numbers as tensors",
    )


def extra_executions(run: DiagnosedRun) -> Iterator[Verdict]:
    """Steps that execute more programs than they need."""
    xla = run.snapshot.xla
    if xla is None or xla.steps is None:
        return
    if xla.steps.steps < STEPS_MIN:
        if run.is_early and xla.has_extra_executes:
            yield run.too_early("extra_execution")
        return
    executes, expected = xla.executes_a_step, xla.expected_a_step
    if not xla.has_extra_executes or executes is None or expected is None:
        return
    sizes = [program.num_operations for program in run.evidence.programs.values() if program.num_operations is not None]
    tiny = [size for size in sizes if size < TINY_OPERATIONS]
    evidence = [f"{executes:.3g} programs per step in place of {expected:.3g}, over {fmt.count(xla.steps.steps)} steps"]
    text = f"a step runs {executes:.3g} programs in place of {expected:.3g}"
    if executes >= TINY_EXECUTES and len(tiny) * 2 > len(sizes):
        text += f", most of them tiny (fewer than {TINY_OPERATIONS} operations)"
        evidence.append(f"{len(tiny)} of {len(sizes)} programs have fewer than {TINY_OPERATIONS} operations")
    has_reads = any(group.compiled for group in run.evidence.syncs)
    yield run.verdict(
        "extra_execution",
        text,
        line_reason="the runtime counts executions, but not their lines",
        evidence=evidence,
        fix="read values after torch_xla.sync(), and call it exactly once per step",
        overlap="the reads that run a part of the step" if has_reads else None,
    )


ROWS = 8
"""A TPU stores the second-last dimension of an array in tiles of 8 (the layout T(8,128) of its programs) ..."""
COLUMNS = 128
"""... and the last one in tiles of 128, the width of its matrix unit before v6e."""
WASTE_SHARE = 0.30
"""Share of padded multiplications from which it is a finding: XProf's bound for data shuffling."""
FLOPS_MIN = 1e9
"""Multiplications of a program on one core from which shapes matter: less takes 0.1 ms on the slowest TPU."""


def batch_multiple(run: DiagnosedRun) -> Iterator[Verdict]:
    """A batch per core that does not fill the rows of a TPU's tiles."""
    plan = run.snapshot.plan
    if plan is None or plan.batch_per_core <= 0 or plan.batch_per_core % ROWS == 0:
        return
    full = -(-plan.batch_per_core // ROWS) * ROWS
    yield run.verdict(
        "batch_multiple",
        f"{fmt.counted(plan.batch_per_core, 'example')} per core are padded to {full} on a TPU",
        status="hint",
        evidence=[f"a TPU processes {ROWS} rows at a time"],
        fix=f"use {full} examples per core; they take the same time",
        change=run.change("data.batch_per_core", full),
    )


def feature_multiple(run: DiagnosedRun) -> Iterator[Verdict]:
    """Matrix multiplications that are mostly padding."""
    matmuls, flops, padded = _matmuls(run)
    if flops < FLOPS_MIN or 1 - flops / padded < WASTE_SHARE:
        return
    _, matmul = max(matmuls, key=lambda excess: excess[0])
    sizes = f"{matmul.dtype}[{matmul.m},{matmul.k}] x [{matmul.k},{matmul.n}]"
    to = f"[{_up(matmul.m, ROWS)},{_up(matmul.k, COLUMNS)}] x [{_up(matmul.k, COLUMNS)},{_up(matmul.n, COLUMNS)}]"
    yield run.verdict(
        "feature_multiple",
        f"{(1 - flops / padded) * 100:.0f} % of the matrix multiplications are padding on a TPU",
        line=Line.of(matmul.user_frame, None),
        status="found" if run.is_on_tpu else "hint",
        evidence=[f"{sizes} is padded to {to}, {fmt.count(matmul.count)} times in a program"],
        fix=f"use features that are multiples of {COLUMNS}, and rows that are multiples of {ROWS}",
    )


def padding_share(run: DiagnosedRun) -> float | None:
    """Share of the matrix multiplications that is padding on a TPU; None if none were observed."""
    _, flops, padded = _matmuls(run)
    return 1 - flops / padded if padded else None


def _matmuls(run: DiagnosedRun) -> tuple[list[tuple[float, MatmulObserved]], float, float]:
    """The matrix multiplications with the operations that padding adds to each, all operations, and all of the padded
    ones."""
    flops = padded = 0.0
    matmuls: list[tuple[float, MatmulObserved]] = []
    for matmul in (matmul for program in run.evidence.programs.values() for matmul in program.matmuls or ()):
        own, whole = _flops(matmul)
        flops, padded = flops + own, padded + whole
        matmuls.append((whole - own, matmul))
    return matmuls, flops, padded


def _flops(matmul: MatmulObserved) -> tuple[float, float]:
    """The operations of a matrix multiplication, and those of the padded one."""
    times = 2.0 * max(0, matmul.batch) * max(0, matmul.count)
    m, k, n = (max(0, size) for size in (matmul.m, matmul.k, matmul.n))
    padded = float(_up(m, ROWS)) * _up(k, COLUMNS) * _up(n, COLUMNS)
    return times * m * k * n, times * padded


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def precision(run: DiagnosedRun) -> Iterator[Verdict]:
    """Training in float32, although the TPU multiplies bfloat16."""
    plan = run.snapshot.plan
    is_float32 = plan is not None and plan.precision == "fp32"
    matmuls = [matmul for program in run.evidence.programs.values() for matmul in program.matmuls or ()]
    flops = {matmul.dtype: 0.0 for matmul in matmuls}
    for matmul in matmuls:
        flops[matmul.dtype] += _flops(matmul)[0]
    total = sum(flops.values())
    share = flops.get("f32", 0.0) / total if total else None
    if share is not None and share < 0.5:
        return
    if not (is_float32 and run.is_on_tpu) and total < FLOPS_MIN:
        return
    evidence = [f"{share * 100:.0f} % of the matrix multiplications are float32"] if share is not None else []
    yield run.verdict(
        "precision",
        "training in float32 moves twice the bytes of bfloat16",
        status="hint",
        evidence=evidence or ["the plan of the run"],
        fix='try bfloat16: device.precision = "bf16", or torch.autocast("xla", dtype=torch.bfloat16)',
        change=run.change("device.precision", "bf16") if is_float32 else None,
    )
