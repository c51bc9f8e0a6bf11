"""Log lines, warnings and timeline marks of one process.

One method per event type that is logged, chosen by the table at the end; `process_state` reduces the numbers. All lists
are bounded. No files and no clock here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec

from tputui import formatting as fmt
from tputui.state.chart_data import AlertView, Mark, MarkKind
from tputui.state.snapshot import LogLine
from tputui.state.state_struct import METRICS_MAX, Count, Metric, Recent, StateStruct
from tputui.telemetry import events as ev
from tputui.telemetry.events import StepsRecorded, XlaMetricsRead

LOG_LINES_MAX = 2_000
LOG_CHARS_MAX = 4_000
WARNINGS_MAX = 256
ALERTS_MAX = 64
"""Newest alerts that are stored."""
TRACES_MAX = 64
"""Newest profiles that are stored."""
_TARGETS_MAX = 32
TOOL = "tputui"
"""Source of lines that tputui itself writes."""

Level = Literal["info", "warning", "error"]
Text = Annotated[str, msgspec.Meta(max_length=LOG_CHARS_MAX + 64)]
"""A text and the note that it was shortened."""


OF_A_KIND_MAX = 64
"""Newest marks of a kind that are stored; as many samples of the earlier ones are stored too."""
TEXT_CHARS_MAX = 300
HOSTS_NAMED = 8
"""Missing hosts that a line names."""


class Marks(StateStruct):
    of_kind: dict[MarkKind, Recent[Mark]] = msgspec.field(default_factory=dict)
    was_bad: Annotated[list[Metric], msgspec.Meta(max_length=METRICS_MAX)] = msgspec.field(default_factory=list)
    """Metrics whose newest event had NaN or infinite values."""

    def add(self, kind: MarkKind, t: float, step: int, text: str, core: int | None = None) -> None:
        """Adds a mark, unless its time is not finite. At step 0 the timeline derives the step from the time."""
        if not math.isfinite(t):
            return
        if len(text) > TEXT_CHARS_MAX:
            text = f"{text[:TEXT_CHARS_MAX]} [...]"
        if kind not in self.of_kind:
            self.of_kind[kind] = Recent(OF_A_KIND_MAX)
        self.of_kind[kind].add(Mark(t=t, step=step, kind=kind, text=text, core=core))

    def add_compiles(self, before: XlaMetricsRead | None, event: XlaMetricsRead, step: int) -> None:
        """Marks programs that were compiled since the counters were read before."""
        compiles = event.compiles - (before.compiles if before else 0)
        if compiles <= 0:
            return
        took = fmt.duration(max(0.0, event.compile_s - (before.compile_s if before else 0.0)))
        text = f"{compiles} program{'s' if compiles > 1 else ''} compiled"
        if event.recompiles > (before.recompiles if before else 0):
            self.add("recompile", event.t, step, f"{text} after warm-up in {took}")
        else:
            self.add("compile", event.t, step, f"{text} in {took}")

    def add_non_finite(
        self, event: StepsRecorded, values: Sequence[float] | None, core_of: Callable[[int, int], int]
    ) -> None:
        """Marks where values begin to be NaN or infinite. `values`: [steps * cores], or None if not decoded."""
        if not event.bad:
            if self.was_bad and event.metric in self.was_bad:
                self.was_bad.remove(event.metric)
            return
        if event.metric in self.was_bad:
            return
        self.was_bad.append(event.metric)
        steps = f"steps {event.first} to {event.first + event.n - 1}"
        index = next((index for index, value in enumerate(values or ()) if not math.isfinite(value)), None)
        if values is None or index is None:
            text = f"{event.bad} NaN/inf values of {event.metric} in {steps}"
            self.add("non_finite", event.t, event.first, text)
            return
        row, column = divmod(index, event.cores)
        core, more = core_of(column, event.cores), f", one of {event.bad} values in {steps}"
        text = f"{event.metric} {fmt.number(values[index])} on core {core}{more if event.bad > 1 else ''}"
        self.add("non_finite", event.t, event.first + row, text, core)

    @property
    def count(self) -> int:
        """Marks ever added, including those that are not stored any more."""
        return sum(kept.count for kept in self.of_kind.values())


class ProcessLog(StateStruct, dict=True):
    """Log lines, warnings and timeline marks of one process."""

    logs: Annotated[list[LogLine], msgspec.Meta(max_length=LOG_LINES_MAX)] = msgspec.field(default_factory=list)
    num_logs: Count = 0
    """Lines ever added, including those dropped from `logs`."""
    warnings: Annotated[list[str], msgspec.Meta(max_length=WARNINGS_MAX)] = msgspec.field(default_factory=list)
    marks: Marks = msgspec.field(default_factory=Marks)
    alerts: Annotated[list[AlertView], msgspec.Meta(max_length=ALERTS_MAX)] = msgspec.field(default_factory=list)
    num_alerts: Count = 0
    """Alerts ever added."""
    traces: Annotated[list[ev.TraceWritten], msgspec.Meta(max_length=TRACES_MAX)] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = ""
        """Name of the process; set by its state, which owns it."""
        self.printed_by = ""
        """Source of lines that a training process printed."""
        self.lines_max = LOG_LINES_MAX

    def add_line(self, t: float, text: str, level: Level = "info", source: str = TOOL) -> None:
        """Adds a line, shortened if it is too long. A line without a time gets that of the line before."""
        if not math.isfinite(t):
            t = self.logs[-1].t if self.logs else 0.0
        if len(text) > LOG_CHARS_MAX:
            text = f"{text[:LOG_CHARS_MAX]} [... {len(text) - LOG_CHARS_MAX} more characters]"
        self.num_logs += 1
        if len(self.logs) >= self.lines_max:
            del self.logs[0]
        self.logs.append(LogLine(t=t, source=source, level=level, text=text))

    def warn(self, t: float, text: str, step: int) -> None:
        """Adds a warning line and a mark."""
        self.add_line(t, text, "warning")
        self.marks.add("warning", t, step, text)

    def add_warning(self, text: str) -> None:
        if len(self.warnings) >= WARNINGS_MAX:
            del self.warnings[0]
        self.warnings.append(text)

    def _run_started(self, event: ev.RunStarted, _: int) -> None:
        if event.resumed_from:
            self.marks.add("resume", event.t, 0, f"resumed from {event.resumed_from}")

    def _worker_exited(self, event: ev.WorkerExited, step: int) -> None:
        if event.signal is not None:
            self.warn(event.t, f"the training process (pid {event.pid}) was ended by {event.signal}", step)

    def _hosts_awaited(self, event: ev.HostsAwaited, step: int) -> None:
        named = ", ".join(map(str, event.missing[:HOSTS_NAMED]))
        more = f" and {len(event.missing) - HOSTS_NAMED} more" if len(event.missing) > HOSTS_NAMED else ""
        missing = f"; missing: host{'' if len(event.missing) == 1 else 's'} {named}{more}" if event.missing else ""
        waited = f" after {fmt.duration(event.waited_s)}"
        self.warn(event.t, f"{len(event.joined)} of {event.num_hosts:,} hosts joined{waited}{missing}", step)

    def _host_joined(self, event: ev.HostJoined, _: int) -> None:
        if event.host_index == 0 and event.num_hosts > 1:
            self.add_line(event.t, f"all {event.num_hosts:,} hosts joined after {fmt.duration(event.waited_s)}", "info")

    def _epoch_started(self, event: ev.EpochStarted, _: int) -> None:
        self.marks.add("epoch", event.t, event.first_step, f"epoch {event.epoch} began")

    def _steps_dropped(self, event: ev.StepsDropped, step: int) -> None:
        amount = f"{event.num_records:,} events ({event.num_steps:,} steps)"
        text = event.why or f"the disk was too slow; {amount} were dropped so that training could continue"
        self.warn(event.t, f"{self.name}: {text}", step)

    def _epoch_ended(self, event: ev.EpochEnded, _: int) -> None:
        figures = fmt.meters_line(event.train, event.valid, event.scores, monitor=event.monitor)
        has_figures = bool(event.train or event.valid or event.scores)
        self.add_line(event.t, f"epoch {event.numbers} ended{f': {figures}' if has_figures else ''}")
        if event.best:
            self.marks.add("best", event.t, event.step, f"epoch {event.numbers} is the best so far: {figures}")

    def _memory_predicted(self, event: ev.MemoryPredicted, _: int) -> None:
        self.add_line(event.t, f"memory: {fmt.forecast(event.core)}")

    def _log_written(self, event: ev.LogWritten, _: int) -> None:
        self.add_line(event.t, event.line, source=self.printed_by)

    def _warning_raised(self, event: ev.WarningRaised, step: int) -> None:
        self.add_warning(event.text)
        self.warn(event.t, event.text, step)

    def _example_skipped(self, event: ev.ExampleSkipped, step: int) -> None:
        data = "validation" if event.split == "valid" else "training"
        count = f"{event.skipped} of at most {event.limit}"
        self.warn(event.t, f"{data} example left out: {event.where}: {event.why} ({count})", step)

    def _pictures_kept(self, event: ev.PicturesKept, _: int) -> None:
        folder = event.pictures[0].path.rpartition("/")[0] if event.pictures else ""
        subject = "predictions" if event.epoch else "training examples"
        self.add_line(event.t, f"{len(event.pictures)} pictures of {subject} kept in {folder}")

    def _checkpoint_saved(self, event: ev.CheckpointSaved, _: int) -> None:
        size, took = fmt.size(event.bytes), fmt.duration(event.seconds)
        best = ", the best so far" if event.best else ""
        self.add_line(event.t, f"checkpoint of step {event.step:,} saved: {event.path} ({size} in {took}{best})")
        self.marks.add("checkpoint", event.t, event.step, f"saved {size} in {took}{best}: {event.path}")

    def _request_seen(self, event: ev.RequestSeen, _: int) -> None:
        self.add_line(event.t, f"request to {fmt.REQUESTS[event.kind]}: {fmt.seen_while(event.phase)}")

    def _request_applied(self, event: ev.RequestApplied, _: int) -> None:
        applied = fmt.applied(event.step, event.path, event.lack)
        self.add_line(event.t, f"request to {fmt.REQUESTS[event.kind]}: {applied}", "warning" if event.lack else "info")

    def _request_refused(self, event: ev.RequestRefused, _: int) -> None:
        self.add_line(event.t, f"request to {fmt.REQUESTS[event.kind]}: refused: {event.why}", "warning")

    def _failure_raised(self, event: ev.FailureRaised, _: int) -> None:
        first, *page = event.message.splitlines() or [""]
        text = f"{_failed(event)}: {event.error}: {first}"
        for line in [text, *page]:
            self.add_line(event.t, line, "error")
        self.marks.add("failure", event.t, event.step, text)

    def _rank_exited(self, event: ev.RankExited, step: int) -> None:
        ending = f"was ended by {event.signal}" if event.signal else f"ended with exit code {event.exit_code}"
        with_the_run = ", with the run" if event.ending else ""
        self.add_line(event.t, f"{event.process} (pid {event.pid}) {ending}{with_the_run}", "warning")

    def _failure_reported(self, event: ev.FailureReported, step: int) -> None:
        if event.path:
            self.add_line(event.t, f"the first failure is described in {event.path}", "error")
        if event.silent:
            text = f"{_failed(event)}: {event.message}"
            self.add_line(event.t, text, "error")
            self.marks.add("failure", event.t, event.step, text)

    def _stacks_taken(self, event: ev.StacksTaken, step: int) -> None:
        where = f": {event.path}" if event.path else ""
        self.add_line(event.t, f"stacks of {event.process} (pid {event.pid}) taken{where}")

    def _trace_written(self, event: ev.TraceWritten, _: int) -> None:
        steps, size = fmt.counted(event.steps, "step"), fmt.size(event.bytes)
        self.add_line(event.t, f"profile of {steps} up to step {event.step:,} written: {event.path} ({size})")
        if len(self.traces) >= TRACES_MAX:
            del self.traces[0]
        self.traces.append(msgspec.structs.replace(event, t=self.logs[-1].t, path=event.path[:LOG_CHARS_MAX]))

    def _stall_found(self, event: ev.StallFound, step: int) -> None:
        self.add_line(event.t, f"stalled: {event.text}", "warning")
        self.marks.add("stall", event.t, event.step, event.text)

    def _alert_raised(self, event: ev.AlertRaised, step: int) -> None:
        self.warn(event.t, f"alert: {event.text}", event.step)
        self.num_alerts += 1
        if len(self.alerts) >= ALERTS_MAX:
            del self.alerts[0]
        condition, text = event.condition[:LOG_CHARS_MAX], event.text[:LOG_CHARS_MAX]
        view = AlertView(t=self.logs[-1].t, condition=condition, text=text, step=event.step, bell=event.bell)
        self.alerts.append(view)

    def _alert_delivered(self, event: ev.AlertDelivered, _: int) -> None:
        after = f" after {event.attempts} attempts" if event.attempts > 1 else ""
        self.add_line(event.t, f"alert delivered to {event.target}{after}: {event.condition}")
        self._settle_alert(event.condition, event.target, failed=False)

    def _alert_failed(self, event: ev.AlertFailed, step: int) -> None:
        text = f"alert not delivered to {event.target}: {event.condition}: {event.why}"
        self.add_warning(text[:LOG_CHARS_MAX])
        self.warn(event.t, text, step)
        self._settle_alert(event.condition, event.target, failed=True)

    def _settle_alert(self, condition: str, target: str, *, failed: bool) -> None:
        """Adds the target to the newest alert of a condition."""
        places = [index for index, alert in enumerate(self.alerts) if alert.condition == condition[:LOG_CHARS_MAX]]
        if not places:
            return
        alert = self.alerts[places[-1]]
        targets = [*(alert.failed if failed else alert.delivered), target[:TEXT_CHARS_MAX]][:_TARGETS_MAX]
        changed = {"failed": targets} if failed else {"delivered": targets}
        self.alerts[places[-1]] = msgspec.structs.replace(alert, **changed)

    def _non_finite_found(self, event: ev.NonFiniteFound, step: int) -> None:
        self.add_warning(event.text)
        self.add_line(event.t, event.text, "warning")

    def _training_ended(self, event: ev.TrainingEnded, _: int) -> None:
        if event.reason:
            at = f" at step {event.step:,}" if event.step else ""
            self.add_line(event.t, f"training {event.outcome}{at}: {event.reason}")

    def _run_ended(self, event: ev.RunEnded, _: int) -> None:
        level: Level = "error" if event.outcome == "failed" else "info"
        self.add_line(event.t, fmt.with_reason(f"run {event.outcome}", event.reason), level)


LOGGED: dict[type[ev.Event], Callable[[ProcessLog, Any, int], None]] = {
    ev.RunStarted: ProcessLog._run_started,
    ev.WorkerExited: ProcessLog._worker_exited,
    ev.HostsAwaited: ProcessLog._hosts_awaited,
    ev.HostJoined: ProcessLog._host_joined,
    ev.EpochStarted: ProcessLog._epoch_started,
    ev.StepsDropped: ProcessLog._steps_dropped,
    ev.EpochEnded: ProcessLog._epoch_ended,
    ev.MemoryPredicted: ProcessLog._memory_predicted,
    ev.LogWritten: ProcessLog._log_written,
    ev.WarningRaised: ProcessLog._warning_raised,
    ev.ExampleSkipped: ProcessLog._example_skipped,
    ev.PicturesKept: ProcessLog._pictures_kept,
    ev.CheckpointSaved: ProcessLog._checkpoint_saved,
    ev.RequestSeen: ProcessLog._request_seen,
    ev.RequestApplied: ProcessLog._request_applied,
    ev.RequestRefused: ProcessLog._request_refused,
    ev.FailureRaised: ProcessLog._failure_raised,
    ev.RankExited: ProcessLog._rank_exited,
    ev.FailureReported: ProcessLog._failure_reported,
    ev.StacksTaken: ProcessLog._stacks_taken,
    ev.TraceWritten: ProcessLog._trace_written,
    ev.StallFound: ProcessLog._stall_found,
    ev.NonFiniteFound: ProcessLog._non_finite_found,
    ev.AlertRaised: ProcessLog._alert_raised,
    ev.AlertDelivered: ProcessLog._alert_delivered,
    ev.AlertFailed: ProcessLog._alert_failed,
    ev.TrainingEnded: ProcessLog._training_ended,
    ev.RunEnded: ProcessLog._run_ended,
}
"""Logs an event, by its type. The step is the newest one known to be done."""


def _failed(event: ev.FailureRaised | ev.FailureReported) -> str:
    """`training failed in step 7 while tracing`"""
    when = " ".join(fmt.failure_moment(event.step, event.phase))
    return f"training failed {'in ' if when.startswith('step') else ''}{when}".rstrip()
