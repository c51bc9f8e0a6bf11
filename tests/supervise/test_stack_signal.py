"""Stacks of busy processes: reported by themselves, or fetched by a signal if they cannot answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from tests import forked
from tests.deadline import DEADLINE_S
from tests.supervise.harness import Bench, Watched, events_in, is_running, wait_for
from tputui.exit_codes import ExitCode
from tputui.session.session import load
from tputui.telemetry import events as ev
from tputui.telemetry import stack_frames

HERE = Path(__file__).parents[2]
HOLDS_THE_INTERPRETER = """
    import ctypes
    from tputui.reporting import stacks
    stacks.dump_on_signal(run_dir, "worker-0")
    def in_native_code():
        while True:
            ctypes.PyDLL(None).sleep(600)
    beat(2)
    reporter.flush()
    in_native_code()
"""
ANSWERS = """
    import threading
    from tputui.reporting import stacks
    from tputui.telemetry.requests import Inbox
    def reads_a_batch():
        Event().wait(600)
    threading.Thread(target=reads_a_batch, name="tputui-train", daemon=True).start()
    threading.Thread(target=reads_a_batch, name="password=hunter2", daemon=True).start()
    inbox = Inbox(run_dir)
    while True:
        for request in inbox.poll():
            stacks.report(request, reporter)
        Event().wait(0.05)
"""


SLOW = """
    from tputui.reporting import stacks
    stacks.dump_on_signal(run_dir, "worker-0")
    while True:
        beat(2)
        Event().wait(0.2)
"""


def ready_pid(watched: Watched) -> int:
    """The process id of a worker that has installed the handler."""
    pid = watched.worker_pid()
    wait_for(lambda: len(events_in(watched.run_dir, "worker-0", ev.HeartbeatSent)) > 1, "the handler")
    return pid


def stacks(watched: Watched, *options: str) -> subprocess.CompletedProcess[str]:
    """The output of the command."""
    return forked.run_tputui("stacks", str(watched.run_dir), *options, cwd=None, env=os.environ, timeout=DEADLINE_S)


def test_process_reports_stacks_and_continues(bench: Bench) -> None:
    watched = bench.supervise(ANSWERS, env={"PYTHONPATH": str(HERE)})
    pid = watched.worker_pid()
    done = stacks(watched, "--wait", f"{DEADLINE_S:g}")
    assert done.returncode == ExitCode.DONE, done.stderr
    assert f"worker-0 (pid {pid}): executing" in done.stdout
    assert "in your code: " in done.stdout
    assert "in reads_a_batch" in done.stdout
    assert is_running(pid)
    view = load(watched.run_dir).stacks
    assert view is not None
    (process,) = view.processes
    assert process.path is not None
    assert "reads_a_batch" in (watched.run_dir / process.path).read_text()
    assert [path for path in watched.run_dir.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()] == []
    assert not process.by_signal


def test_process_holding_the_gil_is_asked_by_signal(bench: Bench) -> None:
    watched = bench.supervise(HOLDS_THE_INTERPRETER, env={"PYTHONPATH": str(HERE)})
    pid = ready_pid(watched)
    done = stacks(watched, "--json", "--wait", f"{DEADLINE_S:g}")
    assert done.returncode == ExitCode.DONE, done.stderr
    (process,) = json.loads(done.stdout)["processes"]
    assert process["by_signal"]
    assert process["threads"][0]["frames"][0]["function"] == "in_native_code"
    assert is_running(pid), "it was not stopped"


def test_stopped_process_is_not_signalled(bench: Bench) -> None:
    watched = bench.supervise(HOLDS_THE_INTERPRETER, env={"PYTHONPATH": str(HERE)})
    pid = ready_pid(watched)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert stacks(watched, "--wait", "0").returncode == ExitCode.UNANSWERED
        warning = f"no stacks of worker-0: it is stopped; kill -CONT {pid} continues it"
        wait_for(lambda: any(event.text == warning for event in watched.events(ev.WarningRaised)), "the warning")
        pending = Path(f"/proc/{pid}/status").read_text().partition("ShdPnd:")[2].split()[0]
        assert not int(pending, 16) >> (signal.SIGUSR1 - 1) & 1
    finally:
        os.kill(pid, signal.SIGCONT)


def test_process_that_sends_heartbeats_is_not_signalled(bench: Bench) -> None:
    """It runs Python, so the handler could read its stacks while they change."""
    watched = bench.supervise(SLOW, env={"PYTHONPATH": str(HERE)})
    pid = ready_pid(watched)
    done = stacks(watched)
    assert done.returncode == ExitCode.UNANSWERED
    assert "no answer within 10 s from worker-0" in done.stderr
    assert (watched.run_dir / "stacks" / "worker-0.signal").read_text() == ""
    assert is_running(pid)


def test_unreachable_process_is_named_only(bench: Bench) -> None:
    watched = bench.supervise("while True: Event().wait(1)")
    pid = watched.worker_pid()
    done = stacks(watched, "--wait", "0.5")
    assert done.returncode == ExitCode.UNANSWERED
    assert "no answer within 0.5 s from worker-0" in done.stderr
    assert is_running(pid)


def test_process_without_handler_is_not_signalled(bench: Bench) -> None:
    resets = HOLDS_THE_INTERPRETER.replace(
        "def in_native", "signal.signal(signal.SIGUSR1, signal.SIG_DFL)\n    def in_native"
    )
    watched = bench.supervise(resets, env={"PYTHONPATH": str(HERE)})
    pid = ready_pid(watched)
    done = stacks(watched, "--wait", "0")
    assert done.returncode == ExitCode.UNANSWERED
    (warning,) = wait_for(lambda: watched.events(ev.WarningRaised), "the reason")
    assert "removed the handler of SIGUSR1" in warning.text
    assert is_running(pid)


def test_ended_run_has_no_stacks(bench: Bench) -> None:
    watched = bench.supervise("end('done', 0)")
    watched.ended()
    done = stacks(watched)
    assert done.returncode == ExitCode.USAGE
    assert "the run is done" in done.stderr


def test_printed_stacks_are_parsed_and_the_rest_ignored() -> None:
    text = (
        "noise\nThread 0x00007f01 (most recent call first):\n"
        f'  File "{stack_frames.__file__}", line 3 in printed\n'
        '  File "/usr/lib/python3/dist-packages/x.py", line 7 in y\n  ...\n\n'
        'Current thread 0x00007f02 (most recent call first):\n  File "/home/me/train.py", line 12 in main\n'
    )
    first, second = stack_frames.printed(text)
    assert [frame.owner for frame in first.frames] == ["tputui", "library"]
    assert (second.name, second.frames[0].owner, second.frames[0].line) == ("thread 0x00007f02", "user", 12)
    assert stack_frames.printed("\x00 File Thread ((") == []
