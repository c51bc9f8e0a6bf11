"""Evidence about what slows a run down, by line of the user's code: compilations, reads, fallbacks, programs, input.

Each process has its own, bounded in size however long the run. Seconds of several processes are not added up, because
they pass at the same time: a combined group is that of the process with the greatest loss.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar, get_args

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
    state_of,
    total,
)
from tputui.state.state_struct import Count, StateStruct
from tputui.state.step_times import STEPS_KEPT, TimedSteps, with_newest
from tputui.telemetry import events as ev

GROUPS_MAX = 256
"""Lines of each kind and rank that are counted separately; further ones are counted together, without a line."""
RANKS_MAX = 4_096
_STORED_MAX = GROUPS_MAX + 8
PROGRAMS_MAX = 32
UNSUPPORTED_MAX = 16
_SIZES_MAX, _DIMENSIONS_MAX, _STAGES_MAX = 64, 16, 16
_PHASE_MOST_S = 60.0
"""Longest time between two heartbeats that is attributed to their phases."""

Observed = (
    ev.CompileObserved
    | ev.SyncObserved
    | ev.FallbackObserved
    | ev.ObservationEnded
    | ev.ObservationFailed
    | ev.GraphBroken
    | ev.CompileLimitReached
    | ev.ProgramObserved
    | ev.DispatchesCounted
    | ev.InputStagesMeasured
    | ev.EvaluationModeSeen
)
OBSERVED: tuple[type[Observed], ...] = get_args(Observed)
"""The events that `Evidence.add` takes."""


GroupT = TypeVar("GroupT", CompileGroup, SyncGroup, FallbackGroup, BreakGroup, Windows)
SeenT = TypeVar("SeenT", SyncGroup, FallbackGroup)
RankedT = TypeVar("RankedT", SyncGroup, FallbackGroup, Windows)
_Groups = Annotated[list[GroupT], msgspec.Meta(max_length=_STORED_MAX)]


class Evidence(StateStruct):
    """The evidence of one process; or of all processes of a run, each group being that of the process that lost most by
    it."""

    compiles: _Groups[CompileGroup] = msgspec.field(default_factory=list)
    syncs: _Groups[SyncGroup] = msgspec.field(default_factory=list)
    fallbacks: _Groups[FallbackGroup] = msgspec.field(default_factory=list)
    breaks: _Groups[BreakGroup] = msgspec.field(default_factory=list)
    windows: _Groups[Windows] = msgspec.field(default_factory=list)
    programs: Annotated[dict[str, ev.ProgramObserved], msgspec.Meta(max_length=PROGRAMS_MAX)] = msgspec.field(
        default_factory=dict
    )
    unsupported: Annotated[list[ev.ObservationFailed], msgspec.Meta(max_length=UNSUPPORTED_MAX)] = msgspec.field(
        default_factory=list
    )
    """Packages that an observer could not attach to, and so what is not recorded."""
    dispatches: ev.DispatchesCounted | None = None
    """The newest steps whose calls were counted, or those of the process with most."""
    input: ev.InputStagesMeasured | None = None
    evaluated: ev.EvaluationModeSeen | None = None
    """One with layers in training mode, if there is one."""
    phases_s: dict[ev.Phase, Seconds] = msgspec.field(default_factory=dict)
    """Seconds by phase of the process, or of the first worker, as its heartbeats sampled them."""
    num_beats: Count = 0
    late_compiles: Count = 0
    """Compilations after warm-up by the runtime's counters."""
    late_compile_s: Seconds = 0.0
    """Time of the compilations after warm-up by the runtime's counters, at most."""
    times: Annotated[list[TimedSteps], msgspec.Meta(max_length=STEPS_KEPT + 1)] = msgspec.field(default_factory=list)
    """The newest steps, in order and without a gap."""
    revision: Count = 0
    """Number of events that changed it."""

    @property
    def groups(self) -> tuple[list[Any], ...]:
        return self.compiles, self.syncs, self.fallbacks, self.breaks, self.windows

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
            case ev.ObservationFailed():
                return self._add_unsupported(event)
            case ev.GraphBroken() | ev.CompileLimitReached():
                return self._add_break(event)
            case ev.ProgramObserved():
                return self._add_program(event)
            case ev.DispatchesCounted():
                return self._add_dispatches(event)
            case ev.InputStagesMeasured():
                return self._add_input(event)
            case ev.EvaluationModeSeen():
                return self._add_evaluated(event)

    def _add_compile(self, event: ev.CompileObserved, steps_done: int, epoch: int) -> bool:
        if event.count < 1 or not is_duration(event.seconds):
            return False
        step = event.step if event.step is not None and event.step > 0 else steps_done + 1 if steps_done else 0
        state = state_of(event.changed_inputs)
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
            num_missed=event.count if event.cached is False else 0,
            cached_s=(event.seconds or 0.0) if event.cached else 0.0,
            first_step=step,
            last_step=step,
            num_epochs=1,
            last_epoch=max(0, epoch),
            changes=None if event.changed_inputs is None else [_bounded_change(change) for change in
                                                               event.changed_inputs[:CHANGES_MAX]],
            states={state: step} if state else {},
            num_unnamed=0 if state else event.count,
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
            rank=event.rank,
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
            rank=event.rank,
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
            in_library=isinstance(event, ev.GraphBroken) and event.in_library,
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
            device=short(event.device),
            rank=event.rank,
        )
        return self._add(self.windows, window)

    def _add_unsupported(self, event: ev.ObservationFailed) -> bool:
        one = replace(
            event,
            package=short(event.package),
            version=short(event.version),
            missing=list(dict.fromkeys(event.missing)),
            reason=short(event.reason),
        )
        if len(self.unsupported) < len(unsupported := _without_repeats([*self.unsupported, one])):
            self.unsupported = unsupported
            self.revision += 1
        return True

    def _add_program(self, event: ev.ProgramObserved) -> bool:
        name = short(event.program)
        if name in self.programs or len(self.programs) < PROGRAMS_MAX:
            self.programs[name] = _bounded_program(event, name)
            self.revision += 1
        return True

    def _add_dispatches(self, event: ev.DispatchesCounted) -> bool:
        lines = event.lines[:_SIZES_MAX]
        counts = [n for one in lines for n in (one.count, one.num_bytes, one.samples or 0)]
        if event.steps < 1 or event.samples < 1 or min(counts, default=0) < 0:
            return False
        bounded = [
            replace(
                one,
                names=[short(name) for name in one.names[:_DIMENSIONS_MAX]],
                user_frame=one.user_frame and _bounded_frame(one.user_frame),
            )
            for one in lines
        ]
        self.dispatches = replace(event, program=short(event.program), lines=bounded)
        self.revision += 1
        return True

    def _add_input(self, event: ev.InputStagesMeasured) -> bool:
        if event.batches < 0 or not is_duration(event.waited_s) or not all(map(is_duration, event.stages_s.values())):
            return False
        stages = {short(name): seconds for name, seconds in list(event.stages_s.items())[:_STAGES_MAX]}
        self.input = replace(event, stages_s=stages)
        self.revision += 1
        return True

    def _add_evaluated(self, event: ev.EvaluationModeSeen) -> bool:
        if self.evaluated is None or (event.layers and not self.evaluated.layers):
            self.evaluated = replace(event, layers=short(event.layers), user_frame=_bounded_frame(event.user_frame))
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

    def add_times(self, event: ev.ProgressReported) -> None:
        if event.timed_steps or self.times:
            self.times = with_newest(self.times, event)
            self.revision += 1

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


def of_process(journals: Sequence[Evidence]) -> Evidence:
    """The evidence of one process from all of its journals."""
    if len(journals) == 1:
        return journals[0]
    whole = Evidence()
    for one in journals:
        for groups, further in zip(whole.groups, one.groups, strict=True):
            for group in further:
                whole._add(groups, group)
        whole.programs.update(one.programs)
        whole.unsupported = _without_repeats([*whole.unsupported, *one.unsupported])
        whole.input = one.input or whole.input
        whole.dispatches = one.dispatches or whole.dispatches
        whole.times = one.times or whole.times
        whole.evaluated = _with_layers(whole.evaluated, one.evaluated)
        if one.num_beats and not whole.num_beats:
            whole.phases_s, whole.num_beats = one.phases_s, one.num_beats
    # The counters of each journal are those of the process since it started.
    late = max(journals, key=lambda one: (one.late_compiles, one.late_compile_s))
    whole.late_compiles, whole.late_compile_s = late.late_compiles, late.late_compile_s
    whole.revision = sum(one.revision for one in journals)
    return whole


def combined(processes: Iterable[Evidence]) -> Evidence:
    """The evidence of several processes, in a fixed order."""
    found = list(processes)
    counters = max(found, key=lambda one: (one.late_compile_s, one.late_compiles), default=Evidence())
    waiting = [one.input for one in found if one.input is not None]
    first = next((one for one in found if one.num_beats), Evidence())
    counted = [one.dispatches for one in found if one.dispatches is not None]
    windows = _worst(found, lambda one: one.windows)
    programs = {name: program for one in reversed(found) for name, program in one.programs.items()}
    return Evidence(
        compiles=_with_totals(_worst(found, lambda one: one.compiles), found),
        syncs=_of_ranks(_observed(_worst(found, lambda one: one.syncs), windows)),
        fallbacks=_of_ranks(_observed(_worst(found, lambda one: one.fallbacks), windows)),
        breaks=_worst(found, lambda one: one.breaks),
        windows=_of_ranks(windows),
        unsupported=_without_repeats([item for one in found for item in one.unsupported]),
        programs={name: programs[name] for name in sorted(programs)},
        dispatches=max(counted, key=lambda one: sum(line.count for line in one.lines) / one.steps, default=None),
        input=max(waiting, key=lambda one: one.waited_s, default=None),
        times=next((one.times for one in found if one.times), []),
        evaluated=_with_layers(*(one.evaluated for one in found)),
        phases_s=first.phases_s.copy(),
        num_beats=first.num_beats,
        late_compiles=counters.late_compiles,
        late_compile_s=counters.late_compile_s,
        revision=sum(one.revision for one in found),
    )


def _with_layers(*seen: ev.EvaluationModeSeen | None) -> ev.EvaluationModeSeen | None:
    """The first one with layers in training mode, else the first one."""
    known = [one for one in seen if one is not None]
    return next((one for one in known if one.layers), known[0] if known else None)


def _without_repeats(failed: Iterable[ev.ObservationFailed]) -> list[ev.ObservationFailed]:
    """The first ones that differ in more than their time and runtime."""
    unique: dict[object, ev.ObservationFailed] = {}
    for one in failed:
        unique.setdefault((one.package, one.version, *one.missing, one.reason), one)
    return [*unique.values()][:UNSUPPORTED_MAX]


def _worst(found: list[Evidence], of: Callable[[Evidence], list[GroupT]]) -> list[GroupT]:
    """Every group, of the process with the greatest loss; the greatest first."""
    by_key: dict[object, GroupT] = {}
    for one in found:
        for group in of(one):
            known = by_key.get(group.key)
            if known is None or group.weight > known.weight:
                by_key[group.key] = group
    return sorted(by_key.values(), key=lambda group: (*(-part for part in group.weight), repr(group.key)))


def _observed(groups: list[SeenT], windows: list[Windows]) -> list[SeenT]:
    """The groups with the steps in which their rank was observed. Threads need not be in step."""
    steps: dict[tuple[str, int | None], int] = {}
    steps |= {(one.runtime, one.rank): one.steps for one in windows if one.rank is not None}
    return [replace(one, observed_steps=steps.get((one.runtime, one.rank), 0)) for one in groups]


def _of_ranks(groups: list[RankedT]) -> list[RankedT]:
    """The groups of all ranks as one: the numbers are those of the rank with most, since all train at the same time."""
    by_line: dict[object, list[RankedT]] = {}
    for group in groups:
        by_line.setdefault(replace(group, rank=None).key, []).append(group)
    found: list[RankedT] = []
    for same in by_line.values():
        ranks = sorted({one.rank for one in same if one.rank is not None})[:RANKS_MAX]
        found.append(replace(max(same, key=lambda one: one.of_one_rank), ranks=ranks))
    return found


def _with_totals(groups: list[CompileGroup], found: list[Evidence]) -> list[CompileGroup]:
    """The groups, with the number of their compilations in all processes."""
    counts: Counter[object] = Counter()
    for one in found:
        for group in one.compiles:
            counts[group.key] += group.count
    return [replace(group, total=min(counts[group.key], ev.INT_MAX)) for group in groups]


def _joined(groups: list[GroupT], item: GroupT) -> bool:
    for place, group in enumerate(groups):
        if group.key == item.key:
            groups[place] = group.join(item)
            return True
    return False


def _bounded_change(change: ev.ChangedInput) -> ev.ChangedInput:
    return ev.ChangedInput(name=short(change.name), before=short(change.before), now=short(change.now))


def _bounded_program(event: ev.ProgramObserved, name: str) -> ev.ProgramObserved:
    specs = None if event.inputs is None else _bounded_specs(event.inputs)
    matmuls = event.matmuls if event.matmuls is None else [_bounded_matmul(one) for one in event.matmuls[:_SIZES_MAX]]
    frame = event.user_frame and _bounded_frame(event.user_frame)
    unused = _bounded_specs(event.unused_donations)
    flops = event.flops if event.flops is not None and math.isfinite(event.flops) else None
    return replace(
        event, program=name, inputs=specs, matmuls=matmuls, flops=flops, user_frame=frame, unused_donations=unused
    )


def _bounded_specs(specs: Sequence[ev.TensorSpec]) -> list[ev.TensorSpec]:
    return [ev.TensorSpec(dtype=short(spec.dtype), shape=spec.shape[:_DIMENSIONS_MAX]) for spec in specs[:_SIZES_MAX]]


def _bounded_matmul(matmul: ev.MatmulObserved) -> ev.MatmulObserved:
    frame = matmul.user_frame and _bounded_frame(matmul.user_frame)
    return replace(matmul, dtype=short(matmul.dtype), user_frame=frame)


def _bounded_frame(frame: ev.CodeFrame) -> ev.CodeFrame:
    return replace(frame, file=frame.file[-PATH_MAX:], function=short(frame.function), code=frame.code[:PATH_MAX])
