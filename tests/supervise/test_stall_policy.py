"""The policies of the supervisor for a stall, with real processes."""

from __future__ import annotations

from typing import Any

from tests import recorded
from tests.supervise.harness import Bench, Watched, wait_for
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
    assert requests.read_all(watched.run_dir) == []


def test_stalled_run_saves_and_stops_by_policy(bench: Bench) -> None:
    watched = stuck(bench, "save-stop")
    ended = watched.ended()
    assert (ended.outcome, ended.exit_code, ended.reason) == ("stopped", 4, "asked by stall")
    (request,) = requests.read_all(watched.run_dir)
    assert (request.kind, request.by) == ("stop", "stall")


def test_continue_policy_does_nothing(bench: Bench) -> None:
    watched = stuck(bench, "continue")
    samples = wait_for(
        lambda: len(watched.events(ev.HostSampled)) > 6 and watched.events(ev.HostSampled), "some seconds"
    )
    assert samples
    assert watched.events(ev.StallFound) == []
    assert requests.read_all(watched.run_dir) == []
