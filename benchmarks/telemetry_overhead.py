"""Cost of telemetry for the digits run in wall time, compiles and transfers.

One process holds two trainers of the same plan on the same 8 cores, one with telemetry and one without, and alternates
their epochs (on off, off on, ...), so that both see the same machine. An epoch is training, evaluation and save, as in
a real run.
`--set model.channels=160` makes steps of 100 ms and more.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.intervals import median_interval
from engine import run_plan
from engine.process import hardware
from engine.process.requests import RequestQueue
from tests import recorded
from tputui import config
from tputui.reporting.progress import Progress
from tputui.telemetry import rundir
from tputui.telemetry.reporter import Reporter

SAMPLE = Path(__file__).parent.parent / "sample_configs" / "digits.toml"
COUNTED = ("compiles", "executes", "transfers_to_device", "transfers_from_device")


class Side:
    """A trainer and the measurements of its epochs."""

    def __init__(self, planned: Any, cores: Any, folder: Path, *, telemetry: bool) -> None:
        from engine.loop import build

        name = "on" if telemetry else "off"
        self.run_dir = rundir.create(folder, recorded.manifest(name))
        self.reporter = Reporter(self.run_dir, "worker")
        context = build.RunContext(self.run_dir, self.reporter, Progress(), RequestQueue(), telemetry=telemetry)
        self.trainer = build.trainer(planned, cores, context)
        self.trainer.begin()
        self._kept_s = 0.0
        self.spent_s: list[tuple[float, float]] = []
        append = self.trainer.reporter.append

        def timed(*step: Any) -> None:
            began = time.perf_counter()
            append(*step)
            self._kept_s += time.perf_counter() - began

        self.trainer.reporter.append = timed  # type: ignore[method-assign, assignment]  # adds to a trace
        self.step_s: list[float] = []
        self.epoch_s: list[float] = []
        self.cpu_s: list[float] = []
        self.counts: list[tuple[int, ...]] = []

    def epoch(self, num_steps: int) -> None:
        """Trains and measures one epoch."""
        from engine.xla import backend
        from tputui.observers.xla_runtime import MetricTotals, XlaRuntime

        backend.wait()
        counters = MetricTotals(XlaRuntime())
        before = counters.read(0, None)
        began, cpu_began = time.perf_counter(), time.process_time()
        self.trainer.train_epoch()
        backend.wait()
        took = time.perf_counter() - began
        self.cpu_s.append(time.process_time() - cpu_began)
        self.spent_s.append((self.trainer.events.sections.totals()["report"], self._kept_s))
        self._kept_s = 0.0
        after = counters.read(0, None)
        self.epoch_s.append(took)
        self.step_s.append(took / num_steps)
        self.counts.append(tuple(getattr(after, name) - getattr(before, name) for name in COUNTED))


def measure(overrides: list[str], pairs: int, warm_up: int) -> None:
    """Trains both sides alternately and prints the measurements."""
    from engine.loop import build

    settings = config.load(SAMPLE, [*overrides, f"epochs={pairs + warm_up}"])
    found = hardware.find(os.environ)
    planned = run_plan.make(settings, found, str(SAMPLE))
    cores = build.strategy(planned)
    with tempfile.TemporaryDirectory() as name:
        on, off = (Side(planned, cores, Path(name), telemetry=telemetry) for telemetry in (True, False))
        for number in range(warm_up + pairs):
            for side in (on, off) if number % 2 else (off, on):
                side.epoch(planned.steps_per_epoch)
        for side in (on, off):
            side.reporter.close()
        report(on, off, warm_up, planned.steps_per_epoch)


def report(on: Side, off: Side, warm_up: int, steps: int) -> None:
    """Prints times and counts after warm-up."""
    print(f"{len(on.epoch_s) - warm_up} pairs of epochs of {steps} steps, after {warm_up} to warm up; medians")
    print(f"  {'':28}{'on':>10}{'off':>10}")
    for label, values in (
        ("epoch, s", "epoch_s"),
        ("CPU of an epoch, s", "cpu_s"),
        ("an epoch's time a step, ms", "step_s"),
    ):
        scale = 1000 if "ms" in label else 1
        a, b = (scale * statistics.median(getattr(side, values)[warm_up:]) for side in (on, off))
        print(f"  {label:28}{a:>10.3f}{b:>10.3f}")
    for place, label in enumerate(COUNTED):
        a, b = (statistics.median(row[place] for row in side.counts[warm_up:]) for side in (on, off))
        print(f"  {label:28}{a:>10g}{b:>10g}")
    epoch_s = statistics.median(off.epoch_s[warm_up:])
    print("  by the loop's own clock, an epoch:")
    for place, label in enumerate(("reading and reporting", "tracing the recorded values, while the device runs")):
        ours, theirs = (statistics.median(spent[place] for spent in side.spent_s[warm_up:]) for side in (on, off))
        print(f"    {label:50}{(ours - theirs) * 1e3:>6.1f} ms, {(ours - theirs) / epoch_s:.2%}")
    for label, values in (("wall", "epoch_s"), ("CPU", "cpu_s")):
        ours, theirs = (getattr(side, values)[warm_up:] for side in (on, off))
        low, middle, high = median_interval([a / b for a, b in zip(ours, theirs, strict=True)])
        totals = sum(ours) / sum(theirs)
        print(
            f"  {label} time, on / off: median {middle:.4f}, 95 % interval {low:.4f} to {high:.4f}; sums {totals:.4f}"
        )


def main() -> None:
    """Prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--warm-up", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], help="override of a key, as of `tputui run`")
    args = parser.parse_args()
    settings = config.load(SAMPLE, args.set)
    os.environ.update(hardware.environment(settings, hardware.find(os.environ)))
    measure(args.set, args.pairs, args.warm_up)


if __name__ == "__main__":
    main()
