"""`tputui replay`: play a recorded run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tputui.cli import open_run
from tputui.cli.arguments import add_run_argument, chosen_run
from tputui.cli.console import CommandError, say, say_json
from tputui.cli.moments import FORMS, moment, resolved, spelled
from tputui.cli.parser import Parser, exit_codes
from tputui.cli.values import speed
from tputui.exit_codes import ExitCode
from tputui.session import session
from tputui.text import headless, run_summary

DESCRIPTION = """Plays what a run recorded through the screen that showed it live, N times as fast; in the
screen it can be paused and sought in. With --no-ui it prints a line a fact, with --json the events, both
without waiting unless --speed is given. With --at TIME --once it prints a report of the run as it was at that
second: state, figures, loss curve, events and log as text, or one object with --json. Nothing is asked of the run."""
EXIT_CODES = exit_codes(DONE="played, however the run ended", USAGE="no such run, or it has no such moment")


AT_ONCE = sys.float_info.max
"""A speed at which any time passes within a second, however far the clock of a journal leapt."""


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    add_run_argument(parser)
    parser.add_option("--at", type=moment, metavar="TIME", help=f"begin there, and stay: {FORMS}")
    parser.add_option("--once", action="store_true", help="print a report of the run as it was then, and nothing else")
    parser.add_option("--speed", type=speed, metavar="N", help="times as fast as it was (1 in the screen)")
    parser.add_option("--read-only", action="store_true", help="as it is always: nothing can be asked of a recording")
    open_run.add_view_options(parser)


def run(args: argparse.Namespace) -> ExitCode:
    """Plays the run."""
    run_dir = chosen_run(args)
    t = None if args.at is None else resolved(args.at, run_dir)
    if args.once:
        _print_once(run_dir, t, as_json=args.json)
        return ExitCode.DONE
    screen = open_run.wants_screen(no_ui=args.no_ui, as_json=args.json)
    if t is not None and not screen:
        raise CommandError(ExitCode.USAGE, "--at needs a screen, or --once to print what it would show")
    source = session.Session.replay(run_dir, speed=args.speed or (1.0 if screen else AT_ONCE))
    if t is not None:
        source.player.pause()
        source.player.seek(t)
    if screen:
        from tputui.ui.app import run_monitor

        run_monitor(source, run_dir, read_only=True, options=open_run.view_options(args))
        return ExitCode.DONE
    try:
        headless.follow(source, sys.stdout, as_json=args.json, timestamps=args.timestamps)
    finally:
        source.close()
    return ExitCode.DONE


def _print_once(run_dir: Path, t: float | None, *, as_json: bool) -> None:
    snapshot = session.load(run_dir) if t is None else session.load_at(run_dir, t)
    if as_json:
        say_json(run_summary.to_show(snapshot, whole=True), indent=2)
    else:
        say(run_summary.moment_text(snapshot, spelled).rstrip("\n"))
