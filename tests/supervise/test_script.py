"""The answers of the supervisor to requests for a user's command, without a supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import recorded
from tests.supervise.harness import events_in
from tputui.supervise.script import Script
from tputui.supervise.worker_state import WorkerState
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.requests import Request

KINDS: tuple[ev.RequestKind, ...] = ("stop", "stop", "stop_now")


def test_repeated_requests_to_stop_interrupt_a_save_only_if_it_is_to_stop_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signalled: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: signalled.append(number))
    run_dir = rundir.create(tmp_path, recorded.manifest())
    command = subprocess.Popen(["sleep", "60"], start_new_session=True)
    reporter = Reporter(run_dir, "supervisor")
    try:
        script = Script(run_dir, command.pid, {}, reporter, WorkerState(run_dir), 0)
        asked = [
            script.on_request(Request(id=str(number), kind=kind, t=1.0, by="test"), 2.0)
            for number, kind in enumerate(KINDS)
        ]
        script.finish("stopped", "")
    finally:
        command.kill()
        command.wait()
        reporter.close()
    assert asked == [True, True, False]
    assert signalled == [signal.SIGINT, signal.SIGTERM]
    assert len(events_in(run_dir, "supervisor-0", ev.RequestSeen)) == 3


@pytest.mark.parametrize("is_reaped", [False, True])
def test_requests_that_arrive_after_the_end_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_reaped: bool
) -> None:
    signalled: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: signalled.append(group))
    run_dir = rundir.create(tmp_path, recorded.manifest())
    command = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOWAIT)
    if is_reaped:
        command.wait()
    reporter = Reporter(run_dir, "supervisor")
    script = Script(run_dir, command.pid, {}, reporter, WorkerState(run_dir), 0)

    for kind in ("stop", "stop_now", "stacks"):
        assert not script.on_request(Request(id=kind, kind=kind, t=1.0, by="test"), 2.0)

    script.finish("done", "")
    reporter.close()
    command.wait()
    assert signalled == []
    assert script.refused == {"stop", "stop_now", "stacks"}
    refusals = events_in(run_dir, "supervisor-0", ev.RequestRefused)
    assert {refusal.why for refusal in refusals} == {"the command ended before this was done"}
