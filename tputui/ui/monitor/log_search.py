"""The filter of the log: by process or core, by level, and by a regular expression that is typed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tputui.state.snapshot import LogLine
from tputui.ui.monitor.log_lines import SIGNS, Entry, LogStore, folded, host_lane, host_of_source, split_core
from tputui.ui.render.lines import Line, Span, clean, printed, width_of
from tputui.ui.widgets.line_widget import EditedText, press, spans

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
        if self.lane in (split_core(line).lane, clean(line.source)):
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


def compile_search(text: str) -> tuple[re.Pattern[str] | None, str | None]:
    """Compile a regular expression; returns it, or the reason why it cannot be used. Empty text gives neither.

    An expression without capital letters ignores case.
    """
    if not text:
        return None, None
    try:
        pattern = re.compile(text, 0 if any(char.isupper() for char in text) else re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        return None, str(error)
    return (None, TOO_SLOW) if has_nested_repeat(text) else (pattern, None)


class LogQuery:
    """The filter of the log, and the search expression while it is typed."""

    def __init__(self) -> None:
        self.filter = LogFilter()
        self.expression = ""
        """The newest valid expression; empty if all lines are shown."""
        self._typed: EditedText | None = None
        self._problem: str | None = None
        """The reason why the expression that is typed is not applied."""

    @property
    def is_typing(self) -> bool:
        """Whether an expression is being typed."""
        return self._typed is not None

    def begin(self) -> None:
        """Start typing, with the expression that is in force; only matches are shown."""
        self.filter = self.filter._replace(shows_all=False)
        self._typed = EditedText.of(self.expression)

    def end(self) -> None:
        """Stop typing, and keep the expression."""
        self._typed, self._problem = None, None

    def drop(self) -> None:
        """Stop searching."""
        self.end()
        self.expression = ""
        self.filter = self.filter._replace(pattern=None, shows_all=False)

    def show_around(self) -> None:
        """Show the lines around the matches, too."""
        self.filter = self.filter._replace(shows_all=True)

    def press(self, key: str, character: str | None) -> None:
        edited = press(self._typed, key, character) if self._typed is not None else None
        if edited is not None:
            self._type(edited)

    def paste(self, text: str) -> None:
        if self._typed is not None:
            self._type(self._typed.insert(text))

    def _type(self, edited: EditedText) -> None:
        """While the text is no valid expression, the previous one stays in force."""
        self._typed = edited
        pattern, self._problem = compile_search(edited.text)
        if self._problem is None:
            self.expression = edited.text
            self.filter = self.filter._replace(pattern=pattern)

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

    def typed_line(self, width: int, num_found: int, num_lines: int, *, partly: bool) -> list[Line]:
        """The expression while it is typed, with the number of matches or the reason why it is not applied. `partly` is
        whether only the newest lines were searched."""
        if self._typed is None:
            return []
        right: Line = [Span(f" {_count(num_found, num_lines, partly=partly)} ", "label")]
        if self._problem:
            right = [Span(f" not applied: {self._problem} ", "warn")]
        room = max(width - 3 - width_of(right), 8)
        return [[Span(" / ", "accent"), *spans(self._typed, room), *right]]

    def note(self, num_found: int, num_lines: int, *, partly: bool) -> str:
        """The filter in words, for the frame, with the key that shows the lines of others; empty without a filter.
        `partly` is whether there are older lines."""
        count = _count(num_found, num_lines, partly=partly)
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


def _count(num_found: int, num_lines: int, *, partly: bool) -> str:
    return f"[{num_found:,} of the newest {num_lines:,}]" if partly else f"[{num_found:,}/{num_lines:,}]"


_REPEAT = re.compile(r"[*+]|\{\d*,\d*\}|\{\d+\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)

TOO_SLOW = "a repeated group that contains a repeat or a choice may be too slow"


def has_nested_repeat(expression: str) -> bool:
    """Whether a valid expression repeats a group that contains a repeat or a choice, such as `(a+)+` or `(a|b)*`.

    `re` cannot be interrupted and holds the GIL, so an expression that backtracks exponentially would stop the screen.
    Only a repeat within a repeat does that. The others take time polynomial in the length of a line: its degree is the
    number of unbounded repeats.
    """
    inner = [False]
    """For each open group, whether it contains a repeat or a choice."""
    closed = False
    """Whether the expression up to here ends with a group that contains one."""
    at = 0
    while at < len(expression):
        char = expression[at]
        token = _CLASS.match(expression, at) if char == "[" else _REPEAT.match(expression, at)
        length = 2 if char == "\\" else token.end() - at if token is not None else 1
        if token is not None and char != "[":
            if closed:
                return True
            inner[-1] = True
        closed = False
        if char == "(":
            inner.append(False)
        elif char == ")" and len(inner) > 1:
            closed = inner.pop()
            inner[-1] |= closed
        elif char == "|":
            inner[-1] = True
        at += length
    return False
