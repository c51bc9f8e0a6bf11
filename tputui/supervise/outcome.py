"""How a run ended: outcome, exit code and reason, and a report of its first failure.

`FailureReport` reports the first failure as an event and as `failure.txt`, as soon as the first process fails. The
event is written once. The file is written again after everything has ended, with the failures that followed. Ends no
process: the worker ends the other ranks, and the supervisor what remains of the worker's process group.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.state import root_cause
from tputui.supervise.log_tail import read_last
from tputui.supervise.out_of_memory import OutOfMemoryWatch
from tputui.supervise.worker_state import WorkerState
from tputui.telemetry import events as ev
from tputui.telemetry import process_end
from tputui.telemetry.launch_messages import HostFailed
from tputui.telemetry.redaction import masked_lines
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.rundir import write_atomically

FAILURE_FILE = "failure.txt"
_CODES: dict[ev.Outcome, ExitCode] = {"done": ExitCode.DONE, "stopped": ExitCode.STOPPED, "failed": ExitCode.FAILED}
_REPORTED_CODES = (ExitCode.USAGE, ExitCode.ENVIRONMENT, ExitCode.FAILED)
_REASON_CHARS_MAX = 600
_LAST_LINES = 3


def run_ended(outcome: ev.Outcome, code: ExitCode, reason: str) -> ev.RunEnded:
    return ev.RunEnded(t=time.time(), outcome=outcome, exit_code=int(code), reason=reason)


class WorkerEnd(NamedTuple):
    """How the command ended, as the operating system and the supervisor saw it."""

    returncode: int
    """Exit code, or the negative number of the signal that ended it."""
    stop_asked: bool
    """Whether a stop had been requested."""
    killed: bool
    """Whether the supervisor killed it, because it did not obey a request to stop at once."""
    memory: str = ""
    """Whether the kernel killed it for lack of memory, in words; empty unless it was killed by SIGKILL."""
    reports: bool = True
    """Whether it promises to report how it ended, as the engine does; else its exit code decides."""

    @property
    def who(self) -> str:
        """What sentences call it."""
        return "the training process" if self.reports else "the command"


def run_ending(
    end: WorkerEnd, training_ended: ev.TrainingEnded | None, failure: ev.FailureRaised | None, last_lines: Sequence[str]
) -> ev.RunEnded:
    """How the run ended: as the command reported, or if it promises no report, by its exit code, where only 0 means
    success. `last_lines` are the last lines of its output."""
    if end.reports and training_ended is not None:
        return _reported_ending(end, training_ended)
    if end.killed:
        return run_ended("stopped", ExitCode.STOPPED, "killed: it did not obey the request to stop at once")
    if end.stop_asked and end.reports and end.returncode == ExitCode.STOPPED:
        return run_ended("stopped", ExitCode.STOPPED, "stopped on request before training began")
    if end.stop_asked and not end.reports:
        unsaved = unsaved_reason(end)
        return run_ended("stopped", ExitCode.STOPPED, f"stopped on request{f'; {unsaved}' if unsaved else ''}")
    if end.returncode == 0 and not end.reports:
        given = training_ended.reason if training_ended is not None and training_ended.outcome == "done" else ""
        return run_ended("done", ExitCode.DONE, given or "the command exited with code 0")
    # The exit code is ours only if the worker reported a failure: user code may exit with any number.
    ours = end.reports and failure is not None and end.returncode in (ExitCode.USAGE, ExitCode.ENVIRONMENT)
    code = ExitCode(end.returncode) if ours else ExitCode.FAILED
    return run_ended("failed", code, _failure_reason(end, failure, last_lines))


def unsaved_reason(end: WorkerEnd) -> str | None:
    """Why a command that was stopped may not have saved; None if it reported success, or reports its saves itself."""
    if end.returncode == 0 or end.reports:
        return None
    how = "was killed" if end.killed else end_text(end.returncode)
    return f"the command {how}, so its last save may be missing"


def end_text(returncode: int) -> str:
    """How a process ended, by its return code: `exited with code 3`, `ended by signal SIGKILL`."""
    return f"ended by signal {signal_name(returncode)}" if returncode < 0 else f"exited with code {returncode}"


def signal_name(returncode: int) -> str | None:
    """The name of the signal of a negative return code, or its number; None for an exit code."""
    name = process_end.signal_name(returncode)
    return name.removeprefix("signal ") if name else None


def _reported_ending(end: WorkerEnd, training_ended: ev.TrainingEnded) -> ev.RunEnded:
    code = _CODES[training_ended.outcome]
    if training_ended.outcome == "failed" and end.returncode in (ExitCode.USAGE, ExitCode.ENVIRONMENT):
        code = ExitCode(end.returncode)
    reason = training_ended.reason
    if end.returncode < 0 and not end.killed:
        reason += f" (its process then {end_text(end.returncode)})"
    return run_ended(training_ended.outcome, code, reason)


def _failure_reason(end: WorkerEnd, failure: ev.FailureRaised | None, last_lines: Sequence[str]) -> str:
    reason = f"{end.who} {end_text(end.returncode)}"
    if end.memory:
        reason += f" ({end.memory})"
    if end.reports and failure is not None and end.returncode in _REPORTED_CODES:
        reason = f"{end.who} gave up"
    elif end.reports and end.returncode >= 0:
        reason += " without an end event"
    return _with_cause(reason, failure, last_lines)


def _with_cause(reason: str, failure: ev.FailureRaised | None, last_lines: Sequence[str]) -> str:
    if failure is not None:
        reason += f": {failure.error}: {failure.message.partition(chr(10))[0]}"
    elif last_lines:
        reason += f"; it last printed: {' | '.join(list(last_lines)[-_LAST_LINES:])}"
    else:
        reason += "; it printed nothing"
    return reason if len(reason) <= _REASON_CHARS_MAX else reason[:_REASON_CHARS_MAX] + " ..."


class FailureReport:
    """Reports the first failure among the training processes of one worker."""

    def __init__(
        self,
        run_dir: Path,
        log: Path,
        writer: str,
        worker_state: WorkerState,
        reporter: Reporter,
        *,
        host_index: int = 0,
    ) -> None:
        """`writer` is the name of the worker or of the journal about a command that reports nothing itself, `log` the
        file with the output of its processes."""
        self._path = f"failure-{host_index}.txt" if host_index else FAILURE_FILE
        self.output_before: list[str] | None = None
        """The last lines printed before the traceback of a user's command; None for the last lines of the output."""
        self._run_dir = run_dir
        self._log = log
        self._worker = writer
        self._worker_state = worker_state
        self._reporter = reporter
        self.memory = OutOfMemoryWatch()
        self._reported: ev.FailureReported | None = None
        self._since = -math.inf
        """When the running generation began; older failures were reported."""

    def check(self) -> None:
        """Reports the first failure that a process has recorded, unless it was reported already."""
        self._follow_restarts()
        death = self._first_death()
        if self._reported is None and death is not None and death.event.error not in process_end.FOLLOWING:
            self._publish(self._from_recorded(death))

    def begin_generation(self, t: float) -> None:
        """The training process was started at `t`, perhaps again: its first failure will be reported too."""
        self._reported, self._since = None, t

    def _follow_restarts(self) -> None:
        """Begins a generation if the command has started its training processes again, as torchrun does."""
        if (began_t := self._worker_state.restarted_t) > self._since:
            self.begin_generation(began_t)

    def report_of_host(self, failed: HostFailed) -> None:
        """Reports the failure of another host that ends training on this one."""
        if self._reported is not None:
            return
        report = _report_of(failed, failed.process)
        self._publish(replace(report, path=self._path, other_host=failed.who))

    def worker_ended(self, end: WorkerEnd, exited: ev.WorkerExited) -> None:
        """Reports an end of the worker that the worker did not record itself, then writes what followed to the file."""
        supervisor = self._reporter.writer
        self._worker_state.add(supervisor, exited)
        self._follow_restarts()
        death = self._first_death()
        if self._reported is None and death is not None:
            self._publish(self._from_recorded(death))
        elif self._reported is None and self._is_unreported(end):
            self._publish(self._from_exit(end, exited))
        if self._reported is not None:
            self._write()

    def _first_death(self) -> root_cause.Death | None:
        death = root_cause.first(self._worker_state.state)
        return death if death is not None and death.event.t >= self._since else None

    def _is_unreported(self, end: WorkerEnd) -> bool:
        """Whether a command has failed that did not report how it ended."""
        is_ended = end.reports and self._worker_state.training_ended is not None
        return not is_ended and run_ending(end, self._worker_state.training_ended, None, ()).outcome == "failed"

    def _from_recorded(self, death: root_cause.Death) -> ev.FailureReported:
        """The report of a failure that a process recorded, about itself or about another rank."""
        event, report = death.event, _report_of(death.event, death.process)
        exits = (e for w in self._worker_state.state.in_order for e in w.rank_exits if e.process == death.process)
        # A rank without a journal has no event about its exit; its failure is named after the signal.
        by_signal = next((exited.signal for exited in exits), event.error if event.kind == "killed" else None)
        return self._with_context(report, by_signal, event.traceback)

    def _from_exit(self, end: WorkerEnd, exited: ev.WorkerExited) -> ev.FailureReported:
        """The report of a worker that ended without recording why."""
        worker = self._worker_state.state.processes.get(self._worker)
        report = ev.FailureReported(
            t=time.time(),
            process=self._worker,
            pid=exited.pid,
            kind=process_end.kind_of_end(end.returncode),
            error=exited.signal or "no error report",
            message=f"{end.who} {end_text(end.returncode)} without an error report",
            phase=worker.beat.phase if worker and worker.beat else "starting" if end.reports else "unknown",
            step=self._worker_state.newest_step,
            log=[],
            stack="",
            silent=True,
        )
        return self._with_context(report, exited.signal, "")

    def _with_context(self, report: ev.FailureReported, by_signal: str | None, traceback: str) -> ev.FailureReported:
        """The report with the last output and, if the process was killed, the kernel's out-of-memory count."""
        killed = by_signal == "SIGKILL"
        output = read_last(self._log, traceback)
        return replace(
            report,
            kind="memory" if killed and self.memory.rose() else report.kind,
            memory=self.memory.verdict() if killed else None,
            log=output.lines if self.output_before is None else self.output_before,
            stack=output.stack if report.kind == "aborted" else "",
            path=self._path,
        )

    def _publish(self, report: ev.FailureReported) -> None:
        self._reported = report
        self._worker_state.add(self._reporter.writer, report)
        if not self._write():
            self._reported = report = replace(report, path=None)
        self._reporter.emit(report)

    def _write(self) -> bool:
        """Writes the file; returns False if the disk refused it, or the clock was set back behind the failure."""
        failure = root_cause.failure(self._worker_state.state)
        if failure is None:
            return False
        text = "".join(f"{inert(line)}\n" for line in masked_lines(root_cause.block(failure)))
        try:
            write_atomically(self._run_dir / self._path, text.encode("utf-8", "replace"))
        except OSError:
            return False
        return True


def _report_of(failure: ev.FailureRaised, process: str) -> ev.FailureReported:
    """The report of a failure that a process recorded, without what only the supervisor knows."""
    return ev.FailureReported(
        t=time.time(),
        process=process,
        pid=failure.pid,
        kind=failure.kind,
        error=failure.error,
        message=failure.message,
        phase=failure.phase,
        step=failure.step,
        log=[],
        stack="",
        silent=False,
    )
