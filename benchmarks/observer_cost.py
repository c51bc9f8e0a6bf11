"""Cost of observing torch_xla for the digits run: always on, and while a window of hooks is open.

One trainer, whose observer is attached and detached in turn: an epoch with it, an epoch without, in changing order, so
that both see the same programs on the same machine. The time inside the observer is measured as well, since it is far
smaller than the noise of two cores. Then epochs follow in which windows that observe the calls of torch, and windows
that compare graphs, are opened again and again.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.intervals import median_interval
from benchmarks.telemetry_overhead import COUNTED, SAMPLE, Side
from engine import run_plan
from engine.process import hardware
from tputui import config
from tputui.observers.xla_graph import Reason

SECTIONS = ("on", "off", "calls of torch observed", "graphs compared")


class Epoch(NamedTuple):
    """An epoch: figures per step, counts of the whole."""

    step_s: float
    inside_s: float
    """Seconds inside the observer."""
    counts: tuple[int, ...]


class Observed:
    """A trainer whose observer can be detached, or kept in a window."""

    def __init__(self, side: Side) -> None:
        programs: Any = side.trainer.events.programs
        self._side = side
        self._programs = programs
        self._observer = programs._observer
        assert self._observer is not None, "the observers are disabled in the environment"
        self._spent_s = 0.0
        for name in ("begin_program", "end"):
            setattr(self._observer, name, self._timed(getattr(self._observer, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self._spent_s += time.perf_counter() - began

        return timed

    def epoch(self, section: str, num_steps: int) -> Epoch:
        """Trains and measures an epoch."""
        observer = self._observer
        self._programs._observer = None if section == "off" else observer
        observer.discard_compiles()
        if section in SECTIONS[2:]:
            observer._trouble.take = lambda: Reason("benchmark", section == SECTIONS[3])
        else:
            vars(observer._trouble).pop("take", None)
        self._spent_s = 0.0
        self._side.epoch(num_steps)
        if observer._threads.own.window is not None:
            observer._close_window(observer._threads.own.window)
        return Epoch(self._side.step_s[-1], self._spent_s / num_steps, self._side.counts[-1])


def measure(overrides: list[str], pairs: int, warm_up: int, armed: int) -> None:
    """Trains epochs in all conditions and prints the measurements."""
    from engine.loop import build

    settings = config.load(SAMPLE, [*overrides, f"epochs={warm_up + 2 * pairs + 2 * armed}"])
    planned = run_plan.make(settings, hardware.find(os.environ), str(SAMPLE))
    cores = build.strategy(planned)
    with tempfile.TemporaryDirectory() as name:
        side = Side(planned, cores, Path(name), telemetry=True)
        observed = Observed(side)
        taken: dict[str, list[Epoch]] = {section: [] for section in SECTIONS}
        for _ in range(warm_up):
            observed.epoch("on", planned.steps_per_epoch)
        for number in range(pairs):
            for section in ("on", "off") if number % 2 else ("off", "on"):
                taken[section].append(observed.epoch(section, planned.steps_per_epoch))
        for section in SECTIONS[2:] * armed:
            taken[section].append(observed.epoch(section, planned.steps_per_epoch))
        side.reporter.close()
    report(taken)


def report(taken: dict[str, list[Epoch]]) -> None:
    """Prints times and counts."""
    print(f"{len(taken['on'])} pairs of epochs; medians per step")
    print(f"  {'':26}{'ms':>9}{'in observer, ms':>17}" + "".join(f"{name:>23}" for name in COUNTED))
    for section, rows in taken.items():
        step_ms = 1e3 * statistics.median(row.step_s for row in rows)
        inside_ms = 1e3 * statistics.median(row.inside_s for row in rows)
        counts = [statistics.median(row.counts[at] for row in rows) for at in range(len(COUNTED))]
        print(f"  {section:26}{step_ms:>9.3f}{inside_ms:>17.4f}" + "".join(f"{count:>23g}" for count in counts))
    ratios = [on.step_s / off.step_s for on, off in zip(taken["on"], taken["off"], strict=True)]
    low, middle, high = median_interval(ratios)
    print(f"  wall time, on / off: median {middle:.4f}, 95 % interval {low:.4f} to {high:.4f}")
    shares = [row.inside_s / row.step_s for row in taken["on"]]
    print(f"  time inside the observer: median {statistics.median(shares):.3%} of a step")


def main() -> None:
    """Prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--armed", type=int, default=5, help="epochs of each kind of window")
    parser.add_argument("--set", action="append", default=[], help="override of a key, as of `tputui run`")
    args = parser.parse_args()
    settings = config.load(SAMPLE, args.set)
    os.environ.update(hardware.environment(settings, hardware.find(os.environ)))
    measure(args.set, args.pairs, args.warm_up, args.armed)


if __name__ == "__main__":
    main()
