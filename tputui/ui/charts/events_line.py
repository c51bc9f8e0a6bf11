"""The events of a run as signs on a line under a chart.

A cell shows the most severe event in it; nothing is shown by colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from tputui.state.chart_data import Mark
from tputui.ui.render.lines import Line, Sign, Span, joined, on_ground_of

SIGNS: dict[str, Sign] = {
    "failure": Sign("\u2573", "bad", "failure"),
    "restart": Sign("\u21bb", "bad", "restart"),
    "non_finite": Sign("\u2716", "bad", "NaN or inf"),
    "stall": Sign("\u25b2", "warn", "stall"),
    "recompile": Sign("\u25c7", "warn", "recompile"),
    "warning": Sign("!", "warn", "warning"),
    "request": Sign("\u25b8", "info", "request"),
    "resume": Sign("\u00bb", "info", "resume"),
    "best": Sign("\u2605", "good", "best so far"),
    "checkpoint": Sign("\u25aa", "good", "checkpoint"),
    "compile": Sign("\u25c6", "info", "compile"),
    "end": Sign("\u25a0", "info", "end"),
    "epoch": Sign("\u2575", "label", "epoch"),
}
"""The most severe first."""

KINDS = tuple(SIGNS)
_RANK = {kind: rank for rank, kind in enumerate(KINDS)}


def sign_of(kind: str) -> Sign:
    """The sign of a kind of event; an unknown kind is a dot with its own name."""
    return SIGNS.get(kind) or Sign("\u00b7", "label", kind.replace("_", " "))


def strip(marks: Iterable[Mark], place: Callable[[Mark], int], width: int) -> dict[int, Sign]:
    """The sign of each cell in [0, `width`) that contains events; `place` returns the cell of an event."""
    kinds: dict[int, str] = {}
    for mark in marks:
        cell = place(mark)
        if 0 <= cell < width and _rank(mark.kind) < _rank(kinds.get(cell, "")):
            kinds[cell] = mark.kind
    return {cell: sign_of(kind) for cell, kind in kinds.items()}


def _rank(kind: str) -> int:
    return _RANK.get(kind, len(_RANK) if kind else len(_RANK) + 1)


def line_of(signs: dict[int, Sign], width: int, ground: str = " ") -> Line:
    """The signs as a line; adjacent cells of one tone share a span."""
    line: Line = []
    start = 0
    for cell in [*sorted(cell for cell in signs if 0 <= cell < width), width]:
        pieces = [Span(ground * (cell - start), "dim")]
        if cell < width:
            pieces.append(Span(signs[cell].mark, signs[cell].tone))
        line += filter(attrgetter("text"), pieces)
        start = cell + 1
    return joined(line)


def over(line: Line, signs: dict[int, Sign]) -> Line:
    """Replaces characters of a line by signs; all characters must be one cell wide."""
    covered: Line = []
    start = 0
    for span in line:
        done = 0
        for cell in sorted(cell for cell in signs if start <= cell < start + len(span.text)):
            covered += [
                Span(span.text[done : cell - start], span.tone),
                Span(signs[cell].mark, on_ground_of(span.tone, signs[cell].tone)),
            ]
            done = cell - start + 1
        covered.append(Span(span.text[done:], span.tone))
        start += len(span.text)
    return [span for span in covered if span.text]


def legend() -> str:
    """All signs with their names, for the help."""
    return ", ".join(f"{sign.mark} {sign.word}" for sign in SIGNS.values())
