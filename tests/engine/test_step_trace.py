"""Profiles of the next steps on request: of the engine on virtual cores, and of scripts that report their steps."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.deadline import DEADLINE_S
from tests.engine.workers import LINE, make
from tests.supervise.harness import events_in, wait_for
from tputui import wire
from tputui.cli import trace
from tputui.cli.main import main
from tputui.telemetry import events as ev
from tputui.telemetry import requests

LONG = LINE.replace("epochs = 2", "epochs = 100000")
TRACED = 400


def ask(run_dir: Path, steps: int | None) -> str:
    return requests.submit(run_dir, "trace", by="test", now=time.time(), steps=steps).id


def planes(folder: Path) -> dict[str, bytes]:
    """The planes of the profile in a folder by name, as the XSpace message has them: hosts and devices."""
    (path,) = folder.glob("plugins/profile/*/*.xplane.pb")
    found = [field.content for field in wire.fields(path.read_bytes()) if field.number == 1]
    return {next(part.text for part in wire.fields(plane) if part.number == 2): plane for plane in found}


@pytest.mark.slow
@pytest.mark.xla
def test_engine_profiles_steps_while_it_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make(tmp_path, "traced", text=LONG)
    try:
        run.start()
        run.wait_for(ev.ProgressReported, lambda event: event.step > 40)
        # Requests are polled five times a second, so the first profile must last longer than that.
        first, second = ask(run.dir, TRACED), ask(run.dir, 5)
        written = run.wait_for(ev.TraceWritten)
        refused = run.wait_for(ev.RequestRefused)
        too_many = ask(run.dir, 1001)
        run.wait_for(ev.RequestRefused, lambda event: event.request == too_many)
        run.wait_for(ev.ProgressReported, lambda event: event.step > written.step + 40)
        requests.submit(run.dir, "stop", by="test", now=time.time())
        assert run.finish() == 4, run.log.read_text()
    finally:
        run.stop_if_alive()
    assert refused.request == second
    assert refused.why == "another profile is being recorded; only one is possible at a time"
    assert run.all(ev.RequestRefused)[1].why == "a profile covers 1 to 1000 steps, not 1001"
    assert written.path == f"traces/step-{written.step - TRACED + 1:08d}"
    assert (written.steps, written.seconds > 0) == (TRACED, True)
    files = [path for path in (run.dir / written.path).rglob("*") if path.is_file()]
    assert written.bytes == sum(path.stat().st_size for path in files)
    applied = next(event for event in run.all(ev.RequestApplied) if event.request == first)
    assert (applied.path, applied.bytes, applied.step) == (written.path, written.bytes, written.step)
    # XProf derives step times from these marks.
    host = next(plane for name, plane in planes(run.dir / written.path).items() if name == "/host:CPU")
    assert b"train" in host
    assert b"step_num" in host
    # The steps of the profile run the same programs, every step is recorded, and a stop still saves.
    counted = run.all(ev.XlaMetricsRead)
    assert len({event.compiles for event in counted if event.t > written.t - written.seconds}) == 1
    assert sorted(run.losses()) == list(range(1, run.one(ev.TrainingEnded).step + 1))

    assert main(["show", str(run.dir)]) == 0
    shown = capsys.readouterr().out
    assert f"profile      {written.path}  steps {written.step - TRACED + 1} to {written.step} in" in shown
    assert main(["trace", str(run.dir)]) == 2
    assert "the run has already ended" in capsys.readouterr().err


SCRIPT = """
import time
{imports}
import tputui
run = tputui.start(name="script")
deadline = time.monotonic() + 600
while time.monotonic() < deadline and not run.should_stop():
    {step}
    run.step(loss=1.0)
run.close()
"""
JAX = SCRIPT.format(
    imports="import jax, jax.numpy as jnp\nf = jax.jit(lambda x: jnp.tanh(x) @ x)\nx = jnp.ones((32, 32))",
    step="x = f(x).block_until_ready(); time.sleep(0.002)",
)
PLAIN = SCRIPT.format(imports="", step="time.sleep(0.01)")


def answered(folder: Path, body: str) -> tuple[Path, list[ev.Event]]:
    """Runs a script, asks it for a profile of 10 steps, then to stop; its run directory, and its events."""
    (folder / "train.py").write_text(body)
    environ = {**os.environ, "TPUTUI_RUNS": str(folder / "runs"), "JAX_PLATFORMS": "cpu"}
    process = subprocess.Popen([sys.executable, "train.py"], cwd=folder, env=environ, stderr=subprocess.PIPE)
    try:
        journal = wait_for(lambda: next((folder / "runs").glob("*/worker-0.jsonl"), None), "the journal")
        wait_for(lambda: b'"trace"' in journal.read_bytes() or None, "the first step, which declares profiles")
        ask(journal.parent, 10)
        wait_for(
            lambda: b'"RequestApplied"' in journal.read_bytes() or b'"RequestRefused"' in journal.read_bytes() or None,
            "the answer",
        )
        requests.submit(journal.parent, "stop", by="test", now=time.time())
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.communicate()
    return journal.parent, events_in(journal.parent, "worker-0", ev.Event)


def test_script_with_jax_is_profiled(tmp_path: Path) -> None:
    run_dir, events = answered(tmp_path, JAX)

    (written,) = (event for event in events if isinstance(event, ev.TraceWritten))
    assert written.steps == 10
    assert b"step_num" in planes(run_dir / written.path)["/host:CPU"]


def test_script_without_profiler_refuses(tmp_path: Path) -> None:
    run_dir, events = answered(tmp_path, PLAIN)

    (refused,) = (event for event in events if isinstance(event, ev.RequestRefused))
    assert refused.why == "the process uses neither torch_xla nor JAX, whose profilers write the trace"
    assert not (run_dir / "traces").exists()


def test_summary_prints_what_xprof_found() -> None:
    overview = [
        {"p": {"device_duty_cycle_percent": "81.5%", "mxu_utilization_percent": "12.0%", "hardware_type": "TPU"}},
        {
            "p": {
                "steptime_ms_average": "13.1",
                "steptime_ms_minimum": "12.9",
                "steptime_ms_maximum": "14.0",
                "device_compute_time_ms_avg": "9.0",
                "infeed_time_ms_avg": "4.1",
                "outfeed_time_ms_avg": "0.0",
                "input_conclusion": "Your program is <b>HIGHLY</b> input-bound.",
            }
        },
    ]
    columns = ["hlo_op_name", "total_self_time", "total_self_time_percent", "bound_by", "source_info"]
    rows = [["copy.1", 100.0, 10.0, "HBM", ""], ["fusion.7", 900.0, 90.0, "Compute", "<div>train.py:41</div>"]]
    operations = {
        "cols": [{"id": name} for name in columns],
        "rows": [{"c": [{"v": value} for value in row]} for row in rows],
    }
    assert trace.summary_lines(overview, operations, {"suggestions": [{"suggestion_text": "Use bf16."}]}) == [
        "step time     13.1 ms on average, 12.9 to 14.0 ms",
        "of it         device compute 9 ms, input 4.1 ms",
        "input         Your program is HIGHLY input-bound.",
        "device        duty cycle 81.5%, MXU 12.0%",
        "operation      90.0 %  0.9 ms  fusion.7, bound by Compute  train.py:41",
        "operation      10.0 %  0.1 ms  copy.1, bound by HBM",
        "suggestion    Use bf16.",
    ]


def test_unreadable_profile_has_a_reason(tmp_path: Path) -> None:
    with pytest.raises(trace.NoSummaryError, match=r"XProf is not installed|no \.xplane\.pb file"):
        trace.read(tmp_path)
