"""The events of a run as signs on a line under a chart.

A cell shows the most severe event in it; nothing is shown by colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tputui.state.chart_data import Mark
from tputui.ui.render.lines import Line, Span, Tone


class EventSign(NamedTuple):
    """How a kind of event looks."""

    mark: str
    tone: Tone
    word: str


SIGNS: dict[str, EventSign] = {
    "failure": EventSign("\u2573", "bad", "failure"),
    "non_finite": EventSign("\u2716", "bad", "NaN or inf"),
    "stall": EventSign("\u25b2", "warn", "stall"),
    "recompile": EventSign("\u25c7", "warn", "recompile"),
    "warning": EventSign("!", "warn", "warning"),
    "request": EventSign("\u25b8", "info", "request"),
    "resume": EventSign("\u00bb", "info", "resume"),
    "best": EventSign("\u2605", "good", "best so far"),
    "checkpoint": EventSign("\u25aa", "good", "checkpoint"),
    "compile": EventSign("\u25c6", "info", "compile"),
    "end": EventSign("\u25a0", "info", "end"),
    "epoch": EventSign("\u2575", "label", "epoch"),
}
"""The gravest first."""

KINDS = tuple(SIGNS)
_RANK = {kind: rank for rank, kind in enumerate(KINDS)}


def sign_of(kind: str) -> EventSign:
    """How an event of a kind looks; a kind of a newer writer is a dot with its own name."""
    return SIGNS.get(kind) or EventSign("\u00b7", "label", kind.replace("_", " "))


def strip(marks: Iterable[Mark], place: Callable[[Mark], int], width: int) -> dict[int, EventSign]:
    """The sign of every cell from 0 to `width` that has one; `place` tells the cell of an event."""
    found: dict[int, str] = {}
    for mark in marks:
        cell = place(mark)
        if 0 <= cell < width and _rank(mark.kind) < _rank(found.get(cell, "")):
            found[cell] = mark.kind
    return {cell: sign_of(kind) for cell, kind in found.items()}


def _rank(kind: str) -> int:
    return _RANK.get(kind, len(_RANK) if kind else len(_RANK) + 1)


def line_of(signs: dict[int, EventSign], width: int, ground: str = " ") -> Line:
    """A strip as a line, neighbours of one tone in one span."""
    line: Line = []
    text, tone = "", "dim"
    for cell in range(width):
        sign = signs.get(cell)
        mark, its_tone = (sign.mark, sign.tone) if sign is not None else (ground, "dim")
        if its_tone != tone and text:
            line.append(Span(text, tone))  # type: ignore[arg-type]
            text = ""
        text, tone = text + mark, its_tone
    return [*line, Span(text, tone)] if text else line  # type: ignore[arg-type]


def over(line: Line, signs: dict[int, EventSign]) -> Line:
    """A line of narrow characters with signs in place of some of them."""
    found: Line = []
    at = 0
    for span in line:
        rest = 0
        for cell in sorted(cell for cell in signs if at <= cell < at + len(span.text)):
            found += [Span(span.text[rest : cell - at], span.tone), Span(signs[cell].mark, signs[cell].tone)]
            rest = cell - at + 1
        found.append(Span(span.text[rest:], span.tone))
        at += len(span.text)
    return [span for span in found if span.text]


def legend() -> str:
    """Every sign with its word, for the help."""
    return ", ".join(f"{sign.mark} {sign.word}" for sign in SIGNS.values())
