"""Time and memory until a run is on screen, compared with other programs on the same losses.

    python -m benchmarks.screen_open [--steps 1000000] [--longest 10000000] [--rounds 5] [--no-places]
        [--peers peers] [--keep FOLDER]

The real programs run alternately in a real terminal of 160x45. Timed from the command on: the first output, the first
curve, the last step. Peers that take minutes for the last step run to it once. Finally every value of the snapshot that
our screen draws is compared with the raw values.

The runs are written by the real reporter. They have no supervisor, which in a real run caches reducer states next to
the journals; the benchmark calls `CacheWriter.finish` itself at the end. `--no-places` leaves that out, and shows what
opening costs without saved states.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.screen_peers import Peer, add_options, find
from benchmarks.screen_terminal import DEADLINE_S, NeverShown, Terminal
from benchmarks.synthetic import NUM_CORES, SPIKE, SPIKE_STEP, losses, write_run
from tputui.cache.cache_writer import CacheWriter
from tputui.session.session import load
from tputui.telemetry.rundir import CACHE_DIR

SHORT_STEPS = 10_000
PEAK_MIB_MAX = 300
BARE = Path(__file__).parent / "screen_bare.py"
WORDS_MIN = 3
"""Minimum number of words on the screen for the first output."""
DOTS_MIN = 12
"""Minimum number of cells with braille dots for a curve."""
FIRST_FRAME_GOAL = 1.25
"""Of the time of a bare Textual program."""


class Opened(NamedTuple):
    """Times and memory of opening a run; NaN if not measured."""

    first_s: float = math.nan
    """Until the first output."""
    curve_s: float = math.nan
    """Until the first curve."""
    last_s: float = math.nan
    """Until the last step was shown."""
    first_cpu_s: float = math.nan
    """CPU time of the program and its children until the first output."""
    cpu_s: float = math.nan
    """The same until the end."""
    peak_mib: float = math.nan


class Contender(NamedTuple):
    """A program showing a run."""

    argv: list[str]
    environ: dict[str, str]
    at_end: Callable[[str], bool] | None
    """Whether the screen shows the last step; None to skip this measurement."""


Rows = dict[str, list[Opened]]


def has_words(screen: str) -> bool:
    """Whether the screen has output."""
    return len(screen.split()) >= WORDS_MIN


def has_curve(screen: str) -> bool:
    """Whether the screen has a curve."""
    return sum("\u2800" < glyph <= "\u28ff" for glyph in screen) >= DOTS_MIN


def opened(terminal: Terminal, who: Contender, *, has_curves: bool = True, patience_s: float = DEADLINE_S) -> Opened:
    """Starts a program and measures it; what does not appear in time is infinity."""
    terminal.start(who.argv, who.environ)
    first_s = _shown_s(terminal, has_words, patience_s)
    first_cpu_s = terminal.usage().cpu_s
    curve_s = _shown_s(terminal, has_curve, patience_s) if has_curves else math.nan
    last_s = _shown_s(terminal, who.at_end, patience_s) if who.at_end is not None else math.nan
    return Opened(first_s, curve_s, last_s, first_cpu_s, *terminal.usage())


def _shown_s(terminal: Terminal, holds: Callable[[str], bool], patience_s: float) -> float:
    try:
        return terminal.until(holds, patience_s)
    except NeverShown:
        return math.inf


def ours(run_dir: Path, num_steps: int) -> Contender:
    """Returns our viewer of a run."""
    attach = [sys.executable, "-m", "tputui", "attach", str(run_dir)]
    return Contender(attach, {}, lambda screen: f"step {num_steps:,}" in screen and "DONE" in screen)


def other(peer: Peer, num_steps: int | None) -> Contender:
    """Returns a peer on its format of the run; measured to the last step if `num_steps` is given."""
    if num_steps is None:
        return Contender(peer.argv, peer.environ, None)
    return Contender(peer.argv, peer.environ, lambda screen: peer.at_step(screen, num_steps))


def measure(terminal: Terminal, contenders: dict[str, Contender], rounds: int) -> Rows:
    """Measures the contenders alternately, in rotated order, after one round that warms the file cache."""
    rows: Rows = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            took = opened(terminal, contenders[name], has_curves=name != "a bare Textual Static")
            rows[name] += [took] if number else []
    return rows


def differences(run_dir: Path, values: np.ndarray) -> list[str]:
    """Returns the values of the snapshot that differ from the raw values [steps, cores]."""
    snapshot = load(run_dir)
    wrong: list[str] = []
    steps_seen = 0
    for segment in snapshot.loss:
        raw = values[segment.first_step - 1 : segment.last_step].astype(np.float64)
        steps_seen += len(raw)
        summary = (segment.min, segment.max, segment.num_values)
        if summary != (raw.min(), raw.max(), raw.size) or not math.isclose(segment.mean, raw.mean(), rel_tol=1e-9):
            wrong.append(f"steps {segment.first_step} to {segment.last_step}: {segment}")
    if steps_seen != len(values):
        wrong.append(f"the series covers {steps_seen} steps of {len(values)}")
    if [core.loss for core in snapshot.cores] != values[-1].astype(np.float64).tolist():
        wrong.append(f"newest losses: {[core.loss for core in snapshot.cores]}")
    spike = float(np.float32(SPIKE))
    if len(values) >= SPIKE_STEP and max(segment.max for segment in snapshot.loss) != spike:
        wrong.append("the one-step spike is lost")
    if snapshot.steps != len(values):
        wrong.append(f"steps: {snapshot.steps}")
    return wrong


def table(rows: Rows) -> None:
    """Prints medians."""
    heads = ("drawn, s", "curve, s", "last step, s", "drawn, CPU s", "CPU, s", "peak MiB")
    print(f"  {'':46}" + "".join(f"{head:>14}" for head in heads))
    for name, times in rows.items():
        print(f"  {name:46}" + "".join(_cell(statistics.median(column)) for column in zip(*times, strict=True)))


def _cell(value: float) -> str:
    if math.isnan(value):
        return f"{'-':>14}"
    return f"{'given up':>14}" if math.isinf(value) else f"{value:>14.2f}"


def ratio(label: str, mine: list[float], others: list[float], goal: float, *, most: bool = False) -> None:
    """Prints the median of the ratios per round, or the ratio of the medians if the numbers of rounds differ.

    `most`: the value is an upper bound.
    """
    if len(mine) == len(others):
        value = statistics.median(a / b for a, b in zip(mine, others, strict=True))
    else:
        value = statistics.median(mine) / statistics.median(others)
    verdict = "met" if value <= goal else "not known" if most else "missed"
    print(f"  {label:80}{value:8.3f}   goal {goal:g}: {verdict}")


def column(rows: Rows, name: str, field: str) -> list[float]:
    """Returns one measurement of every round."""
    return [getattr(row, field) for row in rows[name]]


def write(folder: Path, num_steps: int, *, places: bool = True) -> tuple[Path, np.ndarray]:
    """Returns the run of `num_steps` and its values, writing it if missing; its cached states are always rewritten."""
    run_dir = folder / f"long-{num_steps}"
    if run_dir.exists():
        values = losses(num_steps)
        if num_steps >= SPIKE_STEP:
            values[SPIKE_STEP - 1, 3] = SPIKE
    else:
        run_dir, values = write_run(folder, num_steps)
    shutil.rmtree(run_dir / CACHE_DIR, ignore_errors=True)
    if places:
        CacheWriter(run_dir).finish(math.inf)
    return run_dir, values


def run(args: argparse.Namespace, folder: Path) -> None:
    """Measures and prints."""
    lengths = sorted({SHORT_STEPS, args.steps, args.longest} - {0})
    runs = {steps: write(folder, steps, places=args.places) for steps in lengths}
    values = runs[args.steps][1]
    name = "tputui, {:,} steps".format
    contenders = {"a bare Textual Static": Contender([sys.executable, str(BARE)], {}, None)}
    contenders |= {name(steps): ours(run_dir, steps) for steps, (run_dir, _) in runs.items()}
    short_peers = find(args.peers, folder, runs[SHORT_STEPS][1])
    long_peers = find(args.peers, folder, values) if short_peers else []
    contenders |= {f"{peer.name}, {SHORT_STEPS:,} steps": other(peer, SHORT_STEPS) for peer in short_peers}
    leet = [peer for peer in long_peers if peer.name == "wandb leet"]
    contenders |= {f"{peer.name}, {args.steps:,} steps, its first curve": other(peer, None) for peer in leet}
    with Terminal() as terminal:
        rows = measure(terminal, contenders, args.rounds)
        for peer in long_peers:
            once = opened(terminal, other(peer, args.steps), patience_s=args.patience)
            rows[f"{peer.name}, {args.steps:,} steps, once"] = [once]
    print(f"{NUM_CORES} cores; medians of {args.rounds} rounds")
    table(rows)
    goals(rows, args, name)
    for steps, (run_dir, raw) in runs.items():
        wrong = differences(run_dir, raw)
        print(f"  {name(steps)}: figures that differ from the raw values: {len(wrong)}", *wrong[:5], sep="\n    ")


def goals(rows: Rows, args: argparse.Namespace, name: Callable[[int], str]) -> None:
    """Prints whether the goals are met, as far as peers are installed."""
    short, long = name(SHORT_STEPS), name(args.steps)
    print("  ratios:")
    ratio(
        "first frame / a bare Textual Static",
        column(rows, short, "first_s"),
        column(rows, "a bare Textual Static", "first_s"),
        FIRST_FRAME_GOAL,
    )
    cpu = column(rows, short, "first_cpu_s")
    ratio("the same in CPU seconds", cpu, column(rows, "a bare Textual Static", "first_cpu_s"), FIRST_FRAME_GOAL)
    leet_short = f"wandb leet, {SHORT_STEPS:,} steps"
    if leet_short in rows:
        first = column(rows, short, "first_s")
        ratio("first frame / wandb leet", first, column(rows, leet_short, "first_s"), 0.7)
        chart = column(rows, f"wandb leet, {args.steps:,} steps, its first curve", "curve_s")
        ratio(f"{args.steps:,} steps, curves / wandb leet's first", column(rows, long, "curve_s"), chart, 0.8)
    for peer, goal in (("wandb leet", 1 / 50), ("terminalboard", 1 / 25)):
        once = f"{peer}, {args.steps:,} steps, once"
        if once in rows:
            shown_s = column(rows, once, "last_s")[0]
            less = f", given up after {args.patience:g} s: less than" if math.isinf(shown_s) else ""
            what = f"{args.steps:,} steps, last step / {peer}{less}"
            ratio(what, column(rows, long, "last_s"), [min(shown_s, args.patience)], goal, most=bool(less))
    if args.longest:
        longest = name(args.longest)
        for label, field in (("a curve", "curve_s"), ("the last step", "last_s"), ("CPU seconds", "cpu_s")):
            what = f"{args.longest:,} steps / {SHORT_STEPS:,}: {label}"
            ratio(what, column(rows, longest, field), column(rows, short, field), 1.3)
    for peak_of in (long, name(args.longest) if args.longest else long):
        peak = max(column(rows, peak_of, "peak_mib"))
        print(f"  {peak_of}: peak {peak:.0f} MiB, goal {PEAK_MIB_MAX}: {'met' if peak < PEAK_MIB_MAX else 'missed'}")


def main() -> None:
    """Prints times, memory, ratios and the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps of the long run")
    parser.add_argument("--longest", type=int, default=10_000_000, help="steps of the longest run; 0 skips it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-places", dest="places", action="store_false", help="write no cached states")
    parser.add_argument("--patience", type=float, default=180.0, help="seconds a peer may take for its last step")
    add_options(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = args.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        run(args, folder)


if __name__ == "__main__":
    main()
