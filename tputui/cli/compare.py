"""`tputui compare`: compares 2-8 runs on the live screen, as tables or as JSON."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from tputui.cli import open_run
from tputui.cli.arguments import parent_of
from tputui.cli.console import UsageError, say, say_json, table_lines
from tputui.cli.foreign_logs import RunOrLog
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.compare.compare import LABELS, RUNS_MAX, RUNS_MIN, Comparison, compare
from tputui.compare.limits import SLOWDOWN, Limit, check, values_of
from tputui.compare.table import FigureRow, figure_rows, notes
from tputui.compare.verdict import METHOD
from tputui.config_diff import DiffRow
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.session import session
from tputui.telemetry import code_record

DESCRIPTION = f"""Compares 2-8 runs: overlaid curves, metrics (pace after warm-up, compile time, peak memory, meters),
the configuration keys that differ, what differs in the code (commit, uncommitted changes, packages, environment
variables), and for each run whether it is faster than the base by more than the noise. On the live screen in a
terminal; with --once, or when stdout is not a terminal, as tables; with --json as one object. Speed is the {METHOD}.
With --max-slowdown and --max-worse, which imply --once, the exit code says whether the runs keep these
limits. The runs are never changed."""
EXIT_CODES = exit_codes(
    DONE="shown or printed, however the runs ended; all limits are kept",
    DAMAGED="a run exceeds a limit by more than the noise",
    USAGE="no such run, not 2-8 different runs, or not a limit",
    UNANSWERED="no limit is exceeded, but one cannot be decided: the noise is too large, or too little was recorded",
)

VALUE_CHARS = 40
"""Characters of a configuration value in a table; JSON has the whole value."""

CHANGED = "* "
"""Marks a value that differs from the base, or the best one of its row."""


def add_arguments(parser: Parser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="2-8 runs by name or directory, or logs by path")
    parser.add_option("--base", metavar="RUN", help="run to compare with: its name or letter (default the first)")
    parser.add_option("--once", action="store_true", help="print tables and exit")
    parser.add_option("--json", action="store_true", help="print one JSON object; implies --once")
    parser.add_option(
        "--max-slowdown", type=_slowdown, metavar="PERCENT", help="limit of the time per example above the base: 5%%"
    )
    parser.add_option(
        "--max-worse",
        type=_metric_limit,
        action="append",
        default=[],
        metavar="METRIC=PERCENT",
        help="limit of a metric's best value: valid.loss=1%%; repeatable",
    )
    parser.add_option("--read-only", action="store_true", help="do not allow requests to runs from the screen")
    open_run.add_screen_options(parser)


def run(args: argparse.Namespace) -> ExitCode:
    run_dirs = _chosen(args)
    base = _base(args, run_dirs)
    if _wants_screen(args):
        from tputui.ui.app import run_compare

        run_compare(run_dirs, base=base, read_only=args.read_only, options=open_run.view_options(args))
        return ExitCode.DONE
    snapshots, codes = [*map(session.load, run_dirs)], map(code_record.summary, run_dirs)
    comparison = compare(snapshots, base, [*codes])
    given = [*([args.max_slowdown] if args.max_slowdown else []), *args.max_worse]
    for name, _ in given:
        if name != SLOWDOWN and not any(values_of(name, snapshot) for snapshot in snapshots):
            raise UsageError(f"--max-worse {inert(name)}: no run has values of this metric")
    comparison = replace(comparison, limits=[*check(given, snapshots, comparison.verdicts, base)])
    if args.json:
        say_json(comparison, indent=2)
    else:
        say("\n".join(line.rstrip() for line in _page(comparison)))
    outcomes = {result.outcome for result in comparison.limits}
    return (
        ExitCode.DAMAGED
        if "exceeded" in outcomes
        else ExitCode.UNANSWERED
        if "undecided" in outcomes
        else ExitCode.DONE
    )


def _wants_screen(args: argparse.Namespace) -> bool:
    has_limit = bool(args.max_slowdown or args.max_worse)
    return not has_limit and open_run.wants_screen(no_ui=args.once, as_json=args.json)


def _slowdown(text: str) -> Limit:
    """The limit of `--max-slowdown 5%`. Raises `ArgumentTypeError`, as does `_metric_limit`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s?%", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage such as 5%")
    return SLOWDOWN, float(match.group(1)) / 100


def _metric_limit(text: str) -> Limit:
    name, equals, share = text.rpartition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not METRIC=PERCENT such as valid.loss=1%")
    return name, _slowdown(share)[1]


def _chosen(args: argparse.Namespace) -> list[Path]:
    """The directories of the given runs. Raises `CommandError`."""
    if not RUNS_MIN <= len(args.runs) <= RUNS_MAX:
        raise UsageError(f"got {len(args.runs)} run{'' if len(args.runs) == 1 else 's'}; compare takes 2-8 runs")
    parent = parent_of(args)
    names: dict[Path, str] = {}
    chosen = [RunOrLog(name, parent) for name in args.runs]
    if not _wants_screen(args):
        for opened in chosen:
            opened.wait()
    for name, run_dir in zip(args.runs, (opened.run_dir for opened in chosen), strict=True):
        if run_dir.resolve() in [earlier.resolve() for earlier in names]:
            raise UsageError(f"{inert(name)}: this run is given twice")
        names[run_dir] = name
    return list(names)


def _base(args: argparse.Namespace, run_dirs: Sequence[Path]) -> int:
    """The index of the base. Raises `CommandError`."""
    if args.base is None:
        return 0
    names = [*zip(args.runs, range(len(run_dirs)), strict=True)]
    names += [(run_dir.name, index) for index, run_dir in enumerate(run_dirs)]
    names += [(LABELS[index], index) for index in range(len(run_dirs))]
    base = next((index for name, index in names if name == args.base), None)
    if base is None:
        raise UsageError(f"--base {inert(args.base)}: not one of the compared runs")
    return base


def _page(comparison: Comparison) -> Iterable[str]:
    yield from table_lines(
        [
            [run.label, inert(run.run), run.condition, inert(run.trouble or run.condition_reason)]
            for run in comparison.runs
        ]
    )
    yield ""
    yield inert(comparison.quality.sentence)
    yield from (inert(verdict.sentence) for verdict in comparison.verdicts if verdict is not None)
    yield from (inert(line) for line in (*comparison.causes, *comparison.upgrades) if line is not None)
    yield from (inert(result.sentence) for result in comparison.limits)
    order = [comparison.base, *(index for index in range(len(comparison.runs)) if index != comparison.base)]
    heads = [comparison.runs[index].label for index in order]
    yield ""
    metrics = [["METRIC", *heads], *(_figures(row, order) for row in figure_rows(comparison))]
    yield from table_lines(metrics, range(1, len(heads) + 1))
    yield from (f"{inert(sentence)}" for sentence in notes(comparison))
    yield ""
    base = comparison.runs[comparison.base].label
    yield from _differences("CONFIGURATION", comparison.config.rows, heads, order)
    number = len(comparison.config.rows)
    differ = "1 key differs" if number == 1 else f"{number} keys differ"
    yield f"{differ}, {comparison.config.num_equal} are equal ({CHANGED.strip()} differs from {base})"
    for title, difference in (("DERIVED", comparison.plan), ("CODE", comparison.code)):
        if difference.rows:
            yield ""
            yield from _differences(title, difference.rows, heads, order)


def _figures(row: FigureRow, order: Sequence[int]) -> list[str]:
    return [inert(row.name), *((CHANGED if row.best == index else "") + inert(row.cells[index]) for index in order)]


def _differences(title: str, rows: Sequence[DiffRow], heads: Sequence[str], order: Sequence[int]) -> Iterable[str]:
    if rows:
        table = [[title, *heads], *(_keyed(row, order) for row in rows)]
        yield from table_lines(table, range(1, len(heads) + 1))


def _keyed(row: DiffRow, order: Sequence[int]) -> list[str]:
    cells = ((CHANGED if row.changed[index] else "") + _shortened(inert(row.values[index])) for index in order)
    return [inert(row.key), *cells]


def _shortened(text: str) -> str:
    return text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 3] + "..."


COMMANDS = {"compare": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
