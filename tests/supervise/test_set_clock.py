"""The clock of the host is set while a run goes on."""

from __future__ import annotations

import itertools
import json
import time
from functools import partial
from pathlib import Path

import pytest

from tests.cli.helpers import tputui
from tests.supervise.harness import Bench, events_in, wait_for
from tests.system_clock import SystemClock
from tputui.session import session
from tputui.telemetry import events as ev
from tputui.telemetry import requests
from tputui.telemetry.run_clock import RunClock

BEATS = """
step = 1
while next((request for request in inbox.poll() if request.kind == "stop"), None) is None:
    step += 1
    beat(step)
    Event().wait(0.05)
end("stopped", 4)
"""


def test_run_goes_on_without_a_jump(bench: Bench, tmp_path: Path) -> None:
    clock = SystemClock(tmp_path / "clock")
    config = {"stall": {"after_s": 20.0, "policy": "save-stop"}}
    run = bench.supervise(BEATS, config={"config": config}, env=clock.env)
    run.worker_pid()

    def is_warned(words: str) -> bool:
        return any(words in warning.text for warning in run.events(ev.WarningRaised))

    def step() -> int:
        return events_in(run.run_dir, "worker-0", ev.HeartbeatSent)[-1].step

    def has_passed(least: int) -> bool:
        return step() > least

    for ahead_s, words in ((300.0, "set forward by 5 min 00 s"), (-300.0, "set back by 10 min 00 s")):
        clock.set(ahead_s)
        wait_for(partial(is_warned, words), words)
        wait_for(partial(has_passed, step() + 5), "heartbeats")
        # A viewer that is opened now has the clock that was set.
        shown = json.loads(tputui("show", run.run_dir, "--json", cwd=None, **clock.env).out)
        assert shown["state"] in ("starting", "running")
        assert abs(shown["hosts"][0]["silent_s"]) < 30
    requests.submit(run.run_dir, "stop", by="test", now=time.time())
    assert run.ended().exit_code == 4

    assert run.events(ev.StallFound) == []
    assert len([warning for warning in run.events(ev.WarningRaised) if "clock" in warning.text]) == 2
    events = list(session.read_events(run.run_dir))
    for writer in ("supervisor-0", "worker-0"):
        times = [event.event.t for event in events if event.writer == writer]
        # The smallest jump would be 300 s; threads of a busy machine are seconds late.
        jumps = [pair for pair in itertools.pairwise(times) if abs(pair[1] - pair[0]) > 60]
        assert jumps == []
        assert 0 <= time.time() - times[-1] < 60


@pytest.mark.parametrize("by_s", [-300.0, 300.0])
def test_times_of_the_system_become_those_of_the_run(by_s: float) -> None:
    system = [1000.0]
    clock = RunClock(system=lambda: system[0], ticks=lambda: 50.0)
    assert (clock.boot_t, clock.now(), clock.set_s) == (950.0, 1000.0, 0.0)
    system[0] = 1000.0 + by_s
    assert clock.set_s == by_s
    # Read before and after the clock was set, and by the clock of the run.
    assert [clock.of_event(t) for t in (999.9, 1000.0 + by_s, 1000.0)] == [999.9, 1000.0, 1000.0]
    # Read before the clock was set again, and after.
    system[0] = 1000.0 - by_s
    assert [clock.of_event(t) for t in (999.9 + by_s, 1000.0 - by_s, 1000.0)] == pytest.approx([999.9, 1000.0, 1000.0])
    system[0] = 1000.0
    assert clock.was_set()
    assert [clock.of_event(t) for t in (999.9 - by_s, 1000.0)] == pytest.approx([999.9, 1000.0])
    environ: dict[str, str] = {}
    clock.pass_on(environ)
    assert float(environ["TPUTUI_CLOCK"].partition("@")[0]) == 950.0
