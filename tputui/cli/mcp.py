"""`tputui mcp`: a server of the Model Context Protocol on stdin and stdout, with which an agent watches runs."""

from __future__ import annotations

import argparse

from tputui.cli.arguments import existing_parent
from tputui.cli.console import CommandError
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.exit_codes import ExitCode

DESCRIPTION = """Serves the runs of a directory to an agent, by the Model Context Protocol on stdin and stdout: the
client of the agent starts this command. Tools: runs, show, doctor, compare and wait; checkpoint and stop refuse unless
--allow-control is given. A tool takes names of runs in that directory, no paths, and answers with what the command of
its name prints, in at most 20 kB. docs/guide/agents.md has the configuration of a client."""
EXIT_CODES = exit_codes(
    DONE="the client has closed stdin",
    USAGE="the directory of --runs-dir does not exist",
    ENVIRONMENT="the extra `mcp` is not installed",
)


def add_arguments(parser: Parser) -> None:
    parser.add_option(
        "--allow-control", action="store_true", help="let the agent stop runs and request checkpoints of them"
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Serves until the client closes stdin."""
    parent = existing_parent(args)
    try:
        # The SDK takes seconds to import.
        from tputui.cli.mcp_tools import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("anyio", "mcp"):
            raise
        message = "mcp needs the SDK of the Model Context Protocol, version 2: pip install 'tputui[mcp]'"
        raise CommandError(ExitCode.ENVIRONMENT, message) from None
    serve(parent.absolute(), control=args.allow_control)
    return ExitCode.DONE


COMMANDS = {"mcp": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
