"""`tputui stop`, `checkpoint` and `stacks`: write a request to a run, then wait for its receipts or answers.

The request file is the only way in which these commands act on a run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from pathlib import Path
from threading import Event as Pause

import msgspec

from tputui import formatting as fmt
from tputui.cli.arguments import add_run_argument, chosen_run
from tputui.cli.console import UsageError, narrate, say, say_json
from tputui.cli.parser import Command, Parser, add_hosts_option, exit_codes, seconds
from tputui.exit_codes import ExitCode
from tputui.session.session import Session
from tputui.state import process_stacks
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot, StacksView
from tputui.telemetry import events as ev
from tputui.telemetry import files, requests
from tputui.telemetry.events import RequestKind
from tputui.telemetry.merge import JournalEvent

STOP_DESCRIPTION = """Asks a run to finish its step, save a checkpoint and end. Prints the receipts as they arrive: the
request itself, seen (in which phase), then applied (after which step, with the checkpoint) or refused (with the
reason). If the run does not obey --now within 10 s, its supervisor ends it."""

CHECKPOINT_DESCRIPTION = """Asks a run to save a checkpoint after the current step and to continue. Prints the receipts
as they arrive: the request itself, seen (in which phase), then applied (after which step; file, bytes, seconds) or
refused (with the reason)."""

STACKS_DESCRIPTION = """Prints the Python stacks of every training process of a run: your own code first, calls of
tputui and of libraries folded; and, where the TPU runtime reports it, what each core executes. The run continues. This
also works while XLA compiles or native code waits. The full stacks are saved in stacks/ in the run directory."""

RECEIPT_CODES = exit_codes(
    DONE="applied",
    UNANSWERED="no receipt within --wait; the request remains pending",
    USAGE="no such run, the run has already ended, or it refused the request",
)
STACKS_CODES = exit_codes(
    DONE="every process answered",
    UNANSWERED="some processes did not answer within --wait; the answers that arrived are printed",
    USAGE="no such run, or it has ended",
)
RECEIPT_WAIT_S = 60.0
REQUESTED_BY = "TPUTUI_REQUESTED_BY"
"""Variable with the origin of a request, if this command makes it for another program, such as `tputui mcp`."""
STACKS_WAIT_S = 10.0
"""Long enough to send a signal to a process that cannot answer by itself."""
HOSTS_NAMED_MAX = 8
"""At most this many hosts without an answer are named."""
HOSTS_WAIT_S = 3.0
"""How long the receipts of further hosts may take after the first one."""
FILE_WAIT_S = 1.0
"""How long the receipt with the file of a checkpoint may take after the first one."""
_RECEIPT_POLL_S = 0.1
_STACKS_POLL_S = 0.05


def _add_stop_arguments(parser: Parser) -> None:
    add_run_argument(parser)
    add_hosts_option(parser)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--after-epoch", action="store_true", help="train to the end of the epoch first")
    group.add_argument("--now", action="store_true", help="end at once, without saving")
    _add_wait_option(parser, RECEIPT_WAIT_S, "receipts")


def _add_checkpoint_arguments(parser: Parser) -> None:
    add_run_argument(parser)
    add_hosts_option(parser)
    _add_wait_option(parser, RECEIPT_WAIT_S, "receipts")


def _add_stacks_arguments(parser: Parser) -> None:
    add_run_argument(parser)
    add_hosts_option(parser)
    _add_wait_option(parser, STACKS_WAIT_S, "answers")
    parser.add_option("--json", action="store_true", help="print one JSON object, nothing folded")


def _add_wait_option(parser: Parser, wait_s: float, answer: str) -> None:
    parser.add_option(
        "--wait",
        type=seconds,
        default=wait_s,
        metavar="S",
        help=f"seconds to wait for the {answer} (default {wait_s:g})",
    )


def _stop(args: argparse.Namespace) -> ExitCode:
    kind: RequestKind = "stop_now" if args.now else "stop_after_epoch" if args.after_epoch else "stop"
    return request_and_wait(chosen_run(args), kind, by="tputui stop", wait_s=args.wait)[0]


def _checkpoint(args: argparse.Namespace) -> ExitCode:
    return request_and_wait(chosen_run(args), "checkpoint", by="tputui checkpoint", wait_s=args.wait)[0]


def request_and_wait(
    run_dir: Path, kind: RequestKind, *, by: str, wait_s: float, steps: int | None = None
) -> tuple[ExitCode, ev.RequestApplied | None]:
    """Writes a request, then prints its receipts until it is applied or refused, or `wait_s` is over. Returns the exit
    code, and the receipt if it was applied. `steps` of a profile.

    Raises `CommandError` if the run has ended, or ends before it answers.
    """
    with contextlib.closing(Session.live(run_dir)) as session:
        snapshot = _read_snapshot(session)
        if snapshot.condition in ENDED:
            raise UsageError(f"{_name(run_dir)}: the run has already ended ({_ended(snapshot)})")
        request = submit(run_dir, kind, by, steps)
        say(f"requested: {kind}")
        try:
            return _print_receipts(session, run_dir, request, wait_s)
        except KeyboardInterrupt:
            narrate(f"stopped waiting; the request remains pending; `tputui show {_name(run_dir)}` shows its result")
            raise


def submit(run_dir: Path, kind: RequestKind, by: str, steps: int | None = None) -> requests.Request:
    """Writes a request. Raises `CommandError`."""
    try:
        by = os.environ.get(REQUESTED_BY) or by
        return requests.submit(run_dir, kind, by=by, now=time.time(), steps=steps)
    except OSError as error:
        message = f"{_name(run_dir)}: the request could not be written: {files.reason(error, run_dir)}"
        raise UsageError(message) from None


def _print_receipts(
    session: Session, run_dir: Path, request: requests.Request, wait_s: float
) -> tuple[ExitCode, ev.RequestApplied | None]:
    deadline = time.monotonic() + wait_s
    pause = Pause()
    is_seen = False
    while True:
        # Read before the events, so that a receipt written together with the end event is not missed.
        settled = session.settled
        events = [entry.event for entry in _new_events(session)]
        for event in events:
            receipt = _receipt(event, request.id)
            if receipt is None or (is_seen and isinstance(event, ev.RequestSeen)):
                continue
            if isinstance(event, ev.RequestApplied):
                applied = _with_file(session, event, events)
                say(_receipt(applied, request.id) or receipt)
                _print_hosts(session, request.id)
                return ExitCode.DONE, applied
            say(receipt)
            # Hundreds of hosts may see it; they are counted once it was applied, at the same step on all.
            is_seen = True
            if isinstance(event, ev.RequestRefused):
                return ExitCode.USAGE, None
        if settled:
            raise UsageError(f"{_name(run_dir)}: the run ended before it answered ({_ended(session.snapshot())})")
        if time.monotonic() >= deadline:
            return _narrate_unanswered(session.snapshot(), request.id, run_dir, wait_s), None
        pause.wait(_RECEIPT_POLL_S)


def _with_file(session: Session, applied: ev.RequestApplied, events: list[ev.Event]) -> ev.RequestApplied:
    """The receipt, or that of the host that wrote the checkpoint, if another host was earlier. `events`: the newest."""
    deadline = time.monotonic() + FILE_WAIT_S
    pause = Pause()
    while applied.kind == "checkpoint" and applied.path is None:
        for event in events:
            if isinstance(event, ev.RequestApplied) and event.request == applied.request and event.path is not None:
                return event
        if len(session.snapshot().hosts) < 2 or session.settled or time.monotonic() >= deadline:
            break
        pause.wait(_RECEIPT_POLL_S)
        events = [entry.event for entry in _new_events(session)]
    return applied


def _print_hosts(session: Session, request_id: str) -> None:
    """Prints how many hosts of a run have applied a request, once all have or after `HOSTS_WAIT_S`, and which have not
    answered; nothing if the journals of one host are here."""
    deadline = time.monotonic() + HOSTS_WAIT_S
    pause = Pause()
    while True:
        snapshot = _read_snapshot(session)
        view = next((request_view for request_view in snapshot.requests if request_view.id == request_id), None)
        if view is None or not view.receipts:
            return
        applied = sum(receipt.state == "applied" for receipt in view.receipts)
        total = len(view.receipts) + len(view.unanswered)
        # Also of a run that has ended: the hosts write their last receipts one after the other.
        if applied == total or time.monotonic() >= deadline:
            break
        pause.wait(_RECEIPT_POLL_S)
    silent = f"; no answer{_silent_hosts(snapshot, request_id)}" if view.unanswered else ""
    say(f"applied by {applied} of {total} hosts{silent}")


def _new_events(session: Session) -> list[JournalEvent]:
    events = session.poll()
    while not session.caught_up:
        events += session.poll()
    return events


def _receipt(event: ev.Event, request_id: str) -> str | None:
    """A receipt of the request as a line; None for any other event."""
    if isinstance(event, ev.RequestSeen) and event.request == request_id:
        return f"seen: in phase {event.phase}, step {event.step:,}"
    if isinstance(event, ev.RequestRefused) and event.request == request_id:
        return f"refused: {fmt.inert(event.why)}"
    if isinstance(event, ev.RequestApplied) and event.request == request_id:
        text = f"applied: after step {event.step:,}"
        if event.path is not None:
            text += f", {fmt.inert(event.path)}"
        if event.bytes is not None:
            text += f", {fmt.size(event.bytes)}"
        if event.seconds is not None:
            text += f", {fmt.duration(event.seconds)}"
        if event.lack is not None:
            text += f"; {fmt.inert(event.lack)}"
        return text
    return None


def _narrate_unanswered(snapshot: Snapshot, request_id: str, run_dir: Path, wait_s: float) -> ExitCode:
    narrate(
        f"no answer within {wait_s:g} s{_silent_hosts(snapshot, request_id)}: {_name(run_dir)} is "
        f"{snapshot.condition}, in phase {snapshot.phase or 'starting'}; the request remains "
        f"pending; `tputui show {_name(run_dir)}` shows its result"
    )
    return ExitCode.UNANSWERED


def _silent_hosts(snapshot: Snapshot, request_id: str) -> str:
    """` from host 1 (tpu-1)`; empty if the run has one host, or if all have seen the request."""
    view = next((request_view for request_view in snapshot.requests if request_view.id == request_id), None)
    names = {host.index: host.name for host in snapshot.hosts}
    silent = [f"host {index} ({names.get(index) or 'unknown'})" for index in (view.unanswered if view else [])]
    if not silent and (unseen := [host.index for host in snapshot.hosts if host.condition == "missing"]):
        return f" (journals of {len(unseen)} of {len(snapshot.hosts)} hosts are not in this directory)"
    more = f" and {len(silent) - HOSTS_NAMED_MAX} more" if len(silent) > HOSTS_NAMED_MAX else ""
    return fmt.inert(f" from {', '.join(silent[:HOSTS_NAMED_MAX])}{more}") if silent else ""


def _stacks(args: argparse.Namespace) -> ExitCode:
    run_dir = chosen_run(args)
    with contextlib.closing(Session.live(run_dir)) as session:
        snapshot = _read_snapshot(session)
        if snapshot.condition in ENDED:
            raise UsageError(f"{_name(run_dir)}: no processes left: the run is {snapshot.condition}")
        request = submit(run_dir, "stacks", "tputui stacks").id
        view, missing = _wait_for_stacks(session, request, args.wait)
    if args.json:
        say_json(msgspec.to_builtins(view), indent=2)
    elif view is not None:
        for line in process_stacks.page(view):
            say(fmt.inert(line))
    if missing:
        narrate(f"no answer within {args.wait:g} s from {', '.join(missing)}")
        return ExitCode.UNANSWERED
    return ExitCode.DONE


def _wait_for_stacks(session: Session, request: str, wait_s: float) -> tuple[StacksView | None, list[str]]:
    """The stacks that arrived, and the names of the processes that did not answer."""
    # Imported here so that the other commands start faster.
    from tputui.config import is_script

    deadline = time.monotonic() + wait_s
    pause = Pause()
    while True:
        snapshot = _read_snapshot(session)
        view = snapshot.stacks if snapshot.stacks and snapshot.stacks.request == request else None
        answered = {process.pid for process in view.processes} if view else set()
        missing = [name for name, pid in session.training_processes() if pid not in answered]
        receipt = next((request_view for request_view in snapshot.requests if request_view.id == request), None)
        if receipt is not None and receipt.state == "refused" and view is None:
            raise UsageError(f"refused: {fmt.inert(receipt.why or 'no reason given')}")
        if snapshot.devices is not None and view is not None and not (view.cores or view.cores_reason):
            # The supervisor still reads what the TPU cores execute. A hung runtime answers nothing, which has a reason.
            missing.append("the TPU runtime")
        if receipt is not None and receipt.state == "applied" and all(name.startswith("logs-") for name in missing):
            # The supervisor has read every Python process of the command; the command itself may be another program.
            return view, []
        if is_script(snapshot.config) and not missing:
            # It reads them one after the other, and only it knows when it has them all.
            missing.append("other processes of the command")
        if view is None and snapshot.condition in ENDED:
            raise UsageError(f"the run ended before it answered (it is {snapshot.condition})")
        if not missing or snapshot.condition in ENDED or time.monotonic() >= deadline:
            return view, missing
        pause.wait(_STACKS_POLL_S)


def _read_snapshot(session: Session) -> Snapshot:
    session.read_all()
    return session.snapshot()


def _ended(snapshot: Snapshot) -> str:
    """State and reason of a run that ended."""
    return f"it is {snapshot.condition}: {fmt.inert(snapshot.condition_reason)}"


def _name(run_dir: Path) -> str:
    """The name of a run for a sentence; of a run of another machine its address, which other commands take."""
    # Imported here because requests that are answered need no name.
    from tputui.cli.remote_runs import words_of

    return fmt.inert(words_of(run_dir) or run_dir.name or str(run_dir))


COMMANDS = {
    "stop": Command(STOP_DESCRIPTION, RECEIPT_CODES, _add_stop_arguments, _stop),
    "checkpoint": Command(CHECKPOINT_DESCRIPTION, RECEIPT_CODES, _add_checkpoint_arguments, _checkpoint),
    "stacks": Command(STACKS_DESCRIPTION, STACKS_CODES, _add_stacks_arguments, _stacks),
}
