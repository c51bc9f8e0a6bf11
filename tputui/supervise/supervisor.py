"""Supervises the command of a run on one host: a loop from its start to the end event of the run.

The loop wakes several times a second and on signals. It writes events to the journal and acts on requests, stalls and
timeouts. It reads no configuration except the manifest, and imports no torch.
"""

from __future__ import annotations

import math
import signal
import subprocess
import time
from pathlib import Path

from msgspec.structs import replace

from tputui.exit_codes import ExitCode
from tputui.supervise import spawn, strict
from tputui.supervise.alerts import Alerts, rules_of
from tputui.supervise.child_ends import SETTLE_S, LeftProcesses
from tputui.supervise.command import RunCommand, unobserved_reason
from tputui.supervise.escalation import Escalation, SignalPipe, StallPolicy, StallStacks, Timing, signals_caught
from tputui.supervise.hosts import HostLaunch, Launch, name_of, needs_launcher
from tputui.supervise.log_tail import read_last
from tputui.supervise.machine import MachineWatch
from tputui.supervise.outcome import FailureReport, WorkerEnd, run_ended, run_ending
from tputui.supervise.process import CommandProcess
from tputui.supervise.python_stacks import StackSignal
from tputui.supervise.record import RunRecord, log_line
from tputui.supervise.run_requests import RunRequests
from tputui.supervise.script import Script
from tputui.supervise.worker_state import WorkerState
from tputui.telemetry import events as ev
from tputui.telemetry import run_clock, rundir
from tputui.telemetry.process_end import worker_exited
from tputui.telemetry.requests import STOPS

SIGTERM_TO_ALL_S = 1.0
"""Seconds in which SIGTERM reaches the supervisor if it was sent to all processes of a run, and ended the command."""
BY_SIGTERM = (-signal.SIGTERM, 128 + signal.SIGTERM)
"""Return codes of a command that SIGTERM ended; a shell reports the second one."""
TERMINATED_S = 5.0
"""Seconds in which the rest of the logs of a command is read if SIGTERM ended it."""


class Supervisor:
    """Supervises the command of a run on this host."""

    def __init__(
        self,
        run_dir: Path,
        *,
        timing: Timing | None = None,
        host_index: int = 0,
        command: RunCommand | None = None,
    ) -> None:
        """Reads the manifest and opens the journal. `command` is started; default the engine, or its launcher.

        Raises `RunNotFound`, `FileExistsError` and `OSError`.
        """
        self._manifest = rundir.read_manifest(run_dir)
        self._command = command or spawn.engine_command(run_dir.resolve(), host_index)
        self._host_index = host_index
        self._host = name_of(host_index, self._manifest.config)
        self._folder = str(run_dir.resolve())
        """The directory at the start of the run; it may be renamed."""
        self._run_dir = rundir.held(run_dir)
        self._timing = timing or Timing()
        self._log_path = self._run_dir / f"worker-{host_index}.log"

        self._record = RunRecord(self._run_dir, host_index, self._log_path)
        rules = rules_of(self._manifest.config, host_index, log_line)
        self._state = WorkerState(
            self._run_dir,
            self._command.writer,
            measured=rules is not None,
            diagnosed=bool(strict.strict_rules(self._manifest.config)),
        )
        self._failures = FailureReport(
            self._run_dir,
            self._log_path,
            self._command.writer or f"logs-{host_index}",
            self._state,
            self._record.reporter,
            host_index=host_index,
        )
        self._launch = Launch(self._command, self._record.emit)
        if command is None and needs_launcher(self._manifest.config):
            self._launch = HostLaunch(run_dir.resolve(), host_index, self._record_launch)
        self._machine = MachineWatch(self._run_dir, self._record, self._timing.sample_s, host=self._host)
        stacks, escalation = StackSignal(self._run_dir, self._record_stacks), Escalation(self._timing)
        self._requests = RunRequests(self._run_dir, self._state, self._record, escalation, stacks)
        self._stalls = StallPolicy(
            self._manifest.config, self._state, escalation, self._record.reporter, StallStacks(self._run_dir)
        )
        self._alerts: Alerts | None = None
        if rules is not None:
            self._alerts = Alerts(self._run_dir, self._manifest, rules, self._state, self._record.emit, log_line)
        self._process: CommandProcess

    def run(self) -> ExitCode:
        """Runs the command to its end; returns the run's exit code. Only in the main thread."""
        with signals_caught() as pipe:
            started = ev.RunStarted(
                t=time.time(),
                run=self._manifest.run,
                config=self._manifest.config,
                argv=self._manifest.argv,
                resumed_from=self._manifest.resume_from,
            )
            self._record.emit(started)
            self._state.add(self._record.reporter.writer, started)
            began = time.time()
            try:
                child = self._start()
            except OSError as error:
                why = f"{self._command.who} could not be started: {error}"
                return self._end(run_ended("failed", ExitCode.FAILED, why), training_ended=False)
            self._launch.record_start(child.pid)
            self._machine.start(self._command, child.pid, self._log_path, began)
            self._follow(child.pid, pipe)
            exited = self._reap(child, pipe)
            ending = self._ending_of(child, exited, pipe)
            has_ended = self._command.writer is None or self._state.training_ended is not None
            return self._end(ending, training_ended=has_ended)

    def _start(self) -> subprocess.Popen[bytes]:
        child = self._launch.start(self._log_path)
        if self._command.writer is not None:
            self._process = CommandProcess(child.pid, self._state)
        else:
            if (why := unobserved_reason(self._command.environ)) is not None:
                self._record.emit(ev.WarningRaised(t=time.time(), text=why))
            table = self._manifest.config.get("script")
            try:
                self._process = Script(
                    self._run_dir,
                    child.pid,
                    table if isinstance(table, dict) else {},
                    self._record.reporter,
                    self._state,
                    self._host_index,
                    host=self._host,
                )
            except OSError:
                spawn.kill_group(child.pid)
                child.wait()
                raise
        self._requests.start(self._process)
        return child

    def _follow(self, pid: int, pipe: SignalPipe) -> None:
        """Returns when the process has ended; it is not reaped."""
        while not spawn.has_exited(pid):
            self._take_signals(pipe, self._timing.tick_s)
            self._tick()
            self._machine.sample(self._failures.memory.sample)

    def _tick(self, *, enforces: bool = True) -> None:
        """Polls everything once. `enforces`: takes the next step against a command that does not stop."""
        with self._record.surviving("the run's files"):
            self._read_output(final=False)
            self._state.read()
            self._poll_launch()
            self._failures.check()
            self._requests.submit(self._stalls.check(run_clock.now(), time.monotonic()), by="stall")
            self._take_requests()
            self._requests.fetch_stacks()
            if self._process.poll(time.time(), time.monotonic()):
                # Of a command that has become silent, as of one that stalls.
                self._stalls.stacks.request()
        self._check_alerts()
        if enforces:
            self._requests.enforce()
        self._machine.poll()
        self._record.poll()

    def _read_output(self, *, final: bool) -> None:
        self._record.copy_output(final=final)
        output = self._record.output
        self._process.take_console(output.updates, is_cut=output.is_cut)

    def _take_requests(self) -> None:
        self._requests.take(self._launch, self._machine)

    def _take_signals(self, pipe: SignalPipe, timeout_s: float) -> None:
        """Waits for signals; each SIGTERM makes a request."""
        for number in pipe.wait(timeout_s):
            if number == signal.SIGTERM:
                self._requests.submit(self._requests.escalation.on_sigterm(time.monotonic()))

    def _poll_launch(self) -> None:
        """Takes what the launcher of this host reports."""
        while (failed := self._launch.poll()) is not None:
            if failed.host_index != self._host_index:
                self._failures.report_of_host(failed)
            elif (exited := self._launch.exited) is not None:
                self._state.read()
                self._failures.worker_ended(self._end_of(self._launch.returncode(0)), exited)

    def _record_launch(self, event: ev.Event) -> None:
        if isinstance(event, ev.WorkerStarted):
            self._failures.begin_generation(event.t)
        self._record.emit(event)

    def _record_stacks(self, taken: ev.Event) -> None:
        self._state.add(self._record.reporter.writer, taken)
        self._record.emit(taken)

    def _reap(self, child: subprocess.Popen[bytes], pipe: SignalPipe) -> ev.WorkerExited | None:
        """Ends the process group of a process that has ended, and reaps it; returns the exit that was recorded."""
        # The exited leader is not reaped yet, so its group's number cannot be another's.
        if self._command.writer is None:
            self._let_finish(child.pid, pipe)
        spawn.kill_group(child.pid)
        child.wait()
        self._poll_launch()
        exited = self._launch.exited
        if (pid := self._launch.unreported_pid(child)) is not None:
            exited = worker_exited(time.time(), pid, child.returncode)
            self._record.emit(exited)
        self._machine.close(child.pid, self._folder)
        return exited

    def _let_finish(self, pid: int, pipe: SignalPipe) -> None:
        """Lets what a command has left finish, unless it failed, and ends the rest."""
        returncode = spawn.returncode_of(pid) or 0
        # A cluster sends SIGTERM to all processes of a run, and the command may be the first to end by it.
        until = time.monotonic() + (SIGTERM_TO_ALL_S if returncode in BY_SIGTERM else 0.0)
        while True:
            left_s = until - time.monotonic()
            self._take_signals(pipe, max(0.0, min(left_s, self._timing.tick_s)))
            self._take_requests()
            # A signal that came in time is also seen if this process had to wait for a processor since.
            if self._requests.is_stop_asked or left_s <= 0:
                break
        process, escalation = self._process, self._requests.escalation
        process.is_end_noticed = True
        is_stopped, began = self._requests.is_stop_asked, time.monotonic()
        if is_stopped and returncode != 0:
            process.signal_left()
        may_finish = (is_stopped and not self._requests.killed) or returncode == 0
        grace_s = min(process.exit_grace_s, math.inf if may_finish else SETTLE_S, escalation.deadline - began)
        left = LeftProcesses(pid, returncode, began, grace_s, self._record.warn)
        while left.may_go_on(time.monotonic()):
            is_terminated, num_before = signal.SIGTERM in pipe.wait(self._timing.tick_s), len(self._requests.taken)
            escalation.terminated |= is_terminated
            self._tick(enforces=False)
            asked = {request.kind for request in self._requests.taken[num_before:]}
            if "stop_now" in asked or (not is_stopped and (is_terminated or asked & STOPS)):
                break
        if not self._requests.killed:
            left.end(time.monotonic())

    def _ending_of(
        self, child: subprocess.Popen[bytes], exited: ev.WorkerExited | None, pipe: SignalPipe
    ) -> ev.RunEnded:
        """Reads the remaining events, answers the open requests, and returns how the run ended."""
        with self._record.surviving("the last of the run's files"):
            self._read_output(final=True)
            self._process.flush()
            self._state.read()
            self._take_requests()
            if child.returncode != 0 and not self._requests.is_stop_asked:
                self._failures.output_before = self._process.report_failure(self._log_path, child.returncode)
                self._state.read()
        end, state = self._end_of(self._launch.returncode(child.returncode)), self._state
        of_hosts = self._launch.ending(end, state.training_ended, state.failure, child.returncode)
        if exited is not None and (of_hosts is None or (of_hosts.outcome == "failed" and exited.pid != child.pid)):
            with self._record.surviving("the last of the run's files"):
                self._failures.worker_ended(end, exited)
        is_killed_by_others = end.returncode == -signal.SIGKILL and not end.killed
        end = end._replace(memory=self._failures.memory.verdict() if is_killed_by_others else "")
        last = read_last(self._log_path)
        # If native code ended the process: the lines before the stack. What the interpreter prints after it is no help.
        ending = of_hosts or run_ending(end, state.training_ended, state.failure, last.lines or last.head)
        self._requests.close(ending, end)
        # The machine may be switched off soon after SIGTERM.
        until = time.monotonic() + TERMINATED_S if self._requests.escalation.terminated else math.inf
        self._process.finish(ending.outcome, ending.reason, lambda: self._must_finish(pipe, until))
        return self._strictly(ending)

    def _end_of(self, returncode: int) -> WorkerEnd:
        return WorkerEnd(
            returncode,
            stop_asked=self._requests.is_stop_asked,
            killed=self._requests.killed,
            reports=self._command.writer is not None,
        )

    def _must_finish(self, pipe: SignalPipe, until: float) -> bool:
        """Whether SIGTERM or a request to stop came after the command had ended, or the time `until` has come."""
        num_before = len(self._requests.taken)
        is_terminated = signal.SIGTERM in pipe.wait(0.0)
        self._requests.escalation.terminated |= is_terminated
        self._take_requests()
        is_asked = any(request.kind in STOPS for request in self._requests.taken[num_before:])
        return is_terminated or is_asked or time.monotonic() >= until

    def _check_alerts(self, ended: ev.RunEnded | None = None) -> None:
        """Raises and reports alerts; with the end event, those of the end too. No error of them may end the run."""
        if self._alerts is None:
            return
        try:
            if ended is not None:
                self._state.read()
                self._state.add(self._record.reporter.writer, ended)
                self._alerts.finish(ended, time.monotonic(), terminated=self._requests.escalation.terminated)
            else:
                self._alerts.check(run_clock.now(), time.monotonic(), silence=self._process.silence)
        except Exception as error:
            self._alerts = None
            self._record.warn(f"there are no more alerts, because of a bug in tputui: {type(error).__name__}: {error}")

    def _strictly(self, ending: ev.RunEnded) -> ev.RunEnded:
        """The ending, or a failure if training succeeded but the run has findings of `[diagnosis] strict`."""
        if ending.outcome != "done" or not strict.strict_rules(self._manifest.config):
            return ending
        violation, unanswered = strict.check(self._state.state, self._manifest, str(self._run_dir), run_clock.now())
        for text in unanswered:
            self._record.warn(text)
        return run_ended("failed", ExitCode.FAILED, violation) if violation is not None else ending

    def _end(self, ending: ev.RunEnded, *, training_ended: bool) -> ExitCode:
        """Writes the end event, closes the files and seals the journals. Returns the exit code of the run."""
        ended = replace(ending, t=time.time(), training_ended=training_ended)
        # Before the end event, which is the last one: viewers leave when they have read it.
        self._check_alerts(ended)
        self._record.emit(replace(ended, t=time.time()))
        self._record.close(self._timing.end_record_s)
        self._state.close()
        self._launch.close()
        self._record.seal(self._manifest.config, self._launch.owns)
        return ExitCode(ending.exit_code)
