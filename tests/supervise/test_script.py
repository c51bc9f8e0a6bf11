"""The answers of the supervisor to requests for a user's command, without a supervisor."""

from __future__ import annotations

import os
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
    script = Script(run_dir, command.pid, {}, reporter, WorkerState(run_dir, "worker-0", of_command=True), 0)

    for kind in ("stop", "stop_now", "stacks"):
        assert not script.on_request(Request(id=kind, kind=kind, t=1.0, by="test"), 2.0)

    script.finish("done", "")
    reporter.close()
    command.wait()
    assert signalled == []
    assert script.refused == {"stop", "stop_now", "stacks"}
    refusals = events_in(run_dir, "supervisor-0", ev.RequestRefused)
    assert {refusal.why for refusal in refusals} == {"the command ended before this was done"}
