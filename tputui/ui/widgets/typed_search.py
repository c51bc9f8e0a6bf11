"""A search that acts while its expression is typed: of the lines of a log, or of the names of metrics."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from tputui.ui.render.lines import Line, Span, width_of
from tputui.ui.widgets.line_widget import EditedText, press, spans


class TypedSearch(ABC):
    """The expression of a search, and its text while it is typed."""

    def __init__(self) -> None:
        self.expression = ""
        """The newest valid expression; empty if everything is shown."""
        self._typed: EditedText | None = None
        self._problem: str | None = None
        """The reason why the expression that is typed is not applied."""

    @abstractmethod
    def apply(self, text: str) -> str | None:
        """Applies an expression, of which an empty one matches everything; returns why it cannot be used."""

    @property
    def is_typing(self) -> bool:
        """Whether an expression is being typed."""
        return self._typed is not None

    def begin(self) -> None:
        """Start typing, with the expression that is in force."""
        self._typed = EditedText.of(self.expression)

    def end(self) -> None:
        """Stop typing, and keep the expression."""
        self._typed, self._problem = None, None

    def drop(self) -> None:
        """Stop searching."""
        self.end()
        self.expression = ""
        self.apply("")

    def press(self, key: str, character: str | None) -> None:
        """Takes a key while an expression is typed."""
        edited = press(self._typed, key, character) if self._typed is not None else None
        if edited is not None:
            self._type(edited)

    def paste(self, text: str) -> None:
        """Takes pasted text while an expression is typed."""
        if self._typed is not None:
            self._type(self._typed.insert(text))

    def _type(self, edited: EditedText) -> None:
        """While the text is no valid expression, the previous one stays in force."""
        self._typed = edited
        self._problem = self.apply(edited.text)
        if self._problem is None:
            self.expression = edited.text

    def typed_line(self, width: int, count: str) -> list[Line]:
        """The expression while it is typed, with the number of matches or the reason why it is not applied."""
        if self._typed is None:
            return []
        right: Line = [Span(f" {count} ", "label")]
        if self._problem:
            right = [Span(f" not applied: {self._problem} ", "warn")]
        room = max(width - 3 - width_of(right), 8)
        return [[Span(" / ", "accent"), *spans(self._typed, room), *right]]


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
