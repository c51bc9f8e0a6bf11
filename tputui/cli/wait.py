"""`tputui wait`: waits until a run has ended, or until a condition on it holds."""

from __future__ import annotations

import argparse
import math
import time
from threading import Event as Pause

from tputui import formatting as fmt
from tputui.cli import open_run
from tputui.cli.arguments import add_run_argument, span
from tputui.cli.console import narrate, say, say_json
from tputui.cli.foreign_logs import RUN_OR_LOG, chosen_run_or_log
from tputui.cli.parser import Command, Parser, add_hosts_option, exit_codes
from tputui.diagnosis.diagnose import verdict_tests
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.session.session import Session
from tputui.state import conditions
from tputui.state.conditions import Condition
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot

DESCRIPTION = f"""Waits until a run has ended and exits with its exit code; with --until, until a condition holds, for
shell scripts and CI. Conditions: {conditions.FORMS}; joined by `and`, `or`, `not` and parentheses. A metric without
`train.` or `valid.` is the training value. Prints one line. The run is never changed."""
EXIT_CODES = exit_codes(
    DONE="the run is done; with --until: the condition holds",
    USAGE="no such run, or not a condition",
    FAILED="the run failed (without --until)",
    STOPPED="the run was stopped on request (without --until)",
    LOST="the processes of the run died (without --until)",
    UNANSWERED="the time of --timeout is over, or the run ended and the condition does not hold",
    INTERRUPTED="Ctrl-C; the run is not affected",
)
POLL_S = 0.2


def add_arguments(parser: Parser) -> None:
    add_run_argument(parser, help=RUN_OR_LOG)
    add_hosts_option(parser)
    parser.add_option("--until", type=_condition, metavar="CONDITION", help="such as 'valid.loss < 0.5 or ended'")
    parser.add_option("--timeout", type=span, metavar="TIME", help="wait at most TIME: 90s, 10m, 2h (default no limit)")
    parser.add_option("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> ExitCode:
    session = Session.live(chosen_run_or_log(args))
    try:
        return _report(args, *_waited(session, args.until, args.timeout))
    except KeyboardInterrupt:
        narrate("interrupted; the run is not affected")
        return ExitCode.INTERRUPTED
    finally:
        session.close()


def _waited(session: Session, until: Condition | None, timeout_s: float | None) -> tuple[Snapshot, bool]:
    """The last snapshot, and whether the condition holds or, without one, the run has ended."""
    deadline = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
    pause = Pause()
    is_warned = until is None
    while True:
        # Checked before the read, so that events from just before the end are read too.
        settled = session.settled
        events = session.poll()
        if session.caught_up:
            snapshot = session.snapshot()
            if until.holds(snapshot) if until is not None else snapshot.condition in ENDED:
                return snapshot, True
            if (settled and not events) or time.monotonic() >= deadline:
                return snapshot, False
            if until is not None and not is_warned and (missing := conditions.missing_metrics(until, snapshot)):
                is_warned = True
                narrate(inert(f"{missing}; waiting for {until.text}"))
            pause.wait(min(POLL_S, max(deadline - time.monotonic(), 0.0)))


def _report(args: argparse.Namespace, snapshot: Snapshot, holds: bool) -> ExitCode:
    """Prints the result and returns the exit code."""
    until: Condition | None = args.until
    ended = snapshot.condition in ENDED
    missing = conditions.missing_metrics(until, snapshot) if until is not None else ""
    if args.json:
        say_json(
            {
                "run": snapshot.run,
                "state": snapshot.condition,
                "reason": snapshot.condition_reason,
                "step": snapshot.steps,
                "until": until.text if until is not None else None,
                "holds": holds,
                "missing": missing,
            }
        )
    else:
        place = f"{snapshot.condition}, step {fmt.count(snapshot.steps)}"
        condition = "" if until is None else f": {until.text}" if holds else f": not {until.text}"
        late = "" if holds or ended else f" after {fmt.duration(args.timeout)}"
        say(inert(f"{snapshot.run} {place}{late}{condition}{f' ({missing})' if missing else ''}"))
    if not holds:
        return ExitCode.UNANSWERED
    return open_run.exit_code_of(snapshot) if until is None else ExitCode.DONE


def _condition(text: str) -> Condition:
    """A condition, as the type of an option. Raises `ArgumentTypeError`."""
    try:
        return conditions.parse(text, verdict_tests())
    except conditions.InvalidCondition as error:
        raise argparse.ArgumentTypeError(str(error)) from None


COMMANDS = {"wait": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
