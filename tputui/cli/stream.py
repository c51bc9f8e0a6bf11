"""`tputui stream`: sends a run to a viewer on another machine, over the pipes of ssh."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import sys

from tputui.cli.console import UsageError, usage_errors
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.exit_codes import ExitCode

DESCRIPTION = """Sends a run of this machine to `tputui attach ssh://...` on another one, and takes its requests. ssh
starts it: it reads from stdin which run is wanted, and prints the run's journals in compressed frames as they grow.
Needs neither torch nor a terminal."""
EXIT_CODES = exit_codes(
    DONE="the viewer closed the connection", USAGE="the viewer sent something invalid, or is not a viewer"
)


def add_arguments(parser: Parser) -> None:
    """Declares no arguments: the viewer sends everything, so that no name reaches a shell."""


def run(args: argparse.Namespace) -> ExitCode:
    """Serves the viewer at the other end of stdin and stdout."""
    from tputui.remote.protocol import ProtocolError
    from tputui.remote.stream_server import serve

    if sys.stdin.isatty():
        raise UsageError("stream: ssh starts this command; use `tputui attach ssh://HOST/RUN`")
    if args.runs_dir is not None:
        os.environ["TPUTUI_RUNS"] = args.runs_dir
    # With --summary every journal stays open, and a pod has more of them than the usual soft limit.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with usage_errors(ProtocolError, prefix="stream: "):
        serve(sys.stdin.fileno(), sys.stdout.fileno())
    return ExitCode.DONE


COMMANDS = {"stream": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
