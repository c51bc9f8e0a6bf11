"""Evidence about what slows a run down, by line of the user's code: compilations, reads, fallbacks, programs, input.

Each process has its own, bounded in size however long the run. Seconds of several processes are not added up, because
they pass at the same time: a combined group is that of the process with the greatest loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from tputui.state.evidence_groups import (
    CHANGES_MAX,
    PATH_MAX,
    BreakGroup,
    CompileGroup,
    FallbackGroup,
    Line,
    Seconds,
    SyncGroup,
    Windows,
    add,
    is_duration,
    short,
    total,
)
from tputui.state.state_struct import Count, StateStruct
from tputui.telemetry import events as ev

GROUPS_MAX = 64
"""Lines of each kind that are counted separately; further ones are counted together, without a line."""
_STORED_MAX = GROUPS_MAX + 8
PROGRAMS_MAX = 32
_SIZES_MAX, _DIMENSIONS_MAX, _STAGES_MAX = 64, 16, 16
_PHASE_MOST_S = 60.0
"""Longest time between two heartbeats that is attributed to their phases."""

Observed = (
    ev.CompileObserved
    | ev.SyncObserved
    | ev.FallbackObserved
    | ev.ObservationEnded
    | ev.GraphBroken
    | ev.CompileLimitReached
    | ev.ProgramObserved
    | ev.InputStagesMeasured
)
OBSERVED: tuple[type[Observed], ...] = get_args(Observed)
"""The events that `ProcessEvidence.add` takes."""


class InputStages(msgspec.Struct, frozen=True, kw_only=True):
    """Time that the loader spent on batches since its process started."""

    stages_s: dict[str, float]
    batches: int
    threads: int
    waited_s: float


class EvidenceView(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of all processes of a run. Each group is that of the process that lost most by it."""

    compiles: list[CompileGroup] = []
    syncs: list[SyncGroup] = []
    fallbacks: list[FallbackGroup] = []
    breaks: list[BreakGroup] = []
    windows: list[Windows] = []
    programs: list[ev.ProgramObserved] = []
    input: InputStages | None = None
    phases_s: dict[str, float] = {}
    """Seconds by phase of the first worker, as its heartbeats sampled them."""
    num_beats: int = 0
    late_compiles: int = 0
    """Compilations after warm-up by the runtime's counters."""
    late_compile_s: float = 0.0
    """Time of the compilations after warm-up by the runtime's counters, at most."""


GroupT = TypeVar("GroupT", CompileGroup, SyncGroup, FallbackGroup, BreakGroup, Windows)
_Groups = Annotated[list[GroupT], msgspec.Meta(max_length=_STORED_MAX)]


class ProcessEvidence(StateStruct):
    """The evidence of one process."""

    compiles: _Groups[CompileGroup] = msgspec.field(default_factory=list)
    syncs: _Groups[SyncGroup] = msgspec.field(default_factory=list)
    fallbacks: _Groups[FallbackGroup] = msgspec.field(default_factory=list)
    breaks: _Groups[BreakGroup] = msgspec.field(default_factory=list)
    windows: _Groups[Windows] = msgspec.field(default_factory=list)
    programs: Annotated[dict[str, ev.ProgramObserved], msgspec.Meta(max_length=PROGRAMS_MAX)] = msgspec.field(
        default_factory=dict
    )
    input: InputStages | None = None
    phases_s: dict[ev.Phase, Seconds] = msgspec.field(default_factory=dict)
    num_beats: Count = 0
    late_compiles: Count = 0
    late_compile_s: Seconds = 0.0
    revision: Count = 0
    """Number of events that changed it."""

    def add(self, event: Observed, steps_done: int, epoch: int) -> bool:
        """Adds an event; returns whether it makes sense. `epoch` is the running one, 0 if unknown."""
        match event:
            case ev.CompileObserved():
                return self._add_compile(event, steps_done, epoch)
            case ev.SyncObserved():
                return self._add_sync(event)
            case ev.FallbackObserved():
                return self._add_fallback(event)
            case ev.ObservationEnded():
                return self._add_window(event)
            case ev.GraphBroken() | ev.CompileLimitReached():
                return self._add_break(event)
            case ev.ProgramObserved():
                return self._add_program(event)
            case ev.InputStagesMeasured():
                return self._add_input(event)

    def _add_compile(self, event: ev.CompileObserved, steps_done: int, epoch: int) -> bool:
        if event.count < 1 or not is_duration(event.seconds):
            return False
        step = event.step if event.step is not None and event.step > 0 else steps_done + 1 if steps_done else 0
        group = CompileGroup(
            runtime=event.runtime,
            program=short(event.program),
            cause=event.cause,
            warm_up=event.warm_up,
            line=Line.of(event.user_frame, event.line_reason),
            count=event.count,
            seconds=event.seconds or 0.0,
            num_timed=event.count if event.seconds is not None else 0,
            num_cached=event.count if event.cached else 0,
            first_step=step,
            last_step=step,
            num_epochs=1,
            last_epoch=max(0, epoch),
            changes=None if event.changed_inputs is None else [_bounded_change(change) for change in
                                                               event.changed_inputs[:CHANGES_MAX]],
        )  # fmt: skip
        return self._add(self.compiles, group)

    def _add_sync(self, event: ev.SyncObserved) -> bool:
        if event.count < 1 or event.steps < 0 or event.compiled < 0:
            return False
        if not (is_duration(event.waited_s) and is_duration(event.window_s)):
            return False
        group = SyncGroup(
            runtime=event.runtime,
            operation=short(event.operation),
            line=Line.of(event.user_frame, event.line_reason),
            count=event.count,
            waited_s=event.waited_s,
            each_s=event.waited_s / event.count,
            compiled=event.compiled,
            steps=event.steps,
            window_s=event.window_s,
        )
        return self._add(self.syncs, group)

    def _add_fallback(self, event: ev.FallbackObserved) -> bool:
        if event.count < 1 or event.steps < 0 or (event.transfers or 0) < 0:
            return False
        if not (is_duration(event.seconds) and is_duration(event.window_s)):
            return False
        group = FallbackGroup(
            runtime=event.runtime,
            operator=short(event.operator),
            line=Line.of(event.user_frame, event.line_reason),
            count=event.count,
            transfers=event.transfers,
            seconds=event.seconds,
            each_s=None if event.seconds is None else event.seconds / event.count,
            steps=event.steps,
            window_s=event.window_s,
        )
        return self._add(self.fallbacks, group)

    def _add_break(self, event: ev.GraphBroken | ev.CompileLimitReached) -> bool:
        limit = event.limit if isinstance(event, ev.CompileLimitReached) else None
        count = event.count if isinstance(event, ev.GraphBroken) else 1
        changes = event.changed_inputs if isinstance(event, ev.CompileLimitReached) else None
        if count < 1 or (limit or 0) < 0:
            return False
        group = BreakGroup(
            runtime=event.runtime,
            program=short(event.program),
            line=Line.of(event.user_frame, event.line_reason),
            reason=short(event.reason or "no reason given") if isinstance(event, ev.GraphBroken) else "",
            limit=limit,
            count=count,
            changes=None if changes is None else [_bounded_change(change) for change in changes[:CHANGES_MAX]],
        )
        return self._add(self.breaks, group)

    def _add_window(self, event: ev.ObservationEnded) -> bool:
        if event.steps < 0 or not (is_duration(event.window_s) and is_duration(event.steady_step_s)):
            return False
        window = Windows(
            runtime=event.runtime,
            count=1,
            steps=event.steps,
            window_s=event.window_s,
            steady_step_s=event.steady_step_s,
            why=short(event.why),
            device=short(event.device),
        )
        return self._add(self.windows, window)

    def _add_program(self, event: ev.ProgramObserved) -> bool:
        name = short(event.program)
        if name in self.programs or len(self.programs) < PROGRAMS_MAX:
            self.programs[name] = _bounded_program(event, name)
            self.revision += 1
        return True

    def _add_input(self, event: ev.InputStagesMeasured) -> bool:
        if event.batches < 0 or not is_duration(event.waited_s) or not all(map(is_duration, event.stages_s.values())):
            return False
        stages = {short(name): seconds for name, seconds in list(event.stages_s.items())[:_STAGES_MAX]}
        self.input = InputStages(stages_s=stages, batches=event.batches, threads=event.threads, waited_s=event.waited_s)
        self.revision += 1
        return True

    def add_beat(self, before: ev.HeartbeatSent | None, event: ev.HeartbeatSent) -> None:
        """Attributes the time since the heartbeat before to the phases of both."""
        since = event.t - before.t if before is not None else 0.0
        if before is None or not 0.0 < since <= _PHASE_MOST_S:
            return
        own = min(max(event.phase_s, 0.0), since) if math.isfinite(event.phase_s) else 0.0
        for phase, seconds in ((before.phase, since - own), (event.phase, own)):
            self.phases_s[phase] = total(self.phases_s.get(phase, 0.0), seconds)
        self.num_beats += 1

    def add_counters(self, before: ev.XlaMetricsRead | None, event: ev.XlaMetricsRead) -> None:
        """Adds the compilations after warm-up since the counters before. Counters that fell began anew."""
        late, all_s = event.recompiles, event.compile_s
        compiles = event.compiles
        if before is not None and before.compiles <= event.compiles:
            late, all_s = late - before.recompiles, all_s - before.compile_s
            compiles -= before.compiles
        if late <= 0 or compiles <= 0 or not is_duration(all_s):
            return
        self.late_compiles = add(self.late_compiles, late)
        self.late_compile_s = total(self.late_compile_s, all_s * min(1.0, late / compiles))
        self.revision += 1

    def _add(self, groups: list[GroupT], item: GroupT) -> bool:
        self.revision += 1
        if not _joined(groups, item):
            if len(groups) < GROUPS_MAX:
                groups.append(item)
            elif not _joined(groups, rest := item.without_line()) and len(groups) < _STORED_MAX:
                groups.append(rest)
        return True


def combined(processes: Iterable[ProcessEvidence]) -> EvidenceView:
    """The evidence of several processes, in a fixed order."""
    found = list(processes)
    counters = max(found, key=lambda one: (one.late_compile_s, one.late_compiles), default=ProcessEvidence())
    waiting = [one.input for one in found if one.input is not None]
    first = next((one for one in found if one.num_beats), ProcessEvidence())
    programs = {name: program for one in reversed(found) for name, program in one.programs.items()}
    return EvidenceView(
        compiles=_worst(found, lambda one: one.compiles),
        syncs=_worst(found, lambda one: one.syncs),
        fallbacks=_worst(found, lambda one: one.fallbacks),
        breaks=_worst(found, lambda one: one.breaks),
        windows=_worst(found, lambda one: one.windows),
        programs=[programs[name] for name in sorted(programs)],
        input=max(waiting, key=lambda one: one.waited_s, default=None),
        phases_s={str(phase): seconds for phase, seconds in first.phases_s.items()},
        num_beats=first.num_beats,
        late_compiles=counters.late_compiles,
        late_compile_s=counters.late_compile_s,
    )


def _worst(found: list[ProcessEvidence], of: Callable[[ProcessEvidence], list[GroupT]]) -> list[GroupT]:
    """Every group, of the process with the greatest loss; the greatest first."""
    by_key: dict[object, GroupT] = {}
    for one in found:
        for group in of(one):
            known = by_key.get(group.key)
            if known is None or group.weight > known.weight:
                by_key[group.key] = group
    return sorted(by_key.values(), key=lambda group: (*(-part for part in group.weight), repr(group.key)))


def _joined(groups: list[GroupT], item: GroupT) -> bool:
    for place, group in enumerate(groups):
        if group.key == item.key:
            groups[place] = group.join(item)
            return True
    return False


def _bounded_change(change: ev.ChangedInput) -> ev.ChangedInput:
    return ev.ChangedInput(name=short(change.name), before=short(change.before), now=short(change.now))


def _bounded_program(event: ev.ProgramObserved, name: str) -> ev.ProgramObserved:
    specs = event.inputs if event.inputs is None else [
        ev.TensorSpec(dtype=short(spec.dtype), shape=spec.shape[:_DIMENSIONS_MAX]) 
        for spec in event.inputs[:_SIZES_MAX]
    ]  # fmt: skip
    matmuls = event.matmuls if event.matmuls is None else [_bounded_matmul(one) for one in event.matmuls[:_SIZES_MAX]]
    flops = event.flops if event.flops is not None and math.isfinite(event.flops) else None
    return replace(event, program=name, inputs=specs, matmuls=matmuls, flops=flops)


def _bounded_matmul(matmul: ev.MatmulObserved) -> ev.MatmulObserved:
    frame = matmul.user_frame
    if frame is not None:
        frame = replace(frame, file=frame.file[-PATH_MAX:], function=short(frame.function))
    return replace(matmul, dtype=short(matmul.dtype), user_frame=frame)
