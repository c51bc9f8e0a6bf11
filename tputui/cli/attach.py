"""`tputui attach`: show a run that is going on."""

from __future__ import annotations

import argparse
from pathlib import Path

from tputui.cli import open_run
from tputui.cli.arguments import add_run_argument, existing_parent, find_run, parent_of, runs_in
from tputui.cli.console import CommandError, narrate
from tputui.cli.parser import Parser, exit_codes
from tputui.cli.runs import created
from tputui.cli.values import count_or_all
from tputui.exit_codes import ExitCode
from tputui.session import session
from tputui.state.snapshot import ENDED
from tputui.telemetry import rundir

DESCRIPTION = """Shows a run and follows it: the live screen in a terminal; with --no-ui the newest lines of what
it printed so far, then a line for each event; with --json all its events. Without RUN: the newest one that is
running. Leaving it, Ctrl-C too, never ends it."""
EXIT_CODES = exit_codes(
    DONE="the run is done; or the viewer left and it goes on",
    USAGE="no such run, or none is running",
    FAILED="the run failed",
    STOPPED="the run was stopped on request",
    LOST="the run's processes are gone and left no end record",
)

EARLIER_LINES = 20
"""Lines of the time before that `--no-ui` starts with."""


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    add_run_argument(parser, optional=True, help="name of a run, or its directory; else the newest that is running")
    parser.add_option("--read-only", action="store_true", help="ask nothing of the run from the screen")
    open_run.add_view_options(parser)
    parser.add_option(
        "--lines",
        type=count_or_all,
        default=EARLIER_LINES,
        metavar="N",
        help=f"with --no-ui: print the newest N lines from before, or `all` ({EARLIER_LINES})",
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Shows the run."""
    run_dir = find_run(args.run, parent_of(args)) if args.run is not None else _newest_running(existing_parent(args))
    try:
        snapshot = open_run.watch(run_dir, args, read_only=args.read_only, earlier=args.lines)
    except KeyboardInterrupt:
        narrate("left; the run goes on")
        return ExitCode.DONE
    return open_run.code_of(snapshot)


def _newest_running(parent: Path) -> Path:
    for run_dir in sorted(runs_in(parent), key=created, reverse=True):
        if not rundir.why_shut(run_dir) and session.load(run_dir).condition not in ENDED:
            return run_dir
    raise CommandError(ExitCode.USAGE, f"no run is running in {parent}; `tputui runs` lists those there are")
