"""Throughput, time remaining, meters, memory and XLA counters over time, combined from the states of all processes."""

from __future__ import annotations

import math

from tputui.logs.tags import is_of_xla
from tputui.state.chart_data import LoggedView, MemoryPoint, ThroughputView, XlaPoint
from tputui.state.combined_history import combined_memory, combined_xla
from tputui.state.logged_series import LoggedSeries, combined_view
from tputui.state.process_history import PaceHistory, ReportPace
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.snapshot import PlanView
from tputui.state.state_struct import Converted
from tputui.state.steady_pace import steady_pace
from tputui.state.xla_view import is_used
from tputui.telemetry.events import EpochEnded, ProgressReported, Split
from tputui.telemetry.logged_values import LOSS


def throughput(
    state: RunState, plan: PlanView | None, epochs: list[EpochEnded], now: float, *, going_on: bool
) -> ThroughputView | None:
    """Throughput, by the first host with reports; None before its first report."""
    first = next((process for process in state.workers if process.pace.num_reports), None)
    if first is None or first.progress is None:
        return None
    pace = first.pace
    key = first.name, pace.history.version
    p50, p95 = state.memoized("pace", key, lambda: (pace.quantile(0.5), pace.quantile(0.95)))
    history = state.memoized("throughput points", first.name, lambda: Converted(ReportPace.to_point)).of(
        pace.history.items
    )
    steady = state.memoized(
        "steady pace", key, lambda: steady_pace([(point.step_s, point.examples_per_s) for point in history])
    )
    return ThroughputView(
        examples_per_s=_speed_now(pace, first.progress)[1],
        steady_step_s=steady.step_s if steady is not None else p50,
        steady_examples_per_s=steady.examples_per_s if steady is not None else math.nan,
        step_p50_s=p50,
        step_p95_s=p95,
        num_reports=pace.num_reports,
        history=history,
        eta_epoch_s=eta_epoch_s(state, plan, epochs, now) if going_on else None,
    )


def speed_now(state: RunState) -> tuple[float, float] | None:
    """Seconds per step and examples per second by the reports of the last 10 s of the first host with reports; None
    before its first report."""
    first = next((process for process in state.workers if process.progress), None)
    return _speed_now(first.pace, first.progress) if first is not None and first.progress is not None else None


def _speed_now(pace: PaceHistory, newest: ProgressReported) -> tuple[float, float]:
    reports = pace.now()
    # Without one the only report has a time that makes no sense.
    point = reports.to_point() if reports is not None else newest
    return point.step_s, point.examples_per_s


def eta_s(state: RunState, plan: PlanView | None, epochs: list[EpochEnded], now: float) -> float | None:
    """Seconds from `now` to the end of training, by the expected step time and the mean time of an epoch's end."""
    anchored = _anchored(state, plan, epochs)
    if plan is None or not plan.total_steps or anchored is None:
        return None
    pace, anchor = anchored
    done = state.steps_done
    ends_left = plan.num_epochs - max((view.epoch for view in epochs), default=0)
    left = max(0, plan.total_steps - done) * pace + max(0, ends_left) * _end_s(epochs)
    return max(0.0, left - _worked_off_s(state, epochs, pace, now - anchor))


def eta_epoch_s(state: RunState, plan: PlanView | None, epochs: list[EpochEnded], now: float) -> float | None:
    """Seconds from `now` to the end of the running epoch, estimated in the same way; None between two epochs."""
    anchored = _anchored(state, plan, epochs)
    if plan is None or anchored is None:
        return None
    pace, anchor = anchored
    done = state.steps_done
    epoch = max((w.epoch_started.epoch for w in state.workers if w.epoch_started), default=0)
    if any(view.epoch == epoch for view in epochs) or not epoch:
        return None
    if not (plan.num_epochs and plan.steps_per_epoch):
        return None
    left = max(0, epoch * plan.steps_per_epoch - done) * pace + _end_s(epochs)
    return max(0.0, left - _worked_off_s(state, epochs, pace, now - anchor))


def newest_progress(state: RunState) -> ProgressReported | None:
    """Newest report of the first host with reports."""
    return next((w.progress for w in state.workers if w.progress), None)


def memory(state: RunState) -> list[MemoryPoint]:
    processes = [process for process in state.in_order if process.usage.items]
    key = tuple((process.name, process.usage.version) for process in processes)
    combined = state.memoized("combined memory", [process.name for process in processes], combined_memory)
    return state.memoized("memory", key, lambda: combined.of([process.usage for process in processes]))


def xla(state: RunState) -> list[XlaPoint]:
    """Counters of the XLA runtime of all processes over time."""
    journals = [(owner, journal) for owner, of_owner in enumerate(xla_journals(state)) for journal in of_owner]
    key = tuple((owner, journal.name, journal.xla_history.version) for owner, journal in journals)
    owners = [owner for owner, _ in journals]
    names = [(owner, journal.name) for owner, journal in journals]
    combined = state.memoized("combined xla", names, lambda: combined_xla(owners))
    return state.memoized("xla", key, lambda: combined.of([journal.xla_history for _, journal in journals]))


def xla_journals(state: RunState) -> list[list[ProcessState]]:
    """The journals with counters of the XLA runtime, by process: those of processes that lead their host and have used
    the runtime. Counters are totals of a process, so of its journals the newest reading counts."""
    began_t = state.generation_t
    used: list[list[ProcessState]] = []
    for journals in state.trainers:
        counting = [journal for journal in journals if journal.xla is not None and is_used(journal.xla)]
        if not counting or journals[0].role == "rank":
            continue
        # Of a process before the newest restart only the journal of its observers is left.
        if journals[0].role != "observer" or max(journal.newest_t or 0.0 for journal in journals) >= began_t:
            used.append(counting)
    return used


def _anchored(state: RunState, plan: PlanView | None, epochs: list[EpochEnded]) -> tuple[float, float] | None:
    """Expected seconds per step, and the unix time up to which the finished steps are known."""
    progress = newest_progress(state)
    # The first report contains one-time work, such as the first execution of each program.
    first = next((w for w in state.workers if w.pace.num_reports > 1), None)
    if plan is None or progress is None or first is None:
        return None
    pace = state.memoized("lasting pace", (first.name, first.pace.history.version), first.pace.lasting_s)
    ends = [w.epochs[view.epoch].t for view in epochs[-1:] for w in state.workers if view.epoch in w.epochs]
    return pace, max([progress.t, *ends])


def _worked_off_s(state: RunState, epochs: list[EpochEnded], pace: float, silent_s: float) -> float:
    """Seconds of work assumed to be finished since the newest report.

    At most two reports and the end of an epoch: a run that compiles or hangs comes no nearer to its end.
    """
    progress = newest_progress(state)
    report_s = progress.report_steps * pace if progress is not None else 0.0
    return min(max(0.0, silent_s), 2 * max(0.0, report_s) + _end_s(epochs))


def _end_s(epochs: list[EpochEnded]) -> float:
    """Mean seconds at the end of an epoch: evaluation without its compilations, and the save."""
    ends = [view.sections_s.get("evaluate", view.valid_s) + view.sections_s.get("save", 0.0) for view in epochs]
    known = [end for end in ends if not math.isnan(end)]
    return sum(known) / len(known) if known else 0.0


def logged(state: RunState) -> list[LoggedView]:
    """The metrics that the script logged itself, those of XLA last; of one that several processes log, the mean.

    What was read from the output of a script whose steps are known otherwise has its source in the names that are
    taken: two sources never share a series.
    """
    key = tuple((process.name, process.logged.version) for process in (*state.workers, *state.read_logs))
    return state.memoized("logged", key, lambda: _logged(state))


def _logged(state: RunState) -> list[LoggedView]:
    by_name: dict[tuple[str, Split], list[LoggedSeries]] = {}
    for worker in state.workers:
        for name, split, series in worker.logged.items():
            by_name.setdefault((name, split), []).append(series)
    taken = {*by_name, (LOSS, "train")}
    for process in state.read_logs:
        for name, split, series in process.logged.items():
            shown = f"{name} ({series.source})" if (name, split) in taken else name
            by_name.setdefault((shown, split), []).append(series)
    views = [combined_view(name, split, parts) for (name, split), parts in by_name.items()]
    return sorted(views, key=lambda view: is_of_xla(view.name))
