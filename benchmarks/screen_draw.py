"""Cost of a screen that changes ten times a second, compared with ready-made widgets on the same frames.

    python -m benchmarks.screen_draw [--rounds 3] [--seconds 8] [--peers peers] [--hosts 256]

A run of 8 cores reports ten times a second after 10,000 steps. Alternately, in one terminal of 160x45: our whole
monitor; Textual's DataTable with textual-plotext, which draw only a table and a chart; and one line of text, the cost
of reading the run and of Textual itself. All three read the run with the same code. With `--hosts` the run is on so
many hosts with 8 cores each, in a terminal of 200x50; the goal is then the time of a frame.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.screen_feed import Feed, Window, shown_step, watch
from benchmarks.screen_peers import HOW_TO, add_options, plotext_path
from benchmarks.screen_terminal import DEADLINE_S, Terminal
from tests import recorded

GOAL = 1 / 5
FRAME_MS_MAX = 100.0
WIDE = (200, 50)
HISTORY_STEPS = 10_000
SETTLE_STEPS = 20
"""Reports to wait for before counting."""
OURS, READY_MADE, NOTHING = "tputui, the whole monitor", "DataTable + textual-plotext", "one line of text"


def contenders(run_dir: Path, peers: Path) -> dict[str, list[str]]:
    """Returns the command lines by name."""
    rival = [sys.executable, "-m", "benchmarks.screen_rival"]
    found = {OURS: [sys.executable, "-m", "tputui", "attach", str(run_dir)], NOTHING: [*rival, "nothing", str(run_dir)]}
    plotext = plotext_path(peers)
    if plotext is None:
        print(f"{READY_MADE} is left out: no textual-plotext in {peers}; {HOW_TO}")
    else:
        found[READY_MADE] = [*rival, "ready-made", str(run_dir), str(plotext)]
    return found


def measure(args: argparse.Namespace, folder: Path) -> dict[str, list[Window]]:
    """Watches the contenders alternately, in rotated order."""
    rows: dict[str, list[Window]] = {}
    deadline_s = DEADLINE_S * (3 if args.hosts else 1)
    if args.hosts:
        started, history = Feed.of_pod(folder, args.hosts), 0
    else:
        started, history = Feed(folder, cores=recorded.NUM_CORES, values_per_s=0, history=HISTORY_STEPS), HISTORY_STEPS
    with started as feed, Terminal(*(WIDE if args.hosts else ())) as terminal:
        programs = contenders(feed.run_dir, args.peers)
        names = list(programs)
        for number in range(args.rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                terminal.start(programs[name])
                terminal.until(lambda screen: shown_step(screen) > history, deadline_s)
                at = shown_step(terminal.text()) + SETTLE_STEPS
                terminal.until(lambda screen, at=at: shown_step(screen) >= at, deadline_s)  # type: ignore[misc]  # bound at once
                rows.setdefault(name, []).append(watch(terminal, args.seconds, feed.run_dir))
    return rows


def main() -> None:
    """Prints CPU, frames and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="time for which each program is watched")
    parser.add_argument("--hosts", type=int, default=0, help="hosts with 8 cores each; 0 is one host")
    add_options(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = measure(args, Path(name))
    cores = f"{args.hosts} hosts x 8 cores" if args.hosts else f"{recorded.NUM_CORES} cores"
    print(f"ten reports a second, {cores}; medians of {args.rounds} rounds of {args.seconds:g} s")
    for label, windows in rows.items():
        cpu, frames, *_ = (statistics.median(column) for column in zip(*windows, strict=True))
        each = statistics.median(_frame(window) for window in windows)
        print(f"  {label:32}{cpu:6.1f} % of a core, {frames:5.1f} frames/s, {each:6.1f} ms of CPU a frame")
    if args.hosts:
        each = statistics.median(_frame(window) for window in rows[OURS])
        verdict = "met" if each <= FRAME_MS_MAX else "missed"
        print(f"  {'CPU of a frame':44}{each:6.1f} ms   goal {FRAME_MS_MAX:g}: {verdict}")
    elif READY_MADE in rows:
        report(rows)


def report(rows: dict[str, list[Window]]) -> None:
    """Prints ratios per frame, because a slower program draws fewer frames a second."""
    rounds = list(zip(rows[OURS], rows[READY_MADE], rows[NOTHING], strict=True))
    whole = statistics.median(_frame(ours) / _frame(theirs) for ours, theirs, _ in rounds)
    drawing = statistics.median(
        (_frame(ours) - _frame(floor)) / (_frame(theirs) - _frame(floor)) for ours, theirs, floor in rounds
    )
    for label, value in (("CPU of a frame", whole), ("the same without reading", drawing)):
        verdict = "met" if value <= GOAL else "missed"
        print(f"  {label + ', ours / ready-made':44}{value:6.3f}   goal {GOAL:g}: {verdict}")


def _frame(window: Window) -> float:
    """Returns the milliseconds of CPU per frame; a program that drew none counts as one frame."""
    return 10 * window.cpu_percent / max(window.frames_per_s, 1 / 60)


if __name__ == "__main__":
    main()
