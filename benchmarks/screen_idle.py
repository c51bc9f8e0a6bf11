"""CPU of a screen that has little or nothing new to show.

    python -m benchmarks.screen_idle [--rounds 3] [--seconds 20] [--case ended --case live]

The cases, each in a terminal of 120x36: `ended`, a viewer of a run that ended; `quiet`, a viewer of a live run without
new events; `silent`, the same after its first minute; `live`, a viewer of a run of 8 cores with steps of 13 ms and one
report a second, as the engine reports; `busy`, the same with ten reports a second; `list` and `compare`, the run list
and the comparison of two ended runs; `long list`, the list of 200 ended runs; `paused`, a replay that is paused. CPU
time is that of the process, user and system; cases alternate.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.screen_feed import Feed
from benchmarks.screen_terminal import Terminal
from benchmarks.synthetic import write_run
from tests import recorded

COLUMNS, ROWS = 120, 36
STEPS = 10_000
CORES = 8
STEP_S = 0.013
MANY_RUNS = 200
SETTLE_S = 4.0
"""Seconds after the first picture: view settings are saved, and ages are no longer shown in tenths of a second."""
READ_S = 40.0
"""The same for a list of many runs, which are read meanwhile."""
IDLE_MAX, LIVE_MAX = 0.3, 8.0
"""Goals, in percent of a core."""


class Case(NamedTuple):
    """A command to watch."""

    argv: list[str]
    shown: str
    """Text that shows that the screen is complete."""
    goal: float
    steps_a_second: int | None = None
    """Steps of the run while it is watched; None if the run has ended."""
    settle_s: float = SETTLE_S
    reports_a_second: int = 1


def cases(folder: Path) -> dict[str, Case]:
    """Writes the ended runs and returns the cases by name. `{run}` in a command is the run that is being written."""
    first, _ = write_run(folder / "runs", STEPS)
    second = first.with_name("long-again")
    shutil.copytree(first, second)
    small = recorded.write_run(folder / "many")
    for number in range(1, MANY_RUNS):
        shutil.copytree(small, small.with_name(f"copy-{number:03}"))
    return {
        "ended": Case(["attach", str(first)], "DONE", IDLE_MAX),
        "quiet": Case(["attach", "{run}"], "2 loss", IDLE_MAX, 0),
        "silent": Case(["attach", "{run}"], "2 loss", IDLE_MAX, 0, SETTLE_S + 60),
        "live": Case(["attach", "{run}"], "2 loss", LIVE_MAX, round(1 / STEP_S)),
        "busy": Case(["attach", "{run}"], "2 loss", LIVE_MAX, round(1 / STEP_S), reports_a_second=10),
        "list": Case(["--runs-dir", str(first.parent)], "long-again", IDLE_MAX),
        "long list": Case(["--runs-dir", str(small.parent)], "copy-199", IDLE_MAX, settle_s=READ_S),
        "paused": Case(["replay", str(first), "--at", f"step:{STEPS // 2}"], f"{STEPS // 2:,}", IDLE_MAX),
        "compare": Case(["compare", str(first), str(second)], "3 metrics", IDLE_MAX),
    }


def measure(case: Case, terminal: Terminal, folder: Path, seconds: float) -> float:
    """Returns the CPU of a case in percent of a core."""
    with ExitStack() as stack:
        run_dir = ""
        if case.steps_a_second is not None:
            rate = case.steps_a_second * CORES
            feed = Feed(
                folder / "live",
                cores=CORES,
                values_per_s=rate,
                reports_per_s=case.reports_a_second,
                history=STEPS,
                silent=not rate,
            )
            run_dir = str(stack.enter_context(feed).run_dir)
        terminal.start([sys.executable, "-m", "tputui", *(run_dir if each == "{run}" else each for each in case.argv)])
        terminal.until(lambda screen: case.shown in screen)
        time.sleep(case.settle_s)
        began, cpu_s = time.perf_counter(), terminal.usage().cpu_s
        time.sleep(seconds)
        return 100 * (terminal.usage().cpu_s - cpu_s) / (time.perf_counter() - began)


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the CPU of every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="time for which each screen is watched")
    parser.add_argument("--case", action="append", help="name of a case (default all)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name, Terminal(COLUMNS, ROWS) as terminal:
        known = cases(Path(name))
        chosen = args.case or list(known)
        rows: dict[str, list[float]] = {each: [] for each in chosen}
        for _ in range(args.rounds):
            for each in chosen:
                rows[each].append(measure(known[each], terminal, Path(name), args.seconds))
    print(f"CPU in percent of a core, over {args.seconds:g} s; {args.rounds} rounds")
    for each, values in rows.items():
        value, goal = statistics.median(values), known[each].goal
        verdict = "met" if value <= goal else "missed"
        print(f"  {each:10}{value:7.2f} (highest {max(values):.2f})   goal {goal:g}: {verdict}")


if __name__ == "__main__":
    main()
