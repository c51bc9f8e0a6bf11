"""How a command asks something of a run and waits for the receipts.

Prints each receipt as it comes. Must not act on the run but through the request file.
"""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event as Pause

from tputui import formatting as fmt
from tputui.cli.console import CommandError, narrate, say
from tputui.cli.parser import Parser, exit_codes
from tputui.cli.values import seconds
from tputui.exit_codes import ExitCode
from tputui.session.session import Session
from tputui.state.snapshot import ENDED, Snapshot
from tputui.telemetry import events as ev
from tputui.telemetry import requests
from tputui.telemetry.events import RequestKind
from tputui.telemetry.merge import JournalEvent

EXIT_CODES = exit_codes(
    DONE="applied",
    UNANSWERED="no receipt came within --wait; the request stands",
    USAGE="no such run, it ended before, or it refused",
)
WAIT_S = 60.0
_POLL_S = 0.1


def add_wait_option(parser: Parser, wait_s: float = WAIT_S, what: str = "receipts") -> None:
    """Declares how long to wait for what comes back."""
    told = f"seconds to wait for the {what} ({wait_s:g})"
    parser.add_option("--wait", type=seconds, default=wait_s, metavar="S", help=told)


def ask(run_dir: Path, kind: RequestKind, *, by: str, wait_s: float) -> ExitCode:
    """Writes the request, then prints its receipts until it is applied or refused, or `wait_s` is over."""
    session = Session.live(run_dir)
    try:
        session.read_all()
        snapshot = session.snapshot()
        if snapshot.condition in ENDED:
            raise CommandError(ExitCode.USAGE, f"{_name(run_dir)}: there is nothing to ask: {_ended(snapshot)}")
        request = submit(run_dir, kind, by)
        say(f"requested: {kind} ({request.id})")
        try:
            return _wait(session, run_dir, request, wait_s)
        except KeyboardInterrupt:
            narrate(f"not waiting any longer; the request stands, and `tputui show {_name(run_dir)}` tells of it")
            raise
    finally:
        session.close()


def submit(run_dir: Path, kind: RequestKind, by: str) -> requests.Request:
    """Writes a request. Raises `CommandError`."""
    try:
        return requests.submit(run_dir, kind, by=by, now=time.time())
    except OSError as error:
        words = f"{_name(run_dir)}: the request could not be written: {error.strerror or error}"
        raise CommandError(ExitCode.USAGE, words) from None


def _news(session: Session) -> list[JournalEvent]:
    """What was written since the last read, all of it."""
    facts = session.poll()
    while not session.caught_up:
        facts += session.poll()
    return facts


def _wait(session: Session, run_dir: Path, request: requests.Request, wait_s: float) -> ExitCode:
    deadline = time.monotonic() + wait_s
    pause = Pause()
    while True:
        # Settled before the last read, so that a receipt written with the end record is not missed.
        settled = session.settled
        for fact in _news(session):
            answer = _receipt(fact.event, request.id)
            if answer is not None:
                say(answer)
                if not isinstance(fact.event, ev.RequestSeen):
                    return ExitCode.DONE if isinstance(fact.event, ev.RequestApplied) else ExitCode.USAGE
        if settled:
            words = f"{_name(run_dir)}: the run ended before it answered: {_ended(session.snapshot())}"
            raise CommandError(ExitCode.USAGE, words)
        if time.monotonic() >= deadline:
            return _tell_unanswered(session.snapshot(), run_dir, wait_s)
        pause.wait(_POLL_S)


def _receipt(event: ev.Event, request_id: str) -> str | None:
    """A receipt of the request in words; None where the fact is none."""
    if isinstance(event, ev.RequestSeen) and event.request == request_id:
        return f"seen: in phase {event.phase}, step {event.step}"
    if isinstance(event, ev.RequestRefused) and event.request == request_id:
        return f"refused: {fmt.inert(event.why)}"
    if isinstance(event, ev.RequestApplied) and event.request == request_id:
        words = f"applied: after step {event.step}"
        if event.path is not None:
            words += f", {fmt.inert(event.path)}"
        if event.bytes is not None:
            words += f", {event.bytes} bytes"
        if event.seconds is not None:
            words += f", {event.seconds:.3f} s"
        return words
    return None


def _tell_unanswered(snapshot: Snapshot, run_dir: Path, wait_s: float) -> ExitCode:
    narrate(
        f"no answer within {wait_s:g} s: {_name(run_dir)} is {snapshot.condition}, in phase "
        f"{snapshot.phase or 'starting'}; the request stands, and `tputui show {_name(run_dir)}` tells what became "
        "of it"
    )
    return ExitCode.UNANSWERED


def _ended(snapshot: Snapshot) -> str:
    """The state of a run that ended, as a sentence."""
    return f"it is {snapshot.condition}: {fmt.inert(snapshot.condition_reason)}"


def _name(run_dir: Path) -> str:
    return fmt.inert(run_dir.name or str(run_dir))
