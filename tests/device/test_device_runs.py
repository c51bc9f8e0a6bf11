"""A command of the user with two TPUs: what its supervisor reads, and what every view shows of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import tputui
from tests.deadline import DEADLINE_S
from tests.hermetic import REPOSITORY
from tests.ports import reserved_port
from tests.supervise.harness import events_in, wait_for
from tputui.telemetry import events as ev

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs a supervisor")


@pytest.fixture(scope="module")
def ports() -> list[int]:
    """Two free ports, and a third at which nothing answers."""
    return [reserved_port() for _ in range(3)]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory, ports: list[int]) -> Iterator[Path]:
    """A run whose command serves the metrics of a TPU on two ports."""
    runs = tmp_path_factory.mktemp("tpu") / "runs"
    command = [sys.executable, "-m", "tests.device.tpu_runtime", json.dumps(ports[:2])]
    given = ",".join(map(str, ports))
    started = tputui(
        "--runs-dir",
        runs,
        "run",
        "--name",
        "tpu",
        "--detach",
        "--",
        *command,
        cwd=REPOSITORY,
        PJRT_DEVICE="TPU",
        TPU_RUNTIME_METRICS_PORTS=given,
    )
    assert started.code == 0, started.err
    run = runs / "tpu"
    try:
        # The ports begin to answer one after the other.
        wait_for(
            lambda: any(len(one.cores or []) == 2 for one in events_in(run, "supervisor-0", ev.DeviceSampled)),
            "values of both cores",
        )
        yield run
    finally:
        tputui("stop", run, "--now")


def shown(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(tputui("show", run, "--json").out)
    return found


def test_memory_and_duty_cycle_of_every_core_are_shown(run_dir: Path, ports: list[int]) -> None:
    found = shown(run_dir)
    assert [(one["core"], one["used_bytes"] >> 30, one["limit_bytes"] >> 30) for one in found["memory"]["hbm"]] == [
        (0, 3, 16),
        (1, 4, 16),
    ]
    devices = found["devices"]
    assert [(one["core"], one["duty_cycle_percent"], one["queued_programs"]) for one in devices["cores"]] == [
        (0, 91.5, 0),
        (1, 91.5, 1),
    ]
    assert devices["reason"] == f"no TPU runtime answers on port {ports[2]}"
    assert "throttle_score" in devices["absent"]
    page = tputui("show", run_dir).out
    assert "core 1       duty cycle 92 %  idle for 0.25 s  1 program queued" in page
    assert f"tpu          no TPU runtime answers on port {ports[2]}" in page


def test_stacks_include_what_the_cores_execute(run_dir: Path, ports: list[int]) -> None:
    printed = tputui("stacks", run_dir, "--wait", f"{DEADLINE_S:g}")
    assert "at all-reduce.17, launch 812, pc 0x1a40, program cafecafe, 2 programs queued" in printed.out
    assert "%all-reduce.17 = f32[8]{0} all-reduce" in printed.out
    assert f"not known: no TPU runtime answers on port {ports[2]}" in printed.out
    view = json.loads(tputui("stacks", run_dir, "--json", "--wait", f"{DEADLINE_S:g}").out)
    assert [(core["core"], core["launch_id"], core["queued_programs"]) for core in view["cores"]] == [
        (0, 812, 2),
        (1, 812, 2),
    ]


def test_absent_runtime_is_named_once(tmp_path: Path, ports: list[int]) -> None:
    given = str(ports[2])
    journal = "open(os.environ['TPUTUI_RUN_DIR'] + '/supervisor-0.jsonl', 'rb')"
    lines = f"import os, time\nwhile b'DeviceSampled' not in {journal}.read(): time.sleep(0.05)\ntime.sleep(1)"
    command = (sys.executable, "-c", lines)
    done = tputui(
        "--runs-dir",
        tmp_path,
        "run",
        "--no-ui",
        "--name",
        "a",
        "--",
        *command,
        cwd=tmp_path,
        PJRT_DEVICE="TPU",
        TPU_RUNTIME_METRICS_PORTS=given,
    )
    assert done.code == 0, done.err
    reasons = [one.reason for one in events_in(tmp_path / "a", "supervisor-0", ev.DeviceSampled)]
    assert reasons == [f"no TPU runtime answers on port {ports[2]}"]
    assert shown(tmp_path / "a")["memory"]["hbm_reason"] == reasons[0]
