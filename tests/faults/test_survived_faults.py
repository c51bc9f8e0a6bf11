"""Faults that a run survives: each fault is injected while the run is paused at a moment; then it trains on.

Real processes: `tputui run` without a screen, its supervisor, and the engine on 8 virtual cores.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.helpers import tputui
from tests.deadline import DEADLINE_S
from tests.faults.harness import HELD, FullDisk, Moment, Run, last_checkpoint_step
from tests.supervise.harness import events_in, is_running, wait_for
from tputui.exit_codes import ExitCode
from tputui.supervise import spawn
from tputui.telemetry import events as ev

pytestmark = [pytest.mark.xla, pytest.mark.slow]

BORNE: tuple[Moment, ...] = (*HELD, "train")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Moment, Run]]:
    """The runs, each started at its first use."""
    made = Runs(tmp_path_factory.mktemp("survived"))
    yield made
    for run in made.values():
        run.clean_up()


class Runs(dict[Moment, Run]):
    """Runs by moment."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, moment: Moment) -> Run:
        folder = self._folder / moment
        folder.mkdir()
        self[moment] = Run(folder, moment)
        self[moment].reach()
        return self[moment]


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, runs: dict[Moment, Run]) -> Run:
    """The run at a moment, after all earlier faults."""
    return runs[request.param]


class SurvivedFault(NamedTuple):
    """A fault, and what the user sees."""

    fault: str
    sees: str
    moments: tuple[Moment, ...]


SURVIVED: list[SurvivedFault] = []
"""Every fault of this module."""


def at(*moments: Moment, fault: str, sees: str) -> pytest.MarkDecorator:
    """Runs a test at those moments; all tests of a moment are adjacent."""
    SURVIVED.append(SurvivedFault(fault, sees, moments))
    return pytest.mark.parametrize("run", moments, indirect=True, scope="module")


def assert_training_continues(run: Run) -> None:
    """Training is at the same step, or has continued."""
    assert is_running(run.worker_pid)
    assert "running" in run.show() or "starting" in run.show() or "stalled" in run.show()
    if run.moment == "train":
        run.trains_on()


def attach(run: Run) -> subprocess.Popen[str]:
    """A viewer that has printed something."""
    words = [sys.executable, "-P", "-m", "tputui", "attach", "--json", str(run.dir)]
    viewer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert viewer.stdout is not None
    assert "JournalOpened" in viewer.stdout.readline()
    return viewer


# Loading, the first step and saving have no measure to be late by.
@at(
    "data",
    "evaluate",
    "train",
    fault="user code that hangs",
    sees="stalled: what it waits for, since when; a run that trains never alarms",
)
def test_hanging_user_code_is_located_without_false_alarms(run: Run) -> None:
    if run.moment == "train":
        run.trains_on()
        assert not events_in(run.dir, "supervisor-0", ev.StallFound)
        return
    (stall, *_) = wait_for(lambda: events_in(run.dir, "supervisor-0", ev.StallFound), "the stall")
    assert "worker-0 has been" in stall.text


@at(*BORNE, fault="the terminal closes (SIGHUP)", sees="the viewer goes with it; `tputui attach` finds the run")
def test_closed_terminal_ends_only_its_viewer(run: Run) -> None:
    os.killpg(run.viewer.pid, signal.SIGHUP)
    run.viewer.wait(DEADLINE_S)
    assert_training_continues(run)


@at("data", "train", fault="kill -9 of a viewer", sees="nothing")
def test_killed_viewer_changes_nothing(run: Run) -> None:
    viewer = attach(run)
    viewer.kill()
    viewer.communicate()
    assert_training_continues(run)


@at("data", "train", fault="a viewer that stops reading, its pipe full", sees="nothing")
def test_stopped_viewer_does_not_block_training(run: Run) -> None:
    viewer = attach(run)
    viewer.send_signal(signal.SIGSTOP)
    assert_training_continues(run)
    viewer.kill()
    viewer.communicate()


@at("start", "train", fault="a second supervisor", sees="it is refused: another supervisor has begun the run")
def test_second_supervisor_is_rejected(run: Run) -> None:
    second = subprocess.run(
        spawn.supervisor_argv(run.dir), capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert second.returncode == ExitCode.USAGE
    assert "another supervisor has started it" in second.stderr
    assert_training_continues(run)


@at(*BORNE, fault="`tputui stacks`", sees="where every thread is, without stopping it")
def test_stacks_are_reported_at_once(run: Run) -> None:
    done = tputui("stacks", run.dir, "--wait", f"{DEADLINE_S:g}")
    assert done.code == ExitCode.DONE, done.err
    assert ("Gate.__call__" in done.out) == (run.moment in HELD)
    assert_training_continues(run)


@at(
    *BORNE, fault="SIGSTOP of the training process, then SIGCONT", sees="stalled: silent since when; then running again"
)
def test_stopped_process_is_stalled_then_running_again(run: Run) -> None:
    os.kill(run.worker_pid, signal.SIGSTOP)
    try:
        wait_for(lambda: "stalled" in run.show(), "that it is silent")
    finally:
        os.kill(run.worker_pid, signal.SIGCONT)
    before = len(events_in(run.dir, "worker-0", ev.HeartbeatSent))
    wait_for(lambda: len(events_in(run.dir, "worker-0", ev.HeartbeatSent)) > before, "a heartbeat")
    assert_training_continues(run)


# At the other moments, no request is served before the user's code returns.
@at(
    "data",
    "evaluate",
    "train",
    fault="a full disk, and a request to save",
    sees="the request is refused with the reason",
)
def test_full_disk_rejects_request_old_checkpoint_survives(run: Run) -> None:
    before = last_checkpoint_step(run.dir)
    with FullDisk(run):
        done = tputui("checkpoint", run.dir, "--wait", f"{DEADLINE_S:g}")
    assert done.code != ExitCode.DONE
    assert "refused" in done.out + done.err
    assert "File too large" in done.out + done.err
    kept = last_checkpoint_step(run.dir)
    assert kept is not None
    assert before is not None
    assert kept >= before
    assert_training_continues(run)


@at(
    "train", fault="the run's directory is renamed", sees="requests are served and checkpoints saved under the new name"
)
def test_renamed_run_is_served_at_its_new_path(run: Run) -> None:
    elsewhere = run.dir.rename(run.dir.with_name("renamed"))
    try:
        done = tputui("checkpoint", elsewhere, "--wait", f"{DEADLINE_S:g}")
        assert done.code == ExitCode.DONE, done.err
        assert last_checkpoint_step(elsewhere) is not None
    finally:
        elsewhere.rename(run.dir)
    assert_training_continues(run)


@at(*BORNE, fault="two requests at once", sees="both are seen at once, and applied at the next boundary")
def test_two_requests_at_once_are_both_seen_and_served(run: Run) -> None:
    words = [sys.executable, "-P", "-m", "tputui", "checkpoint", str(run.dir), "--wait", f"{DEADLINE_S:g}"]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    wait_for(lambda: len(events_in(run.dir, "worker-0", ev.RequestSeen)) >= 2, "that both are seen")
    run.gate.open()
    for requested in both:
        out, err = requested.communicate(timeout=DEADLINE_S)
        assert requested.returncode == ExitCode.DONE, err
        assert "applied" in out
    run.trains_on()


@at(*BORNE, fault="kill -9 of the supervisor", sees="running; a request to stop is still served")
def test_killed_supervisor_leaves_training_that_can_stop(run: Run) -> None:
    os.kill(run.supervisor_pid, signal.SIGKILL)
    wait_for(lambda: not is_running(run.supervisor_pid), "the end of the supervisor")
    run.gate.open()
    run.trains_on()
    assert "running" in run.show()
    stopped = tputui("stop", run.dir, "--wait", f"{DEADLINE_S:g}")
    assert stopped.code == ExitCode.DONE
    run.gone()
    assert "stopped" in run.show()
    assert tputui("check", run.dir).code == ExitCode.DONE
