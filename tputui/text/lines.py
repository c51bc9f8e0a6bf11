"""Prints a run as lines (`--no-ui`) or as JSON: data to stdout, messages to stderr.

`follow` reads a session until the run has ended. If stdout is closed, it returns early and the run goes on. Log lines
read the same here and in the log panel; reports and the start of the run have lines of their own. The format of the
lines is stable.

Pure.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TextIO

import msgspec

from tputui import formatting as fmt
from tputui.diagnosis.diagnose import diagnose
from tputui.session.session import Session
from tputui.state import root_cause, snapshot_builder
from tputui.state.history import eta_s
from tputui.state.process_log import TOOL
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.snapshot import LogLine, Snapshot
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks
from tputui.telemetry.codec import to_json
from tputui.telemetry.logged_values import CONSOLE
from tputui.telemetry.merge import JournalEvent
from tputui.text import phrases, verdict_lines

INTERVAL_S = 1.0
"""Shortest time between two lines."""
METRICS_SHOWN = 12
"""More metrics are only counted."""


class LoggedLine:
    """Gathers the values of one process until their line is due."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        """Newest values by split and name, since the last line."""
        self._sources: set[str] = set()
        self._t = -math.inf
        """Time of the newest event with a value."""
        self._printed_t = -math.inf
        self.step = 0
        """Newest step of a value; 0 before the first."""
        self.loss_step = 0
        """Newest step whose loss was recorded since the last line; 0 if none was."""

    def is_due(self, event: ev.Event) -> bool:
        """Whether a line is printed before an event: the events of one look at the logs, which have the same time, make
        one line."""
        has_values = bool(self._values) or self.loss_step > 0
        is_due = has_values and event.t > self._t and event.t - self._printed_t >= INTERVAL_S
        if is_due:
            self._printed_t = event.t
        return is_due

    def add(self, event: ev.Event) -> None:
        if isinstance(event, ev.ValuesLogged):
            self._t = event.t
            self.step = max(self.step, event.step)
            self._values[event.name if event.split == "train" else f"valid {event.name}"] = event.value
            self._sources.add(event.source)
        elif isinstance(event, ev.StepsRecorded) and event.metric == "loss":
            self._t = event.t
            self.loss_step = event.first + event.n - 1
            self.step = max(self.step, self.loss_step)

    def take(self, loss: str, epoch: int, step_s: float | None) -> tuple[float, str] | None:
        """The unix time and the text of the line; None without new values.

        `loss` is the loss of `loss_step`, empty if unknown; `step_s` is the time of a step in seconds.
        """
        if not (self._values or self.loss_step):
            return None
        if loss:
            self._values.pop("loss", None)
        shown = [f"{name} {fmt.number(value)}" for name, value in list(self._values.items())[:METRICS_SHOWN]]
        if len(self._values) > METRICS_SHOWN:
            shown.append(f"{len(self._values) - METRICS_SHOWN} more")
        columns = [
            f"epoch {epoch}" if epoch else "",
            f"step {self.step:,}",
            loss,
            ", ".join(shown),
            f"{fmt.step_time(step_s)}/step" if step_s is not None else "",
            "(from console)" if self._sources == {CONSOLE} else "",
        ]
        self._values, self._sources, self.loss_step = {}, set(), 0
        return self._t, "  ".join(column for column in columns if column)


LOGS = "logs"
"""Role of the journal of a user's command."""
WAIT_S = 0.1
"""Seconds between two polls of a run without new events."""

TimedLine = tuple[float, str]
"""Unix time and text."""


class _WaitingReport(NamedTuple):
    """A report that waits for its meters, with the columns before and after them."""

    event: ev.ProgressReported
    before: list[str]
    after: list[str]


SHOWN_MAX = 200
"""Printed lines of output that a failure is compared with."""


class LineWriter:
    """Turns events, one at a time, into lines. Control characters are escaped.

    The line of a report shows a single step: losses, meters and pace of the same step. Meters are in an event of their
    own, so the line waits for that event.
    """

    def __init__(self, *, timestamps: bool = False) -> None:
        """`timestamps`: start each line with the UTC time of its event."""
        self._state = RunState()
        self._timestamps = timestamps
        self._report: _WaitingReport | None = None
        """Newest report of the first worker, until its line is printed."""
        self._logged = LoggedLine()
        self._printed: Counter[str] = Counter()
        """Lines of printed tracebacks, which the log of the process repeats."""
        self._shown: deque[str] = deque(maxlen=SHOWN_MAX)
        """The newest lines of output that were printed, which a failure repeats."""
        self._is_started = False
        """Whether the start of the run was printed, which the supervisor of each host reports."""
        self._ends: set[str] = set()
        """Ends of the run that were printed; the supervisor of each host reports the same."""
        self._first_failure: list[str] = []
        """The report of the first failure, as it was printed last."""

    def lines(self, process: str, seq: int, event: ev.Event) -> list[str]:
        """The lines of an event; none if it was read before."""
        return self._stamped(self._lines(process, seq, event))

    def flush(self) -> list[str]:
        """The line of a report whose meters did not arrive; none if no report waits."""
        return self._stamped(self._withheld())

    def _withheld(self) -> list[TimedLine]:
        """The lines that wait for further events."""
        return [*self._release(), *self._release_logged()]

    def _stamped(self, lines: Iterable[TimedLine]) -> list[str]:
        return [f"{fmt.utc(t)}  {fmt.inert(text)}" if self._timestamps else fmt.inert(text) for t, text in lines]

    def _lines(self, process: str, seq: int, event: ev.Event) -> list[TimedLine]:
        earlier = self._state.processes.get(process)
        compiles = earlier.xla.compiles if earlier and earlier.xla else 0
        compile_s = earlier.xla.compile_s if earlier and earlier.xla else 0.0
        num_logs = earlier.log.num_logs if earlier else 0
        before = earlier.last_seq if earlier else -1
        if earlier and earlier.opened and earlier.opened.host_index and not earlier.set_back_s:
            # The clock of its host may have been measured since, so that times are corrected from here on.
            earlier.newest_t = event.t if 0 <= event.t < (earlier.newest_t or 0) else earlier.newest_t
        self._state.apply(process, seq, event)
        state = self._state.processes[process]
        if state.last_seq == before:
            return []
        lines = self._release() if self._is_overdue(state, event) else []
        lines += self._of_logs(state, event)
        log = state.log
        fresh = islice(log.logs, max(0, len(log.logs) - (log.num_logs - num_logs)), None)
        printed = [line for line in fresh if self._wants(line, event) and not self._repeats(state, event, line)]
        texts = [_logged(line) for line in printed]
        if isinstance(event, ev.LogWritten):
            self._shown += [line.text for line in printed]
        if isinstance(event, ev.XlaMetricsRead) and event.compiles > compiles and self._is_first(state):
            texts += self._compiled(event, compiles, compile_s)
        texts += self._own(state, event)
        lines += [(event.t, text) for text in texts]
        return lines + self._reported(state, event)

    def _wants(self, line: LogLine, event: ev.Event) -> bool:
        return True

    def _compiled(self, event: ev.XlaMetricsRead, compiles: int, compile_s: float) -> Iterable[str]:
        """The line of programs that were compiled since the last reading."""
        took = fmt.duration(max(0.0, event.compile_s - compile_s))
        late = f"; {event.recompiles} in all after warm-up" if event.recompiles else ""
        fresh = event.compiles - compiles
        yield f"compiled {fresh} program{'s' if fresh != 1 else ''} in {took}{late}"

    def _repeats(self, process: ProcessState, event: ev.Event, line: LogLine) -> bool:
        """Whether the failure that was printed already contains the line, or the first worker reports the same."""
        if isinstance(event, ev.EpochEnded):
            return not self._is_first(process)
        if isinstance(event, ev.RunEnded):
            repeats = line.text in self._ends
            self._ends.add(line.text)
            return repeats
        if isinstance(event, ev.FailureRaised):
            # The output says it, and nothing says when.
            is_shown = bool(event.traceback) and self._shown_above(event.traceback.splitlines())
            return is_shown and not any(fmt.failure_moment(event.step, event.phase))
        if isinstance(event, ev.TrainingEnded):
            if event.outcome == "failed":
                return process.failure is not None
            return not self._is_first(process)
        if not isinstance(event, ev.LogWritten) or not self._printed[line.text]:
            return False
        self._printed[line.text] -= 1
        return True

    def _own(self, process: ProcessState, event: ev.Event) -> Iterable[str]:
        if isinstance(event, ev.RunStarted):
            if self._is_started:
                return
            self._is_started = True
            yield f"run {event.run} started: {' '.join(event.argv)}"
            if event.resumed_from:
                yield f"resumed from {event.resumed_from}"
        elif isinstance(event, ev.TrainingPlanned) and self._is_first(process):
            yield from self._restart(process)
            yield from self._plan()
        elif isinstance(event, ev.EpochEnded) and self._is_first(process):
            if math.isnan(event.train_s):
                return
            took = f"train {fmt.duration(event.train_s)}"
            took += f", validation {fmt.duration(event.valid_s)}" if event.valid_s else ""
            yield f"epoch {event.numbers} took: {took}; of it {fmt.sections(event.sections_s, event.trace_s)}"
        elif isinstance(event, ev.StepsRecorded) and event.bad:
            steps = f"step {event.first}" if event.n == 1 else f"steps {event.first} to {event.first + event.n - 1}"
            yield f"non-finite {event.metric}: {fmt.counted(event.bad, 'value')} in {steps}"
        elif isinstance(event, ev.FailureRaised):
            if (traceback := event.traceback.splitlines()) and not self._shown_above(traceback):
                self._printed.update(traceback)
                yield from (f"    {line}" for line in traceback)
        elif isinstance(event, ev.FailureReported) and (broke := root_cause.failure(self._state)) is not None:
            # The process itself reported the traceback, which was printed above.
            log = [] if self._shown_above(broke.log) else broke.log
            block = root_cause.block(msgspec.structs.replace(broke, traceback="", log=log))
            if block != self._first_failure:
                yield from block
            self._first_failure = block

    def _shown_above(self, lines: Iterable[str]) -> bool:
        """Whether all of these lines were printed as output a moment ago."""
        return set(lines) <= set(self._shown)

    def _is_first(self, process: ProcessState) -> bool:
        """Whether it is the first host; the others report the same for the whole run."""
        return self._state.workers[:1] == [process]

    def _restart(self, process: ProcessState) -> Iterator[str]:
        """The line of a restart of the training processes, once the step is known with which they continue."""
        restart = process.reports.restarts[-1] if process.reports.restarts else None
        if restart is not None and restart.first_step is not None:
            lost = max(0, restart.last_step - restart.first_step + 1)
            again = f"; {fmt.counted(lost, 'step')} trained again" if lost else ""
            yield f"restart {restart.number}: training continues with step {restart.first_step:,}{again}"

    def _plan(self) -> Iterator[str]:
        topology, plan = snapshot_builder.topology_of(self._state), snapshot_builder.plan_of(self._state)
        if topology is not None:
            why = f" ({topology.device_reason})" if topology.device_reason and topology.device != "unknown" else ""
            hosts = f" on {topology.num_hosts} hosts" if topology.num_hosts > 1 else ""
            strategy = f", strategy {named}" if (named := fmt.strategy(topology.strategy)) else ""
            yield f"cores: {fmt.device_cores(topology.num_cores, topology.device)}{hosts}{strategy}{why}"
        if plan is not None:
            first = f" from step {plan.first_step:,}" if plan.first_step > 1 else ""
            parameters = f"{fmt.count(plan.num_parameters)} parameters" if plan.num_parameters else ""
            epochs = f"{fmt.counted(plan.num_epochs, 'epoch')} of " if plan.num_epochs else ""
            steps = f"{epochs}{plan.steps_per_epoch or plan.total_steps:,} steps{first}"
            steps = steps if plan.total_steps else "the number of steps is not known"
            of_task = f"task {plan.task}: " if plan.task else "plan: "
            if plan.task or plan.total_steps:
                yield of_task + ", ".join(filter(None, (steps, parameters, plan.precision)))
            if plan.global_batch:
                examples = fmt.examples(plan.train_examples, plan.valid_examples)
                yield f"batch: {plan.batch_per_core} per core, {plan.global_batch} global{examples and f'; {examples}'}"
            if ragged := fmt.ragged_end(plan.steps_per_epoch, plan.global_batch, plan.train_examples):
                yield ragged
            if rate := fmt.ruled_rate(plan.lr, plan.lr_rule):
                yield f"learning rate: {rate}"

    def _reported(self, process: ProcessState, event: ev.Event) -> list[TimedLine]:
        """The line of a report, after all events of its step."""
        if not self._is_first(process) or process.role == LOGS:
            return []
        if isinstance(event, ev.ProgressReported):
            self._hold(event)
            return self._release() if self._averages(event) is not None else []
        return self._release() if isinstance(event, ev.MetersReported) and event.split == "train" else []

    def _of_logs(self, process: ProcessState, event: ev.Event) -> list[TimedLine]:
        """The line with the values that a command logged, once a later event shows that it is complete."""
        if process.role != LOGS or not self._is_first(process):
            return []
        is_last = isinstance(event, ev.TrainingEnded)
        lines = self._release_logged() if is_last or self._logged.is_due(event) else []
        self._logged.add(event)
        return lines

    def _release_logged(self) -> list[TimedLine]:
        """The line with the values that a command logged since the last one; none if there are none."""
        process = next(iter(self._state.workers), None)
        if process is None or process.role != LOGS:
            return []
        loss = self._loss(self._logged.loss_step) if self._logged.loss_step else ""
        progress, started = process.progress, process.epoch_started
        line = self._logged.take(loss, started.epoch if started else 0, progress.step_s if progress else None)
        return [line] if line is not None else []

    def _hold(self, event: ev.ProgressReported) -> None:
        """Holds a report back until the meters of its step arrive."""
        plan, epochs = snapshot_builder.plan_of(self._state), snapshot_builder.epochs_of(self._state)
        epoch = f"epoch {fmt.epoch_of(event.epoch, plan.num_epochs if plan else 0)}" if event.epoch else ""
        of_steps = f"/{plan.total_steps:,}" if plan and plan.total_steps else ""
        eta = eta_s(self._state, plan, epochs, event.t)
        self._report = _WaitingReport(
            event,
            [epoch, f"step {event.step:,}{of_steps}", self._loss(event.step)],
            [
                f"{fmt.step_time(event.step_s)}/step",
                fmt.rate(event.examples_per_s, "examples") if not math.isnan(event.examples_per_s) else "",
                f"eta {fmt.whole(eta)}" if eta is not None else "",
            ],
        )

    def _release(self) -> list[TimedLine]:
        """The line of the report that was held back; none if there is none."""
        report, self._report = self._report, None
        if report is None:
            return []
        if not report.before[-1]:
            # The steps of a script may come between its report and the meters.
            report.before[-1] = self._loss(report.event.step)
        columns = [*report.before, self._averages(report.event), *report.after]
        return [(report.event.t, "  ".join(column for column in columns if column))]

    def _is_overdue(self, process: ProcessState, event: ev.Event) -> bool:
        """Whether the meters of the waiting report will not arrive, because its process went on without them."""
        return self._report is not None and self._is_first(process) and not isinstance(event, ev.MetersReported)

    def _averages(self, report: ev.ProgressReported) -> str | None:
        """`avg loss 0.5523, accuracy 0.8125`: means over the examples of the epoch so far; None before the meters of
        the step arrive."""
        first = self._state.workers[0]
        meters = first.meters.get("train")
        if meters is None or (meters.epoch, meters.step) != (report.epoch, report.step):
            return None
        monitor = next((epoch.monitor for epoch in reversed(first.epochs.values())), "")
        return "avg " + fmt.averages({name: meter.avg for name, meter in meters.meters.items()}, monitor)

    def _loss(self, step: int) -> str:
        """`train loss 0.4132 (0.3201 core 2 .. 0.5120 core 5)`: mean, minimum and maximum of the step; "" if unknown.

        The mean is infinite or NaN if the loss of a core is, as in `Snapshot.newest_loss`.
        """
        rows: list[tuple[float, int]] = []
        for worker in self._state.workers:
            newest = worker.values.newest.get("loss")
            if newest is None or newest.first + newest.n - 1 != step:
                continue
            row = worker.values.newest_row() or []
            rows += [(loss, worker.values.core_of(column, len(row))) for column, loss in enumerate(row)]
        if not rows:
            return ""
        finite = [pair for pair in rows if math.isfinite(pair[0])]
        odd = len(rows) - len(finite)
        beside = f", {odd} not finite" if odd else ""
        if not finite:
            kinds = Counter(fmt.number(loss) for loss, _ in rows)
            if len(kinds) == 1:
                return f"train loss {next(iter(kinds))} on all cores"
            counts = ", ".join(f"{times} {kind}" for kind, times in sorted(kinds.items()))
            return f"train loss: no core finite ({counts})"
        mean = float_blocks.mean([loss for loss, _ in rows])
        (least, low), (greatest, high) = min(finite), max(finite)
        spread = f"{fmt.number(least)} core {low} .. {fmt.number(greatest)} core {high}"
        return f"train loss {fmt.number(mean)}" + (f" ({spread}{beside})" if len(rows) > 1 else "")


def last_lines(snapshot: Snapshot) -> list[str]:
    """The last lines of a run: troubles, damage, its state if it has no end event, and what slowed it down most."""
    lines = [f"warning: {trouble}" for trouble in snapshot.troubles]
    if snapshot.topology is not None and snapshot.topology.device_warning:
        lines.append(f"warning: {snapshot.topology.device_warning}")
    lines += [f"damage: {phrases.damage(region)}" for region in snapshot.damage.regions]
    if snapshot.newer_format:
        lines.append(f"warning: {snapshot.newer_format}")
    if snapshot.exit_code is None:
        lines.append(f"state: {snapshot.condition}: {snapshot.condition_reason}")
    lines += verdict_lines.worst(diagnose(snapshot))
    return [fmt.inert(line) for line in lines]


def _logged(line: LogLine) -> str:
    who = "" if line.source == TOOL else f"{line.source} | "
    return f"{who}{line.text}" if line.level == "info" else f"{line.level}: {who}{line.text}"


def follow(
    session: Session,
    out: TextIO,
    *,
    as_json: bool,
    writer: LineWriter | None = None,
    earlier: int | None = None,
    narrate: TextIO | None = None,
    stop: Callable[[], bool] = lambda: False,
    wait: Callable[[float], None] = time.sleep,
    on_alert: Callable[[ev.AlertRaised], None] = lambda alert: None,
) -> Snapshot:
    """Writes a run to `out` line by line until it has ended, its replay is at its end, or `stop` returns True.

    Prints the lines of `writer`, by default all of them without times. Of the lines from before the start, prints the
    newest `earlier`, or all. With `as_json` prints one JSON object per event, and everything else to `narrate`
    (stderr). `wait` is called with at most `WAIT_S` seconds, `on_alert` with each alert. Returns the last
    snapshot.
    """
    writer = writer or LineWriter()
    warnings = _Warnings()
    session.disable_cache()
    try:
        if earlier is not None and not as_json:
            _write_newest(session, writer, out, earlier)
        while True:
            # Checked before the read, so that events from just before the end are read too.
            settled = session.settled
            events = session.poll()
            for event in events:
                for line in [json_line(event)] if as_json else writer.lines(*event):
                    write_line(out, line)
                if isinstance(event.event, ev.AlertRaised):
                    on_alert(event.event)
            if stop():
                return session.snapshot()
            if settled and not events:
                break
            if session.caught_up and not events:
                for text in [] if settled else warnings.fresh(session):
                    write_line((narrate or sys.stderr) if as_json else out, f"warning: {text}")
                wait(WAIT_S)
        snapshot = session.snapshot()
        for line in [*([] if as_json else writer.flush()), *last_lines(snapshot)]:
            write_line((narrate or sys.stderr) if as_json else out, line)
        return snapshot
    except BrokenPipeError:
        return session.snapshot()


class _Warnings:
    """Warnings that are no events: about a disk that takes none, and hosts that are not heard. Each comes once."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def fresh(self, session: Session) -> list[str]:
        """Those that were not true at the last call."""
        full, lost = session.full_disk(), session.lost_hosts()
        warnings = {**({"disk": full} if full is not None else {}), **({lost: lost} if lost is not None else {})}
        fresh = [text for key, text in warnings.items() if key not in self._shown]
        self._shown = set(warnings)
        return fresh


def _write_newest(session: Session, writer: LineWriter, out: TextIO, most: int) -> None:
    """Writes the newest `most` lines so far, after a line with the number of earlier ones."""
    newest: deque[str] = deque(maxlen=most)
    num_lines = 0
    while True:
        events = session.poll()
        for event in events:
            lines = writer.lines(*event)
            num_lines += len(lines)
            newest.extend(lines)
        if session.caught_up and not events:
            break
    if num_lines > len(newest):
        write_line(out, f"{num_lines - len(newest):,} earlier lines; --lines all prints them")
    for line in newest:
        write_line(out, line)


def json_line(event: JournalEvent) -> str:
    """An event as one line of ASCII JSON: process, sequence number, then its fields as in the journal."""
    head = {"writer": event.writer, "q": event.seq}
    fields = {**head, **to_json(event.event), **head}
    line = msgspec.json.encode(fields).decode()
    return line if line.isascii() else json.dumps(fields, separators=(",", ":"))


def write_line(out: TextIO, line: str) -> None:
    """Writes and flushes a line. Control, invisible and unencodable characters are escaped.

    Raises `BrokenPipeError`.
    """
    line = fmt.inert(line)
    encoding = getattr(out, "encoding", None)
    if encoding:
        line = line.encode(encoding, "backslashreplace").decode(encoding)
    out.write(line + "\n")
    out.flush()


QUIET_INTERVAL_S = 60.0
"""Shortest time between two reports of a run without epochs."""


class QuietWriter(LineWriter):
    """Prints the start, epochs, warnings, failures and the end, and of a run without epochs a report a minute."""

    def __init__(self, *, timestamps: bool = False) -> None:
        super().__init__(timestamps=timestamps)
        self._newest: TimedLine | None = None
        """Newest report that was not printed."""
        self._printed_t = -math.inf
        """Time of the newest printed report."""
        self._bad: set[tuple[str, str]] = set()
        """Metrics of processes that are NaN or infinite at present, which is printed once."""

    def flush(self) -> list[str]:
        """The newest report of a run without epochs, if it was not printed."""
        return self._stamped([*self._withheld(), *self._last()])

    def _wants(self, line: LogLine, event: ev.Event) -> bool:
        return line.level != "info" or isinstance(event, ev.TrainingEnded | ev.RunEnded)

    def _lines(self, process: str, seq: int, event: ev.Event) -> list[TimedLine]:
        lines = super()._lines(process, seq, event)
        if lines and isinstance(event, ev.TrainingEnded):
            return [*self._last(), *lines]
        return lines

    def _compiled(self, event: ev.XlaMetricsRead, compiles: int, compile_s: float) -> Iterable[str]:
        return ()

    def _own(self, process: ProcessState, event: ev.Event) -> Iterable[str]:
        if isinstance(event, ev.RunStarted | ev.FailureRaised | ev.FailureReported):
            yield from super()._own(process, event)
        elif isinstance(event, ev.TrainingPlanned) and self._is_first(process):
            yield from self._restart(process)
        elif isinstance(event, ev.EpochEnded) and self._is_first(process):
            yield self._epoch(process, event)
        elif isinstance(event, ev.StepsRecorded):
            key = process.name, event.metric
            if not event.bad:
                self._bad.discard(key)
            elif key not in self._bad:
                self._bad.add(key)
                yield from super()._own(process, event)

    def _epoch(self, process: ProcessState, event: ev.EpochEnded) -> str:
        plan = snapshot_builder.plan_of(self._state)
        of_epochs = f"/{plan.num_epochs}" if plan and plan.num_epochs else ""
        of_steps = f"/{plan.total_steps:,}" if plan and plan.total_steps else ""
        loss = process.values.newest.get("loss") if not event.train else None
        took = event.train_s + event.valid_s
        columns = [
            f"epoch {event.numbers}{of_epochs}",
            f"step {event.step:,}{of_steps}" if event.step else "",
            f"train loss {fmt.number(loss.mean)}" if loss is not None else "",
            fmt.meters_line(event.train, event.valid, event.scores, monitor=event.monitor),
            fmt.duration(took) if math.isfinite(took) else "",
            "best" if event.best else "",
        ]
        return "  ".join(column for column in columns if column)

    def _release(self) -> list[TimedLine]:
        return self._sparse(super()._release())

    def _release_logged(self) -> list[TimedLine]:
        return self._sparse(super()._release_logged())

    def _sparse(self, lines: list[TimedLine]) -> list[TimedLine]:
        """The line of a report, if the run has no epochs and the line is due; else withheld until a later one."""
        if not lines or self._has_epochs():
            return []
        if lines[-1][0] - self._printed_t < QUIET_INTERVAL_S:
            self._newest = lines[-1]
            return []
        self._newest, self._printed_t = None, lines[-1][0]
        return lines

    def _last(self) -> list[TimedLine]:
        """The newest withheld report of a run without epochs; none if it was printed."""
        newest, self._newest = self._newest, None
        return [newest] if newest is not None and not self._has_epochs() else []

    def _has_epochs(self) -> bool:
        return any(worker.epoch_started is not None for worker in self._state.workers)
