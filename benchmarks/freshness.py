"""Age of an event when the live screen of another process shows it.

A real reporter emits steps; the real program, attached in a real terminal, is polled until it shows them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.screen_terminal import DEADLINE_S, Terminal
from benchmarks.synthetic import progress
from tests import recorded
from tputui.telemetry import rundir
from tputui.telemetry.reporter import Reporter

PACE_S = 0.37
"""Not a multiple of any interval in the program."""


def main() -> None:
    """Prints the ages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=40)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run_dir = rundir.create(Path(name), recorded.manifest("fresh"))
        reporter = Reporter(run_dir, "worker")
        for event in recorded.worker_events()[2:4]:
            reporter.emit(event)
        with Terminal() as terminal:
            terminal.start([sys.executable, "-m", "tputui", "attach", str(run_dir)])
            ages = [age(reporter, terminal, step) for step in range(10_001, 10_002 + args.events)][1:]
        reporter.close()
    print(f"{len(ages)} events: on screen after {statistics.median(ages):.3f} s (median), {max(ages):.3f} s at most")


def age(reporter: Reporter, terminal: Terminal, step: int) -> float:
    """Returns the seconds from an event to the screen."""
    emitted = time.perf_counter()
    reporter.emit(progress(time.time(), step))
    terminal.until(lambda screen: f"{step:,}" in screen, emitted - terminal.began + DEADLINE_S)
    seen = time.perf_counter() - emitted
    time.sleep(max(0.0, PACE_S - seen))
    return seen


if __name__ == "__main__":
    main()
