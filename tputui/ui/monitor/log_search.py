"""The filter of the log: by process or core, by level, and by a regular expression that is typed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tputui.state.snapshot import LogLine
from tputui.ui.monitor.log_lines import SIGNS, Entry, LogStore, folded, host_lane, host_of_source, split_core
from tputui.ui.render.lines import clean, printed
from tputui.ui.widgets.typed_search import TypedSearch, compile_search

LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("", frozenset({"info", "warning", "error"})),
    ("warnings and errors", frozenset({"warning", "error"})),
    ("errors", frozenset({"error"})),
)
"""The name of each choice of level, and the levels of the lines it accepts."""

PIECE = 1_000
"""Number of lines filtered together."""
NEWEST = 1_000
"""Number of lines at the end that a snapshot may still replace."""


class LogFilter(NamedTuple):
    """Accepts some lines of the log."""

    lane: str = ""
    """A process or a core; empty for all of them."""
    level: int = 0
    """Index in `LEVELS`."""
    pattern: re.Pattern[str] | None = None
    shows_all: bool = False
    """Whether lines that do not match are shown, too, around those that do."""

    def accepts(self, line: LogLine) -> bool:
        """Whether a line is shown."""
        if line.level not in LEVELS[self.level][1]:
            return False
        if self.lane and not self._is_of_lane(line):
            return False
        return self.pattern is None or self.shows_all or self.matches(line)

    def matches(self, line: LogLine) -> bool:
        """Whether the expression is found in a line."""
        return self.pattern is not None and self.pattern.search(searched(line)) is not None

    def _is_of_lane(self, line: LogLine) -> bool:
        if self.lane in (split_core(line)[0], clean(line.source)):
            return True
        host = host_of_source(line.source)
        return host is not None and self.lane == host_lane(host)


def searched(line: LogLine) -> str:
    """The text of a line that is searched: as it is shown, without its time."""
    return SIGNS[line.level] + printed(line.text)


def filtered(lines: Sequence[LogLine], filter: LogFilter, *, has_hosts: bool = False) -> tuple[list[Entry], int]:
    """The entries of the accepted lines, and the number of these lines."""
    wanted = [line for line in lines if filter.accepts(line)] if filter != LogFilter() else list(lines)
    return folded(wanted, has_hosts=has_hosts), len(wanted)


class FilteredLog:
    """Filters a growing log again and again; pieces that no longer change are filtered once."""

    def __init__(self) -> None:
        self._pieces: dict[int, tuple[list[Entry], int]] = {}
        """The result of each whole piece, by its index since the beginning of the log."""
        self._of: tuple[int, bool, LogFilter] | None = None

    def entries_of(self, store: LogStore, filter: LogFilter) -> tuple[list[Entry], int]:
        """The entries of the accepted lines, and the number of these lines."""
        key = (store.generation, store.has_hosts, filter)
        if self._of != key:
            self._of, self._pieces = key, {}
        end = store.num_cut + len(store.lines)
        entries: list[Entry] = []
        num_matches = 0
        for piece in range(store.num_cut // PIECE, max(end - 1, 0) // PIECE + 1):
            first, last = max(piece * PIECE, store.num_cut), min((piece + 1) * PIECE, end)
            whole = first == piece * PIECE and last <= end - NEWEST
            piece_entries = self._pieces.get(piece) if whole else None
            if piece_entries is None:
                lines = store.lines[first - store.num_cut : last - store.num_cut]
                piece_entries = filtered(lines, filter, has_hosts=store.has_hosts)
                if whole:
                    self._pieces[piece] = piece_entries
            entries += piece_entries[0]
            num_matches += piece_entries[1]
        return entries, num_matches


class LogQuery(TypedSearch):
    """The filter of the log, and its search."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = LogFilter()

    def begin(self) -> None:
        """Start typing, with the expression that is in force; only matches are shown."""
        self.filter = self.filter._replace(shows_all=False)
        super().begin()

    def show_around(self) -> None:
        """Show the lines around the matches, too."""
        self.filter = self.filter._replace(shows_all=True)

    def apply(self, text: str) -> str | None:
        """Shows the lines that match an expression; returns why it cannot be used."""
        pattern, problem = compile_search(text)
        if problem is None:
            self.filter = self.filter._replace(pattern=pattern, shows_all=False)
        return problem

    def next_lane(self, lanes: Sequence[str]) -> None:
        """Accept the lines of the next of these processes and cores, after the last one all lines."""
        choices = ["", *lanes]
        here = choices.index(self.filter.lane) if self.filter.lane in choices else 0
        self.filter = self.filter._replace(lane=choices[(here + 1) % len(choices)])

    def next_level(self) -> None:
        """Accept the lines of the next level, after the last one all lines."""
        self.filter = self.filter._replace(level=(self.filter.level + 1) % len(LEVELS))

    def choose(self, lane: str, level: int) -> None:
        """Accept the lines of a core or process and of a level; keeps the expression."""
        self.filter = self.filter._replace(lane=lane, level=level)

    def note(self, num_found: int, num_lines: int, *, partly: bool) -> str:
        """The filter in words, for the frame, with the key that shows the lines of others; empty without a filter.
        `partly` is whether there are older lines."""
        count = count_text(num_found, num_lines, partly=partly)
        parts = [self.filter.lane, LEVELS[self.filter.level][0]]
        if self.expression and not self.is_typing:
            parts.append(f"/{self.expression}/ {count if not self.filter.shows_all else 'and the lines around'}")
        elif any(parts):
            parts.append(count)
        if self.filter.lane:
            parts.append("f: others")
        return " \u00b7 ".join(part for part in parts if part)

    def why_nothing(self, num_lines: int, *, partly: bool) -> str:
        """The sentence shown if no line is accepted; with `partly` it names the key that searches the older lines."""
        of = f" of {self.filter.lane}" if self.filter.lane else ""
        level = f" among {LEVELS[self.filter.level][0]}" if self.filter.level else ""
        match = f" match /{self.expression}/" if self.expression else ""
        if partly:
            keys = "enter, then a" if self.is_typing else "a"
            return f"no lines{of}{level}{match}: newest {num_lines:,} searched; {keys}: all"
        return f"no lines{of}{level}{match}: all {num_lines:,} searched"


def count_text(num_found: int, num_lines: int, *, partly: bool) -> str:
    """`[3/90]`; with `partly` `[3 of the newest 90]`."""
    return f"[{num_found:,} of the newest {num_lines:,}]" if partly else f"[{num_found:,}/{num_lines:,}]"
