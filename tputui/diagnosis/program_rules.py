"""Rules about compiled programs: what the next start would save, and inputs that take more memory than they need.

Rules about what each step of JAX gives the device outside of compiled functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from tputui import formatting as fmt
from tputui.diagnosis.diagnosed_run import DiagnosedRun
from tputui.diagnosis.verdict import Verdict, VerdictStatus
from tputui.state.evidence_groups import CompileGroup, Line
from tputui.telemetry.events import DispatchedCalls, DispatchesCounted, ProgramObserved, Runtime, TensorSpec

CACHED_FROM_S = 60.0
"""Seconds of compilation from which a persistent cache is worth its set-up."""
REPLICATED_BYTES = 1 << 30
"""Copies on each device that are worth a hint if other inputs are split; without such, ..."""
ALL_REPLICATED_BYTES = 1 << 16
"""... from so few bytes on: constants and counters are no batch."""
DONATED_BYTES = 1 << 10
"""Bytes of unusable donations that are worth a hint: not those of a counter."""
_CACHES: tuple[tuple[Runtime, str], ...] = (
    ("torch_xla", "set XLA_PERSISTENT_CACHE_PATH to a directory that stays, or call xr.initialize_cache(path)"),
    ("jax", "set JAX_COMPILATION_CACHE_DIR to a directory that stays, or jax.config jax_compilation_cache_dir"),
)
"""How to give each runtime a persistent cache."""
_BITS = 8
_DIGITS = "0123456789"


def compile_cache(run: DiagnosedRun) -> Iterator[Verdict]:
    """More than a minute of compilations that a persistent cache would spare the next start."""
    for runtime, fix in _CACHES:
        groups = [one for one in run.evidence.compiles if one.runtime == runtime and one.warm_up]
        missed = [one for one in groups if one.num_missed]
        seconds = math.fsum(one.seconds - one.cached_s for one in groups)
        if seconds < CACHED_FROM_S:
            continue
        longest = max(groups, key=lambda one: one.seconds)
        if missed:
            evidence = "its keys are the program, the versions of the compiler and its flags: if all are the same, the "
            evidence += "next start finds what this one has written"
            text = f"the persistent cache had not {_programs(missed)}: {fmt.duration(seconds)} in the compiler"
            yield run.verdict("compile_cache", text, status="hint", evidence=[evidence], line=longest.line, fix=fix)
        elif not any(one.num_cached for one in groups):
            text = f"{_programs(groups)} compiled in {fmt.duration(seconds)} without a persistent cache"
            evidence = "the next start with the same programs would save this time"
            yield run.verdict("compile_cache", text, lost_s=seconds, evidence=[evidence], line=longest.line, fix=fix)


def _programs(groups: list[CompileGroup]) -> str:
    return fmt.counted(sum(one.count for one in groups), "program")


def donations(run: DiagnosedRun) -> Iterator[Verdict]:
    """Inputs that a program of JAX may overwrite but cannot."""
    for program in run.evidence.programs.values():
        num_bytes = sum(map(bytes_of, program.unused_donations))
        if num_bytes < DONATED_BYTES:
            continue
        inputs = ", ".join(f"{spec.dtype}{spec.shape}".replace(" ", "") for spec in program.unused_donations[:4])
        yield run.verdict(
            "donation",
            f"{fmt.size(num_bytes)} of donated inputs of `{program.program}` cannot be reused",
            line=_line(program),
            status="hint",
            evidence=[f"no result has the type and shape of {inputs}"],
            fix="donate only what is returned in the same type and shape, such as weights and optimizer state",
        )


def replicated_inputs(run: DiagnosedRun) -> Iterator[Verdict]:
    """Programs on several devices whose inputs each of them has a whole copy of."""
    for program in run.evidence.programs.values():
        num_bytes, devices = program.replicated_bytes, program.num_devices
        if program.is_replicated and num_bytes >= ALL_REPLICATED_BYTES:
            yield run.verdict(
                "replicated",
                f"`{program.program}` computes the same on all {devices} devices",
                line=_line(program),
                status="hint",
                evidence=[f"all of its inputs, {fmt.size(num_bytes)}, are whole copies on each of them"],
                fix='split the batch: jax.device_put(batch, NamedSharding(mesh, PartitionSpec("data")))',
            )
        elif num_bytes >= REPLICATED_BYTES:
            yield run.verdict(
                "replicated",
                f"each of {devices} devices has a whole copy of {fmt.size(num_bytes)} of inputs of `{program.program}`",
                line=_line(program),
                status="hint",
                evidence=[f"split over the devices they take {fmt.size(num_bytes / devices)} on each"],
                fix="split weights and the optimizer's state along a dimension of the mesh (FSDP)",
            )


def bytes_of(spec: TensorSpec) -> int:
    """Size of a tensor; 0 if its type says none, as that of a key of random numbers."""
    digits = spec.dtype[len(spec.dtype.rstrip(_DIGITS)) :]
    width = int(digits) if digits else _BITS * (spec.dtype in ("bool", "pred"))
    return math.prod(spec.shape) * width // _BITS if all(size >= 0 for size in spec.shape) else 0


def _line(program: ProgramObserved) -> Line:
    return Line.of(program.user_frame, None)


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
