"""Checkpoints of a run whose processes all get SIGTERM, or that hangs and has to save and stop.

Real supervisors over the real engine. The runs train at one time: most of what each takes is the start of the runtime.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.checkpoint import checkpoint_files
from tests.deadline import DEADLINE_S
from tests.engine.test_failures import Watched
from tests.engine.workers import make
from tests.faults.gated import STEPS_PER_EPOCH, GateKeeper
from tests.faults.harness import CONFIG, REPOSITORY, is_compiling
from tests.supervise.harness import events_in, is_running, wait_for
from tputui.telemetry import events as ev
from tputui.telemetry import requests

pytestmark = pytest.mark.xla

SAVE_STOP = ["stall.policy=save-stop", "stall.after_s=5"]
"""A slow machine takes less time for a step."""
SETUPS = {
    "replica": ["device.strategy=replica"],
    "compile": ["data.recurrent_steps=3"],
    "evaluate": ["data.at=evaluate"],
    "save": ["data.at=save"],
    "stalled-data": ["data.at=data", *SAVE_STOP],
    "stalled-evaluate": ["data.at=evaluate", *SAVE_STOP],
}
"""Runs by name: `stalled-` runs hang forever, the others get SIGTERM."""
SEEN_IN = {"compile": {"compiling"}, "evaluate": {"data", "evaluating"}, "save": {"saving"}}
"""Phases in which the request is received."""


class Held(Watched):
    """A run of the gated task."""

    def __init__(self, parent: Path, name: str) -> None:
        self.gate = GateKeeper(parent / f"gate-{name}")
        self.gate.folder.mkdir()
        overrides = ["device.cores=2", "data.batch_per_core=8", f"data.gate={self.gate.folder}", *SETUPS[name]]
        super().__init__(make(parent, name, overrides, text=CONFIG, cwd=REPOSITORY))

    def pids(self) -> list[int]:
        """Ids of the processes that have a journal, the supervisor first."""
        writers = ("supervisor-0", "worker-0", "rank-1")
        return [opened.pid for writer in writers for opened in events_in(self.dir, writer, ev.JournalOpened)]

    def reach(self, name: str) -> None:
        """Waits until it is in the phase of the request."""
        wait_for(lambda: self._is_there(name), f"the moment of {name}")

    def _is_there(self, name: str) -> bool:
        if name == "replica":
            return bool(events_in(self.dir, "worker-0", ev.EpochEnded))
        if name == "compile":
            return is_compiling(self.dir)
        return self.gate.is_reached

    def ended(self) -> ev.RunEnded:
        """Its `TrainingEnded` event, once all its processes have exited."""
        pids = self.pids()
        self.supervisor.wait(DEADLINE_S)
        wait_for(lambda: not any(is_running(pid) for pid in pids), "the end of every process")
        return events_in(self.dir, "supervisor-0", ev.RunEnded)[0]

    def last(self) -> dict[str, int]:
        """Position of the last checkpoint, which must be the one that was saved."""
        path = self.dir / "checkpoints" / "last.pt"
        checkpoint_files.verified_digest(path)
        position: dict[str, int] = torch.load(path, weights_only=True)["position"]
        assert not list(path.parent.glob(".*"))
        return position


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Held]]:
    """The run of each test that was selected, started."""
    parent = tmp_path_factory.mktemp("asked")
    wanted = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path
    }
    started = {name: Held(parent, name) for name in SETUPS if name in wanted}
    yield started
    for held in started.values():
        held.clean_up()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name == "replica" else [])
        for name in SETUPS
        if not name.startswith("stalled")
    ],
)
def test_sigterm_to_all_processes_saves_within_grace_time(runs: dict[str, Held], name: str) -> None:
    run = runs[name]
    run.reach(name)
    for pid in run.pids():
        os.kill(pid, signal.SIGTERM)
    if name == "save":
        # The request is received while another save runs, which then continues.
        wait_for(lambda: events_in(run.dir, "worker-0", ev.RequestSeen), "the request to be received")
        run.gate.open()
    ended = run.ended()
    assert (ended.outcome, ended.exit_code) == ("stopped", 4)
    if name == "compile" and "nothing was saved" in ended.reason:
        # The first compilation outlasted the grace; no step was trained that could be lost.
        assert events_in(run.dir, "worker-0", ev.TrainingEnded)[0].step == 0
        return
    # A slow machine may have been asked for stacks too, since nothing moves while the gate is closed.
    stops = [event for event in events_in(run.dir, "worker-0", ev.RequestApplied) if event.kind != "stacks"]
    assert {event.kind for event in stops} == {"stop"}
    assert run.last()["step"] == stops[-1].step
    saves = [saved for saved in events_in(run.dir, "worker-0", ev.CheckpointSaved) if saved.reason == "stop"]
    assert len(saves) == 1
    if name in SEEN_IN:
        # That of the supervisor may follow during the save.
        assert events_in(run.dir, "worker-0", ev.RequestSeen)[0].phase in SEEN_IN[name]


@pytest.mark.parametrize("name", ["stalled-data", pytest.param("stalled-evaluate", marks=pytest.mark.slow)])
def test_stalled_data_saves_and_stops_by_policy(runs: dict[str, Held], name: str) -> None:
    run = runs[name]
    ended = run.ended()
    assert (ended.outcome, ended.exit_code) == ("stopped", 4)
    (stall,) = events_in(run.dir, "supervisor-0", ev.StallFound)
    assert "waiting for data" in stall.text
    assert stall.policy == "save-stop"
    asked = {(request.kind, request.by): request.id for request in requests.read_all(run.dir)}
    assert set(asked) == {("stop", "stall"), ("stacks", "stall")}
    stop = asked["stop", "stall"]
    (applied,) = (event for event in events_in(run.dir, "worker-0", ev.RequestApplied) if event.request == stop)
    position = run.last()
    assert position["step"] == applied.step
    assert position["evaluating"] == (name == "stalled-evaluate")
    if position["evaluating"]:
        assert applied.step == 2 * STEPS_PER_EPOCH
    else:
        assert STEPS_PER_EPOCH < applied.step < 2 * STEPS_PER_EPOCH
