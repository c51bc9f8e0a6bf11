"""`tputui stacks`: where every process of a run is, without stopping it."""

from __future__ import annotations

import argparse
import time
from threading import Event as Pause

import msgspec

from tputui.cli.arguments import add_run_argument, chosen_run
from tputui.cli.console import CommandError, narrate, say, say_json
from tputui.cli.parser import Parser, exit_codes
from tputui.cli.requests import add_wait_option, submit
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.session.session import Session
from tputui.state import process_stacks
from tputui.state.snapshot import ENDED, Snapshot, StacksView

DESCRIPTION = """Asks every training process of a run where its threads are, and prints the Python stacks: your own
code first, calls of tputui and of libraries folded. Nothing is stopped, and it works while a program is compiled
or while native code waits. The whole stacks are kept in the run's directory, in stacks/."""
EXIT_CODES = exit_codes(
    DONE="every process answered",
    UNANSWERED="some process gave no answer within --wait; those that did are printed",
    USAGE="no such run, or it has ended",
)
WAIT_S = 10.0
"""Long enough for a process that cannot answer to be asked by a signal."""
_POLL_S = 0.05


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    add_run_argument(parser)
    add_wait_option(parser, WAIT_S, "answers")
    parser.add_option("--json", action="store_true", help="print one JSON object, nothing folded")


def run(args: argparse.Namespace) -> ExitCode:
    """Asks, waits and prints."""
    run_dir = chosen_run(args)
    session = Session.live(run_dir)
    try:
        before = _read(session)
        if before.condition in ENDED:
            raise CommandError(ExitCode.USAGE, f"{run_dir.name}: no process of it is left: it is {before.condition}")
        request = submit(run_dir, "stacks", "tputui stacks").id
        view, missing = _wait(session, request, args.wait)
    finally:
        session.close()
    _print(view, as_json=args.json)
    if missing:
        narrate(f"no answer within {args.wait:g} s from {', '.join(missing)}")
        return ExitCode.UNANSWERED
    return ExitCode.DONE


def _wait(session: Session, request: str, wait_s: float) -> tuple[StacksView | None, list[str]]:
    """The answers, and the processes that gave none."""
    deadline = time.monotonic() + wait_s
    pause = Pause()
    while True:
        snapshot = _read(session)
        view = snapshot.stacks if snapshot.stacks and snapshot.stacks.request == request else None
        missing = _missing(session, view)
        if view is None and snapshot.condition in ENDED:
            raise CommandError(ExitCode.USAGE, f"the run ended before it answered: it is {snapshot.condition}")
        if not missing or snapshot.condition in ENDED or time.monotonic() >= deadline:
            return view, missing
        pause.wait(_POLL_S)


def _missing(session: Session, view: StacksView | None) -> list[str]:
    answered = {process.pid for process in view.processes} if view else set()
    return [name for name, pid in session.training_processes() if pid not in answered]


def _read(session: Session) -> Snapshot:
    session.read_all()
    return session.snapshot()


def _print(view: StacksView | None, *, as_json: bool) -> None:
    if as_json:
        say_json(msgspec.to_builtins(view), indent=2)
    elif view is not None:
        for line in process_stacks.page(view):
            say(inert(line))
