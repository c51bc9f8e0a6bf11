"""The watch: one loop from the start of the training process to the end record.

Wakes several times a second or when a signal arrives, hands what it finds to the journal and asks the collaborators
what falls due. Must not read configuration beyond the manifest, nor know anything of torch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tputui.cache.cache_writer import CacheWriter, Frame
from tputui.exit_codes import ExitCode
from tputui.supervise import outcome, output_tail, spawn
from tputui.supervise.escalation import Escalation, Timing
from tputui.supervise.failure_report import FailureReport
from tputui.supervise.host_metrics import HostSampler
from tputui.supervise.log_tail import LogTail
from tputui.supervise.signals import SignalPipe, signals_caught
from tputui.supervise.stack_signal import StackSignal
from tputui.supervise.stall_policy import StallPolicy
from tputui.supervise.worker_state import WorkerState, journals_of, worker_journals
from tputui.telemetry import events as ev
from tputui.telemetry import requests, rundir
from tputui.telemetry.compressed import CompressionError, seal
from tputui.telemetry.journal import SUFFIX
from tputui.telemetry.reporter import Reporter

HARMLESS: frozenset[ev.RequestKind] = frozenset({"checkpoint", "stacks"})
"""Requests after which training goes on."""
SURVIVORS_SHOWN = 8
"""Processes that outlive the training and are named."""


class Supervisor:
    """Supervises the one training process of this host."""

    def __init__(
        self, run_dir: Path, *, worker_argv: list[str] | None = None, timing: Timing | None = None, host_index: int = 0
    ) -> None:
        """Reads the manifest and opens the journal. Raises `RunNotFound`, `FileExistsError` and `OSError`."""
        self._manifest = rundir.read_manifest(run_dir)
        self._argv = worker_argv or spawn.worker_argv(run_dir.resolve())
        self._run_dir = rundir.held(run_dir)
        self._timing = timing or Timing()
        self._reporter = Reporter(self._run_dir, "supervisor", host_index)
        writer = f"worker-{host_index}"
        self._log_path = self._run_dir / f"{writer}.log"
        self._log = LogTail(self._log_path)
        self._ledger = WorkerState(self._run_dir, writer)
        self._keeper = CacheWriter(self._run_dir, journals_of(host_index))
        self._escalation = Escalation(self._timing)
        self._report = FailureReport(self._run_dir, self._log_path, writer, self._ledger, self._reporter)
        self._stalls = StallPolicy(self._manifest.config, self._ledger, self._escalation, self._reporter)
        self._stacks = StackSignal(self._run_dir, self._tell_stacks)
        self._inbox = requests.Inbox(self._run_dir)
        self._requests: list[requests.Request] = []
        self._killed = False
        self._exited: ev.WorkerExited | None = None
        self._journal_failure: str | None = None
        self._warned: str | None = None
        self._keeper_trouble: str | None = None

    def run(self) -> ExitCode:
        """Runs the training process to its end; returns the run's exit code. Only in the main thread."""
        with signals_caught() as pipe:
            started = ev.RunStarted(
                t=time.time(),
                run=self._manifest.run,
                config=self._manifest.config,
                argv=self._manifest.argv,
                resumed_from=self._manifest.resume_from,
            )
            self._reporter.emit(started)
            self._ledger.note(self._reporter.writer, started)
            try:
                worker = spawn.start_worker(self._argv, self._log_path)
            except OSError as error:
                words = f"the training process could not be started: {error}"
                return self._end(outcome.RunEnding("failed", ExitCode.FAILED, words))
            self._reporter.emit(ev.WorkerStarted(t=time.time(), pid=worker.pid, argv=self._argv))
            self._watch(worker, pipe)
            return self._end(self._judge(worker))

    def _watch(self, worker: subprocess.Popen[bytes], pipe: SignalPipe) -> None:
        """Returns when the worker is gone, with everything of its process group."""
        host = HostSampler(worker.pid)
        sample_due = time.monotonic() + self._timing.sample_s
        while not _has_exited(worker.pid):
            for number in pipe.wait(self._timing.tick_s):
                if number == signal.SIGTERM:
                    self._ask(self._escalation.on_sigterm(time.monotonic()), worker.pid)
            self._tick(worker.pid)
            if time.monotonic() >= sample_due:
                sample_due = max(sample_due + self._timing.sample_s, time.monotonic())
                self._reporter.emit(host.sample())
                self._report.memory.sample()
        # The exited leader is not reaped yet, so its group's number cannot be another's.
        _kill_group(worker.pid)
        worker.wait()
        self._exited = ev.WorkerExited(
            t=time.time(),
            pid=worker.pid,
            exit_code=worker.returncode if worker.returncode >= 0 else None,
            signal=outcome.signal_name(worker.returncode),
        )
        self._reporter.emit(self._exited)
        if left := host.survivors():
            shown = ", ".join(left[:SURVIVORS_SHOWN])
            self._warn(f"{len(left)} processes that the training started in sessions of their own still run: {shown}")

    def _tick(self, worker_pid: int) -> None:
        """Looks once at everything that may have changed. A file that cannot be read must not end the watch."""
        try:
            self._tell_log(final=False)
            self._ledger.read()
            self._report.look()
            self._ask(self._stalls.look(time.time(), time.monotonic()), worker_pid, by="stall")
            self._take_requests()
            self._stacks.look(self._ledger.state, time.monotonic())
        except OSError as error:
            self._warn_once(f"the run's files cannot be read: {error.strerror or error}")
        due = self._escalation.falls_due(time.monotonic())
        if due == "stop_now":
            self._ask(due, worker_pid)
        elif due == "kill":
            self._killed = True
            self._warn(f"stop at once was not obeyed within {self._timing.kill_after_s:g} s; training was killed")
            _kill_group(worker_pid)
        self._tell_journal_failure()
        self._keeper.look()
        self._tell_keeper_trouble()

    def _tell_stacks(self, taken: ev.Event) -> None:
        self._ledger.note(self._reporter.writer, taken)
        self._reporter.emit(taken)

    def _take_requests(self) -> None:
        for request in self._inbox.poll():
            self._requests.append(request)
            if request.kind == "stacks":
                self._stacks.asked(request.id, time.monotonic())
            self._escalation.on_request(request.kind, time.monotonic())

    def _ask(self, kind: ev.RequestKind | None, worker_pid: int, by: str = "SIGTERM") -> None:
        """Writes a request that SIGTERM or a stall stands for, as any viewer would.

        Where the disk refuses it, the worker gets the signal itself, which asks it to save and end.
        """
        if kind is None:
            return
        try:
            requests.submit(self._run_dir, kind, by=by, now=time.time())
        except OSError as error:
            _say(f"the request {kind} could not be written, so the worker is sent SIGTERM: {error}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker_pid, signal.SIGTERM)
            self._escalation.on_request(kind, time.monotonic())

    def _judge(self, worker: subprocess.Popen[bytes]) -> outcome.RunEnding:
        """Reads what is left to read, answers what nobody answered, and says how it ended."""
        try:
            self._tell_log(final=True)
            self._ledger.read()
            self._take_requests()
        except OSError as error:
            self._warn_once(f"the last of the run's files cannot be read: {error.strerror or error}")
        end = outcome.WorkerEnd(
            returncode=worker.returncode,
            stop_asked=any(request.kind not in HARMLESS for request in self._requests),
            killed=self._killed,
        )
        if self._exited is not None:
            self._report.worker_ended(end, self._exited)
        killed = worker.returncode == -signal.SIGKILL and not self._killed
        end = end._replace(memory=self._report.memory.verdict() if killed else "")
        last = output_tail.read(self._log_path)
        # Of an end in native code the lines before its stack; what the interpreter prints after it explains nothing.
        words = outcome.judge(end, self._ledger.training_ended, self._ledger.failure, last.lines or last.head)
        self._answer_the_unanswered(words)
        return words

    def _answer_the_unanswered(self, words: outcome.RunEnding) -> None:
        for request in self._requests:
            if request.id in self._ledger.answered:
                continue
            receipt: ev.Event
            if request.kind == "stop_now" and self._killed:
                step = self._ledger.newest_step
                receipt = ev.RequestApplied(t=time.time(), request=request.id, kind=request.kind, step=step)
            else:
                why = f"the run ended before this was done: {words.reason}"
                receipt = ev.RequestRefused(t=time.time(), request=request.id, kind=request.kind, why=why)
            self._reporter.emit(receipt)

    def _end(self, words: outcome.RunEnding) -> ExitCode:
        """Writes the end record, then tidies up."""
        self._reporter.emit(
            ev.RunEnded(
                t=time.time(),
                outcome=words.outcome,
                exit_code=int(words.exit_code),
                reason=words.reason,
                training_ended=self._ledger.training_ended is not None,
            )
        )
        if not self._reporter.flush(self._timing.last_words_s):
            _say(f"the end of the run could not be written: {self._reporter.failure}")
        self._reporter.close()
        self._ledger.close()
        self._log.close()
        # What a save left that was cut short; its writer is gone.
        rundir.clear_half_written(self._run_dir)
        self._keeper.finish()
        self._seal()
        self._tell_keeper_trouble()
        return words.exit_code

    def _seal(self) -> None:
        """Seals the worker's journals where the configuration asks for it; their writer is gone."""
        report = self._manifest.config.get("report")
        if not (isinstance(report, dict) and report.get("seal")):
            return
        for path in worker_journals(self._run_dir):
            self._seal_journal(path)

    def _seal_journal(self, path: Path) -> None:
        frames: list[Frame] = []
        try:
            target = seal(path, lambda offset, first_seq: frames.append(Frame(offset, first_seq)))
        except (CompressionError, OSError) as error:
            _say(f"{path.name} was not sealed and stands as it was: {error}")
        else:
            self._keeper.sealed(path.name.removesuffix(SUFFIX), target.name, frames)

    def _tell_log(self, *, final: bool) -> None:
        for line in self._log.read(final=final):
            self._reporter.emit(ev.LogWritten(t=time.time(), line=line))

    def _tell_journal_failure(self) -> None:
        failure = self._reporter.failure
        if failure != self._journal_failure:
            self._journal_failure = failure
            _say(f"the journal cannot be written: {failure}" if failure else "the journal is written again")

    def _tell_keeper_trouble(self) -> None:
        trouble = self._keeper.trouble
        if trouble != self._keeper_trouble:
            self._keeper_trouble = trouble
            if trouble:
                _say(f"no place in the journals is kept, so that opening this run takes longer: {trouble}")

    def _warn_once(self, text: str) -> None:
        if text != self._warned:
            self._warned = text
            self._warn(text)

    def _warn(self, text: str) -> None:
        _say(text)
        self._reporter.emit(ev.WarningRaised(t=time.time(), text=text))


def _has_exited(pid: int) -> bool:
    """Whether a child has ended; it is left to be reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _say(text: str) -> None:
    """Writes to the supervisor's log; a disk that refuses even that must not end the watch."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        sys.stderr.flush()
