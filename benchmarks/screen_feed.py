"""A run that goes on: a process that reports losses at a pace, and what a viewer of it does meanwhile.

    python -m benchmarks.screen_feed RUNS_DIR --cores 8 --values-per-s 100000 [--history 10000]

As a program it writes the run through the real reporter, ten reports a second, until it is ended, and says where the
run is. `values-per-s` are facts as a training loop has them: the loss of one core at one step.
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
KEPT_STEPS = 1 << 12
"""Steps made beforehand that are reported again and again."""
STEP_TOLD = re.compile(r"\bstep ([\d,]+)")


class Window(NamedTuple):
    """What a program did in some seconds."""

    cpu_percent: float
    """100 is one core of this machine."""
    frames_per_s: float
    """How often another step stood on the screen."""
    steps_per_s: float
    """By how much the step on the screen rose."""
    writes_per_s: float
    """How often the journal was seen to grow: no more frames can tell another step."""


class Feed:
    """The process that writes, while the block lasts."""

    def __init__(self, runs_dir: Path, *, cores: int, values_per_s: int, history: int = 0) -> None:
        command = [sys.executable, "-m", "benchmarks.screen_feed", str(runs_dir)]
        rates = ["--cores", str(cores), "--values-per-s", str(values_per_s), "--history", str(history)]
        self._process = subprocess.Popen(command + rates, stdout=subprocess.PIPE, text=True)
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
    """Looks at a program that tells the step of a run."""
    began, cpu_s = time.perf_counter(), terminal.usage().cpu_s
    first = step = told_step(terminal.text())
    journal = run_dir / "worker-0.jsonl"
    frames, writes, size = 0, 0, journal.stat().st_size
    while time.perf_counter() - began < seconds:
        time.sleep(LOOK_S)
        now = told_step(terminal.text())
        grown = journal.stat().st_size
        frames, writes = frames + (now != step), writes + (grown != size)
        step, size = now, grown
    took = time.perf_counter() - began
    return Window(100 * (terminal.usage().cpu_s - cpu_s) / took, frames / took, (step - first) / took, writes / took)


def answers(terminal: Terminal, presses: int) -> list[float]:
    """Seconds from a key to what it does, on the screen: a panel fills it, and the number of another one shows that.

    Not Escape, which every terminal program holds back until it is sure that no sequence follows.
    """
    took: list[float] = []
    terminal.press("2", "Enter")
    terminal.until(_SHOWN["2"], time.perf_counter() - terminal.began + DEADLINE_S)
    for number in range(presses):
        key = "32"[number % 2]
        # Not in step with the frames of the program.
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
"""By the key of a panel: whether it fills the screen."""


def told_step(screen: str) -> int:
    """The step that a screen tells; 0 where it tells none."""
    found = STEP_TOLD.search(screen)
    return int(found.group(1).replace(",", "")) if found else 0


def write(reporter: Reporter, cores: int, values_per_s: int, history: int) -> None:
    """Reports until the process is ended; a report that comes late is not made up for by a greater one."""
    steps = max(1, values_per_s // REPORTS_PER_S // cores)
    made = losses(max(history, KEPT_STEPS), cores)
    done = at = 0
    for first in range(0, history, 100):
        reporter.record_steps(first + 1, made[first : min(first + 100, history)], cores)
        done = min(first + 100, history)
    reporter.flush(60)
    # A curve that has come down and stays there.
    made = made[-KEPT_STEPS:]
    due = time.monotonic()
    while True:
        now = time.time()
        told = done + steps
        while done < told:
            part = made[at : at + told - done]
            reporter.record_steps(done + 1, part, cores)
            done, at = done + len(part), (at + len(part)) % len(made)
        reporter.emit(progress(now, done, step_s=STEP_S * (1 + done % 7 / 100)))
        reporter.emit(ev.HeartbeatSent(t=now, phase="executing", phase_s=0.1, step=done, epoch=1))
        due += 1 / REPORTS_PER_S
        time.sleep(max(0.0, due - time.monotonic()))


def main() -> None:
    """Writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs_dir", type=Path)
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--values-per-s", type=int, default=100_000)
    parser.add_argument("--history", type=int, default=0, help="steps that were done before")
    args = parser.parse_args()
    run_dir = rundir.create(args.runs_dir, recorded.manifest(f"feed-{args.cores}x{args.values_per_s}-{time.time_ns()}"))
    reporter = Reporter(run_dir, "worker")
    for event in recorded.worker_events(num_cores=args.cores)[2:4]:
        reporter.emit(event)
    print(run_dir, flush=True)
    write(reporter, args.cores, args.values_per_s, args.history)


if __name__ == "__main__":
    main()
