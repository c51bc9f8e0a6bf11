"""`tputui alert test`: sends a test alert to a target."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any

from tputui import config
from tputui.cli.console import CommandError, UsageError, narrate, say
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.diagnosis.diagnose import verdict_tests
from tputui.exit_codes import ExitCode
from tputui.formatting import duration, inert
from tputui.state import conditions
from tputui.supervise.alerts import (
    CONDITIONS_MAX,
    FORMS,
    TABLE,
    TARGETS_MAX,
    AlertMessage,
    DeliveryError,
    InvalidTarget,
    parse,
)
from tputui.ui.terminal.bell import notification


def add_alert_options(parser: Parser) -> None:
    parser.add_option(
        "--alert",
        action="append",
        default=[],
        type=_condition,
        metavar="CONDITION",
        help="raise an alert when a condition begins to hold, such as 'done', 'failed' or 'valid.loss > 3'; repeatable",
    )
    parser.add_option(
        "--alert-to",
        action="append",
        default=[],
        type=target_text,
        metavar="TARGET",
        help=f"where alerts go: {FORMS}; repeatable (default bell)",
    )


def with_options(table: object, args: argparse.Namespace) -> object:
    """The table `[alerts]` of a file with the options added; unchanged if it is not a table."""
    if not (args.alert or args.alert_to):
        return table
    given = {} if table is None else table
    if not isinstance(given, Mapping):
        return table
    on, targets = given.get("on", []), given.get("targets", list(config.AlertsConfig().targets))
    if not (isinstance(on, list) and isinstance(targets, list)):
        return table
    return {**given, "on": _unique([*on, *args.alert]), "targets": _unique([*targets, *args.alert_to])}


def check(
    alerts: config.AlertsConfig,
    source: str,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> None:
    """Refuses conditions and targets that are not valid or cannot work. Raises `CommandError`."""

    def refuse(key: str, why: str) -> None:
        where = config.source_of_key(source, f"{TABLE}.{key.partition('[')[0]}", overrides)
        raise UsageError(f"{inert(where)}: {TABLE}.{key}: {inert(why)}")

    for key, values, most in (("on", alerts.on, CONDITIONS_MAX), ("targets", alerts.targets, TARGETS_MAX)):
        if len(values) > most:
            refuse(key, f"{len(values)} entries exceed the maximum of {most}")
    for index, text in enumerate(alerts.on):
        try:
            conditions.parse(text, verdict_tests())
        except conditions.InvalidCondition as error:
            refuse(f"on[{index}]", str(error))
    for index, text in enumerate(alerts.targets):
        try:
            problem = parse(text).problem(os.environ if environ is None else environ)
        except InvalidTarget as error:
            problem = str(error)
        if problem is not None:
            refuse(f"targets[{index}]", problem)


def target_text(text: str) -> str:
    """The text of a target that can work here, as the type of an option. Raises `ArgumentTypeError`."""
    try:
        problem = parse(text).problem(os.environ)
    except InvalidTarget as error:
        problem = str(error)
    if problem is not None:
        raise argparse.ArgumentTypeError(problem)
    return text


def _condition(text: str) -> str:
    try:
        return conditions.parse(text, verdict_tests()).text
    except conditions.InvalidCondition as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _unique(texts: list[Any]) -> list[Any]:
    """The list without repetitions. Its items may be of any type: the file is checked later."""
    return [text for index, text in enumerate(texts) if text not in texts[:index]]


DESCRIPTION = f"""Sends a test alert to a target, once and without retries, and prints whether it was delivered.
Targets: {FORMS}."""
EXIT_CODES = exit_codes(
    DONE="delivered",
    USAGE="not a target, or it cannot work here",
    UNANSWERED="not delivered; the reason is on stderr",
    INTERRUPTED="Ctrl-C",
)


def add_arguments(parser: Parser) -> None:
    parser.usage = "tputui alert test [OPTION ...] TARGET"
    parser.add_argument("action", choices=["test"], metavar="test", help="send a test alert")
    parser.add_argument("target", metavar="TARGET", type=target_text, help="where to send it")


def run(args: argparse.Namespace) -> ExitCode:
    target = parse(args.target)
    if target.kind == "bell":
        if not sys.stdout.isatty():
            raise CommandError(ExitCode.UNANSWERED, "not delivered to bell: stdout is not a terminal")
        sys.stdout.write(notification("test alert", os.environ))
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
