"""`tputui serve`: shows the screen in a browser on this machine."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from functools import partial
from pathlib import Path

from tputui.cli import metrics_server
from tputui.cli.arguments import add_run_argument, find_run, parent_of
from tputui.cli.console import CommandError, UsageError, narrate, say
from tputui.cli.parser import Command, Parser, exit_codes, port
from tputui.exit_codes import ExitCode

DESCRIPTION = """Serves the screen to a browser: the list of runs, or RUN: live while it trains, at its end after that.
Bound to 127.0.0.1; the printed address contains a secret that every request needs. Runs cannot be controlled from the
page unless --allow-control is given. From another machine, with --port: `ssh -L PORT:127.0.0.1:PORT HOST`. With
--metrics, serves the newest values of RUN to Prometheus instead; each request needs the token in the file
metrics-token of the run directory, which only you can read."""
EXIT_CODES = exit_codes(
    DONE="ended by Ctrl-C", USAGE="no such run, or the port is in use", ENVIRONMENT="the extra `serve` is not installed"
)

_NEEDED = ("textual_serve", "aiohttp")


def add_arguments(parser: Parser) -> None:
    add_run_argument(parser, optional=True, help="name or directory of a run (default the list of runs)")
    parser.add_option("--port", type=port, default=0, metavar="N", help="port to listen on (default any free port)")
    parser.add_option("--metrics", action="store_true", help="serve the values of RUN to Prometheus, no page")
    parser.add_option(
        "--allow-control", action="store_true", help="let anyone with the address stop runs and request checkpoints"
    )


def run(args: argparse.Namespace) -> ExitCode:
    if args.metrics:
        return _serve_metrics(args)
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        raise CommandError(ExitCode.ENVIRONMENT, "serve needs extra packages: pip install 'tputui[serve]'")
    parent = parent_of(args)
    run_dir = find_run(args.run, parent) if args.run is not None else None
    from tputui.ui import web

    try:
        listening = web.listen(args.port)
    except OSError as error:
        raise UsageError(f"serve: port {args.port}: {error.strerror}") from error
    title = f"tputui: {run_dir.name}" if run_dir is not None else "tputui"
    command = command_line(parent, run_dir, control=args.allow_control)
    web.serve(command, listening, title, partial(_announce, control=args.allow_control))
    return ExitCode.DONE


def _serve_metrics(args: argparse.Namespace) -> ExitCode:
    """Serves the values of a run to Prometheus."""
    if args.run is None or args.allow_control:
        raise UsageError("serve: --metrics needs RUN" if args.run is None else "serve: --metrics controls nothing")
    run_dir = find_run(args.run, parent_of(args))

    try:
        listening = metrics_server.listen(args.port)
    except OSError as error:
        raise UsageError(f"serve: port {args.port}: {error.strerror}") from error
    with metrics_server.MetricsServer(run_dir, listening) as server:
        say(server.address)
        narrate(f"serving {metrics_server.how_to_ask(run_dir)}; Ctrl-C ends the server, not the run")
        metrics_server.serve(server)
    return ExitCode.DONE


def _announce(address: str, *, control: bool) -> None:
    """Prints the address on stdout and what it allows on stderr."""
    say(address)
    allowed = "anyone with this address can control runs" if control else "read-only"
    narrate(f"serving, {allowed}; Ctrl-C ends the server, not the runs")


def command_line(parent: Path, run_dir: Path | None, *, control: bool) -> str:
    """The shell command that draws one page."""
    argv = [sys.executable, "-P", "-m", "tputui", "--runs-dir", str(parent)]
    if run_dir is not None:
        argv += ["attach", str(run_dir)]
    # exec replaces the shell, so that the server is the parent and ends the command.
    return "exec " + shlex.join([*argv, *([] if control else ["--read-only"])])


COMMANDS = {"serve": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
