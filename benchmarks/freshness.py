"""How old a fact is when it stands on the live screen of another process.

A real reporter tells of a step now and then; the real program, attached in a pseudo-terminal, is watched for it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.open_run import DEADLINE_S, Screen
from benchmarks.synthetic import progress
from tests import recorded
from tputui.telemetry import rundir
from tputui.telemetry.reporter import Reporter

PACE_S = 0.37
"""Not a multiple of any interval in the program."""


def main() -> None:
    """Prints the ages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=40)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run_dir = rundir.create(Path(name), recorded.manifest("fresh"))
        reporter = Reporter(run_dir, "worker")
        for event in recorded.worker_events()[2:4]:
            reporter.emit(event)
        screen = Screen([sys.executable, "-m", "tputui", "attach", str(run_dir)])
        ages = [age(reporter, screen, step) for step in range(10_001, 10_002 + args.facts)][1:]
        screen.close()
        reporter.close()
    print(f"{len(ages)} facts: on screen after {statistics.median(ages):.3f} s (median), {max(ages):.3f} s at most")


def age(reporter: Reporter, screen: Screen, step: int) -> float:
    """Seconds from a fact to the screen."""
    screen.drawn = screen.drawn[-200:]
    told = time.time()
    reporter.emit(progress(told, step))
    while f"{step:,}" not in screen.read():
        if time.time() - told > DEADLINE_S:
            raise TimeoutError(f"step {step} did not show within {DEADLINE_S:g} s")
    seen = time.time()
    while time.time() < told + PACE_S:
        screen.read()
    return seen - told


if __name__ == "__main__":
    main()
