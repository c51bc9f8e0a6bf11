"""Whole runs of `tputui run` on one host whose training is restarted by its launcher."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forked
from tests.deadline import DEADLINE_S
from tests.launch.hosts import pids_alive
from tests.supervise.harness import events_in, wait_for
from tputui.session import session
from tputui.telemetry import events as ev

pytestmark = pytest.mark.slow
CONFIG = """\
task = "digits"
epochs = 3
[data]
batch_per_core = 8
batches_per_epoch = 20
[device]
virtual_cores = 1
[launch]
engine = "torchrun"
max_restarts = 2
"""


class RestartedRun:
    """A run with its command `tputui run`."""

    def __init__(self, folder: Path) -> None:
        self.dir = folder / "runs" / "again"
        config = folder / "again.toml"
        config.write_text(CONFIG)
        argv = ["tputui", "run", str(config), "--no-ui", "--name", "again", "--runs-dir", str(self.dir.parent)]
        with (folder / "out").open("wb") as out, open(os.devnull, "rb") as nothing:
            streams = [nothing.fileno(), out.fileno(), out.fileno()]
            self.command = forked.Process("tests.forked_tree", argv, cwd=Path.cwd(), env=os.environ, streams=streams)

    def until_started(self, generation: int) -> int:
        """Waits until the training process of a generation has opened its journal; returns its process id."""
        heads = wait_for(
            lambda: (found := events_in(self.dir, "worker-0", ev.JournalOpened))[generation:] and found,
            "the training process",
        )
        return heads[generation].pid

    @property
    def supervisor_pid(self) -> int:
        """The process id of the supervisor."""
        (head,) = events_in(self.dir, "supervisor-0", ev.JournalOpened)
        return head.pid

    def end(self) -> None:
        """EndingTask what is left."""
        self.command.kill()
        self.command.wait()
        if events_in(self.dir, "supervisor-0", ev.JournalOpened) and pids_alive([self.supervisor_pid]):
            os.kill(self.supervisor_pid, signal.SIGKILL)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RestartedRun]:
    """A run of which nothing is left afterwards."""
    started = RestartedRun(tmp_path)
    try:
        yield started
    finally:
        started.end()


def test_a_restart_that_the_supervisor_sees_late_has_its_reason(run: RestartedRun) -> None:
    os.kill(run.until_started(0), signal.SIGABRT)
    second = run.until_started(1)
    wait_for(lambda: len(events_in(run.dir, "supervisor-0", ev.WorkerStarted)) == 2, "the restart")
    # The supervisor reads the end of training and its next start at once, as on a busy host.
    os.kill(run.supervisor_pid, signal.SIGSTOP)
    os.kill(second, signal.SIGKILL)
    run.until_started(2)
    os.kill(run.supervisor_pid, signal.SIGCONT)
    assert run.command.wait(DEADLINE_S) == 0
    reported = events_in(run.dir, "supervisor-0", ev.FailureReported)
    assert [each.error for each in reported] == ["SIGABRT", "SIGKILL"]
    shown = session.load(run.dir)
    assert (shown.condition, shown.failure) == ("done", None)
    reasons = [each.reason for each in shown.generations]
    assert "SIGABRT" in reasons[1]
    assert "SIGKILL" in reasons[2]
