"""Reproducible losses of a long run: decreasing, with 3 % noise per core and one spike, which readers must find."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from tests import recorded
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.reporter import Reporter

NUM_CORES = 8
STEPS_A_REPORT = 100
"""One report per second at 10 ms per step."""
SPIKE_STEP = 654_321
SPIKE = 123.456
STEP_S = 0.01


def losses(num_steps: int, num_cores: int = NUM_CORES, seed: int = 0) -> np.ndarray:
    """Returns losses as [num_steps, num_cores] float32."""
    random = np.random.default_rng(seed)
    level = 2.3 * np.exp(-np.arange(1, num_steps + 1) / (num_steps / 5)) + 0.1
    values = level[:, None] * (1 + 0.03 * random.standard_normal((num_steps, num_cores)))
    return values.astype("<f4")


def write_run(parent: Path, num_steps: int, *, spike: bool = True) -> tuple[Path, np.ndarray]:
    """Writes a finished run with the real reporter; returns its directory and the values [num_steps, num_cores]."""
    values = losses(num_steps)
    if spike and num_steps >= SPIKE_STEP:
        values[SPIKE_STEP - 1, 3] = SPIKE
    run_dir = rundir.create(parent, recorded.manifest(f"long-{num_steps}"))
    now = [recorded.T0]
    reporter = Reporter(run_dir, "worker", clock=lambda: now[0], queue_bytes_max=1 << 30)
    for event in recorded.worker_events()[2:4]:
        reporter.emit(event)
    for first in range(0, num_steps, STEPS_A_REPORT):
        now[0] += STEPS_A_REPORT * STEP_S
        block = values[first : first + STEPS_A_REPORT]
        reporter.record_steps(first + 1, block, NUM_CORES)
        reporter.emit(progress(now[0], first + len(block)))
    reporter.emit(ev.TrainingEnded(t=now[0], outcome="done", step=num_steps, reason="all epochs trained"))
    while not reporter.close(timeout_s=60):
        time.sleep(0.1)
    return run_dir, values


def progress(t: float, step: int, step_s: float = STEP_S) -> ev.ProgressReported:
    """Returns the progress event of a step."""
    return ev.ProgressReported(
        t=t,
        epoch=1,
        epoch_step=step,
        step=step,
        step_s=step_s,
        examples_per_s=64 / step_s,
        lr=0.004,
        report_steps=STEPS_A_REPORT,
    )
