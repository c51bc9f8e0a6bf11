"""Which entries of a log are in sight, and how they are drawn. Pure; must know no widget.

Rows are drawn where they are looked at, so that a long log costs no more than what is in sight of it.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from rich.cells import cell_len

from tputui.state.snapshot import LogLine
from tputui.ui.base import status_text
from tputui.ui.monitor import regex_safety
from tputui.ui.monitor.log_fold import Entry, folded, taken_apart
from tputui.ui.monitor.log_store import LogStore
from tputui.ui.render.lines import DrawnLate, Line, Span, Tone, clean, crop, printed, wrap

LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("", frozenset({"info", "warning", "error"})),
    ("warnings and errors", frozenset({"warning", "error"})),
    ("errors", frozenset({"error"})),
)
"""What each choice of level is called, and which lines it lets through."""

PIECE = 1_000
"""Lines that are sifted together."""
NEWEST = 1_000
"""Lines at the end that a snapshot may still replace."""

_TONES: dict[str, Tone] = {"info": "plain", "warning": "warn", "error": "bad"}
_SIGNS = {"info": "", "warning": "\u25b2 warning: ", "error": "\u2716 error: "}
_SOURCE_FROM_WIDTH = 60


class Sieve(NamedTuple):
    """Which lines are wanted."""

    lane: str = ""
    """A process or a core; empty is all of them."""
    level: int = 0
    """Index in `LEVELS`."""
    pattern: re.Pattern[str] | None = None

    def lets(self, line: LogLine) -> bool:
        """Whether a line is wanted."""
        if line.level not in LEVELS[self.level][1]:
            return False
        if self.lane and self.lane not in (taken_apart(line).lane, clean(line.source)):
            return False
        return self.pattern is None or self.pattern.search(searched(line)) is not None


def searched(line: LogLine) -> str:
    """What a search looks through: what stands on the screen of a line, but for its time."""
    return _SIGNS[line.level] + printed(line.text)


def sifted(lines: Sequence[LogLine], sieve: Sieve) -> tuple[list[Entry], int]:
    """The entries of the lines that are wanted, and how many lines these are."""
    wanted = [line for line in lines if sieve.lets(line)] if sieve != Sieve() else list(lines)
    return folded(wanted), len(wanted)


class Sifter:
    """Sifts a growing log again and again; pieces in which nothing changes any more are sifted once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[list[Entry], int]] = {}
        """By the number of the piece since the beginning."""
        self._of: tuple[int, Sieve] | None = None

    def sift(self, store: LogStore, sieve: Sieve) -> tuple[list[Entry], int]:
        """The entries of the lines that are wanted, and how many lines these are."""
        if self._of != (store.generation, sieve):
            self._of, self._known = (store.generation, sieve), {}
        end = store.num_cut + len(store.lines)
        entries: list[Entry] = []
        found = 0
        for piece in range(store.num_cut // PIECE, max(end - 1, 0) // PIECE + 1):
            first, last = max(piece * PIECE, store.num_cut), min((piece + 1) * PIECE, end)
            whole = first == piece * PIECE and last <= end - NEWEST
            some = self._known.get(piece) if whole else None
            if some is None:
                some = sifted(store.lines[first - store.num_cut : last - store.num_cut], sieve)
                if whole:
                    self._known[piece] = some
            entries += some[0]
            found += some[1]
        return entries, found


def compiled(text: str) -> tuple[re.Pattern[str] | None, str]:
    """A regular expression, or why it is none that is tried; small letters find great ones too. Empty text is none."""
    if not text:
        return None, ""
    try:
        pattern = re.compile(text, 0 if any(char.isupper() for char in text) else re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        return None, str(error)
    return (None, regex_safety.WHY_NOT) if regex_safety.may_take_for_ever(text) else (pattern, "")


class Rows(DrawnLate):
    """The rows of entries, drawn when asked for."""

    def __init__(
        self,
        entries: Sequence[Entry],
        width: int,
        *,
        wrapped: bool,
        with_source: bool,
        pattern: re.Pattern[str] | None = None,
        chosen: int | None = None,
    ) -> None:
        self._entries = entries
        self._width = width
        self._wrapped = wrapped
        self._with_source = with_source and width >= _SOURCE_FROM_WIDTH
        self._pattern = pattern
        self._chosen = chosen
        self._ends: Sequence[int] = range(1, len(entries) + 1)
        """Rows up to the end of each entry."""
        if wrapped:
            self._ends = list(accumulate(self._rows_of(entry) for entry in entries))

    def __len__(self) -> int:
        return self._ends[-1] if self._entries else 0

    def entry_at(self, row: int) -> int:
        """The entry of a row."""
        return min(bisect_right(self._ends, row), len(self._entries) - 1)

    def first_row(self, entry: int) -> int:
        """The first row of an entry."""
        return self._ends[entry - 1] if entry > 0 else 0

    def _rows_of(self, entry: Entry) -> int:
        room = self._room(entry)
        text = _text(entry)
        return 1 if len(text) <= room and text.isascii() else len(wrap(text, room))

    def _room(self, entry: Entry) -> int:
        source = entry.line.source if self._with_source else None
        return max(self._width - _head_width(source, entry.num_lines, entry.missing, entry.lanes), 8)

    def line_at(self, row: int) -> Line:
        """A row of an entry: a piece of its text where that is wrapped, else as much of it as fits."""
        index = self.entry_at(row)
        entry, part = self._entries[index], row - self.first_row(index)
        head = self._head(entry)
        room = self._room(entry)
        pieces = wrap(_text(entry), room) if self._wrapped else [crop(_text(entry), room)]
        body = _highlighted(pieces[min(part, len(pieces) - 1)], self._pattern, _TONES[entry.line.level])
        indent = sum(cell_len(span.text) for span in head)
        line: Line = [*head, *body] if part == 0 else [Span(" " * indent), *body]
        return self._as_chosen(line) if index == self._chosen else line

    def _as_chosen(self, line: Line) -> Line:
        width = sum(cell_len(span.text) for span in line)
        marked = [Span("\u276f" + line[0].text[1:], "chosen"), *line[1:]]
        kept = [span if span.tone == "hit" else Span(span.text, "chosen") for span in marked]
        return [*kept, Span(" " * max(self._width - width, 0), "chosen")]

    def _head(self, entry: Entry) -> Line:
        return _head(entry, self._with_source)


_clock = functools.lru_cache(maxsize=1 << 14)(status_text.time_of_day)


def _head(entry: Entry, with_source: bool) -> Line:
    source = f"{clean(entry.line.source)} " if with_source else ""
    head: Line = [Span(f" {_clock(int(entry.line.t))} ", "dim"), Span(source, "label")]
    if entry.num_lines > 1:
        head.append(Span(f"x{entry.num_lines} ", "accent"))
    if entry.missing:
        head.append(Span(f"not {', '.join(entry.missing)} ", "warn"))
    elif len(entry.lanes) == 1:
        head.append(Span(f"{entry.lanes[0]} ", "warn" if entry.odd else "label"))
    return head


@functools.lru_cache(maxsize=1 << 12)
def _head_width(source: str | None, count: int, missing: tuple[str, ...], lanes: tuple[str, ...]) -> int:
    """Cells of what stands before the text; without a source where it is None."""
    line = LogLine(t=0.0, source=source or "", level="info", text="")
    head = _head(Entry(line, "", count, lanes, missing, False), source is not None)
    return sum(cell_len(span.text) for span in head)


def _text(entry: Entry) -> str:
    return _SIGNS[entry.line.level] + entry.text


def _highlighted(text: str, pattern: re.Pattern[str] | None, tone: Tone) -> Line:
    """The text with what the search finds in it marked."""
    if pattern is None:
        return [Span(text, tone)]
    line: Line = []
    at = 0
    for found in pattern.finditer(text):
        if found.end() > found.start():
            line += [Span(text[at : found.start()], tone), Span(found.group(), "hit")]
            at = found.end()
    return [span for span in [*line, Span(text[at:], tone)] if span.text] or [Span("", tone)]
