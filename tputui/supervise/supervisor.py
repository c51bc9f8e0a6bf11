"""Supervises one training process, or one command of the user: a loop from its start to the end event of the run.

The loop wakes several times a second and on signals. It writes events to the journal and acts on requests, stalls and
timeouts. It reads no configuration except the manifest, and imports no torch.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from tputui import formatting as fmt
from tputui.cache.cache_writer import CacheWriter
from tputui.device.sampler import DeviceSampler, start_sampler
from tputui.exit_codes import ExitCode
from tputui.supervise import spawn, strict
from tputui.supervise.alerts import AlertRules, Alerts, rules_of
from tputui.supervise.child_ends import SETTLE_S, LeftProcesses, daemons_text
from tputui.supervise.command import UserCommand, unobserved_reason
from tputui.supervise.disk_watch import ClockWatch, DiskWatch
from tputui.supervise.escalation import Escalation, SignalPipe, StallPolicy, StallStacks, Timing, signals_caught
from tputui.supervise.host_metrics import HostSampler
from tputui.supervise.hosts import HostLaunch, name_of, needs_launcher
from tputui.supervise.log_tail import LogTail, read_last
from tputui.supervise.outcome import FailureReport, RunEnding, WorkerEnd, run_ending, unsaved_reason
from tputui.supervise.own_log import ProblemLog, log_line
from tputui.supervise.python_stacks import StackSignal
from tputui.supervise.script import STOPS, Script
from tputui.supervise.sealing import seal_journals
from tputui.supervise.worker_state import WorkerState, journals_of, worker_journals
from tputui.telemetry import events as ev
from tputui.telemetry import requests, run_clock, rundir
from tputui.telemetry.files import ReservedSpace
from tputui.telemetry.process_end import worker_exited
from tputui.telemetry.reporter import Reporter

HARMLESS: frozenset[ev.RequestKind] = frozenset({"checkpoint", "stacks", "trace"})
"""Requests after which training goes on."""
SIGTERM_TO_ALL_S = 1.0
"""Seconds in which SIGTERM reaches the supervisor if it was sent to all processes of a run, and ended the command."""
BY_SIGTERM = (-signal.SIGTERM, 128 + signal.SIGTERM)
"""Return codes of a command that SIGTERM ended; a shell reports the second one."""
OUTPUT_RESERVE_BYTES = 1 << 20
"""Disk space for the output of training, which would end by an error of `print` as soon as the disk is full."""
TERMINATED_S = 5.0
"""Seconds in which the rest of the logs of a command is read if SIGTERM ended it."""


class Supervisor:
    """Supervises the one training process of this host."""

    def __init__(
        self,
        run_dir: Path,
        *,
        worker_argv: list[str] | None = None,
        timing: Timing | None = None,
        host_index: int = 0,
        command: UserCommand | None = None,
    ) -> None:
        """Reads the manifest and opens the journal. `command` is started instead of training by the engine.

        Raises `RunNotFound`, `FileExistsError` and `OSError`.
        """
        self._manifest = rundir.read_manifest(run_dir)
        self._argv = command.words if command else worker_argv or spawn.worker_argv(run_dir.resolve(), host_index)
        self._command = command
        self._host_index = host_index
        self._host = name_of(host_index, self._manifest.config)
        self._script: Script | None = None
        self._environment_dir = ""
        """The run directory in the environment of a command; empty without one."""
        self._run_dir = rundir.held(run_dir)
        self._timing = timing or Timing()
        self._reporter = Reporter(self._run_dir, "supervisor", host_index)
        self._hosts: HostLaunch | None = None
        if command is None and worker_argv is None and needs_launcher(self._manifest.config):
            self._hosts = HostLaunch(run_dir.resolve(), host_index, self._record_launch)
        writer = f"worker-{host_index}"
        self._log_path = self._run_dir / f"{writer}.log"
        self._log = LogTail(self._log_path)
        rules = rules_of(self._manifest.config, host_index, log_line)
        self._worker_state = WorkerState(
            self._run_dir,
            writer if command is None else None,
            measured=rules is not None,
            diagnosed=bool(strict.strict_rules(self._manifest.config)),
        )
        self._alerts = self._alerts_by(rules) if rules is not None else None
        self._cache_writer = CacheWriter(self._run_dir, journals_of(host_index))
        self._escalation = Escalation(self._timing)
        reported = f"logs-{host_index}" if command else writer
        self._report = FailureReport(
            self._run_dir,
            self._log_path,
            reported,
            self._worker_state,
            self._reporter,
            host_index=host_index,
        )
        stacks, config = StallStacks(self._run_dir), self._manifest.config
        self._stalls = StallPolicy(config, self._worker_state, self._escalation, self._reporter, stacks)
        self._stacks = StackSignal(self._run_dir, self._record_stacks)
        self._inbox = requests.Inbox(self._run_dir)
        self._requests: list[requests.Request] = []
        self._killed = False
        self._is_stop_unwritten = False
        """Whether a request to stop was acted on that the disk refused."""
        self._exited: ev.WorkerExited | None = None
        self._devices: DeviceSampler | None = None
        self._disk = DiskWatch(self._run_dir, self._warn, host=self._host)
        self._clock = ClockWatch(run_clock.run_clock(), self._warn)
        self._output_space: ReservedSpace | None = None
        self._journal_problem, self._cache_problem = ProblemLog(log_line), ProblemLog(log_line)
        self._own_problem = ProblemLog(self._warn)

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
            self._worker_state.add(self._reporter.writer, started)
            began = time.time()
            try:
                worker = self._start()
            except OSError as error:
                program = "the command" if self._command else "the training process"
                return self._end(RunEnding("failed", ExitCode.FAILED, f"{program} could not be started: {error}"))
            if self._hosts is None:
                self._reporter.emit(ev.WorkerStarted(t=time.time(), pid=worker.pid, argv=self._argv))
            with contextlib.suppress(OSError):
                self._output_space = ReservedSpace(self._log_path, OUTPUT_RESERVE_BYTES)
            self._devices = start_sampler(self._command.environ if self._command else os.environ, began)
            self._watch(worker, pipe)
            self._emit_devices(ends=True)
            return self._end(self._ending_of(worker, pipe))

    def _start(self) -> subprocess.Popen[bytes]:
        if self._hosts is not None:
            return self._hosts.start(self._log_path)
        if self._command is None:
            return spawn.start_worker(self._argv, self._log_path)
        self._environment_dir = str(self._run_dir.resolve())
        process = spawn.start_command(self._command, self._run_dir, self._log_path)
        if (why := unobserved_reason(self._command.environ)) is not None:
            self._reporter.emit(ev.WarningRaised(t=time.time(), text=why))
        table = self._manifest.config.get("script")
        try:
            self._script = Script(
                self._run_dir,
                process.pid,
                table if isinstance(table, dict) else {},
                self._reporter,
                self._worker_state,
                self._host_index,
                host=self._host,
            )
        except OSError:
            spawn.kill_group(process.pid)
            process.wait()
            raise
        return process

    def _watch(self, worker: subprocess.Popen[bytes], pipe: SignalPipe) -> None:
        """Returns when the worker and its whole process group have ended."""
        host = HostSampler(worker.pid, names_ranks=self._command is not None)
        sample_due = time.monotonic() + self._timing.sample_s
        while not spawn.has_exited(worker.pid):
            self._take_signals(pipe, worker.pid, self._timing.tick_s)
            self._tick(worker.pid)
            if time.monotonic() >= sample_due:
                sample_due = max(sample_due + self._timing.sample_s, time.monotonic())
                self._reporter.emit(host.sample())
                self._report.memory.sample()
        # The exited leader is not reaped yet, so its group's number cannot be another's.
        if self._script is not None:
            self._end_command(self._script, worker.pid, pipe)
        spawn.kill_group(worker.pid)
        worker.wait()
        self._poll_hosts()
        pid = worker.pid if self._hosts is None else self._hosts.unreported_pid(worker)
        self._exited = self._hosts.exited if self._hosts is not None else None
        if pid is not None:
            self._exited = worker_exited(time.time(), pid, worker.returncode)
            self._reporter.emit(self._exited)
        if self._output_space is not None:
            self._output_space.close()
        if daemons := daemons_text(host.survivors(), worker.pid, self._environment_dir):
            self._warn(daemons)

    def _take_signals(self, pipe: SignalPipe, worker_pid: int, timeout_s: float) -> None:
        """Waits for signals; each SIGTERM makes a request."""
        for number in pipe.wait(timeout_s):
            if number == signal.SIGTERM:
                self._submit(self._escalation.on_sigterm(time.monotonic()), worker_pid)

    def _end_command(self, script: Script, pid: int, pipe: SignalPipe) -> None:
        """Ends a command whose first process has ended: the others may finish, unless it failed."""
        returncode = spawn.returncode_of(pid) or 0
        # A cluster sends SIGTERM to all processes of a run, and the command may be the first to end by it.
        until = time.monotonic() + (SIGTERM_TO_ALL_S if returncode in BY_SIGTERM else 0.0)
        while True:
            self._take_signals(pipe, pid, max(0.0, min(until - time.monotonic(), self._timing.tick_s)))
            self._take_requests()
            if self._is_stop_asked() or time.monotonic() >= until:
                break
        script.is_end_noticed = True
        is_stopped, began = self._is_stop_asked(), time.monotonic()
        if is_stopped and returncode != 0:
            script.signal_left()
        may_finish = (is_stopped and not self._killed) or returncode == 0
        grace_s = min(script.exit_grace_s, math.inf if may_finish else SETTLE_S)
        left = LeftProcesses(pid, returncode, began, min(grace_s, self._escalation.deadline - began), self._warn)
        while left.may_go_on(time.monotonic()):
            is_terminated, num_before = signal.SIGTERM in pipe.wait(self._timing.tick_s), len(self._requests)
            self._escalation.terminated |= is_terminated
            self._tick(pid, escalates=False)
            asked = {request.kind for request in self._requests[num_before:]}
            if "stop_now" in asked or (not is_stopped and (is_terminated or asked & STOPS)):
                break
        if not self._killed:
            left.end(time.monotonic())

    def _tick(self, worker_pid: int, *, escalates: bool = True) -> None:
        """Polls everything once. `escalates`: takes the next step against a worker that does not stop."""
        with self._surviving("the run's files"):
            self._record_log(final=False)
            self._worker_state.read()
            self._poll_hosts()
            self._report.check()
            self._submit(self._stalls.check(run_clock.now(), time.monotonic()), worker_pid, by="stall")
            self._take_requests()
            self._stacks.check(self._worker_state.state, time.monotonic())
            if self._script is not None and self._script.poll(time.time(), time.monotonic()):
                self._stalls.stacks.request()
        self._emit_devices()
        self._check_alerts()
        due = self._escalation.due(time.monotonic()) if escalates else None
        if due == "stop_now":
            self._submit(
                due, worker_pid, by="no end after the request to stop" if self._script else requests.BY_SIGTERM
            )
        elif due == "kill":
            self._killed = True
            who = "training" if self._script is None else "the command"
            self._warn(f"{who} did not stop at once within {self._timing.kill_after_s:g} s and was killed")
            if self._script is not None:
                self._script.kill()
            else:
                spawn.kill_group(worker_pid)
        self._disk.check(self._reporter.failure, time.monotonic())
        self._clock.check()
        if self._output_space is not None:
            self._output_space.renew()
        failure = self._reporter.failure
        problem = f"the journal cannot be written: {failure}"
        self._journal_problem.update(failure and problem, "the journal can be written again")
        self._cache_writer.poll()
        self._log_cache_failure()

    def _poll_hosts(self) -> None:
        """Takes what the launcher of this host reports."""
        hosts = self._hosts
        while hosts is not None and (failed := hosts.poll()) is not None:
            if failed.host_index != self._host_index:
                self._report.report_of_host(failed)
            elif (exited := hosts.exited) is not None:
                self._worker_state.read()
                end = WorkerEnd(hosts.returncode(0), stop_asked=self._is_stop_asked(), killed=self._killed)
                self._report.worker_ended(end, exited)

    def _record_launch(self, event: ev.Event) -> None:
        """Records an event of the launcher."""
        if isinstance(event, ev.WorkerStarted):
            self._report.begin_generation(event.t)
        self._reporter.emit(event)

    def _alerts_by(self, rules: AlertRules) -> Alerts:
        return Alerts(self._run_dir, self._manifest, rules, self._worker_state, self._reporter.emit, log_line)

    def _check_alerts(self, ended: ev.RunEnded | None = None) -> None:
        """Raises and reports alerts; with the end event, those of the end too. No error of them may end the run."""
        if self._alerts is None:
            return
        try:
            if ended is not None:
                self._worker_state.read()
                self._worker_state.add(self._reporter.writer, ended)
                self._alerts.finish(ended, time.monotonic(), terminated=self._escalation.terminated)
            else:
                silence = self._script.silence if self._script is not None else None
                self._alerts.check(run_clock.now(), time.monotonic(), silence=silence)
        except Exception as error:
            self._alerts = None
            self._warn(f"there are no more alerts, because of a bug in tputui: {type(error).__name__}: {error}")

    def _emit_devices(self, *, ends: bool = False) -> None:
        """Writes what was read from the TPU runtime. `ends`: no process of the run is left that could answer."""
        if self._devices is None:
            return
        if ends:
            self._devices.close()
        for event in self._devices.poll():
            self._reporter.emit(event)

    def _record_stacks(self, taken: ev.Event) -> None:
        self._worker_state.add(self._reporter.writer, taken)
        self._reporter.emit(taken)

    def _take_requests(self) -> None:
        for request in self._inbox.poll():
            self._requests.append(request)
            if request.kind == "stacks" and (self._script is None or "stacks" in self._worker_state.handled_kinds):
                self._stacks.add_request(request.id, time.monotonic())
            if request.kind == "stacks" and self._devices is not None:
                self._devices.request_core_states(request.id)
            self._escalation.on_request(request.kind, time.monotonic(), by=request.by)
            if self._hosts is not None:
                self._hosts.on_request(request.kind)
            if self._script is not None and self._script.on_request(request, time.time()):
                self._escalation.allow_grace(time.monotonic() + self._script.stop_grace_s)

    def _submit(self, kind: ev.RequestKind | None, worker_pid: int, by: str = requests.BY_SIGTERM) -> None:
        """Writes the request that follows from SIGTERM or a stall, as any viewer would.

        If the disk refuses it, sends SIGTERM to the worker, which then saves and ends.
        """
        if kind is None:
            return
        try:
            requests.submit(self._run_dir, kind, by=by, now=time.time())
        except OSError as error:
            log_line(f"request {kind} could not be written ({error}); sending SIGTERM to the worker instead")
            self._is_stop_unwritten = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker_pid, signal.SIGTERM)
            self._escalation.on_request(kind, time.monotonic())

    def _ending_of(self, worker: subprocess.Popen[bytes], pipe: SignalPipe) -> RunEnding:
        """Reads the remaining events, answers the open requests, and returns how the run ended."""
        with self._surviving("the last of the run's files"):
            self._record_log(final=True)
            if self._script is not None:
                self._script.flush()
            self._worker_state.read()
            self._take_requests()
            if self._script is not None and worker.returncode != 0 and not self._is_stop_asked():
                self._report.output_before = self._script.report_failure(self._log_path, worker.returncode)
                self._worker_state.read()
        hosts = self._hosts
        returncode = worker.returncode if hosts is None else hosts.returncode(worker.returncode)
        end = WorkerEnd(
            returncode, stop_asked=self._is_stop_asked(), killed=self._killed, reports=self._command is None
        )
        state = self._worker_state
        of_hosts = None if hosts is None else hosts.ending(end, state.training_ended, state.failure, worker.returncode)
        exited = self._exited
        if exited is not None and (of_hosts is None or (of_hosts.outcome == "failed" and exited.pid != worker.pid)):
            with self._surviving("the last of the run's files"):
                self._report.worker_ended(end, exited)
        killed = end.returncode == -signal.SIGKILL and not self._killed
        end = end._replace(memory=self._report.memory.verdict() if killed else "")
        last = read_last(self._log_path)
        # If native code ended the process: the lines before the stack. What the interpreter prints after it is no help.
        ending = of_hosts or run_ending(end, state.training_ended, state.failure, last.lines or last.head)
        self._close_requests(ending, end)
        if self._script is not None:
            # The machine may be switched off soon after SIGTERM.
            until = time.monotonic() + TERMINATED_S if self._escalation.terminated else math.inf
            self._script.finish(ending.outcome, ending.reason, lambda: self._must_finish(pipe, until))
        return self._strictly(ending)

    def _must_finish(self, pipe: SignalPipe, until: float) -> bool:
        """Whether SIGTERM or a request to stop came after the command had ended, or the time `until` has come."""
        num_before = len(self._requests)
        is_terminated = signal.SIGTERM in pipe.wait(0.0)
        self._escalation.terminated |= is_terminated
        self._take_requests()
        is_asked = any(request.kind in STOPS for request in self._requests[num_before:])
        return is_terminated or is_asked or time.monotonic() >= until

    def _strictly(self, ending: RunEnding) -> RunEnding:
        """The ending, or a failure if training succeeded but the run has findings of `[diagnosis] strict`."""
        if ending.outcome != "done" or not strict.strict_rules(self._manifest.config):
            return ending
        violation, unanswered = strict.check(
            self._worker_state.state, self._manifest, str(self._run_dir), run_clock.now()
        )
        for text in unanswered:
            self._warn(text)
        return RunEnding("failed", ExitCode.FAILED, violation) if violation is not None else ending

    def _is_stop_asked(self) -> bool:
        """Whether a stop was requested; for a user's command, one that was not refused."""
        refused = self._worker_state.refused | self._script.refused if self._script is not None else set()
        asked = any(request.kind not in HARMLESS and request.id not in refused for request in self._requests)
        return asked or self._is_stop_unwritten

    def _close_requests(self, ending: RunEnding, end: WorkerEnd) -> None:
        """Writes a receipt for every request that has none."""
        for request in self._requests:
            script = self._script
            if request.id in self._worker_state.answered or (script is not None and request.id in script.refused):
                continue
            is_early = ending.outcome == "stopped" and self._worker_state.training_ended is None and not self._killed
            receipt: ev.Event
            lack = unsaved_reason(end) if request.kind != "stop_now" else None
            if (request.kind == "stop_now" and self._killed) or (request.kind in STOPS and (script or is_early)):
                step = script.newest_step if script is not None else self._worker_state.newest_step
                receipt = ev.RequestApplied(t=time.time(), request=request.id, kind=request.kind, step=step, lack=lack)
            else:
                why = fmt.with_reason("the run ended before this was done", ending.reason)
                receipt = ev.RequestRefused(t=time.time(), request=request.id, kind=request.kind, why=why)
            self._reporter.emit(receipt)

    def _end(self, ending: RunEnding) -> ExitCode:
        """Writes the end event, closes the files and seals the journals. Returns the exit code of the run."""
        ended = ev.RunEnded(
            t=time.time(),
            outcome=ending.outcome,
            exit_code=int(ending.exit_code),
            reason=ending.reason,
            training_ended=self._script is not None or self._worker_state.training_ended is not None,
        )
        # Before the end event, which is the last one: viewers leave when they have read it.
        self._check_alerts(ended)
        self._reporter.emit(replace(ended, t=time.time()))
        if not self._reporter.flush(self._timing.end_record_s):
            log_line(f"the end event could not be written: {self._reporter.failure}")
        self._reporter.close()
        self._worker_state.close()
        self._log.close()
        if self._hosts is not None:
            self._hosts.close()
        if self._host_index == 0:
            # Files of a save that was interrupted; their writer, on this host, is gone.
            rundir.clear_half_written(self._run_dir)
        self._cache_writer.finish()
        own_journals = [path for path in worker_journals(self._run_dir) if self._owns(path)]
        seal_journals(own_journals, self._manifest.config, self._cache_writer, log_line)
        self._log_cache_failure()
        return ending.exit_code

    def _owns(self, path: Path) -> bool:
        """Whether the process that wrote a journal ran on this host; those of commands are numbered over all hosts."""
        return self._hosts is None or path.name.startswith(f"worker-{self._host_index}.")

    def _record_log(self, *, final: bool) -> None:
        lines = self._log.read(final=final)
        for line in lines:
            self._reporter.emit(ev.LogWritten(t=time.time(), line=line))
        if self._script is not None:
            self._script.take_console(self._log.updates, is_cut=self._log.is_cut)

    def _log_cache_failure(self) -> None:
        problem = "the state cache cannot be written, so opening this run takes longer"
        self._cache_problem.update(self._cache_writer.error and f"{problem}: {self._cache_writer.error}")

    @contextlib.contextmanager
    def _surviving(self, files: str) -> Iterator[None]:
        """Neither files that cannot be read nor a bug end the supervisor: training would go on without it."""
        try:
            yield
        except OSError as error:
            self._own_problem.update(f"{files} cannot be read: {error.strerror or error}")
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            problem = f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"
            self._own_problem.update(f"supervision is incomplete, because of a bug in tputui: {problem}")

    def _warn(self, text: str) -> None:
        log_line(text)
        self._reporter.emit(ev.WarningRaised(t=time.time(), text=text))
