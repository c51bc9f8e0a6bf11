"""A process that reports losses at a given rate, and measurements of a viewer of its run.

    python -m benchmarks.screen_feed RUNS_DIR --cores 8 --values-per-s 100000 [--history 10000]

As a program it writes the run with the real reporter, by default ten reports a second, until it is killed, and prints
the path of the run. `values-per-s` counts the loss of one core at one step.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from benchmarks.screen_terminal import DEADLINE_S, LOOK_S, Terminal
from benchmarks.synthetic import STEP_S, losses, progress
from tests import recorded
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.reporter import Reporter

REPORTS_PER_S = 10
_POD_S = 3600
"""Seconds after which a pod ends by itself."""
KEPT_STEPS = 1 << 12
"""Steps generated beforehand and reported repeatedly."""
STEP_SHOWN = re.compile(r"\bstep ([\d,]+)")


class Window(NamedTuple):
    """Measurements of a program over some seconds."""

    cpu_percent: float
    """100 is one core of this machine."""
    frames_per_s: float
    """How often the step on the screen changed."""
    steps_per_s: float
    """Increase of the step on the screen."""
    writes_per_s: float
    """How often the journal grew, the upper limit of the frame rate."""


class Feed:
    """The writing process, as a context manager."""

    def __init__(
        self,
        runs_dir: Path,
        *,
        cores: int,
        values_per_s: int,
        reports_per_s: int = REPORTS_PER_S,
        history: int = 0,
        silent: bool = False,
    ) -> None:
        """`silent`: the process writes only the history, then nothing."""
        rates = ["--cores", str(cores), "--values-per-s", str(values_per_s), "--history", str(history)]
        rates += ["--reports-per-s", str(reports_per_s)]
        self._start("benchmarks.screen_feed", str(runs_dir), *rates, *(["--silent"] if silent else []))

    @classmethod
    def of_pod(cls, runs_dir: Path, hosts: int) -> Feed:
        """A run on many hosts with 8 cores each, ten reports a second from every host."""
        feed = cls.__new__(cls)
        feed._start(
            "benchmarks.pod", "live", str(runs_dir), "--hosts", str(hosts), "--seconds", str(_POD_S), "--healthy"
        )
        return feed

    def _start(self, *command: str) -> None:
        """Starts a module, which prints the path of its run first."""
        self._process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.run_dir = Path(self._process.stdout.readline().strip())

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def watch(terminal: Terminal, seconds: float, run_dir: Path) -> Window:
    """Polls a program that shows the step of a run."""
    began, cpu_s = time.perf_counter(), terminal.usage().cpu_s
    first = step = shown_step(terminal.text())
    journal = run_dir / "worker-0.jsonl"
    frames, writes, size = 0, 0, journal.stat().st_size
    while time.perf_counter() - began < seconds:
        time.sleep(LOOK_S)
        now = shown_step(terminal.text())
        grown = journal.stat().st_size
        frames, writes = frames + (now != step), writes + (grown != size)
        step, size = now, grown
    took = time.perf_counter() - began
    return Window(100 * (terminal.usage().cpu_s - cpu_s) / took, frames / took, (step - first) / took, writes / took)


def answers(terminal: Terminal, presses: int) -> list[float]:
    """Returns the seconds from a key to its effect: the number of another panel shows that panel full screen.

    Escape is not used, because terminal programs delay it to detect escape sequences.
    """
    took: list[float] = []
    terminal.press("2", "Enter")
    terminal.until(_SHOWN["2"], time.perf_counter() - terminal.began + DEADLINE_S)
    for number in range(presses):
        key = "32"[number % 2]
        # Not synchronised with the frames of the program.
        time.sleep(0.3 + 0.037 * (number % 5))
        began = time.perf_counter()
        terminal.press(key)
        deadline = began - terminal.began + 10
        terminal.until(_SHOWN[key], deadline)
        took.append(time.perf_counter() - began)
    return took


_SHOWN = {
    "2": lambda screen: " 2 loss" in screen and " 3 meters" not in screen,
    "3": lambda screen: " 3 meters" in screen and " 2 loss" not in screen,
}
"""Whether a panel fills the screen, by its key."""


def shown_step(screen: str) -> int:
    """Returns the step shown on a screen, or 0."""
    found = STEP_SHOWN.search(screen)
    return int(found.group(1).replace(",", "")) if found else 0


def write(
    reporter: Reporter, cores: int, values_per_s: int, reports_per_s: int, history: int, *, silent: bool = False
) -> None:
    """Reports until the process is killed; a late report is not compensated by a larger one. `silent`: reports only the
    history, and lives on."""
    steps = max(1, values_per_s // reports_per_s // cores)
    made = losses(max(history, KEPT_STEPS), cores)
    done = at = 0
    for first in range(0, history, 100):
        reporter.record_steps(first + 1, made[first : min(first + 100, history)], cores)
        done = min(first + 100, history)
    reporter.flush(60)
    while silent:
        time.sleep(60)
    # From here on the curve stays flat.
    made = made[-KEPT_STEPS:]
    due = time.monotonic()
    while True:
        now = time.time()
        target = done + steps
        while done < target:
            part = made[at : at + target - done]
            reporter.record_steps(done + 1, part, cores)
            done, at = done + len(part), (at + len(part)) % len(made)
        reporter.emit(progress(now, done, step_s=STEP_S * (1 + done % 7 / 100)))
        reporter.emit(ev.HeartbeatSent(t=now, phase="executing", phase_s=0.1, step=done, epoch=1))
        due += 1 / reports_per_s
        time.sleep(max(0.0, due - time.monotonic()))


def main() -> None:
    """Writes the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs_dir", type=Path)
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--values-per-s", type=int, default=100_000)
    parser.add_argument("--reports-per-s", type=int, default=REPORTS_PER_S)
    parser.add_argument("--history", type=int, default=0, help="steps recorded before")
    parser.add_argument("--silent", action="store_true", help="write nothing after the history")
    args = parser.parse_args()
    run_dir = rundir.create(args.runs_dir, recorded.manifest(f"feed-{args.cores}x{args.values_per_s}-{time.time_ns()}"))
    reporter = Reporter(run_dir, "worker")
    for event in recorded.worker_events(num_cores=args.cores)[2:4]:
        reporter.emit(event)
    print(run_dir, flush=True)
    write(reporter, args.cores, args.values_per_s, args.reports_per_s, args.history, silent=args.silent)


if __name__ == "__main__":
    main()
