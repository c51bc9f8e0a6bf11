"""The cores of a run as the snapshot has them: newest values, conditions, and the cores that differ from the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

import msgspec

from tputui.state import core_series
from tputui.state import outlier as outliers
from tputui.state.aligned import COMBINED_MAX
from tputui.state.chart_data import CoreColumn, CoreValue, OutlierView, SlowCoreView
from tputui.state.combined_rows import CombinedRows
from tputui.state.liveness import Liveness
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import CoreCondition, CoreView
from tputui.state.step_values import rows_most
from tputui.state.time_spent import STEPPING, TimeView, lasts_s
from tputui.telemetry import float_blocks
from tputui.telemetry.events import Phase

_COLUMNS_JUDGED = 32
"""Number of newest columns searched for an outlier; more than needed to find one."""
_JUDGED_MAX = 12_288
"""Losses of steps or columns that are judged again in one frame, since they are others than before: 6 steps of 2,048
cores."""
_LAG_STEPS = 8
"""Steps by which reports of the hosts may differ without leaving too few steps that all of them have."""


def phase_of(worker: ProcessState, liveness: Liveness, now: float) -> tuple[Phase | None, float]:
    """The phase of a worker and its age in seconds: until `now` while it is alive, else until its last event.

    A script that trains in one phase makes progress with every step, so the age counts from the newest one.
    """
    beat = worker.beat
    if beat is None:
        return None, 0.0
    lives = worker.name in liveness.living and worker.training_ended is None and liveness.condition not in ENDED
    until = now if lives else worker.newest_t
    until = until if until is not None else beat.t
    lasted_s = lasts_s(beat, until)
    if beat.phase in STEPPING and worker.moved_t is not None:
        lasted_s = min(lasted_s, max(0.0, until - worker.moved_t))
    return beat.phase, lasted_s


def time_of(state: RunState, liveness: Liveness, now: float) -> TimeView | None:
    """Where the time of the first worker went: until `now` while it trains, else until the end of its training."""
    if not state.workers:
        return None
    worker = state.workers[0]
    phase, _ = phase_of(worker, liveness, now)
    ended = worker.training_ended
    lives = worker.name in liveness.living and liveness.condition not in ENDED
    until = ended.t if ended is not None else now if lives else worker.newest_t or now
    is_stalled = ended is None and liveness.condition == "stalled"
    stalled_s = until - (worker.moved_t or until) if is_stalled else 0.0
    return worker.time.view(until, phase if ended is None else None, stalled_s)


def cores_of(state: RunState, liveness: Liveness, now: float) -> list[CoreView]:
    """All cores that were declared or have values, in order."""
    ranks = {core: rank for rank in state.ranks if rank.topology for core in rank.topology.cores}
    timed = [(worker.name, worker.values.slow) for worker in state.workers if worker.values.slow.rows]
    key = tuple((name, slow.rows[-1].step) for name, slow in timed)
    times = state.memoized("compute times", key, lambda: {name: slow.medians() for name, slow in timed})
    views: list[CoreView] = []
    for worker in state.workers:
        views += _cores_of(worker, times.get(worker.name, ()), ranks, liveness, now)
    views.sort(key=attrgetter("core"))
    return views


def _cores_of(
    worker: ProcessState,
    times: Sequence[float],
    ranks: Mapping[int, ProcessState],
    liveness: Liveness,
    now: float,
) -> list[CoreView]:
    """The cores whose losses a worker records; condition and phase come from the process that drives the core."""
    newest = worker.values.newest.get("loss")
    row = worker.values.newest_row()
    num_columns = newest.cores if newest else 0
    declared = worker.topology.cores if worker.topology else []
    indices = worker.values.cores_of(num_columns) if num_columns else declared
    host = worker.opened.host if worker.opened else ""
    step, stepped = newest.first + newest.n - 1 if newest else 0, worker.stepped
    losses = row if row is not None else repeat(None)
    seconds = times if len(times) == num_columns > 0 else repeat(None)
    # Found once per process, since one may drive thousands of cores and this runs ten times a second.
    assessed: dict[str, tuple[CoreCondition, Phase | None, float]] = {}

    def does(process: ProcessState) -> tuple[CoreCondition, Phase | None, float]:
        if process.name not in assessed:
            condition = _core_condition(process, liveness, stepped=stepped)
            assessed[process.name] = (condition, *phase_of(process, liveness, now))
        return assessed[process.name]

    drivers = (does(ranks.get(core, worker)) for core in indices) if ranks else repeat(does(worker))
    return [
        CoreView(
            core=core,
            host=host,
            loss=loss,
            step=step,
            condition=condition,
            phase=phase,
            phase_s=phase_s,
            compute_s=compute_s,
        )
        for core, loss, compute_s, (condition, phase, phase_s) in zip(indices, losses, seconds, drivers, strict=False)
    ]


def _core_condition(worker: ProcessState, liveness: Liveness, *, stepped: bool) -> CoreCondition:
    if liveness.condition in ENDED or worker.training_ended is not None or worker.name not in liveness.living:
        return "ended"
    if worker.name in liveness.stalled:
        return "stalled"
    return "running" if stepped else "starting"


def core_columns(state: RunState, cores: Sequence[CoreView]) -> list[CoreColumn]:
    """The loss of each core, in order of steps."""
    writers = [(w, w.values.columns.width) for w in state.workers if w.values.columns.width]
    key = tuple((w.name, w.values.columns.version) for w, _ in writers)
    combined = _combined_columns(state)
    names = tuple((w.name, w.topology) for w, _ in writers)

    def combine() -> tuple[list[CoreColumn], bool]:
        parts = [(w.values.columns, w.values.cores_of(width)) for w, width in writers]
        columns = combined.of(parts, names, state.at_most(COMBINED_MAX, len(parts)))
        return sorted(columns, key=attrgetter("first_step")), combined.is_behind

    return _up_to_newest(state.memoized_in_parts("columns", key, combine), cores)


def outlier(state: RunState, core_columns: Sequence[CoreColumn]) -> OutlierView | None:
    """The core that deviates now, by the newest single steps, or else by the newest columns of the whole run."""
    writers = [w for w in state.workers if w.values.columns.width]
    caches = state.memoized(
        "outlier rows", None, lambda: (CombinedRows(), outliers.OutlierCache(), outliers.OutlierCache())
    )
    key = tuple((w.name, w.values.columns.version) for w in writers)

    def find() -> tuple[OutlierView | None, bool]:
        ahead = _combined_columns(state).ahead[-_COLUMNS_JUDGED:]
        judged_max = state.at_most(_JUDGED_MAX, sum(w.values.columns.width for w in writers))
        view = _outlier_of(writers, core_columns[-_COLUMNS_JUDGED:], ahead, *caches, judged_max)
        return view, "columns" in state.behind or any(cache.is_behind for cache in caches[1:])

    return state.memoized_in_parts("outlier", key, find)


def _combined_columns(state: RunState) -> core_series.CombinedColumns:
    return state.memoized("combined columns", None, core_series.CombinedColumns)


def _losses_of(columns: Sequence[CoreColumn]) -> list[outliers.Losses]:
    return [(column.first_step, column.last_step, column.num_steps, column.means) for column in columns]


def _outlier_of(
    writers: Sequence[ProcessState],
    newest: Sequence[CoreColumn],
    ahead: Sequence[CoreColumn],
    combined: CombinedRows,
    of_steps: outliers.OutlierCache,
    of_columns: outliers.OutlierCache,
    judged_max: int,
) -> OutlierView | None:
    # A host stores as many steps as if it were alone.
    most = rows_most(max(1, sum(w.values.columns.width for w in writers))) + _LAG_STEPS
    rows = [(w.values.recent_rows(), w.values.cores_of(w.values.columns.width)) for w in writers]
    recent = combined.of(rows, most)
    by_step = of_steps.find([(step, step, 1, means) for step, means in recent], changed_max=judged_max)
    by_column = of_columns.find(_losses_of(newest), _losses_of(ahead), judged_max)
    if by_step is None or by_column is None or by_step.core != by_column.core:
        return by_step or by_column
    return msgspec.structs.replace(by_step, first_step=min(by_step.first_step, by_column.first_step))


def slow_core(state: RunState) -> SlowCoreView | None:
    """The core that computes slower than the others now; of several processes the first one that has it."""
    return next((slow for worker in state.workers if (slow := worker.values.slow_core) is not None), None)


def compute_reason(state: RunState, config: Mapping[str, Any]) -> str | None:
    """Why the compute times of the cores are not known; None if they are, or before the first step."""
    topology = next((w.topology for w in state.workers if w.topology), None)
    has_times = any(worker.values.slow.rows for worker in state.workers)
    if topology is None or topology.num_cores < 2 or has_times or not any(w.values.series for w in state.workers):
        return None
    if topology.strategy in ("spmd", "single"):
        return f"not available under {topology.strategy}"
    if topology.strategy == "replica" and topology.device != "CPU":
        return f"not available on {topology.device} devices"
    optim = config.get("optim")
    accumulate = optim.get("accumulate") if isinstance(optim, dict) else None
    if topology.strategy == "replica" and isinstance(accumulate, int) and accumulate > 1:
        # The device still computes earlier batches of the update when a step begins.
        return f"not available with optim.accumulate = {accumulate:,}"
    return "not recorded"


def _up_to_newest(columns: list[CoreColumn], cores: Sequence[CoreView]) -> list[CoreColumn]:
    """The columns; if sampled, the newest step is added as a column of its own, provided that its values are known."""
    if not columns or not columns[-1].is_sampled:
        return columns
    last, steps = columns[-1], {core.step for core in cores}
    newest = [core.loss for core in cores if core.loss is not None]
    if len(newest) != len(last.means) or len(steps) != 1 or not last.middle < (step := steps.pop()) <= last.last_step:
        return columns
    means = float_blocks.float32(newest)
    bad = tuple(core for core, loss in enumerate(means) if not math.isfinite(loss))
    finite = [CoreValue(value=loss, core=core, step=step) for core, loss in enumerate(means) if math.isfinite(loss)]
    point = CoreColumn(
        first_step=step,
        last_step=step,
        means=means,
        bad_cores=bad,
        num_steps=1,
        middle=float(step),
        highest=max(finite, key=attrgetter("value"), default=None),
        lowest=min(finite, key=attrgetter("value"), default=None),
    )
    return [*columns[:-1], msgspec.structs.replace(last, last_step=step - 1), point]
