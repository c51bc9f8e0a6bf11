"""How a run went over time: throughput, meters, memory, combined from what the writers told. Pure."""

from __future__ import annotations

from tputui.state import memory_history
from tputui.state.chart_data import MemoryPoint, MeterPoint, ThroughputView
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.snapshot import EpochView, Plan
from tputui.telemetry.events import ProgressReported


def throughput(
    state: RunState, plan: Plan | None, epochs: list[EpochView], now: float, *, going_on: bool
) -> ThroughputView | None:
    """How fast training goes, by the first host that reports; None before its first report."""
    first = next((writer for writer in state.workers if writer.pace.num_reports), None)
    if first is None or first.progress is None:
        return None
    pace = first.pace
    p50, p95, history = state.memoized(
        "pace", (first.name, pace.num_reports), lambda: (pace.quantile(0.5), pace.quantile(0.95), pace.points())
    )
    examples_a_step = plan.global_batch if plan else first.progress.examples_per_s * first.progress.step_s
    return ThroughputView(
        examples_per_s=first.progress.examples_per_s,
        steady_examples_per_s=examples_a_step / p50,
        step_p50_s=p50,
        step_p95_s=p95,
        num_reports=pace.num_reports,
        history=history,
        eta_epoch_s=eta_epoch_s(state, plan, epochs, now) if going_on else None,
    )


def eta_s(state: RunState, plan: Plan | None, epochs: list[EpochView], now: float) -> float | None:
    """Seconds from `now` to the end of training, at the lasting step time and the mean cost of an epoch's end."""
    anchored = _anchored(state, plan, epochs)
    if plan is None or anchored is None:
        return None
    pace, anchor = anchored
    done = max(w.steps_done for w in state.workers)
    ends_left = plan.num_epochs - max((view.epoch for view in epochs), default=0)
    left = max(0, plan.total_steps - done) * pace + max(0, ends_left) * _end_s(epochs)
    return max(0.0, left - _worked_off_s(state, epochs, pace, now - anchor))


def eta_epoch_s(state: RunState, plan: Plan | None, epochs: list[EpochView], now: float) -> float | None:
    """Seconds from `now` to the end of the epoch in training, told in the same way; None between two epochs."""
    anchored = _anchored(state, plan, epochs)
    if plan is None or anchored is None:
        return None
    pace, anchor = anchored
    done = max(w.steps_done for w in state.workers)
    epoch = max((w.epoch_started.epoch for w in state.workers if w.epoch_started), default=0)
    if any(view.epoch == epoch for view in epochs) or not epoch:
        return None
    left = max(0, epoch * plan.steps_per_epoch - done) * pace + _end_s(epochs)
    return max(0.0, left - _worked_off_s(state, epochs, pace, now - anchor))


def newest_progress(state: RunState) -> ProgressReported | None:
    """The newest word of the first host that reports."""
    return next((w.progress for w in state.workers if w.progress), None)


def meters(state: RunState) -> list[MeterPoint]:
    """AverageMeters over time, by the first host that tells them."""
    first = next((writer for writer in state.workers if writer.meter_history), None)
    if first is None:
        return []
    count = first.num_meter_reports
    return state.memoized("meters", (first.name, count), lambda: _meter_points(first))


def memory(state: RunState) -> list[MemoryPoint]:
    """Memory over time, of all hosts."""
    writers = [writer for writer in state.in_order if writer.usage.count]
    key = tuple((writer.name, writer.usage.count) for writer in writers)
    return state.memoized("memory", key, lambda: memory_history.combined([writer.usage for writer in writers]))


def _meter_points(writer: ProcessState) -> list[MeterPoint]:
    points = [point for of_split in writer.meter_history.values() for point in of_split.items]
    return sorted(points, key=lambda point: (point.epoch, point.split, point.step))


def _anchored(state: RunState, plan: Plan | None, epochs: list[EpochView]) -> tuple[float, float] | None:
    """Seconds a step to expect, and the moment as of which the steps done were told."""
    progress = newest_progress(state)
    # The first report has in it what is done once, such as the first execution of each program.
    first = next((w for w in state.workers if w.pace.num_reports > 1), None)
    if plan is None or progress is None or first is None:
        return None
    pace = state.memoized("lasting pace", (first.name, first.pace.num_reports), first.pace.lasting_s)
    told = [w.epochs[view.epoch].t for view in epochs[-1:] for w in state.workers if view.epoch in w.epochs]
    return pace, max([progress.t, *told])


def _worked_off_s(state: RunState, epochs: list[EpochView], pace: float, silent_s: float) -> float:
    """How much of what was left is taken to be done since, until the next report tells.

    No more than two reports' worth with an epoch's end: a run that compiles or hangs comes no nearer to its end.
    """
    progress = newest_progress(state)
    report_s = progress.report_steps * pace if progress is not None else 0.0
    return min(max(0.0, silent_s), 2 * max(0.0, report_s) + _end_s(epochs))


def _end_s(epochs: list[EpochView]) -> float:
    """What the end of an epoch takes: evaluation, without what was compiled for it, and save."""
    ends = [view.sections_s.get("evaluate", view.valid_s) + view.sections_s.get("save", 0.0) for view in epochs]
    return sum(ends) / len(ends) if ends else 0.0
