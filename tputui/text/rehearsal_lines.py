"""The report of `tputui rehearse` as text."""

from __future__ import annotations

from collections.abc import Iterator

from tputui import formatting as fmt
from tputui.diagnosis.rehearsal import (
    GIB,
    ONLY_ON_TPU,
    PredictedMemory,
    ProgramShapes,
    Rehearsal,
    Shapes,
    TpuFit,
    Tracing,
)
from tputui.text import verdict_lines

PROGRAMS_SHOWN = 4
FAR_MORE = 2
"""From so many times the steps that were asked for on, the report says why there are more."""


def lines(report: Rehearsal) -> Iterator[str]:
    """Findings worst first, hints, shapes, padding, tracing, memory, and what was not judged."""
    yield from verdict_lines.blocks([*report.findings, *report.hints, *report.ignored])
    yield from _rows("shapes", _shapes(report.shapes))
    yield from _rows("padding", _padding(report.shapes))
    yield from _rows("tracing", [_tracing(report.tracing)])
    yield from _rows("memory", _memory(report.memory))
    yield from _rows("not judged", _not_judged(report))


def steps(report: Rehearsal, asked: int) -> str:
    """The number of steps; if they are far more than were asked for, with the reason: they run on until the program has
    ended, for longest in the threads of `torch_xla.launch`."""
    if not report.steps:
        return "steps that cannot be counted"
    counted = fmt.counted(report.steps, "step")
    if report.steps < FAR_MORE * asked:
        return counted
    return f"{counted} ({fmt.count(asked)} asked for; the others ran before the program ended)"


def _rows(title: str, rows: Iterator[str] | list[str]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"{title if number == 0 else '':<{verdict_lines.INDENT}}{row}"


def _shapes(shapes: Shapes) -> Iterator[str]:
    if shapes.batch_per_core is not None and shapes.global_batch is not None:
        batch = fmt.counted(shapes.batch_per_core, "example")
        yield f"{batch} per core and step, {fmt.count(shapes.global_batch)} in all"
    for program in shapes.programs[:PROGRAMS_SHOWN]:
        yield _program(program)
    if len(shapes.programs) > PROGRAMS_SHOWN:
        yield fmt.more(len(shapes.programs) - PROGRAMS_SHOWN, "program")
    if shapes.batch_per_core is None and not shapes.programs:
        yield "not available: the runtime does not report the inputs of its programs"


def _program(program: ProgramShapes) -> str:
    named = program.program and program.program != "<module>"
    name = f"`{program.program}`" if named else "a program"
    inputs = ", ".join(program.inputs) or "no inputs besides the weights"
    size = f" ({fmt.counted(program.operations, 'operation')})" if program.operations is not None else ""
    return f"{name} takes {inputs}{size}"


def _padding(shapes: Shapes) -> Iterator[str]:
    if shapes.matmul_padding is not None:
        yield f"{_percent(shapes.matmul_padding)} of the matrix multiplications are padding on a TPU (tiles of 8 x 128)"
    else:
        yield "of the matrix multiplications: not available, since no program was inspected"
    if shapes.evaluation_padding is not None:
        yield f"{_percent(shapes.evaluation_padding)} of the evaluated examples are padding"


def _tracing(tracing: Tracing) -> str:
    if tracing.step_s is None:
        return f"not available: {tracing.reason}"
    return (
        f"at most {fmt.duration(tracing.step_s)} per step on this host, with every call observed; "
        "a TPU that computes a step in less time waits for the host"
    )


def _memory(memory: PredictedMemory) -> Iterator[str]:
    if memory.core_bytes is None:
        yield f"not available: {memory.source}"
        return
    yield f"{fmt.size(memory.core_bytes)} per core, {memory.source}"
    for one in memory.programs[:PROGRAMS_SHOWN]:
        parts = {"arguments": one.arguments_bytes, "results": one.outputs_bytes, "temporary": one.temporary_bytes}
        listed = ", ".join(f"{name} {fmt.size(num_bytes)}" for name, num_bytes in parts.items() if num_bytes)
        yield f"`{one.program}` {fmt.size(one.total_bytes)}: {listed}"
    for title, are_fitting in (("fits", True), ("does not fit", False)):
        if tpus := [fit for fit in memory.tpus if fit.fits is are_fitting]:
            yield f"{title}: {', '.join(map(_fit, tpus))}"


def _fit(fit: TpuFit) -> str:
    return f"{fit.tpu} ({_percent(fit.share)} of {fit.device_bytes / GIB:g} GiB)"


def _not_judged(report: Rehearsal) -> Iterator[str]:
    """What is particular to this program, with the reason; what always needs a TPU, in one row."""
    yield from (f"{subject.what}: {subject.why}" for subject in report.not_judged if subject.what not in ONLY_ON_TPU)
    yield f"only a TPU shows: {', '.join(ONLY_ON_TPU)}"


def _percent(share: float) -> str:
    return "0 %" if share <= 0 else verdict_lines.percent(share)
