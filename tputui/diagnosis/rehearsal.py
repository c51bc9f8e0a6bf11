"""`Rehearsal`: what a short run on virtual CPU cores shows about the same program on a TPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tputui.diagnosis import compile_rules
from tputui.diagnosis.diagnose import diagnose_rehearsal
from tputui.diagnosis.diagnosed_run import DiagnosedRun
from tputui.diagnosis.verdict import Verdict
from tputui.state.snapshot import Snapshot
from tputui.telemetry.events import ProgramMemory

GIB = 1 << 30
TPUS: Mapping[str, tuple[int, int]] = {
    "v2-8": (8, 8 * GIB),
    "v3-8": (8, 16 * GIB),
    "v4-8": (4, 32 * GIB),
    "v5e-8": (8, 16 * GIB),
    "v5p-8": (4, 95 * GIB),
    "v6e-8": (8, 32 * GIB),
}
"""Number of devices that a program sees, and the memory of each. The two TensorCores of a v4 or v5p chip are one."""
HEADROOM = 0.9
"""A program fits if it takes at most so much of the memory; the rest is working space of the compiler."""
INPUTS_SHOWN = 4
ONLY_ON_TPU = {
    "memory in use": "CPU cores have no HBM: the compiler of a TPU pads, fuses and reuses buffers in its own way",
    "collectives": "virtual cores share the memory of one host",
    "speed of steps": "CPU cores have no matrix units, so nothing here is compared with the time of a step",
    "speed of the loader": "virtual cores take the CPUs of the host from the loader",
}
"""What a rehearsal cannot judge, and why."""


class TpuFit(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a program fits into the memory of a kind of TPU."""

    tpu: str
    devices: int
    device_bytes: int
    share: float
    """Predicted memory as a share of a device's memory."""
    fits: bool


class PredictedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that training takes on one core of a TPU."""

    core_bytes: int | None
    source: str
    """How it was predicted, or why it is not available."""
    tpus: list[TpuFit] = []
    programs: list[ProgramNeeds] = []
    """Of each program, largest first, where its compiler states it."""


class ProgramNeeds(ProgramMemory, frozen=True, kw_only=True):
    """Memory of a program on one device, as the compiler of the CPU states it."""

    program: str


class ProgramShapes(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a compiled program on one core."""

    program: str
    inputs: list[str]
    operations: int | None


class Shapes(msgspec.Struct, frozen=True, kw_only=True):
    """Shapes, and how much of them is padding on a TPU. Null means not known."""

    batch_per_core: int | None = None
    global_batch: int | None = None
    programs: list[ProgramShapes] = []
    matmul_padding: float | None = None
    """Share of the matrix multiplications."""
    evaluation_padding: float | None = None
    """Share of the evaluated examples."""


class Tracing(msgspec.Struct, frozen=True, kw_only=True):
    """Time in which the host traces a step, and does not depend on the device."""

    step_s: float | None = None
    """Seconds per step on this host, at most: every call of torch is observed."""
    reason: str | None = None
    """Why it is not available."""


class NotJudged(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the rehearsal cannot answer."""

    what: str
    why: str


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a rehearsal."""

    runtimes: list[str]
    """What was observed: `torch_xla`, `jax`, `torch_compile`."""
    steps: int
    """Steps that were observed, at least; 0 if they cannot be counted."""
    findings: list[Verdict]
    hints: list[Verdict]
    ignored: list[Verdict]
    """Findings at lines with a comment `# tputui: ignore`."""
    shapes: Shapes
    tracing: Tracing
    memory: PredictedMemory
    not_judged: list[NotJudged]


class Baseline(msgspec.Struct, frozen=True):
    """What is read of the JSON of an earlier rehearsal."""

    findings: list[Verdict]
    problem: str | None = None


def new_findings(findings: Sequence[Verdict], known: Sequence[Verdict]) -> tuple[list[Verdict], int]:
    """The findings that are not known, and how many known ones were not found again. Each is known once."""
    left, new = list(known), []
    for finding in findings:
        same = next((one for one in left if _is_same(one, finding)), None)
        if same is None:
            new.append(finding)
        else:
            left.remove(same)
    return new, len(left)


def _is_same(known: Verdict, finding: Verdict) -> bool:
    """Whether rule, file and text of the line are the same: lines may move. Without a text, the function counts."""
    files = [(one.where or "").rpartition(":")[0] for one in (known, finding)]
    text = known.code == finding.code if known.code and finding.code else known.function == finding.function
    return known.rule == finding.rule and files[0] == files[1] and text


LATER_CODE = NotJudged(
    what="later code",
    why="the program was stopped after its steps; what follows, such as an evaluation, needs more: --steps K",
)

UNCOUNTED = NotJudged(
    what="number of steps",
    why="no step could be counted, so the report may cover few of them; call run.step() of tputui.start() in each",
)


def rehearsed(snapshot: Snapshot, memory: PredictedMemory, *, is_cut: bool) -> Rehearsal:
    """The report of a run that has ended. `is_cut`: it was stopped before its end, wherever it was."""
    run = DiagnosedRun.of(snapshot, is_rehearsal=True)
    verdicts = diagnose_rehearsal(snapshot)
    unanswered = [
        NotJudged(what=verdict.rule.replace("_", " "), why=verdict.text)
        for verdict in verdicts
        if verdict.status in ("not enough data yet", "not available")
    ]
    return Rehearsal(
        runtimes=runtimes_of(snapshot),
        steps=steps_of(snapshot),
        findings=[verdict for verdict in verdicts if verdict.status == "found"],
        hints=[verdict for verdict in verdicts if verdict.status == "hint"],
        ignored=[verdict for verdict in verdicts if verdict.status == "ignored"],
        shapes=_shapes(run),
        tracing=_tracing(run),
        memory=memory,
        not_judged=[LATER_CODE] * is_cut
        + [UNCOUNTED] * (not steps_of(snapshot))
        + unanswered
        + [NotJudged(what=what, why=why) for what, why in ONLY_ON_TPU.items()],
    )


def runtimes_of(snapshot: Snapshot) -> list[str]:
    """The runtimes that were observed."""
    evidence = snapshot.evidence
    seen: set[str] = {compiled.runtime for compiled in evidence.compiles}
    seen |= {program.runtime for program in evidence.programs.values()}
    seen |= {window.runtime for window in evidence.windows}
    return sorted(seen | {graph_break.runtime for graph_break in evidence.breaks})


def steps_of(snapshot: Snapshot) -> int:
    """Steps of a run: those that it reported, or those that its observers counted, which include evaluation."""
    evidence = snapshot.evidence
    if snapshot.plan is not None and snapshot.steps:
        return snapshot.steps
    return max(
        [snapshot.steps, *(window.steps for window in evidence.windows), *(sync.steps for sync in evidence.syncs)]
    )


def fits(core_bytes: int) -> list[TpuFit]:
    """Every kind of TPU, and whether its memory suffices."""
    return [
        TpuFit(
            tpu=name,
            devices=devices,
            device_bytes=device_bytes,
            share=core_bytes / device_bytes,
            fits=core_bytes <= HEADROOM * device_bytes,
        )
        for name, (devices, device_bytes) in TPUS.items()
    ]


def program_needs(snapshot: Snapshot) -> list[ProgramNeeds]:
    """Memory of each program whose compiler states it, largest first."""
    needs = [
        ProgramNeeds(program=one.program, **msgspec.structs.asdict(one.memory))
        for one in snapshot.evidence.programs.values()
        if one.memory is not None
    ]
    return sorted(needs, key=lambda one: -one.total_bytes)


def _shapes(run: DiagnosedRun) -> Shapes:
    plan, evidence = run.snapshot.plan, run.evidence
    programs = [
        ProgramShapes(
            program=program.program,
            inputs=[
                f"{spec.dtype}[{','.join(map(str, spec.shape))}]" for spec in (program.inputs or [])[:INPUTS_SHOWN]
            ],
            operations=program.num_operations,
        )
        for program in evidence.programs.values()
        if program.runtime != "jax"
    ]
    waste = None
    if plan is not None and plan.global_batch > 0 and plan.valid_examples > 0:
        padded = -(-plan.valid_examples // plan.global_batch) * plan.global_batch
        waste = 1 - plan.valid_examples / padded
    return Shapes(
        batch_per_core=plan.batch_per_core if plan is not None else None,
        global_batch=plan.global_batch if plan is not None else None,
        programs=programs,
        matmul_padding=compile_rules.padding_share(run),
        evaluation_padding=waste,
    )


def _tracing(run: DiagnosedRun) -> Tracing:
    epochs = run.snapshot.epochs
    traced_s = epochs[-1].sections_s.get("trace") if epochs else None
    steps = epochs[-1].step - (epochs[-2].step if len(epochs) > 1 else 0) if epochs else 0
    if traced_s is None or steps <= 0:
        return Tracing(reason="only training by the engine measures the time of tracing")
    return Tracing(step_s=traced_s / steps)
