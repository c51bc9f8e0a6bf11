"""A run as lines or as JSON: stdout is data, stderr is narration.

Follows a session until nothing more will come. The reader of the lines may go away at any time; that ends the
following and nothing else. Must not ask anything of the run.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TextIO

from tputui.model.lines import Teller, last_lines
from tputui.model.snapshot import Snapshot
from tputui.session import Session
from tputui.telemetry.codec import to_json
from tputui.telemetry.merge import Fact

WAIT_S = 0.1
"""Between two looks at a run that has nothing new."""


def follow(
    session: Session,
    out: TextIO,
    *,
    as_json: bool,
    narrate: TextIO | None = None,
    stop: Callable[[], bool] = lambda: False,
    wait: Callable[[float], None] = time.sleep,
) -> Snapshot:
    """Writes the run to `out`, a line at a time, until it ended, its replay is through or `stop` says so.

    Plain lines by default; with `as_json` every fact as one JSON object, and what is no fact goes to `narrate`
    (stderr). Returns what is true then. `wait` is called with seconds, at most `WAIT_S`.
    """
    told = Teller()
    session.hear_all()
    try:
        while True:
            # Asked before the read, so that what was written just before the end is read too.
            settled = session.settled
            facts = session.poll()
            for fact in facts:
                for line in [json_line(fact)] if as_json else told.tell(*fact):
                    write_line(out, line)
            if stop():
                return session.snapshot()
            if settled and not facts:
                break
            if session.caught_up and not facts:
                wait(WAIT_S)
        snapshot = session.snapshot()
        for line in last_lines(snapshot):
            write_line((narrate or sys.stderr) if as_json else out, line)
        return snapshot
    except BrokenPipeError:
        return session.snapshot()


def json_line(fact: Fact) -> str:
    """A fact as one line of JSON in ASCII: its writer, its number there, then its fields as on the wire."""
    head = {"writer": fact.writer, "q": fact.seq}
    return json.dumps({**head, **to_json(fact.event), **head}, separators=(",", ":"))


def write_line(out: TextIO, line: str) -> None:
    """Writes a line at once. What the stream's encoding lacks is escaped. Raises `BrokenPipeError`."""
    encoding = getattr(out, "encoding", None)
    if encoding:
        line = line.encode(encoding, "backslashreplace").decode(encoding)
    out.write(line + "\n")
    out.flush()
