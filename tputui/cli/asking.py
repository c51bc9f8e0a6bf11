"""How a command asks something of a run and waits for the receipts.

Prints each receipt as it comes. Must not act on the run but through the request file.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Event

from tputui.cli.console import CommandError, narrate, say
from tputui.exit_codes import ExitCode
from tputui.model.format import inert
from tputui.model.snapshot import ENDED, RequestView, Snapshot
from tputui.session import Session
from tputui.telemetry import control, rundir
from tputui.telemetry.events import RequestKind

WAIT_S = 60.0
_POLL_S = 0.1
_RECEIPT_S = 3.0
"""How long the supervisor has to answer what a run that ended left unanswered."""


def ask(run_dir: Path, kind: RequestKind, *, by: str, wait_s: float) -> ExitCode:
    """Writes the request, then prints its receipts until it is applied or refused, or `wait_s` is over."""
    session = Session.live(run_dir)
    try:
        snapshot = _caught_up(session)
        if snapshot.condition in ENDED:
            raise CommandError(ExitCode.USAGE, f"{_name(run_dir)}: nothing to ask: {_ended(snapshot)}")
        request = _submit(run_dir, kind, by)
        say(f"requested: {kind} ({request.id})")
        return _wait(session, run_dir, request, wait_s)
    finally:
        session.close()


def _submit(run_dir: Path, kind: RequestKind, by: str) -> control.Request:
    try:
        return control.submit(run_dir, kind, by=by, now=time.time())
    except OSError as error:
        words = f"{_name(run_dir)}: the request could not be written: {error.strerror or error}"
        raise CommandError(ExitCode.USAGE, words) from None


def _caught_up(session: Session) -> Snapshot:
    """The snapshot after everything that is written was read."""
    while True:
        snapshot = session.poll()
        if session.caught_up:
            return snapshot


def _wait(session: Session, run_dir: Path, request: control.Request, wait_s: float) -> ExitCode:
    deadline = time.monotonic() + wait_s
    ended_at: float | None = None
    told: str | None = None
    pause = Event()
    while True:
        snapshot = _caught_up(session)
        view = next((view for view in snapshot.requests if view.id == request.id), None)
        if view is not None and view.state != told:
            told = view.state
            if told != "requested":
                say(receipt(view, snapshot))
        if told in ("applied", "refused"):
            return ExitCode.DONE if told == "applied" else ExitCode.USAGE
        now = time.monotonic()
        if snapshot.condition in ENDED:
            ended_at = ended_at or now
            if now > ended_at + _RECEIPT_S:
                words = f"{_name(run_dir)}: the run ended before it answered: {_ended(snapshot)}"
                raise CommandError(ExitCode.USAGE, words)
        elif now >= deadline:
            narrate(
                f"no answer within {wait_s:g} s (the run is in phase {snapshot.phase or 'starting'}); the request "
                f"stands, and `tputui show {_name(run_dir)}` tells when it was answered"
            )
            return ExitCode.DONE
        pause.wait(_POLL_S)


def receipt(view: RequestView, snapshot: Snapshot) -> str:
    """A receipt in words."""
    if view.state == "seen":
        return f"seen: in phase {view.seen_phase}"
    if view.state == "refused":
        return f"refused: {inert(view.why or 'no reason was given')}"
    words = f"applied: after step {view.applied_step}"
    if view.path is not None:
        words += f", {inert(view.path)}"
        saved = next((saved for saved in snapshot.checkpoints if saved.path == view.path), None)
        if saved is not None:
            words += f", {saved.bytes} bytes in {saved.seconds:.2f} s"
    return words


def _ended(snapshot: Snapshot) -> str:
    """The state of a run that ended, as a sentence."""
    return f"it is {snapshot.condition}: {inert(snapshot.condition_reason)}"


def _name(run_dir: Path) -> str:
    return inert(run_dir.name if os.fspath(run_dir) != "." else rundir.read_manifest(run_dir).run)
