"""Which lines of the log the user wants, as it is chosen and typed, and how that is told. Pure; knows no widget."""

from __future__ import annotations

from collections.abc import Sequence

from tputui.ui.monitor.log_view import LEVELS, Sieve, compiled
from tputui.ui.render.lines import Line, Span, width_of
from tputui.ui.widgets.line_input import EditedText, press, spans


class LogQuery:
    """A core or process, a level, and an expression that may be being typed."""

    def __init__(self) -> None:
        self.sieve = Sieve()
        self.expression = ""
        """The newest sound expression; empty where all lines are shown."""
        self._typed: EditedText | None = None
        self._trouble = ""

    @property
    def is_typing(self) -> bool:
        """Whether keys belong to the expression."""
        return self._typed is not None

    def begin(self) -> None:
        """Begins to type, with the expression that is in force."""
        self._typed = EditedText.of(self.expression)

    def end(self) -> None:
        """Keeps the expression."""
        self._typed, self._trouble = None, ""

    def drop(self) -> None:
        """Shows lines of every text again."""
        self.end()
        self.expression = ""
        self.sieve = self.sieve._replace(pattern=None)

    def press(self, key: str, character: str | None) -> None:
        """Types a key."""
        edited = press(self._typed, key, character) if self._typed is not None else None
        if edited is not None:
            self._type(edited)

    def paste(self, text: str) -> None:
        """Types a text."""
        if self._typed is not None:
            self._type(self._typed.insert(text))

    def _type(self, edited: EditedText) -> None:
        """What is no expression yet leaves the one before in force."""
        self._typed = edited
        pattern, self._trouble = compiled(edited.text)
        if not self._trouble:
            self.expression = edited.text
            self.sieve = self.sieve._replace(pattern=pattern)

    def next_lane(self, lanes: Sequence[str]) -> None:
        """The next of these, or all again."""
        choices = ["", *lanes]
        here = choices.index(self.sieve.lane) if self.sieve.lane in choices else 0
        self.sieve = self.sieve._replace(lane=choices[(here + 1) % len(choices)])

    def next_level(self) -> None:
        """The next level, or all again."""
        self.sieve = self.sieve._replace(level=(self.sieve.level + 1) % len(LEVELS))

    def choose(self, lane: str, level: int) -> None:
        """A core or process and a level; the expression stays."""
        self.sieve = self.sieve._replace(lane=lane, level=level)

    def typed_line(self, width: int, num_found: int, num_lines: int, *, partly: bool) -> list[Line]:
        """The expression as it is typed, with how many lines it finds, or why it is none yet; `partly` says that only
        the newest lines were searched."""
        if self._typed is None:
            return []
        right: Line = [Span(f" {_count(num_found, num_lines, partly=partly)} ", "label")]
        if self._trouble:
            right = [Span(f" not searched for yet: {self._trouble} ", "warn")]
        room = max(width - 3 - width_of(right), 8)
        return [[Span(" / ", "accent"), *spans(self._typed, room), *right]]

    def note(self, num_found: int, num_lines: int, *, partly: bool) -> str:
        """What is chosen, for the frame; empty where all lines are shown. `partly` says that there are older lines."""
        count = _count(num_found, num_lines, partly=partly)
        parts = [self.sieve.lane, LEVELS[self.sieve.level][0]]
        if self.expression and not self.is_typing:
            parts.append(f"/{self.expression}/ {count}")
        elif any(parts):
            parts.append(count)
        return " \u00b7 ".join(part for part in parts if part)

    def why_nothing(self, num_lines: int, *, partly: bool) -> str:
        """Why no line is in sight; `partly` says that only the newest lines were searched, and how to search all."""
        of = f" of {self.sieve.lane}" if self.sieve.lane else ""
        level = f" among {LEVELS[self.sieve.level][0]}" if self.sieve.level else ""
        found = f" matches /{self.expression}/" if self.expression else " is here"
        if partly:
            how = "enter, then a" if self.is_typing else "a"
            return f"no line{of}{level}{found}: newest {num_lines:,} searched; {how}: all"
        return f"no line{of}{level}{found}: all {num_lines:,} searched"


def _count(num_found: int, num_lines: int, *, partly: bool) -> str:
    return f"[{num_found:,} of the newest {num_lines:,}]" if partly else f"[{num_found:,}/{num_lines:,}]"
