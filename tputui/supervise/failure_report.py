"""The first failure of a run, told within a moment of the first death: as a fact, and as `failure.txt` beside it.

Told once; when everything has ended the file is written again, with what followed. Must not end anything: the worker
ends the other ranks, and the supervisor what is left of the worker's group.
"""

from __future__ import annotations

import time
from pathlib import Path

from msgspec.structs import replace

from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.state import root_cause
from tputui.supervise import outcome, output_tail
from tputui.supervise.oom import OutOfMemoryWatch
from tputui.supervise.worker_state import WorkerState
from tputui.telemetry import events as ev
from tputui.telemetry.redaction import masked_text
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.rundir import write_atomically

FAILURE_FILE = "failure.txt"
BROKEN_CODE = frozenset({"SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP"})
"""Signals by which native code ends its own process."""


class FailureReport:
    """Tells the first failure of the training processes of one worker."""

    def __init__(self, run_dir: Path, log: Path, writer: str, ledger: WorkerState, reporter: Reporter) -> None:
        """`writer` is the worker's name, `log` what its processes print."""
        self._run_dir = run_dir
        self._log = log
        self._worker = writer
        self._ledger = ledger
        self._reporter = reporter
        self.memory = OutOfMemoryWatch()
        self._told: ev.FailureReported | None = None

    def look(self) -> None:
        """Tells a failure of which a process has told, where that is new."""
        death = root_cause.first(self._ledger.state)
        if self._told is None and death is not None and death.event.error != root_cause.PEER_LOST:
            self._tell(self._of_death(death))

    def worker_ended(self, end: outcome.WorkerEnd, exited: ev.WorkerExited) -> None:
        """Tells of an end of the worker that it did not tell of itself, then writes down what followed."""
        supervisor = self._reporter.writer
        self._ledger.note(supervisor, exited)
        death = root_cause.first(self._ledger.state)
        if self._told is None and death is not None:
            self._tell(self._of_death(death))
        elif self._told is None and self._broke(end):
            self._tell(self._of_silence(end, exited))
        if self._told is not None:
            self._write()

    def _broke(self, end: outcome.WorkerEnd) -> bool:
        if self._ledger.training_ended is not None or end.killed:
            return False
        return not (end.returncode == ExitCode.STOPPED and end.stop_asked)

    def _of_death(self, death: root_cause.Death) -> ev.FailureReported:
        """What a process told itself, or the first rank of another one."""
        event = death.event
        found = ev.FailureReported(
            t=time.time(),
            process=death.process,
            pid=event.pid,
            kind=event.kind,
            error=event.error,
            message=event.message,
            phase=event.phase,
            step=event.step,
            log=[],
            stack="",
            silent=False,
        )
        exits = (e for w in self._ledger.state.workers for e in w.rank_exits if e.process == death.process)
        return self._with_rest(found, next((exited.signal for exited in exits), None), event.traceback)

    def _of_silence(self, end: outcome.WorkerEnd, exited: ev.WorkerExited) -> ev.FailureReported:
        """What can be told of a worker that is gone and left no word."""
        worker = self._ledger.state.processes.get(self._worker)
        found = ev.FailureReported(
            t=time.time(),
            process=self._worker,
            pid=exited.pid,
            kind=_kind(end.returncode),
            error=exited.signal or "no last word",
            message=f"the training process ended by {outcome.words_for(end.returncode)} and said nothing of it",
            phase=worker.beat.phase if worker and worker.beat else "starting",
            step=self._ledger.newest_step,
            log=[],
            stack="",
            silent=True,
        )
        return self._with_rest(found, exited.signal, "")

    def _with_rest(self, found: ev.FailureReported, by_signal: str | None, traceback: str) -> ev.FailureReported:
        """With what was printed last, and what the kernel counts where a process was killed."""
        killed = by_signal == "SIGKILL"
        words = output_tail.read(self._log, traceback)
        return replace(
            found,
            kind="memory" if killed and self.memory.rose() else found.kind,
            memory=self.memory.verdict() if killed else None,
            log=words.lines,
            stack=words.stack if found.kind == "aborted" else "",
            path=FAILURE_FILE,
        )

    def _tell(self, told: ev.FailureReported) -> None:
        self._told = told
        self._ledger.note(self._reporter.writer, told)
        if not self._write():
            self._told = told = replace(told, path=None)
        self._reporter.emit(told)

    def _write(self) -> bool:
        """Writes the report as far as it is known; whether the disk took it."""
        failure = root_cause.failure(self._ledger.state)
        assert failure is not None, "it was told"
        text = "".join(f"{inert(masked_text(line))}\n" for line in root_cause.block(failure))
        try:
            write_atomically(self._run_dir / FAILURE_FILE, text.encode("utf-8", "replace"))
        except OSError:
            return False
        return True


def _kind(returncode: int) -> ev.FailureKind:
    """How a process broke that said nothing, by what it ended with."""
    if returncode < 0:
        return "aborted" if outcome.signal_name(returncode) in BROKEN_CODE else "killed"
    # Whatever the exit code: a worker that refuses says so in its journal.
    return "exited"
