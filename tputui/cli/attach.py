"""`tputui attach`: shows a running run."""

from __future__ import annotations

import argparse
from pathlib import Path

from tputui.cli import open_run
from tputui.cli.arguments import add_run_argument, existing_parent, parent_of, runs_in
from tputui.cli.console import UsageError, narrate
from tputui.cli.foreign_logs import RUN_OR_LOG, RunOrLog
from tputui.cli.parser import Command, Parser, count_or_all, exit_codes
from tputui.cli.remote_runs import add_host_options, address_of, opened_mirror
from tputui.exit_codes import ExitCode
from tputui.state.run_condition import ENDED
from tputui.telemetry import rundir

DESCRIPTION = """Shows a run and follows it: the live screen in a terminal; with --no-ui the newest lines so far, then
one line per event; with --json all events. Without RUN: the newest run that is running. Leaving, also with Ctrl-C,
never ends the run."""
EXIT_CODES = exit_codes(
    DONE="the run is done, or you left the screen and it is still running",
    USAGE="no such run, or no run is running",
    FAILED="the run failed",
    STOPPED="the run was stopped on request",
    LOST="the processes of the run died",
)

EARLIER_LINES = 20
"""Earlier lines that `--no-ui` prints first."""


def add_arguments(parser: Parser) -> None:
    add_run_argument(parser, optional=True, help=f"{RUN_OR_LOG} (default the newest running run)")
    parser.add_option("--follow", action="store_true", help="follow a log of another program until you leave it")
    parser.add_option("--read-only", action="store_true", help="do not allow requests to the run from the screen")
    add_host_options(parser)
    open_run.add_view_options(parser)
    parser.add_option(
        "--lines",
        type=count_or_all,
        default=EARLIER_LINES,
        metavar="N",
        help=f"with --no-ui: print the newest N earlier lines, or `all` (default {EARLIER_LINES})",
    )


def run(args: argparse.Namespace) -> ExitCode:
    name = args.run
    if name is None and args.follow:
        raise UsageError("--follow needs the path of a log")
    address = address_of(args)
    if name is None:
        name = str(_newest_running(existing_parent(args)))
    opened: RunOrLog | None = None
    try:
        if address is not None:
            run_dir, is_log = opened_mirror(address, summary=args.summary).run_dir, False
        else:
            opened = RunOrLog(name, parent_of(args), follow=args.follow)
            run_dir, is_log = opened.run_dir, opened.is_log
        snapshot = open_run.watch(run_dir, args, read_only=args.read_only or is_log, earlier=args.lines)
    except KeyboardInterrupt:
        narrate(
            "left; the log can be opened again" if opened is None or opened.is_log else "left; the run is still running"
        )
        return ExitCode.DONE
    return open_run.exit_code_of(snapshot)


def _newest_running(parent: Path) -> Path:
    # Imported here so that a run with a name opens faster.
    from tputui.cli.runs import created
    from tputui.session import session

    for run_dir in sorted(runs_in(parent), key=created, reverse=True):
        if not rundir.why_shut(run_dir) and session.load(run_dir).condition not in ENDED:
            return run_dir
    raise UsageError(f"no run is running in {parent}; `tputui runs` lists the runs")


COMMANDS = {"attach": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
