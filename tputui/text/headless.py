"""Prints a run as lines or as JSON: data to stdout, messages to stderr.

Follows a session until the run has ended. A closed stdout ends the following and nothing else.
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
"""Seconds between two polls of a run without new events."""


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
    """Writes a run to `out` line by line until it has ended, its replay is at its end, or `stop` returns True.

    Prints plain lines by default, with their UTC time if `timestamps`. Of the lines from before the start, prints the
    newest `earlier`, or all. With `as_json` prints one JSON object per event, and everything else to `narrate`
    (stderr). `wait` is called with at most `WAIT_S` seconds. Returns the last snapshot.
    """
    writer = LineWriter(timestamps=timestamps)
    session.disable_cache()
    try:
        if earlier is not None and not as_json:
            _write_newest(session, writer, out, earlier)
        while True:
            # Checked before the read, so that events from just before the end are read too.
            settled = session.settled
            events = session.poll()
            for event in events:
                for line in [json_line(event)] if as_json else writer.lines(*event):
                    write_line(out, line)
            if stop():
                return session.snapshot()
            if settled and not events:
                break
            if session.caught_up and not events:
                wait(WAIT_S)
        snapshot = session.snapshot()
        for line in [*([] if as_json else writer.flush()), *last_lines(snapshot)]:
            write_line((narrate or sys.stderr) if as_json else out, line)
        return snapshot
    except BrokenPipeError:
        return session.snapshot()


def _write_newest(session: Session, writer: LineWriter, out: TextIO, most: int) -> None:
    """Writes the newest `most` lines so far, after a line with the number of earlier ones."""
    newest: deque[str] = deque(maxlen=most)
    num_lines = 0
    while True:
        events = session.poll()
        for event in events:
            lines = writer.lines(*event)
            num_lines += len(lines)
            newest.extend(lines)
        if session.caught_up and not events:
            break
    if num_lines > len(newest):
        write_line(out, f"{num_lines - len(newest):,} earlier lines; --lines all prints them")
    for line in newest:
        write_line(out, line)


def json_line(event: JournalEvent) -> str:
    """An event as one line of ASCII JSON: process, sequence number, then its fields as in the journal."""
    head = {"writer": event.writer, "q": event.seq}
    fields = {**head, **to_json(event.event), **head}
    line = msgspec.json.encode(fields).decode()
    return line if line.isascii() else json.dumps(fields, separators=(",", ":"))


def write_line(out: TextIO, line: str) -> None:
    """Writes and flushes a line. Control, invisible and unencodable characters are escaped.

    Raises `BrokenPipeError`.
    """
    line = inert(line)
    encoding = getattr(out, "encoding", None)
    if encoding:
        line = line.encode(encoding, "backslashreplace").decode(encoding)
    out.write(line + "\n")
    out.flush()
