"""CPU, frame rate and response time of the live screen under a flood of events.

    python -m benchmarks.screen_flood [--rounds 3] [--seconds 8] [--case 8,0 --case 8,1000000]

A case is a number of cores and a number of events a second; here an event is the loss of one core at one step, and 0
means an idle feed: one step per report. Cases alternate, with ten reports a second and a new viewer each. An answer is
the time from a key to its effect on the screen.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.screen_feed import Feed, Window, answers, shown_step, watch
from benchmarks.screen_terminal import Terminal

CASES = ("8,0", "8,100000", "8,1000000", "2048,0", "2048,100000", "2048,1000000")
HISTORY_VALUES = 2_000_000
"""A longer run: at the start of a run every report moves the whole curve."""
SETTLE_REPORTS = 20
COST_MAX = 1.2
FRAMES_MIN = 9.5
"""Ten, less the frames cut off at the ends of a window."""
SHARE_MIN = 0.95
"""Minimum share of writes that become frames if the writer is slower than ten writes a second."""
ANSWER_S_MAX = 0.1
PRESSES = 12


class Seen(NamedTuple):
    """Measurements of one case in one round."""

    window: Window
    answers_s: list[float]


def look(folder: Path, terminal: Terminal, case: tuple[int, int], seconds: float) -> Seen:
    """Watches the run of a case."""
    cores, rate = case
    with Feed(folder, cores=cores, values_per_s=rate, history=HISTORY_VALUES // cores) as feed:
        terminal.start([sys.executable, "-m", "tputui", "attach", str(feed.run_dir)])
        terminal.until(lambda screen: shown_step(screen) > HISTORY_VALUES // cores)
        settled = shown_step(terminal.text()) + SETTLE_REPORTS * max(1, rate // 10 // cores)
        terminal.until(lambda screen: shown_step(screen) >= settled)
        return Seen(watch(terminal, seconds, feed.run_dir), answers(terminal, PRESSES))


def report(rows: dict[tuple[int, int], list[Seen]]) -> None:
    """Prints one line per case and whether the goals are met."""
    heads = f"{'CPU %':>8}{'/ idle':>8}{'frames/s':>10}{'writes/s':>10}{'shown/s':>12}{'answer, ms':>12}{'slowest':>9}"
    print(f"  {'':30}{heads}")
    for (cores, rate), seen in rows.items():
        windows = [one.window for one in seen]
        took = [second for one in seen for second in one.answers_s]
        cpu, frames, steps, writes = (statistics.median(column) for column in zip(*windows, strict=True))
        idle = rows.get((cores, 0), seen)
        cost = statistics.median(a.window.cpu_percent / b.window.cpu_percent for a, b in zip(seen, idle, strict=True))
        label = f"{cores:,} cores, {rate:,} events/s" if rate else f"{cores:,} cores, idle feed"
        print(
            f"  {label:30}{cpu:>8.1f}{cost:>8.2f}{frames:>10.1f}{writes:>10.1f}{steps * cores:>12,.0f}"
            f"{1000 * statistics.median(took):>12.0f}{1000 * max(took):>9.0f}"
        )
        if rate == 100_000:
            print(f"    cost / idle: goal {COST_MAX:g}: {_verdict(cost <= COST_MAX)}")
        if rate >= 1_000_000:
            held = frames >= min(FRAMES_MIN, SHARE_MIN * writes)
            print(f"    frames/s: goal {FRAMES_MIN:g}, or one per write: {_verdict(held)}")
            print(f"    answers: goal {1000 * ANSWER_S_MAX:g} ms: {_verdict(statistics.median(took) <= ANSWER_S_MAX)}")
            print(f"    keys answered: {len(took)} of {PRESSES * len(seen)}")


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="time for which each case is watched")
    parser.add_argument("--case", action="append", help="CORES,EVENTS_PER_S")
    args = parser.parse_args()
    cases: list[tuple[int, int]] = [(int(c), int(r)) for c, r in (case.split(",") for case in args.case or CASES)]
    rows: dict[tuple[int, int], list[Seen]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as name, Terminal() as terminal:
        for number in range(args.rounds):
            turn = number % len(cases)
            for case in cases[turn:] + cases[:turn]:
                rows[case].append(look(Path(name), terminal, case, args.seconds))
    print(f"medians of {args.rounds} rounds of {args.seconds:g} s")
    report(rows)


if __name__ == "__main__":
    main()
