"""Does anything compile after warm-up in 100,000 steps? Real runs for each optimizer, schedule, strategy and loop.

    python -m benchmarks.many_steps [--steps 100000] [--case PATTERN ...] [--keep DIR]

Each case is one `tputui run` of 100 epochs over two virtual cores: a plane is fitted to noisy points in batches of 4,
so that a step of the engine is as cheap as it can be. `step` brings the learning rate down to 0 before the end, and so
does `cosine` in Lightning; that of `[optim]` would reach 0 at the update after the last. Cases are named
LOOP-OPTIMIZER-SCHEDULE, such as `spmd-adam-cosine`; LOOP is `spmd`, `replica` (two ranks) or `lightning`.

Columns: programs compiled by the first process; `late`, those that came after the second epoch or that the engine
counted as recompiles, and warnings of the other rank about its own; milliseconds of a step in the fastest report, CPU
milliseconds of a step and resident memory of the training processes, each in the second and in the last tenth of the
run; bytes of the journals per step.
Exits with 1 if a case failed or compiled late.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from fnmatch import fnmatch
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

from benchmarks.many_steps_task import BATCH, EPOCHS, GAMMA
from tputui.session import session
from tputui.telemetry import events as ev

OPTIMIZERS = {
    "sgd": "momentum = 0.9",
    "rmsprop": "clip_norm = 1.0",
    "adam": "",
    "adamw": "weight_decay = 0.01",
}
SCHEDULES = {
    "cosine": 'schedule = "cosine"\nwarmup_epochs = 5',
    "step": f"step_size = 1\ngamma = {GAMMA}",
    "constant": "",
}
LOOPS = ("spmd", "replica", "lightning")
CASES = [f"{loop}-{optimizer}-{schedule}" for loop, schedule, optimizer in product(LOOPS, SCHEDULES, OPTIMIZERS)]
CONFIG = """
task = "{task}"
epochs = {epochs}
[data]
global_batch = {batch}
{data}
[optim]
lr = 0.005
{optim}
[device]
cores = 2
virtual_cores = 2
strategy = "{strategy}"
[checkpoint]
every_epochs = 25
"""
LIGHTNING = """
[model]
module = "benchmarks.many_steps_lit:Plane"
[model.arguments]
optimizer = "{optimizer}"
schedule = "{schedule}"
steps = {steps}
"""
HEADING = f"{'case':28}{'steps':>9}{'compiles':>10}{'late':>6}{'seconds':>9}"
HEADING += f"{'ms a step':>16}{'CPU ms a step':>16}{'MiB':>14}{'bytes a step':>14}"


def main() -> None:
    """Runs the cases and prints a row for each as it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help=f"a multiple of {EPOCHS} (default 100000)")
    parser.add_argument("--case", action="append", help="cases to run, by name with wildcards (default all)")
    parser.add_argument("--keep", type=Path, help="directory in which the runs are kept")
    args = parser.parse_args()
    cases = [case for case in CASES if any(fnmatch(case, pattern) for pattern in args.case or "*")]
    if not cases or args.steps < EPOCHS or args.steps % EPOCHS:
        parser.error(f"--steps must be a multiple of {EPOCHS}, and --case one of: {', '.join(CASES)}")
    print(HEADING, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        passed = [run(case, args.steps, args.keep or Path(folder)) for case in cases]
    print(f"{sum(passed)} of {len(cases)} cases compiled nothing after warm-up")
    sys.exit(0 if all(passed) else 1)


def run(case: str, steps: int, runs_dir: Path) -> bool:
    """Trains a case and prints its row; returns whether it was trained without compiling late."""
    runs_dir.mkdir(parents=True, exist_ok=True)
    path = runs_dir / f"{case}.toml"
    path.write_text(configuration(case, steps))
    command = [sys.executable, "-m", "tputui", "run", "--no-ui", "--quiet", f"--runs-dir={runs_dir}", f"--name={case}"]
    began = time.monotonic()
    done = subprocess.run([*command, str(path)], capture_output=True, text=True)
    if done.returncode:
        print(f"{case:28} failed with exit code {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return False
    return print_row(runs_dir / case, steps, time.monotonic() - began)


def configuration(case: str, steps: int) -> str:
    """The configuration file of a case."""
    loop, optimizer, schedule = case.split("-")
    own = loop != "lightning"
    text = CONFIG.format(
        task="benchmarks.many_steps_task:Plane" if own else "lightning",
        epochs=EPOCHS,
        batch=BATCH,
        data=f"num_train = {steps // EPOCHS * BATCH}" if own else "",
        optim=f'name = "{optimizer}"\n{OPTIMIZERS[optimizer]}\n{SCHEDULES[schedule]}' if own else "",
        strategy=loop if own else "spmd",
    )
    return text if own else text + LIGHTNING.format(optimizer=optimizer, schedule=schedule, steps=steps)


def print_row(run_dir: Path, steps: int, seconds: float) -> bool:
    """Prints the row of a run; returns whether all its steps were trained without compiling late."""
    events: dict[str, list[ev.Event]] = {}
    for writer, _, event in session.read_events(run_dir):
        events.setdefault(writer, []).append(event)
    epochs = [event for event in events["worker-0"] if isinstance(event, ev.EpochEnded)]
    counted = [compiles(of_process, epochs[1].t) for of_process in events.values()]
    in_all, late = (sum(counts) for counts in zip(*counted, strict=True))
    then, now = tenth(events, 2, steps), tenth(events, 10, steps)
    wall, cpu = (f"{first:.2f} {last:.2f}" for first, last in zip(then[:2], now[:2], strict=True))
    row = f"{run_dir.name:28}{epochs[-1].step:>9}{in_all:>10}{late:>6}{seconds:>9.0f}{wall:>16}{cpu:>16}"
    num_bytes = sum(path.stat().st_size for path in run_dir.glob("*.jsonl"))
    print(f"{row}{f'{then.mib:.0f} {now.mib:.0f}':>14}{num_bytes / steps:>14.1f}")
    for text in [text for of_process in events.values() for text in compile_warnings(of_process)]:
        print(f"  {text}")
    sys.stdout.flush()
    return epochs[-1].step == steps and late == 0


def compiles(events: list[ev.Event], second_epoch_t: float) -> tuple[int, int]:
    """Programs that a process compiled, in all and late. Other ranks have counters only after a recompile."""
    reads = [event for event in events if isinstance(event, ev.XlaMetricsRead)]
    if not reads:
        return 0, len(compile_warnings(events))
    before = next((event for event in reads if event.t >= second_epoch_t), reads[-1])
    return reads[-1].compiles, max(reads[-1].recompiles, reads[-1].compiles - before.compiles)


def compile_warnings(events: list[ev.Event]) -> list[str]:
    """The warnings about programs that were compiled after warm-up."""
    return [event.text for event in events if isinstance(event, ev.WarningRaised) and "compiled" in event.text]


class Tenth(NamedTuple):
    """A tenth of a run."""

    wall_ms: float
    """Of a step in the fastest report: other work on the machine only makes reports slower."""
    cpu_ms: float
    """Of a step, in all training processes."""
    mib: float
    """Resident memory of all training processes at its end."""


def tenth(events: dict[str, list[ev.Event]], number: int, steps: int) -> Tenth:
    """The tenth `number`, from 1, of a run of `steps`; NaN if the run ended before it."""
    reports = [event for event in events["worker-0"] if isinstance(event, ev.ProgressReported)]
    reports = [event for event in reports if (number - 1) * steps < 10 * event.step <= number * steps]
    if not reports:
        return Tenth(float("nan"), float("nan"), float("nan"))
    began, ended = reports[0].t, reports[-1].t
    samples = [event for event in events["supervisor-0"] if isinstance(event, ev.HostSampled)]
    cpu_s, mib = 0.0, float("nan")
    for before, sample in pairwise(samples):
        if began <= sample.t <= ended:
            training = [process for process in sample.processes if process.role != "supervisor"]
            cpu_s += sum(process.cpu_percent for process in training) / 100 * (sample.t - before.t)
            mib = sum(process.rss_bytes for process in training) / 2**20
    num_steps = max(1, reports[-1].step - reports[0].step)
    return Tenth(1e3 * min(event.step_s for event in reports), 1e3 * cpu_s / num_steps, mib)


if __name__ == "__main__":
    main()
