"""`tputui checkpoint`: asks a run to save now, and waits for the receipts."""

from __future__ import annotations

import argparse

from tputui.cli.asking import WAIT_S, ask
from tputui.cli.parser import Parser, exit_codes
from tputui.cli.selecting import add_run_argument, chosen_run
from tputui.cli.values import seconds
from tputui.exit_codes import ExitCode

DESCRIPTION = """Asks a run to save a checkpoint after the step it is in, and to go on. Prints the receipts as
they come: the request itself, seen (in which phase), then applied (after which step; file, bytes, seconds) or
refused (why)."""
EXIT_CODES = exit_codes(
    DONE="applied",
    UNANSWERED="no receipt came within --wait; the request stands",
    USAGE="no such run, it ended before, or it refused",
)


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    add_run_argument(parser)
    parser.add_option(
        "--wait", type=seconds, default=WAIT_S, metavar="S", help=f"seconds to wait for the receipts ({WAIT_S:g})"
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Asks."""
    return ask(chosen_run(args), "checkpoint", by="tputui checkpoint", wait_s=args.wait)
