"""`tputui replay`: plays back a recorded run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tputui.cli import open_run
from tputui.cli.arguments import TIME_FORMS, add_run_argument, local_time, parent_of, parse_time, unix_time
from tputui.cli.console import UsageError, say, say_json
from tputui.cli.foreign_logs import RUN_OR_LOG, RunOrLog
from tputui.cli.parser import Command, Parser, exit_codes, speed
from tputui.exit_codes import ExitCode
from tputui.session import session
from tputui.text import show_page
from tputui.text.lines import follow

DESCRIPTION = """Plays back a recorded run on the live screen, N times as fast, with pause and seek. With --no-ui it
prints one line per event, with --json the events, both without waiting unless --speed is given. With --at TIME --once
it prints a report of the run at that time: state, metrics, loss curve, events and log as text, or one JSON object
with --json. The run is never changed."""
EXIT_CODES = exit_codes(DONE="played, however the run ended", USAGE="no such run, or the time is outside the run")


AT_ONCE = sys.float_info.max
"""A speed at which any run passes within a second, even if the clock of the host jumped."""


def add_arguments(parser: Parser) -> None:
    add_run_argument(parser, help=RUN_OR_LOG)
    parser.add_option("--at", type=parse_time, metavar="TIME", help=f"start paused at this time: {TIME_FORMS}")
    parser.add_option("--once", action="store_true", help="print a report of the run at that time and exit")
    parser.add_option("--speed", type=speed, metavar="N", help="playback speed (default 1 on the screen)")
    parser.add_option("--read-only", action="store_true", help="accepted for symmetry: a recording is always read-only")
    open_run.add_view_options(parser)


def run(args: argparse.Namespace) -> ExitCode:
    screen = open_run.wants_screen(no_ui=args.no_ui or args.quiet, as_json=args.json)
    opened = RunOrLog(args.run, parent_of(args))
    run_dir = opened.run_dir
    if screen and args.at is None and not args.once and not opened.is_read:
        # A long log is shown while it is read; from its end the screen can play it back.
        open_run.watch(run_dir, args, read_only=True)
        return ExitCode.DONE
    opened.wait()
    t = None if args.at is None else unix_time(args.at, run_dir)
    if args.once:
        _print_once(run_dir, t, as_json=args.json)
        return ExitCode.DONE
    writer = open_run.line_writer(args)
    if t is not None and not screen:
        raise UsageError("--at needs a screen, or --once to print a report")
    source = session.Session.replay(run_dir, speed=args.speed or (1.0 if screen else AT_ONCE))
    if t is not None:
        source.player.pause()
        source.player.seek(t)
    if screen:
        from tputui.ui.app import run_monitor

        run_monitor(lambda: source, run_dir, read_only=True, options=open_run.view_options(args))
        return ExitCode.DONE
    try:
        follow(source, sys.stdout, as_json=args.json, writer=writer)
    finally:
        source.close()
    return ExitCode.DONE


def _print_once(run_dir: Path, t: float | None, *, as_json: bool) -> None:
    snapshot = session.load(run_dir) if t is None else session.load_at(run_dir, t)
    if as_json:
        say_json(show_page.to_show(snapshot, whole=True), indent=2)
    else:
        say(show_page.moment_text(snapshot, local_time).rstrip("\n"))


COMMANDS = {"replay": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
