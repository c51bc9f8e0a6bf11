"""A run as lines or as JSON: stdout is data, stderr is narration.

Follows a session until nothing more will come. The reader of the lines may go away at any time; that ends the
following and nothing else. Must not ask anything of the run.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

import msgspec

from tputui.formatting import inert
from tputui.session.session import Session
from tputui.state.snapshot import Snapshot
from tputui.telemetry.codec import to_json
from tputui.telemetry.merge import JournalEvent
from tputui.text.lines import LineWriter, last_lines

WAIT_S = 0.1
"""Between two looks at a run that has nothing new."""


def follow(
    session: Session,
    out: TextIO,
    *,
    as_json: bool,
    timestamps: bool = False,
    earlier: int | None = None,
    narrate: TextIO | None = None,
    stop: Callable[[], bool] = lambda: False,
    wait: Callable[[float], None] = time.sleep,
) -> Snapshot:
    """Writes the run to `out`, a line at a time, until it ended, its replay is through or `stop` says so.

    Plain lines by default, each after its UTC time with `timestamps`; of what was written before the following began,
    the newest `earlier` lines, or all of them. With `as_json` every event as one JSON object, and what is no event
    goes to `narrate` (stderr). Returns what is true then. `wait` is called with seconds, at most `WAIT_S`.
    """
    teller = LineWriter(timestamps=timestamps)
    session.disable_cache()
    try:
        if earlier is not None and not as_json:
            _write_newest(session, teller, out, earlier)
        while True:
            # Asked before the read, so that what was written just before the end is read too.
            settled = session.settled
            events = session.poll()
            for event in events:
                for line in [json_line(event)] if as_json else teller.tell(*event):
                    write_line(out, line)
            if stop():
                return session.snapshot()
            if settled and not events:
                break
            if session.caught_up and not events:
                wait(WAIT_S)
        snapshot = session.snapshot()
        for line in [*([] if as_json else teller.flush()), *last_lines(snapshot)]:
            write_line((narrate or sys.stderr) if as_json else out, line)
        return snapshot
    except BrokenPipeError:
        return session.snapshot()


def _write_newest(session: Session, teller: LineWriter, out: TextIO, most: int) -> None:
    """Writes the newest `most` of the lines that the run has so far, after one that counts those before them."""
    newest: deque[str] = deque(maxlen=most)
    num_lines = 0
    while True:
        events = session.poll()
        for event in events:
            lines = teller.tell(*event)
            num_lines += len(lines)
            newest.extend(lines)
        if session.caught_up and not events:
            break
    if num_lines > len(newest):
        write_line(out, f"{num_lines - len(newest):,} earlier lines; --lines all prints them")
    for line in newest:
        write_line(out, line)


def json_line(fact: JournalEvent) -> str:
    """A fact as one line of JSON in ASCII: its writer, its number there, then its fields as on the wire."""
    head = {"writer": fact.writer, "q": fact.seq}
    fields = {**head, **to_json(fact.event), **head}
    line = msgspec.json.encode(fields).decode()
    return line if line.isascii() else json.dumps(fields, separators=(",", ":"))


def write_line(out: TextIO, line: str) -> None:
    """Writes a line at once. Control and invisible characters, and what the stream's encoding lacks, are escaped.

    Raises `BrokenPipeError`.
    """
    line = inert(line)
    encoding = getattr(out, "encoding", None)
    if encoding:
        line = line.encode(encoding, "backslashreplace").decode(encoding)
    out.write(line + "\n")
    out.flush()
