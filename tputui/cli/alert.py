"""`tputui alert test`: sends a test alert to a target."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from threading import Event

from tputui.cli import alert_options
from tputui.cli.console import CommandError, narrate, say
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.exit_codes import ExitCode
from tputui.formatting import duration
from tputui.supervise.alert_targets import FORMS, AlertMessage, DeliveryError, parse
from tputui.ui.terminal.notification import notification

DESCRIPTION = f"""Sends a test alert to a target, once and without retries, and prints whether it was delivered.
Targets: {FORMS}."""
EXIT_CODES = exit_codes(
    DONE="delivered",
    USAGE="not a target, or it cannot work here",
    UNANSWERED="not delivered; the reason is on stderr",
    INTERRUPTED="Ctrl-C",
)


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    parser.usage = "tputui alert test [OPTION ...] TARGET"
    parser.add_argument("action", choices=["test"], metavar="test", help="send a test alert")
    parser.add_argument("target", metavar="TARGET", type=alert_options.target_text, help="where to send it")


def run(args: argparse.Namespace) -> ExitCode:
    """Sends the alert."""
    target = parse(args.target)
    if target.kind == "bell":
        if not sys.stdout.isatty():
            raise CommandError(ExitCode.UNANSWERED, "not delivered to bell: stdout is not a terminal")
        sys.stdout.write(notification("tputui", "test alert", os.environ))
        say("sent to this terminal; whether it rings or shows a notification is a setting of the terminal")
        return ExitCode.DONE
    message = AlertMessage(
        t=time.time(),
        run="test",
        run_dir="",
        host=socket.gethostname(),
        condition="test",
        text=f"test alert of tputui on {socket.gethostname()}",
        state="running",
        step=0,
        epoch=0,
        metrics={},
    )
    began = time.monotonic()
    try:
        target.deliver(message, os.environ, narrate, Event())
    except DeliveryError as error:
        raise CommandError(ExitCode.UNANSWERED, f"not delivered to {target.kind}: {error}") from None
    say(f"delivered to {target.kind} in {duration(time.monotonic() - began)}")
    return ExitCode.DONE


COMMANDS = {"alert": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
