"""`tputui checkpoint`: asks a run to save now, and waits for the receipts."""

from __future__ import annotations

import argparse

from tputui.cli import requests
from tputui.cli.arguments import add_run_argument, chosen_run
from tputui.cli.parser import Parser
from tputui.exit_codes import ExitCode

DESCRIPTION = """Asks a run to save a checkpoint after the step it is in, and to go on. Prints the receipts as
they come: the request itself, seen (in which phase), then applied (after which step; file, bytes, seconds) or
refused (why)."""
EXIT_CODES = requests.EXIT_CODES


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    add_run_argument(parser)
    requests.add_wait_option(parser)


def run(args: argparse.Namespace) -> ExitCode:
    """Asks."""
    return requests.ask(chosen_run(args), "checkpoint", by="tputui checkpoint", wait_s=args.wait)
