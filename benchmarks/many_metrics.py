"""What a run costs that logs thousands of metrics: its viewer by frame and by screen, its memory, and each command.

    python -m benchmarks.many_metrics [--names 5000] [--frames 60] [--history 200] [--rounds 3]

The simulated run logs a value of each metric once a second, after `--history` values of each, in events as a logger of
a framework writes them. The monitor of 160x45 cells draws ten frames for each second of the run, of which one has new
values of all metrics. Each part is CPU time: reading and reducing the events, building the snapshot (on the thread of
the reader), and drawing. `of a
report` is what reading and building take in a frame that has new values. The commands read the run after it ended.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.pod_measure import FIRST_FRAMES, WARM_UP_S, Stepped, draw, memory_mib
from benchmarks.synthetic import progress
from tests import recorded
from tests.recorded import T0
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.journal import SUFFIX, JournalWriter
from tputui.telemetry.logged_values import LoggedColumns, values_logged

FRAME_MS_MAX = 50.0
GROUP = 20
"""Metrics of each group."""


class Screen(NamedTuple):
    """What is on the screen, and which keys are pressed meanwhile."""

    open_with: tuple[str, ...] = ()
    press: tuple[str, ...] = ()


SCREENS = {
    "all panels": Screen(),
    "metrics": Screen(("2", "m")),
    "filter typed": Screen(("2", "m", "slash"), tuple("norm 3") + ("backspace",) * 6),
    "groups folded": Screen(("2", "m"), ("Z", "right_square_bracket")),
    "all folded": Screen(("2", "m"), ("E",)),
    "meters": Screen(("3", "enter")),
}
COMMANDS = (
    ("show",),
    ("show", "--json"),
    ("export", "--to", "html", "--out", "run.html"),
    ("export", "--to", "csv", "--out", "tables"),
)


def names(number: int) -> list[str]:
    """Names as of the layers of a network: `layer12/block_3/grad_norm`."""
    return [f"layer{at // GROUP}/block_{at % GROUP}/grad_norm" for at in range(number)]


class Metrics:
    """A run of one process that logs all of its metrics once a second."""

    def __init__(self, parent: Path, number: int, history: int) -> None:
        self.run_dir = rundir.create(parent, recorded.manifest(f"metrics-{number}"))
        self.num_events = 0
        self._names = names(number)
        self._writer = JournalWriter(self.run_dir / f"worker-0{SUFFIX}")
        self._second = 0
        self._put(recorded.worker_events()[:4])
        steps = list(range(1 - history, 1))
        for at, name in enumerate(self._names):
            values = [_value(at, step) for step in steps]
            columns = LoggedColumns(
                values, [step + history for step in steps], [T0 + step / 100 for step in steps], None
            )
            self._put([values_logged(T0 + 5, name, "train", name, "log", columns)])
        self._history = history

    def write_until(self, seconds: float) -> None:
        """Writes the values up to a second of the run."""
        while self._second < seconds - WARM_UP_S / 2:
            self._second += 1
            t, step = T0 + WARM_UP_S / 2 + self._second, self._history + self._second
            self._put(
                [
                    values_logged(t, name, "train", name, "log", LoggedColumns([_value(at, step)], [step], [t], None))
                    for at, name in enumerate(self._names)
                ]
            )
            self._put([progress(t, step), ev.HeartbeatSent(t=t, phase="executing", phase_s=0.1, step=step, epoch=1)])

    def close(self) -> None:
        """The run ends."""
        t = T0 + WARM_UP_S / 2 + self._second
        self._put([ev.TrainingEnded(t=t, outcome="done", step=self._second, reason="all epochs trained")])
        self._writer.close()

    def _put(self, events: list[ev.Event]) -> None:
        self._writer.append(events)
        self.num_events += len(events)


def _value(metric: int, step: int) -> float:
    return math.exp(-step / 300) * (2 + math.sin(step / 7 + metric)) + 0.01 * metric


def watch(number: int, history: int, frames: int, screen: Screen) -> tuple[float, float, float, float, float]:
    """Milliseconds of CPU: reading, building and drawing a mean frame, and the first two of one with new values."""
    with tempfile.TemporaryDirectory() as name:
        run = Metrics(Path(name), number, history)
        source = Stepped(run, run.run_dir)
        seen = draw(source, run.run_dir, frames, open_with=screen.open_with, press=screen.press)
    counts = source.num_events[FIRST_FRAMES : FIRST_FRAMES + frames]
    fresh = [at for at, count in enumerate(counts) if count > number]
    parts = [statistics.fmean(seen.read_s), statistics.fmean(seen.snapshot_s), seen.draw_s]
    parts += [statistics.median(of[at] for at in fresh) for of in (seen.read_s, seen.snapshot_s)]
    read, build, drawn, fresh_read, fresh_build = (1000 * part for part in parts)
    return read, build, drawn, fresh_read, fresh_build


def commands(number: int, history: int) -> Iterator[tuple[str, float, float, int]]:
    """Seconds of CPU, MiB of memory and bytes of output of each command, and the memory of a viewer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = Metrics(folder, number, history)
        run.write_until(WARM_UP_S)
        run.close()
        size = sum(path.stat().st_size for path in run.run_dir.glob(f"*{SUFFIX}"))
        yield "a viewer", 0.0, memory_mib(run.run_dir, "read") - memory_mib(run.run_dir), size
        for command in COMMANDS:
            out = folder / "out"
            out.mkdir(exist_ok=True)
            argv = [sys.executable, "-m", "tputui", command[0], str(run.run_dir), *command[1:]]
            with (folder / "stdout").open("wb") as stdout:
                process = psutil.Popen(argv, stdout=stdout, cwd=out)
                cpu_s, peak = 0.0, 0.0
                while process.poll() is None:
                    try:
                        cpu_s, peak = sum(process.cpu_times()[:2]), max(peak, process.memory_info().rss / 2**20)
                    except psutil.Error:
                        break
                    time.sleep(0.02)
                assert process.wait() == 0, f"{command} failed"
            written = [path for path in out.rglob("*") if path.is_file()]
            num_bytes = (folder / "stdout").stat().st_size + sum(path.stat().st_size for path in written)
            for path in written:
                path.unlink()
            yield " ".join(command), cpu_s, peak, num_bytes


def main() -> None:
    """Prints the cost of each screen and command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=5_000)
    parser.add_argument("--history", type=int, default=200, help="values of each metric before")
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--screen", action="append", choices=SCREENS, help="default all")
    parser.add_argument("--no-commands", action="store_true")
    args = parser.parse_args()
    print(
        f"{args.names:,} metrics, new values of all once a second; ms of CPU, median and range of {args.rounds} rounds"
    )
    for label in args.screen or SCREENS:
        rounds = [watch(args.names, args.history, args.frames, SCREENS[label]) for _ in range(args.rounds)]
        read, build, drawn, fresh_read, fresh_build = (statistics.median(part) for part in zip(*rounds, strict=True))
        frame = sorted(sum(each[:3]) for each in rounds)
        verdict = "met" if statistics.median(frame) <= FRAME_MS_MAX else "missed"
        print(
            f"  {label:14} reading {read:5.1f}, snapshot {build:5.1f}, drawing {drawn:5.1f}: a frame "
            f"{statistics.median(frame):6.1f} ({frame[0]:.1f} to {frame[-1]:.1f})   goal {FRAME_MS_MAX:g}: {verdict}; "
            f"of a report {fresh_read:5.1f} and {fresh_build:5.1f}",
            flush=True,
        )
    if not args.no_commands:
        for label, cpu_s, peak, num_bytes in commands(args.names, args.history):
            print(
                f"  {label:36}{cpu_s:6.1f} s of CPU, {peak:6.0f} MiB, {num_bytes / 2**20:7.2f} MiB written", flush=True
            )


if __name__ == "__main__":
    main()
