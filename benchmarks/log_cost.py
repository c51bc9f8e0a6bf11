"""Cost for the training thread of one call of `run.step` that logs 8 per-core losses, compared with torch's
SummaryWriter and, if they are installed, wandb offline and trackio.

Tight: a bare loop. Paced: one call every 2 ms with other work in between, so that caches are cold as in training.
Contenders alternate in blocks within one process; the script prints medians over the blocks.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tputui
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.step_log import StepLog

PACE_S = 0.002
WORK_S = 0.0015

OURS, BOARD = "run.step, 8 floats in a list", "SummaryWriter, add_scalar x 8"
WANDB, TRACKIO = "wandb offline, log of 8 values", "trackio, log of 8 values"
HOW_TO = "pip install --target peers/PACKAGE PACKAGE, and PYTHONPATH=peers/PACKAGE if it needs other versions"

Call = Callable[[int], None]


def wandb_call(folder: str, losses: list[float], stack: contextlib.ExitStack) -> Call:
    """A call of `wandb.log` with 8 values, in offline mode."""
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=folder)
    wandb = importlib.import_module("wandb")
    logged = wandb.init(project="benchmark")
    stack.callback(logged.finish)
    values = {f"loss/core{core}": loss for core, loss in enumerate(losses)}
    return lambda step: logged.log(values)


def trackio_call(folder: str, losses: list[float], stack: contextlib.ExitStack) -> Call:
    """A call of `trackio.log` with 8 values, into its local database; without its metrics of the machine."""
    os.environ.update(TRACKIO_DIR=f"{folder}/trackio", HF_HUB_OFFLINE="1")
    trackio = importlib.import_module("trackio")
    logged = trackio.init(project="benchmark", auto_log_cpu=False, auto_log_gpu=False)
    stack.callback(logged.finish)
    values = {f"loss/core{core}": loss for core, loss in enumerate(losses)}
    return lambda step: logged.log(values)


OPTIONAL = {WANDB: ("wandb", wandb_call), TRACKIO: ("trackio", trackio_call)}
"""Package and call of the peers that may be missing."""


def tight(call: Call, first: int, calls: int) -> float:
    """Returns the mean seconds per call in a bare loop."""
    began = time.perf_counter()
    for step in range(first, first + calls):
        call(step)
    return (time.perf_counter() - began) / calls


def paced(call: Call, first: int, calls: int) -> float:
    """Returns the mean seconds per call with one call every 2 ms and other work in between."""
    scratch = np.zeros(1 << 20, "<f4")
    spent = 0.0
    for step in range(first, first + calls):
        due = time.perf_counter() + PACE_S
        while time.perf_counter() < due - (PACE_S - WORK_S):
            scratch += 1.0
        began = time.perf_counter()
        call(step)
        spent += time.perf_counter() - began
        time.sleep(max(0.0, due - time.perf_counter()))
    return spent / calls


def main() -> None:
    """Prints microseconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tight-calls", type=int, default=3000)
    parser.add_argument("--paced-calls", type=int, default=300)
    args = parser.parse_args()

    from torch.utils.tensorboard import SummaryWriter

    losses = [0.1 * core + 0.5 for core in range(8)]
    narrow, wide = np.full(8, 0.5, "<f4"), np.full(2048, 0.5, "<f4")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        run = stack.enter_context(tputui.start(runs_dir=folder))
        reporter = Reporter(Path(folder), "worker")
        board = SummaryWriter(f"{folder}/tensorboard")
        cores = {"list": 8, "narrow": 8, "wide": 2048}
        logs = {name: StepLog(reporter.put_steps, reporter.clock, number) for name, number in cores.items()}
        for log in logs.values():
            reporter.follow(log)

        def board_call(step: int) -> None:
            for core, loss in enumerate(losses):
                board.add_scalar(f"loss/core{core}", loss, step)

        calls: dict[str, Call] = {
            "nothing": lambda step: None,
            OURS: lambda step: run.step(losses, 32),
            "StepLog, 8 floats in a list": lambda step: logs["list"].log(step, losses),
            "StepLog, 8 in memory": lambda step: logs["narrow"].log(step, narrow),
            "StepLog, 2,048 in memory": lambda step: logs["wide"].log(step, wide),
            BOARD: board_call,
        }
        for name, (package, make_call) in OPTIONAL.items():
            if importlib.util.find_spec(package) is None:
                print(f"{package} is left out: it is not installed; {HOW_TO.replace('PACKAGE', package)}")
            else:
                calls[name] = make_call(folder, losses, stack)
        for title, measure, count in (("tight", tight, args.tight_calls), ("paced", paced, args.paced_calls)):
            rows: dict[str, list[float]] = {name: [] for name in calls}
            for round_number in range(args.rounds + 1):
                for name, call in calls.items():
                    few = min(count, 1000) if "2,048" in name else count
                    seconds = measure(call, 1 + round_number * count, few)
                    reporter.flush()
                    if round_number:  # the first round warms up
                        rows[name].append(seconds)
            report(title, {name: statistics.median(values) * 1e6 for name, values in rows.items()})
        reporter.close()
        board.close()


def report(title: str, us: dict[str, float]) -> None:
    """Prints a table and the ratios."""
    print(f"\n{title}: microseconds per call")
    for name, value in us.items():
        print(f"  {name:42} {value:10.2f}")
    for other in (BOARD, *OPTIONAL):
        if other in us:
            print(f"  {other + ' / run.step':42} {us[other] / us[OURS]:10.1f}")
    wide, narrow = us["StepLog, 2,048 in memory"], us["StepLog, 8 in memory"]
    print(f"  {'2,048 cores / 8 cores':42} {wide / narrow:10.2f}")


if __name__ == "__main__":
    main()
