"""What the supervisor makes of a training process that was started again, and of the failure of another host."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tputui.config import parse, to_builtins
from tputui.supervise.hosts import HostLaunch, needs_launcher
from tputui.supervise.outcome import FailureReport, WorkerEnd
from tputui.supervise.worker_state import WorkerState
from tputui.telemetry import events as ev
from tputui.telemetry import launch_messages, rundir
from tputui.telemetry.launch_messages import HostFailed
from tputui.telemetry.reporter import Reporter

FAILED = HostFailed(
    t=1.0,
    host_index=1,
    host="vm-1",
    generation=0,
    process="rank-3",
    pid=77,
    place="rank 3 (core 3)",
    kind="exception",
    error="ValueError",
    message="shard 7 is cut short",
    phase="data",
    step=12,
    code=3,
    is_final=False,
)


def write_generation(run_dir: Path, generation: int, *, fails: bool) -> None:
    """The journal of a training process on host 1."""
    # A process that has ended: no other one had its start time.
    ended = rundir.ProcessId(host="vm-1", host_id=rundir.host_id(), pid=os.getpid(), pid_started=1)
    reporter = Reporter(run_dir, "worker", 1, generation=generation, process=ended)
    if fails:
        reporter.emit(
            ev.FailureRaised(
                t=time.time(), error="ValueError", message="no", traceback="", phase="data", step=generation
            )
        )
    outcome: ev.Outcome = "failed" if fails else "done"
    reporter.emit(ev.TrainingEnded(t=time.time(), outcome=outcome, step=20 + generation, reason="it ended"))
    reporter.close()


def test_the_end_of_an_earlier_generation_does_not_count(tmp_path: Path) -> None:
    state = WorkerState(tmp_path, "worker-1")
    write_generation(tmp_path, 0, fails=True)
    state.read()
    assert state.failure is not None
    write_generation(tmp_path, 1, fails=False)
    state.read()
    assert state.failure is None
    assert state.training_ended is not None
    assert (state.training_ended.outcome, state.training_ended.step) == ("done", 21)
    state.close()


def test_what_is_read_late_of_an_earlier_generation_does_not_count(tmp_path: Path) -> None:
    write_generation(tmp_path, 0, fails=True)
    late = Reporter(tmp_path, "worker", 2)
    state = WorkerState(tmp_path)
    state.read()
    write_generation(tmp_path, 1, fails=False)
    late.emit(ev.FailureRaised(t=time.time(), error="ValueError", message="no", traceback="", phase="data", step=3))
    late.emit(ev.TrainingEnded(t=time.time(), outcome="failed", step=3, reason="it failed"))
    late.close()
    state.read()
    assert state.failure is None
    assert state.training_ended is not None
    assert state.training_ended.outcome == "done"
    state.close()


def test_the_end_of_a_command_on_another_host_does_not_hide_what_its_processes_said(tmp_path: Path) -> None:
    state = WorkerState(tmp_path)
    write_generation(tmp_path, 0, fails=False)
    state.read()
    command = Reporter(tmp_path, "logs", 1)
    command.emit(ev.TrainingEnded(t=time.time(), outcome="done", step=20, reason=""))
    command.close()
    state.read()
    assert state.training_ended is not None
    assert state.training_ended.reason == "it ended"
    state.close()


def test_of_several_ranks_the_one_with_the_steps_says_how_training_ended(tmp_path: Path) -> None:
    state = WorkerState(tmp_path)
    write_generation(tmp_path, 0, fails=False)
    stepless = Reporter(tmp_path, "worker", 2)
    stepless.emit(ev.TrainingEnded(t=time.time(), outcome="done", step=0, reason="0 steps trained"))
    stepless.close()
    state.read()
    assert state.training_ended is not None
    assert state.training_ended.reason == "it ended"
    failed = Reporter(tmp_path, "worker", 3)
    failed.emit(ev.TrainingEnded(t=time.time(), outcome="failed", step=0, reason="it failed"))
    failed.close()
    state.read()
    assert state.training_ended.reason == "it failed"
    state.close()


def test_each_generation_reports_its_own_first_failure(tmp_path: Path) -> None:
    state = WorkerState(tmp_path, "worker-1")
    reporter = Reporter(tmp_path, "supervisor", 1)
    report = FailureReport(tmp_path, tmp_path / "worker-1.log", "worker-1", state, reporter, host_index=1)
    for generation in range(2):
        report.begin_generation(time.time())
        state.read()
        report.check()
        write_generation(tmp_path, generation, fails=True)
        state.read()
        report.check()
    reporter.close()
    state.close()
    written = (tmp_path / "supervisor-1.jsonl").read_text()
    assert written.count('"FailureReported"') == 2
    assert "ValueError: no" in (tmp_path / "failure-1.txt").read_text()


def test_the_failure_of_another_host_is_reported_in_its_place(tmp_path: Path) -> None:
    state = WorkerState(tmp_path, "worker-0")
    reporter = Reporter(tmp_path, "supervisor", 0)
    report = FailureReport(tmp_path, tmp_path / "worker-0.log", "worker-0", state, reporter)
    report.report_of_host(FAILED)
    reporter.close()
    page = (tmp_path / "failure.txt").read_text()
    assert "host 1 (vm-1), rank 3 (core 3): shard 7 is cut short" in page
    assert "ValueError" in page
    assert launch_messages.decode(launch_messages.encode(FAILED)) == FAILED


def test_only_a_run_on_several_hosts_or_one_that_is_restarted_has_a_launcher(tmp_path: Path) -> None:
    base = 'task = "digits"\nepochs = 1\n[data]\nbatch_per_core = 4\n'
    for table, expected in (
        ("", False),
        ("[launch]\nnnodes = 1", False),
        ("[launch]\nnnodes = 2", True),
        ('[launch]\nengine = "external"', False),
        ('[launch]\nengine = "torchrun"\nmax_restarts = 3', True),
    ):
        assert needs_launcher(to_builtins(parse(base + table, "a.toml"))) is expected
    launch = HostLaunch(tmp_path, 0, lambda event: None)
    end = WorkerEnd(returncode=-9, stop_asked=False, killed=False)
    ending = launch.ending(end, None, None, -9)
    assert ending is not None
    assert ending.reason == "the launcher of this host, and training with it, ended by signal SIGKILL"
    # A stop before the launcher can act on it, for example while it imports torch.
    stopped = launch.ending(end._replace(stop_asked=True), None, None, -15)
    assert stopped is not None
    assert (stopped.outcome, stopped.exit_code) == ("stopped", 4)
    done = ev.TrainingEnded(t=1.0, outcome="done", step=1, reason="")
    assert launch.ending(end, done, None, 0) is None
