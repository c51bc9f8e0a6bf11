"""`tputui serve`: the screen in a browser on this machine."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from functools import partial
from pathlib import Path

from tputui.cli.arguments import add_run_argument, find_run, parent_of
from tputui.cli.console import CommandError, narrate, say
from tputui.cli.parser import Parser, exit_codes
from tputui.cli.values import port
from tputui.exit_codes import ExitCode
from tputui.session import session
from tputui.state.snapshot import ENDED

DESCRIPTION = """Serves the screen to a browser: the list of runs, or RUN: live while it trains, as a replay once it
ended. Bound to 127.0.0.1; the address that it prints holds a secret, which every request must have. Nothing can be
asked of a run from the page unless --allow-control is given. From another machine, with --port:
`ssh -L PORT:127.0.0.1:PORT HOST`."""
EXIT_CODES = exit_codes(
    DONE="ended by Ctrl-C", USAGE="no such run, or the port is taken", ENVIRONMENT="the extra `serve` is not installed"
)

_NEEDED = ("textual_serve", "aiohttp")


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    add_run_argument(parser, optional=True, help="name of a run, or its directory; else the list of runs")
    parser.add_option("--port", type=port, default=0, metavar="N", help="port to listen on (any that is free)")
    parser.add_option(
        "--allow-control", action="store_true", help="let whoever has the address stop runs and ask for checkpoints"
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Serves."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        raise CommandError(ExitCode.ENVIRONMENT, "serve: a browser needs an extra: pip install 'tputui[serve]'")
    parent = parent_of(args)
    run_dir = find_run(args.run, parent) if args.run is not None else None
    from tputui.ui import web

    try:
        listening = web.listen(args.port)
    except OSError as error:
        raise CommandError(ExitCode.USAGE, f"serve: port {args.port}: {error.strerror}") from error
    title = f"tputui: {run_dir.name}" if run_dir is not None else "tputui"
    command = command_line(parent, run_dir, control=args.allow_control)
    web.serve(command, listening, title, partial(_announce, control=args.allow_control))
    return ExitCode.DONE


def _announce(address: str, *, control: bool) -> None:
    """Prints the address; what it allows stands on stderr."""
    say(address)
    allowed = "whoever has this address may control runs" if control else "read-only"
    narrate(f"serving, {allowed}; Ctrl-C ends it and touches no run")


def command_line(parent: Path, run_dir: Path | None, *, control: bool) -> str:
    """What draws one page, as a line for the shell."""
    words = [sys.executable, "-P", "-m", "tputui", "--runs-dir", str(parent)]
    if run_dir is not None:
        ended = session.load(run_dir).condition in ENDED
        words += ["replay" if ended else "attach", str(run_dir)]
    # In place of the shell that starts it, so that the server is its parent and sees to its end.
    return "exec " + shlex.join([*words, *([] if control else ["--read-only"])])
