"""`tputui compare`: 2 to 8 runs side by side, on the live screen, as tables or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from tputui.cli import open_run
from tputui.cli.arguments import find_run, parent_of
from tputui.cli.console import CommandError, say, say_json
from tputui.cli.parser import Parser, exit_codes
from tputui.compare.compare import LABELS, RUNS_MAX, RUNS_MIN, Comparison, compare
from tputui.compare.table import FigureRow, figure_rows, notes
from tputui.config_diff import DiffRow
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.session import session

DESCRIPTION = """Shows 2 to 8 runs side by side: curves overlaid, figures (pace after the warm-up, compiling, peak
memory, meters), the keys on which their configurations differ, and for each run whether it is faster than the
base by more than the noise of its reports. The live screen in a terminal; with --once, or where stdout is no
terminal, it prints tables as of now; with --json one object. Nothing is asked of the runs."""
EXIT_CODES = exit_codes(
    DONE="shown or printed, however the runs ended", USAGE="no such run, or not 2 to 8 different ones"
)

VALUE_CHARS = 40
"""Characters of a configured value in a table; JSON has all of it."""

CHANGED = "* "
"""Before a value that is not the base's, or that is the best of its row."""


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    parser.add_argument("runs", metavar="RUN", nargs="+", help="names of 2 to 8 runs, or their directories")
    parser.add_option(
        "--base", metavar="RUN", help="the run that the others stand beside: its name or letter; else the first"
    )
    parser.add_option("--once", action="store_true", help="print tables of what is true now, and end")
    parser.add_option("--json", action="store_true", help="print one JSON object; implies --once")
    parser.add_option("--read-only", action="store_true", help="ask nothing of a run that is opened from the screen")
    open_run.add_screen_options(parser)


def run(args: argparse.Namespace) -> ExitCode:
    """Compares the runs."""
    run_dirs = _chosen(args)
    base = _base(args, run_dirs)
    if open_run.wants_screen(no_ui=args.once, as_json=args.json):
        from tputui.ui.app import run_compare

        run_compare(run_dirs, base=base, read_only=args.read_only, options=open_run.view_options(args))
        return ExitCode.DONE
    comparison = compare([session.load(run_dir) for run_dir in run_dirs], base)
    if args.json:
        say_json(comparison, indent=2)
    else:
        say("\n".join(line.rstrip() for line in _page(comparison)))
    return ExitCode.DONE


def _chosen(args: argparse.Namespace) -> list[Path]:
    """The directories of the runs that were named. Raises `CommandError`."""
    if not RUNS_MIN <= len(args.runs) <= RUNS_MAX:
        words = f"{len(args.runs)} run{' was' if len(args.runs) == 1 else 's were'} named; it takes 2 to 8 to compare"
        raise CommandError(ExitCode.USAGE, words)
    parent = parent_of(args)
    found: dict[Path, str] = {}
    for name in args.runs:
        run_dir = find_run(name, parent)
        if run_dir.resolve() in [known.resolve() for known in found]:
            raise CommandError(ExitCode.USAGE, f"{inert(name)}: this run was named twice")
        found[run_dir] = name
    return list(found)


def _base(args: argparse.Namespace, run_dirs: Sequence[Path]) -> int:
    """Which of the runs is the base. Raises `CommandError`."""
    if args.base is None:
        return 0
    names = [*zip(args.runs, range(len(run_dirs)), strict=True)]
    names += [(run_dir.name, index) for index, run_dir in enumerate(run_dirs)]
    names += [(LABELS[index], index) for index in range(len(run_dirs))]
    found = next((index for name, index in names if name == args.base), None)
    if found is None:
        raise CommandError(ExitCode.USAGE, f"--base {inert(args.base)}: it is none of the runs that are compared")
    return found


def _page(comparison: Comparison) -> Iterable[str]:
    """Everything, for a person."""
    yield from _table([[run.label, inert(run.run), run.condition, _reason(run.condition_reason, run.trouble)]
                       for run in comparison.runs], left=frozenset({0, 1, 2, 3}))  # fmt: skip
    yield ""
    yield inert(comparison.quality.sentence)
    yield from (inert(verdict.sentence) for verdict in comparison.verdicts if verdict is not None)
    yield f"({comparison.method})"
    order = [comparison.base, *(index for index in range(len(comparison.runs)) if index != comparison.base)]
    heads = [comparison.runs[index].label for index in order]
    yield ""
    yield from _table([["FIGURE", *heads], *(_figures(row, order) for row in figure_rows(comparison))])
    yield from (f"{inert(sentence)}" for sentence in notes(comparison))
    yield ""
    base = comparison.runs[comparison.base].label
    yield from _differences("CONFIGURATION", comparison.config.rows, heads, order)
    number = len(comparison.config.rows)
    differ = "1 key differs" if number == 1 else f"{number} keys differ"
    yield f"{differ}, {comparison.config.num_equal} are equal ({CHANGED}not as {base})"
    if comparison.plan.rows:
        yield ""
        yield from _differences("CAME TO", comparison.plan.rows, heads, order)


def _reason(condition_reason: str, trouble: str | None) -> str:
    return inert(trouble or condition_reason)


def _figures(row: FigureRow, order: Sequence[int]) -> list[str]:
    return [inert(row.name), *((CHANGED if row.best == index else "") + inert(row.cells[index]) for index in order)]


def _differences(title: str, rows: Sequence[DiffRow], heads: Sequence[str], order: Sequence[int]) -> Iterable[str]:
    if rows:
        yield from _table([[title, *heads], *(_keyed(row, order) for row in rows)])


def _keyed(row: DiffRow, order: Sequence[int]) -> list[str]:
    cells = ((CHANGED if row.changed[index] else "") + _shortened(inert(row.values[index])) for index in order)
    return [inert(row.key), *cells]


def _shortened(text: str) -> str:
    return text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 3] + "..."


def _table(rows: Sequence[Sequence[str]], *, left: frozenset[int] = frozenset({0})) -> Iterable[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) if column in left else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, widths, strict=True))]  # fmt: skip
        yield "  ".join(cells)
