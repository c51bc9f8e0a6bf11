"""The policies of the supervisor for a stall, with real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests import recorded
from tests.hermetic import REPOSITORY
from tests.ports import reserved_port
from tests.supervise.harness import Bench, Watched, wait_for
from tputui.supervise.escalation import STALL_STACKS_MAX, StallStacks
from tputui.telemetry import events as ev
from tputui.telemetry import requests

STUCK = """
    reporter.emit(ev.ProgressReported(t=time.time(), epoch=1, epoch_step=7, step=7, step_s=0.01, examples_per_s=1.0,
                                      lr=0.1, report_steps=1))
    asked = None
    while asked is None:
        reporter.emit(ev.HeartbeatSent(t=time.time(), phase="data", phase_s=1.0, step=7, epoch=1))
        asked = next((request for request in inbox.poll() if request.kind == "stop"), None)
        Event().wait(0.2)
    reporter.emit(ev.RequestApplied(t=time.time(), request=asked.id, kind="stop", step=7, path="checkpoints/last.pt"))
    end("stopped", 4, reason=f"asked by {asked.by}")
"""


SERVED = """
    sys.path.append({repository!r})
    from tests.device.tpu_runtime import TpuRuntime, core_state, typical
    runtime = TpuRuntime(typical([0]), port={port})
    runtime.states = {{0: core_state(0, 812, 0x1A40, "all-reduce.17", queued=2)}}
"""
"""A worker that serves the metrics of a TPU core, as libtpu does."""


def stuck(bench: Bench, policy: str) -> Watched:
    """A worker that waits for data and does no step."""
    config: dict[str, Any] = {**recorded.CONFIG, "stall": {"after_s": 1.0, "after_steps": 20.0, "policy": policy}}
    return bench.supervise(STUCK, config={"config": config})


def test_stall_is_reported_once_with_waiting_processes(bench: Bench) -> None:
    watched = stuck(bench, "notify")
    stalls = wait_for(lambda: watched.events(ev.StallFound), "the stall")
    assert "waiting for data" in stalls[0].text
    assert (stalls[0].step, stalls[0].policy) == (7, "notify")
    later = watched.events(ev.HostSampled)[-1].t + 3
    wait_for(lambda: watched.events(ev.HostSampled)[-1].t > later, "three more looks")
    assert len(watched.events(ev.StallFound)) == 1
    (request,) = requests.read_all(watched.run_dir)
    assert (request.kind, request.by) == ("stacks", "stall")


def test_stalled_run_saves_and_stops_by_policy(bench: Bench) -> None:
    watched = stuck(bench, "save-stop")
    ended = watched.ended()
    assert (ended.outcome, ended.exit_code, ended.reason) == ("stopped", 4, "asked by stall")
    made = {(request.kind, request.by) for request in requests.read_all(watched.run_dir)}
    assert made == {("stacks", "stall"), ("stop", "stall")}


def test_continue_policy_does_nothing(bench: Bench) -> None:
    watched = stuck(bench, "continue")
    samples = wait_for(
        lambda: len(watched.events(ev.HostSampled)) > 6 and watched.events(ev.HostSampled), "some seconds"
    )
    assert samples
    assert watched.events(ev.StallFound) == []
    assert requests.read_all(watched.run_dir) == []


def test_stalled_cores_are_read_without_a_viewer(bench: Bench) -> None:
    port = reserved_port()
    config: dict[str, Any] = {**recorded.CONFIG, "stall": {"after_s": 1.0, "after_steps": 20.0, "policy": "notify"}}
    environ = {"TPU_RUNTIME_METRICS_PORTS": str(port), "PJRT_DEVICE": "TPU"}
    watched = bench.supervise(SERVED.format(repository=str(REPOSITORY), port=port) + STUCK, config={"config": config},
                              env=environ)  # fmt: skip
    (read,) = wait_for(lambda: watched.events(ev.CoreStatesRead), "the states of the cores")
    (request,) = requests.read_all(watched.run_dir)
    assert (read.request, request.by) == (request.id, "stall")
    assert [(core.core, core.launch_id, core.hlo_location) for core in read.cores or []] == [(0, 812, "all-reduce.17")]


def test_requests_for_stacks_end_after_some_stalls(tmp_path: Path) -> None:
    (tmp_path / "requests").mkdir()
    stacks = StallStacks(tmp_path)
    for _ in range(STALL_STACKS_MAX + 3):
        stacks.request()
    assert len(requests.read_all(tmp_path)) == STALL_STACKS_MAX
