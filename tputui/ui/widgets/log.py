"""The log: what training printed and what the tool has to say, following the end."""

from __future__ import annotations

import time
from typing import NamedTuple

from tputui.model.snapshot import LogLine, Snapshot
from tputui.ui import words
from tputui.ui.lines import Line, Span, Tone, clean, paragraph, wrap
from tputui.ui.widgets.panel import Drawing, Panel

_TONES: dict[str, Tone] = {"info": "plain", "warning": "warn", "error": "bad"}
_SIGNS = {"info": "", "warning": "\u25b2 warning: ", "error": "\u2716 error: "}


class LogPart(NamedTuple):
    """What the panel shows."""

    logs: list[LogLine]
    why_none: str


class LogPanel(Panel[LogPart]):
    """The log, newest line last."""

    key = "7"
    name_shown = "log"
    what = "what training printed and what the tool has to say; follows the end until you scroll up"
    follows_end = True

    @staticmethod
    def pick(snapshot: Snapshot) -> LogPart:
        """The newest lines."""
        return LogPart(snapshot.logs, "" if snapshot.logs else words.nothing_yet(snapshot, "log line"))

    def draw(self, part: LogPart, width: int, height: int) -> Drawing:
        """A line a line, long ones wrapped."""
        if not part.logs:
            return Drawing(paragraph(part.why_none, width, height))
        sources = len({line.source for line in part.logs}) > 1
        return Drawing([row for line in part.logs for row in _rows(line, width, sources)])


def _rows(line: LogLine, width: int, with_source: bool) -> list[Line]:
    clock = time.strftime("%H:%M:%S", time.localtime(line.t))
    source = f"{clean(line.source)} " if with_source and width >= 60 else ""
    head = f" {clock} {source}"
    tone = _TONES[line.level]
    first, *rest = wrap(_SIGNS[line.level] + clean(line.text), max(width - len(head), 8))
    indent = " " * len(head)
    return [
        [Span(f" {clock} ", "dim"), Span(source, "label"), Span(first, tone)],
        *([Span(indent), Span(piece, tone)] for piece in rest),
    ]
