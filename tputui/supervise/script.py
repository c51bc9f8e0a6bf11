"""A command of the user under supervision: its journal, its signals, and the answers to requests that it cannot give.

A command that knows nothing of tputui can be stopped only by signals: SIGINT to the processes that train, SIGTERM to
its whole process group after a grace period, SIGKILL in the end. A process of the command that reports through the API
may say that it acts on requests itself; then these are left to it.

`StopSignals`: the signal of a request to stop, sent once to each process of a command that trains.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tputui import formatting as fmt
from tputui.config import ScriptConfig
from tputui.state.host_reports import REASON_CHARS_MAX
from tputui.state.process_state import ProcessState
from tputui.supervise import printed_failure
from tputui.supervise.child_ends import ChildEnd, ChildEnds, printed_before
from tputui.supervise.log_collector import LogCollector
from tputui.supervise.log_tail import LAST_LINES, Printed, last_raw_lines
from tputui.supervise.outcome import end_text
from tputui.supervise.process import CommandProcess
from tputui.supervise.python_stacks import PythonStacks
from tputui.supervise.spawn import has_exited
from tputui.supervise.training_processes import (
    ProcessRow,
    handles_sigterm,
    has_mapped,
    ignores,
    members,
    script_of,
    trainers,
)
from tputui.supervise.worker_state import WorkerState
from tputui.telemetry import events as ev
from tputui.telemetry import process_end, requests, rundir
from tputui.telemetry.reporter import Reporter

FOLLOW_S = 1.0
"""Seconds between two searches for processes that the command has started again."""


class StopSignals:
    """Signals the processes that train; if none runs Python, the process group of the command, as Ctrl-C does."""

    def __init__(self, leader: int, number: signal.Signals | None, reporting: Callable[[], Collection[int]]) -> None:
        """`leader` is the first process of the command; `reporting` returns the ids of processes that report steps.
        Without a `number`, processes that handle SIGTERM get it, and the others SIGINT."""
        self._leader = leader
        self._number = number
        self._reporting = reporting
        self._signalled: set[ProcessRow] = set()
        self._at_signal: frozenset[ProcessRow] | None = None
        """The processes of the command when the signal was sent; None before."""
        self._scripts: set[str] = set()
        """What the processes ran that trained then."""
        self._due = 0.0
        self._passes_sigterm = False

    def send(self, *, by_sigterm: bool) -> None:
        """Sends the signal, unless it was sent: a second one would interrupt the save that the first one began.

        `by_sigterm`: SIGTERM requests the stop. It is passed on to processes that handle it, which may have got it
        already: clusters send it to all processes of a run, and SIGINT would interrupt the save that it began.
        """
        if self._at_signal is not None:
            return
        self._passes_sigterm = by_sigterm
        self._at_signal = frozenset(members(self._leader).values())
        for trainer in (training_processes := trainers(self._leader, self._reporting())):
            self._scripts.add(script_of(trainer.process.pid))
            self._signal(trainer.process)
        if not training_processes:
            self._signalled |= self._at_signal
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._leader, self._number or signal.SIGINT)

    def follow(self, tick: float) -> None:
        """Signals what starts a script again after the stop ended it: its launcher, or below a shell the script
        itself. `tick` is a monotonic time."""
        if self._at_signal is None or tick < self._due:
            return
        self._due = tick + FOLLOW_S
        starters = {row.pid for row in members(self._leader).values()}
        for trainer in trainers(self._leader, self._reporting()):
            # What a process that has ended left, such as an upload, was not started again.
            is_new = trainer.process not in self._at_signal and trainer.process.parent in starters
            if is_new and script_of(trainer.process.pid) in self._scripts:
                self._signal(trainer.launcher or trainer.process)

    def send_to_heirs(self) -> None:
        """Signals what trains on although the command, which has ended by the signal, had started it."""
        for trainer in trainers(self._leader, self._reporting()) if self._at_signal is not None else ():
            if trainer.process in (self._at_signal or ()) or script_of(trainer.process.pid) in self._scripts:
                self._signal(trainer.process)

    def _signal(self, process: ProcessRow) -> None:
        if process not in self._signalled:
            self._signalled.add(process)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, self._number_for(process.pid))

    def _number_for(self, pid: int) -> signal.Signals:
        number = self._number or signal.SIGINT
        if not handles_sigterm(pid):
            return number
        # Python handles SIGINT in every script, but SIGTERM only in those that are to save when they are ended by it.
        is_better = self._number is None and not has_mapped(pid, b"/jaxlib/")
        return signal.SIGTERM if is_better or self._passes_sigterm or ignores(pid, number) else number


ROLE = "logs"
QUIET_MIN_S = 300.0
"""A shorter silence is never reported ..."""
QUIET_TIMES = 20.0
"""... nor one of less than this many times the median time between two outputs."""
_INTERVALS_KEPT = 256
_RANK_FAILED = re.compile(r"failed \(exitcode: (-?\d{1,5})\) local_rank: (\d{1,6}) \(pid: (\d{1,9})\)")
"""What the agent of torchrun logs of the first of its processes that failed; accelerate starts the same agent."""
FLUSH_S = 1.0
TOO_LATE = "the command ended before this was done"
_REFUSALS: dict[ev.RequestKind, str] = {
    "checkpoint": "the script does not report that it saves on request; see run.save_if_asked of the tputui API",
    "trace": "the script has not called run.step() of the tputui API yet, after which a profile starts",
    "stop_after_epoch": "the script does not report its epochs or that it stops on request; use `tputui stop`, which "
    "sends it a signal",
}


class _RankEnd(NamedTuple):
    """The end of a rank that the launcher of the command has named."""

    pid: int
    local_rank: str
    returncode: int


class Script(CommandProcess):
    """A running command that promises nothing: what it does not report is read, and what it cannot answer is done."""

    subject = "the command"
    stop_now_by = "no end after the request to stop"

    def __init__(
        self,
        run_dir: Path,
        pid: int,
        table: Mapping[str, Any],
        reporter: Reporter,
        state: WorkerState,
        host_index: int,
        *,
        host: str = "",
    ) -> None:
        """`table` is the table `[script]` of the run, `reporter` writes the journal of the supervisor. `host` names
        this host if the run has several.

        Raises `OSError`.
        """
        super().__init__(pid, state)
        self._of_host = f" of {host}" if host else ""
        self._reporter = reporter
        defaults = {field: getattr(_DEFAULTS, field) for field in ("stop_signal", "stop_grace_s", "exit_grace_s")}
        given = {name: table.get(name, value) for name, value in defaults.items()}
        stop_signal = signal.Signals.__members__.get(str(given["stop_signal"]))
        self.stop_grace_s = float(given["stop_grace_s"])
        self.exit_grace_s = float(given["exit_grace_s"])
        self._logs = Reporter(run_dir, ROLE, host_index, process=rundir.process_with(pid))
        self._collector = LogCollector(run_dir, pid, self._logs, table, host_index)
        self._log = run_dir / f"worker-{host_index}.log"
        self._children = ChildEnds(pid, self._log)
        self._stacks = PythonStacks(pid, self._logs.writer, self._record_stacks)
        self._quiet = QuietCheck(time.monotonic())
        self._ended = False
        self._failed_ranks: list[_RankEnd] = []
        """Ranks that the launcher has named as failed, not reported yet."""
        self._unknown_rank: _RankEnd | None = None
        """The newest of them that has no journal. The command may start it again, so it is reported at the end."""
        self._is_signalled = False
        """Whether the command was sent a signal, by which its ranks may end."""
        self._stop_signals = StopSignals(pid, stop_signal, state.reporting_pids)

    @property
    def newest_step(self) -> int:
        return max(self._collector.newest_step, self._state.newest_step)

    @property
    def takes_stacks(self) -> bool:
        return "stacks" in self._state.handled_kinds

    def take_console(self, parts: list[Printed], *, is_cut: bool = False) -> None:
        self._collector.take_console(parts, is_cut=is_cut)
        matches = (_RANK_FAILED.search(part.text) for part in parts)
        self._failed_ranks += [
            _RankEnd(int(match.group(3)), match.group(2), int(match.group(1))) for match in matches if match
        ]

    def poll(self, now: float, tick: float) -> bool:
        self._collector.poll(now)
        self._report_ranks()
        self._children.poll(tick)
        self._stacks.poll(tick, self.newest_step)
        self._stop_signals.follow(tick)
        activity = (self._collector.num_lines, self._collector.num_values, self.newest_step)
        why = self._quiet.check(activity, tick)
        self.silence = (why or self.silence) if self._quiet.is_reported else None
        if why is not None:
            self._reporter.emit(ev.StallFound(t=now, text=why, step=self.newest_step, policy="notify"))
        return why is not None

    def on_request(self, request: requests.Request, now: float) -> bool:
        kind = request.kind
        if request.id in self._state.answered:
            return False
        why, has_ended = None, has_exited(self.pid)
        if has_ended and (self.is_end_noticed or kind not in requests.STOPS or request.by != requests.BY_SIGTERM):
            why = TOO_LATE
        elif kind in self._state.handled_kinds and kind != "stop_now":
            return False
        elif kind == "stacks":
            why = self._stacks.begin(request.id, time.monotonic())
        elif kind in _REFUSALS:
            why = _REFUSALS[kind]
        if why is not None:
            self._reporter.emit(ev.RequestRefused(t=now, request=request.id, kind=kind, why=why))
            self.refused.add(request.id)
            return False
        self._reporter.emit(
            ev.RequestSeen(t=now, request=request.id, kind=kind, phase="unknown", step=self.newest_step)
        )
        if kind == "stacks" or has_ended:
            # Not signalled: its number may already be that of another process.
            return False
        if kind == "stop_now":
            self._signal(signal.SIGTERM)
        else:
            self._is_signalled = True
            self._stop_signals.send(by_sigterm=request.by == requests.BY_SIGTERM)
        return kind == "stop"

    def signal_left(self) -> None:
        self._stop_signals.send_to_heirs()

    def kill(self) -> None:
        """Kills every process of the command, also those that left its process group."""
        import psutil

        members: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            members = psutil.Process(self.pid).children(recursive=True)
        self._signal(signal.SIGKILL)
        for member in members:
            with contextlib.suppress(psutil.Error):
                member.kill()

    def flush(self) -> None:
        self._logs.flush(FLUSH_S)

    def report_failure(self, log: Path, returncode: int) -> list[str] | None:
        """Reports the failure that the output shows, else a rank that ended without a report. Reports
        nothing if a process of the command reported a failure that does not follow from the end of another one.

        Returns the last lines that were printed before the traceback; None if nothing was reported here.
        """
        self._report_ranks()
        self._logs.flush()
        self._state.read()
        reported = self._state.failure
        if reported is not None and reported.error not in process_end.FOLLOWING:
            return None
        lines = last_raw_lines(log)
        failure = printed_failure.cause_in(lines, returncode)
        if failure is not None and self._ended_earlier(f"{failure.error}: {failure.message}".partition("\n")[0]):
            failure = None
        is_cause = failure is not None and not failure.is_following and not failure.is_of_launcher
        unknown = self._unknown_rank
        if unknown is not None and (not is_cause or _is_killed(unknown)):
            self._report_rank(unknown, None)
            self._logs.flush()
            return None
        child = self._children.first
        if child is not None and not is_cause:
            return self._report_child(child)
        if failure is None or (reported is not None and not is_cause):
            return None
        aborted = unknown or child
        self._logs.emit(
            ev.FailureRaised(
                t=time.time(),
                error=process_end.PEER_LOST if failure.is_following else failure.error,
                message=f"{failure.error}: {failure.message}" if failure.is_following else failure.message,
                traceback=failure.text,
                phase="unknown",
                step=self.newest_step,
                kind=failure.kind,
                pid=aborted.pid if aborted is not None and failure.kind == "aborted" else None,
                frames=[frame for frame in failure.frames if frame.owner == "user"],
            )
        )
        self._logs.flush()
        return lines[max(0, failure.first_line - LAST_LINES) : failure.first_line]

    def _report_ranks(self) -> None:
        """Reports the ranks that failed without a report of their own, as one that the kernel killed. Only the launcher
        knows how; the others report that they lost it. Raises `OSError`."""
        named, self._failed_ranks = self._failed_ranks, []
        if not named or self._is_signalled:
            return
        self._state.read()
        for end in named:
            rank = self._rank_with(end.pid)
            if rank is None:
                self._unknown_rank = end
            elif not (rank.failure or rank.training_ended):
                self._report_rank(end, rank)

    def _rank_with(self, pid: int) -> ProcessState | None:
        """The process of the command with this id that has a journal; other hosts may have equal ids."""
        here = rundir.host_id()
        heads = ((process, process.opened) for process in self._state.state.workers)
        return next((process for process, head in heads if head and head.pid == pid and head.host_id == here), None)

    def _report_rank(self, end: _RankEnd, rank: ProcessState | None) -> None:
        """Reports the end of a rank; `rank` is its state, None if it has no journal."""
        t = time.time()
        if rank is not None:
            signal_name = process_end.signal_name(end.returncode)
            exit_code = None if signal_name else end.returncode
            self._logs.emit(
                ev.RankExited(
                    t=t, process=rank.name, pid=end.pid, exit_code=exit_code, signal=signal_name, ending=False
                )
            )
        who = f"rank {rank.index}" if rank is not None else f"local rank {end.local_rank}{self._of_host}"
        self._emit_end(t, end.pid, end.returncode, f"{who} {end_text(end.returncode)} without an error report", rank)

    def _report_child(self, end: ChildEnd) -> list[str]:
        """Reports the end of a process of the command; returns the last lines that it had printed."""
        rank, lines = printed_before(self._log, end)
        who = f"rank {rank} (pid {end.pid})" if rank is not None else f"a child process (pid {end.pid})"
        why = f"{who} {end_text(end.returncode)} without an error report"
        why += f", {fmt.duration(max(0.0, time.time() - end.t))} before the command"
        why += f"; it last printed: {lines[-1]}" if rank is not None and lines else ""
        self._emit_end(end.t, end.pid, end.returncode, why, self._rank_with(end.pid))
        self._logs.flush()
        return lines[-LAST_LINES:]

    def _emit_end(self, t: float, pid: int, returncode: int, why: str, rank: ProcessState | None) -> None:
        """Reports that a process ended without a report of its own; `rank` is its state if it has a journal."""
        beat = rank.beat if rank is not None else None
        self._logs.emit(
            ev.FailureRaised(
                t=t,
                error=process_end.signal_name(returncode) or "no error report",
                message=why,
                traceback="",
                phase=beat.phase if beat is not None else "unknown",
                step=beat.step if beat is not None else 0,
                kind=process_end.kind_of_end(returncode),
                process=rank.name if rank is not None else None,
                pid=pid,
            )
        )

    def _ended_earlier(self, error: str) -> bool:
        """Whether processes ended by an error that the command has started again since."""
        restarts = [restart for process in self._state.state.in_order for restart in process.reports.restarts]
        return error[:REASON_CHARS_MAX] in (restart.reason for restart in restarts)

    def finish(self, outcome: ev.Outcome, reason: str, is_stop_requested: Callable[[], bool] = lambda: False) -> None:
        if self._ended:
            return
        self._ended = True
        self._stacks.close()
        self._collector.close(is_stop_requested)
        # A process that reports by itself reports its own end, with its own words.
        why = "" if self._collector.has_reporter else reason
        self._logs.emit(ev.TrainingEnded(t=time.time(), outcome=outcome, step=self.newest_step, reason=why))
        self._logs.close()

    def _record_stacks(self, event: ev.Event) -> None:
        self._state.add(self._reporter.writer, event)
        self._reporter.emit(event)
        if isinstance(event, ev.RequestApplied | ev.RequestRefused):
            self._state.answered.add(event.request)

    def _signal(self, number: signal.Signals) -> None:
        self._is_signalled = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def _is_killed(end: _RankEnd) -> bool:
    """Whether a rank was ended from outside, so that no traceback in the output is the cause."""
    return process_end.kind_of_end(end.returncode) == "killed"


class QuietCheck:
    """Detects that a command has printed and logged nothing for unusually long. Reports each silence once."""

    def __init__(self, tick: float) -> None:
        self._seen: object = None
        self._since = tick
        self._intervals: deque[float] = deque(maxlen=_INTERVALS_KEPT)
        self.is_reported = False
        """Whether the present silence was reported."""

    def check(self, activity: object, tick: float) -> str | None:
        """A sentence if the silence has become too long. `activity` differs from the last call's after any output."""
        if activity != self._seen:
            if self._seen is not None:
                self._intervals.append(tick - self._since)
            self._seen, self._since, self.is_reported = activity, tick, False
            return None
        usual_s = median(self._intervals) if self._intervals else 0.0
        quiet_s = tick - self._since
        if self.is_reported or quiet_s < max(QUIET_MIN_S, QUIET_TIMES * usual_s):
            return None
        self.is_reported = True
        before = f"; the median before was {fmt.duration(usual_s)}" if self._intervals else ""
        return f"the command has printed no output and logged no value for {fmt.whole(quiet_s)}{before}"


_DEFAULTS = ScriptConfig(command=[""])
