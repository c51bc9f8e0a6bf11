"""`tputui stop`: asks a run to end, and waits for the receipts."""

from __future__ import annotations

import argparse

from tputui.cli import requests
from tputui.cli.arguments import add_run_argument, chosen_run
from tputui.cli.parser import Parser
from tputui.exit_codes import ExitCode
from tputui.telemetry.events import RequestKind

DESCRIPTION = """Asks a run to finish its step, save a checkpoint and end. Prints the receipts as they come:
the request itself, seen (in which phase), then applied (after which step, with the checkpoint) or refused
(why). A run that does not obey --now within 10 s is ended by its supervisor."""
EXIT_CODES = requests.EXIT_CODES


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    add_run_argument(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--after-epoch", action="store_true", help="train to the end of the epoch first")
    how.add_argument("--now", action="store_true", help="end at once, without saving")
    requests.add_wait_option(parser)


def run(args: argparse.Namespace) -> ExitCode:
    """Asks."""
    kind: RequestKind = "stop_now" if args.now else "stop_after_epoch" if args.after_epoch else "stop"
    return requests.ask(chosen_run(args), kind, by="tputui stop", wait_s=args.wait)
