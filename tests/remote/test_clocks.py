"""The clock of a host that differs from the viewer's: it is measured over the connection, and times follow it."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import recorded
from tests.cli.helpers import tputui
from tests.system_clock import SystemClock
from tputui.remote import protocol as p
from tputui.remote.clock_offset import MEASUREMENTS_MAX, WINDOW_S, ClockOffset
from tputui.remote.stream_server import RunStream
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.run_clock import since_boot

ELAPSED_MAX_S = 30.0
"""How much older the run may be on a busy machine when it is shown."""


def host_with_clock(folder: Path, ahead_s: float) -> dict[str, Any]:
    """The environment of a viewer whose `ssh` runs the command of every host here, with another clock."""
    clock = SystemClock(folder / "clock", ahead_s)
    folder.joinpath("bin").mkdir()
    env = " ".join(f"{key}='{value}'" for key, value in {**clock.env, "TPUTUI_RUNS": f"{folder}/runs"}.items())
    programs = {
        "ssh": f'test "$1" = -G && exit 0\nfor command; do :; done\n{env} exec sh -c "$command"\n',
        "tputui": f'exec {sys.executable} -m tputui "$@"\n',
    }
    for name, lines in programs.items():
        path = folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{lines}")
        path.chmod(0o700)
    return {"PATH": f"{folder}/bin:{os.environ['PATH']}", "XDG_CACHE_HOME": str(folder / "cache")}


@pytest.mark.parametrize("ahead_s", [600.0, -600.0])
@pytest.mark.parametrize(("silent_s", "state"), [(2.0, "running"), (300.0, "lost")])
def test_a_run_is_shown_once_by_the_clock_of_its_host(
    tmp_path: Path, ahead_s: float, silent_s: float, state: str
) -> None:
    environ = host_with_clock(tmp_path, ahead_s)
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest("shown"))
    newest_t = time.time() + ahead_s - silent_s
    shift_s = newest_t - recorded.T0 - 20
    head, *events = recorded.worker_events()[:9]
    beat = ev.HeartbeatSent(t=recorded.T0 + 20, phase="executing", phase_s=1.0, step=44, epoch=2)
    moved = [msgspec.structs.replace(event, t=event.t + shift_s) for event in (head, *events, beat)]
    recorded.write_journal(run_dir / "worker-0.jsonl", moved)
    result = tputui("show", "ssh://vm/shown", "--json", **environ)
    assert result.code in (0, 5), result.err
    shown = json.loads(result.out)
    assert shown["state"] == state
    assert shown["hosts"][0]["silent_s"] == pytest.approx(silent_s + ELAPSED_MAX_S / 2, abs=ELAPSED_MAX_S / 2 + 1)


@pytest.mark.parametrize("by_s", [300.0, -300.0])
def test_a_host_answers_by_the_clock_of_its_run(tmp_path: Path, by_s: float) -> None:
    run_dir = rundir.create(tmp_path, recorded.manifest("clocked"))
    stream = RunStream(run_dir, summary=False, clock=lambda: time.time() + by_s)

    def offset_s() -> float:
        [pong] = stream.answer([p.Ping(t=1.0)])
        assert isinstance(pong, p.Pong)
        return pong.host_t - time.time()

    assert offset_s() == pytest.approx(by_s, abs=5)
    # The run began here before the clock of the system was set.
    head = msgspec.structs.replace(
        recorded.opened(time.time(), "worker"), host_id=rundir.host_id(), boot_t=time.time() - since_boot()
    )
    recorded.write_journal(run_dir / "worker-0.jsonl", [head])
    assert offset_s() == pytest.approx(0, abs=5)
    stream.close()


def test_the_shortest_round_trip_of_the_last_minutes_counts() -> None:
    clock = ClockOffset()
    assert clock.measure(100.0, 100.3, 100.4) == pytest.approx(0.1)
    assert clock.measure(110.0, 110.051, 110.002) == pytest.approx(0.05)
    assert clock.measure(120.0, 120.2, 120.4) == pytest.approx(0.05)
    # The clock drifts: measurements of the last minutes count, however short an earlier round trip was.
    assert clock.measure(110.0 + WINDOW_S, 110.07 + WINDOW_S, 110.02 + WINDOW_S) == pytest.approx(0.06)


def test_a_clock_that_is_set_is_seen_with_the_next_answer() -> None:
    clock = ClockOffset()
    assert clock.measure(100.0, 100.001, 100.002) == pytest.approx(0.0)
    assert clock.measure(110.0, 710.002, 110.004) == pytest.approx(600.0)
    assert clock.measure(120.0, 720.3, 120.6) == pytest.approx(600.0)


def test_answers_that_measure_nothing_are_ignored_and_few_are_stored() -> None:
    clock = ClockOffset()
    for sent_t, host_t, received_t in ((200.0, 100.0, 100.0), (1.0, 100.0, 100.0), (99.9, 1e300, 100.0)):
        assert clock.measure(sent_t, host_t, received_t) is None
    for number in range(10 * MEASUREMENTS_MAX):
        clock.measure(100.0, 100.0, 100.0 + number * 1e-6)
    assert len(clock._recent) == MEASUREMENTS_MAX
