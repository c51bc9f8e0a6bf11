"""What changes in the state of a process when another one takes its place and continues its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tputui.state.host_reports import REASON_CHARS_MAX, ReportedFailure, Restart
from tputui.state.process_history import XlaHistory
from tputui.telemetry.process_end import FOLLOWING

if TYPE_CHECKING:
    from tputui.state.process_state import ProcessState
    from tputui.telemetry.events import FailureReported, JournalOpened, WorkerStarted

_UNREPORTED = "without an error report"
"""End of messages of supervisors that contain the signal or the exit code."""


def restart(state: ProcessState, event: JournalOpened) -> None:
    """Forgets what belongs to the process that ended; its curves stay until the first step of the new one is known."""
    failure, beat = state.failure, state.beat
    # Steps are reported together; the newest ones may have been only in heartbeats.
    newest_step = max(state.steps_done, beat.step if beat is not None else 0)
    begun = Restart(event.generation, event.t, newest_step)
    if failure is not None:
        begun = replace(begun, reason=_shortened(f"{failure.error}: {failure.message}"), failed_t=failure.t)
    state.reports.restarted(begun)
    times = [beat.t] if beat is not None else []
    state.time.restarted(max([*times, state.moved_t or 0.0]))
    text = f"the training processes were restarted (restart {event.generation})"
    state.log.marks.add("restart", event.t, state.steps_done, text)
    if state.index == 0 and event.role == "worker":
        state.log.add_line(event.t, text, "warning")
    state.beat = state.progress = state.moved_t = state.failure = state.xla = None
    state.rank_exits, state.xla_history = [], XlaHistory()


def cut(state: ProcessState, first_step: int) -> None:
    """Removes what was recorded of `first_step` and later ones, which are trained again."""
    began_t = state.first_t if state.time.began_t is None else state.time.began_t
    kept_t = state.values.time_of(first_step - 1) if first_step > 1 else began_t
    state.reports.planned(first_step, kept_t)
    state.values.cut(first_step)
    state.pace.cut(first_step)
    state.time.cut(first_step)
    state.epoch_starts.keep(lambda start: start.first_step < first_step)
    for points in state.meter_history.values():
        points.keep(lambda point: point.step < first_step)
    state.num_meter_reports += 1
    state.meters = {split: event for split, event in state.meters.items() if event.step < first_step}
    state.epochs = {number: event for number, event in state.epochs.items() if event.step < first_step}
    state.epoch_started, state.steps_done = None, max(first_step - 1, 0)
    # They were not in a checkpoint, so they are trained and reported again.
    state.dropped_steps -= min(state.dropped_steps, state.reports.unread_steps)
    state.reports.unread_steps = 0


def started(state: ProcessState, event: WorkerStarted) -> None:
    """A supervisor recorded that the training process of its host was started; if again, with the failure before."""
    begun, reported = state.worker_started, state.failure_reported
    if begun is not None:
        before = state.reports.restarts
        again = Restart(before[-1].number + 1 if before else 1, event.t, state.steps_done)
        if reported is not None and reported.t >= begun.t and reported.error not in FOLLOWING:
            place = _shortened(reported.other_host or "") or None
            again = replace(again, reason=_sentence(reported), failed_t=reported.t, other_host=place)
        state.reports.restarted(again)
        # Of an earlier generation, even if a supervisor that was held up reported it after this one had begun.
        state.failure_reported = None
    state.worker_started = event


def failure_reported(state: ProcessState, event: FailureReported) -> None:
    """A supervisor reported the first failure of a generation."""
    state.failure_reported = event
    if event.error not in FOLLOWING:
        state.reports.failed(ReportedFailure(event.t, _sentence(event)))


def _sentence(reported: FailureReported) -> str:
    """`SIGKILL: the kernel ...`."""
    message = _shortened(reported.message)
    return message if message.endswith(_UNREPORTED) else _shortened(f"{reported.error}: {message}")


def _shortened(text: str) -> str:
    return text.partition("\n")[0][:REASON_CHARS_MAX]
