"""The columns of the run list: the standard ones, and those that the user chose.

optim.lr best.accuracy   keys of configuration and metrics; a configuration key may be given by its last part
took                     a standard column also where a narrow terminal would hide it
-curve                   hides a standard column
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from textual import events

from tputui import formatting as fmt
from tputui.ui.render.lines import Tone, clean
from tputui.ui.runs.rows import RunRow, value_at
from tputui.ui.widgets.line_input import EditedText, LineInput


class TableColumn(NamedTuple):
    """A column of the table."""

    key: str
    title: str
    width: int
    min_terminal_width: int
    """Narrower terminals hide the column."""
    left_aligned: bool = False
    is_chosen: bool = False
    """Whether the user chose it by a key."""


_NARROW_CURVE = 6
"""Width of the curve in narrow terminals, which leaves room for generated run names."""

_LABELED_FROM = 92
"""Terminal width from which the best validation metric is shown beside the training loss."""
_TRAIN_LOSS = TableColumn("loss", "train loss", 11, 76)
"""In place of the narrow column, whose title has no room for the word."""

COLUMNS = (
    TableColumn("state", "state", 12, 0, left_aligned=True),
    TableColumn("step", "step", 12, 60),
    TableColumn("loss", "loss", 8, 40),
    TableColumn("best", "best valid", 11, _LABELED_FROM),
    TableColumn("curve", "curve", _NARROW_CURVE, 68, left_aligned=True),
    TableColumn("age", "age", 5, 46),
    TableColumn("took", "took", 7, 108),
    TableColumn("cores", "cores", 5, 72),
    TableColumn("task", "task", 14, 124, left_aligned=True),
)
_CURVES = ((180, 40), (140, 24), (92, 10), (0, _NARROW_CURVE))
"""Minimal terminal width, and the width of the curve from there on."""
TAGS = TableColumn("tags", "tags", 12, 0, left_aligned=True)
_WIDE_TAGS = 20
_DROPPED_FIRST = ("cores", "task", "took", "curve", "best", "step", "age", "loss", "state")
"""Standard columns that give way to chosen ones, in this order."""
_CHOSEN_WIDTHS = (8, 16)
"""Minimal and maximal width of a chosen column."""
CHOSEN_MAX = 24


class ColumnChoice(NamedTuple):
    """The columns that the user chose."""

    shown: tuple[str, ...] = ()
    """Keys of configuration and metrics, standard columns, and `tags`."""
    hidden: frozenset[str] = frozenset()
    """Keys of standard columns, and `tags`."""


_STANDARD = frozenset(column.key for column in COLUMNS)


def parse_columns(text: str) -> ColumnChoice:
    """Parses a choice; never raises."""
    words = text.replace(",", " ").split()
    hidden = frozenset(word[1:] for word in words if word.startswith("-"))
    shown = dict.fromkeys(word for word in words if not word.startswith("-") and word not in hidden)
    return ColumnChoice(tuple(shown)[:CHOSEN_MAX], hidden)


def layout(choice: ColumnChoice, rows: Sequence[RunRow], width: int, room: int) -> list[TableColumn]:
    """The columns of a terminal of this width that fit into `room` cells: `state`, the chosen ones, the others.

    Tags have a column as soon as a run has one.
    """
    curve = next(cells for min_width, cells in _CURVES if width >= min_width)
    found = [column._replace(width=curve) if column.key == "curve" else column for column in COLUMNS]
    found = [
        _TRAIN_LOSS if column.key == "loss" and width >= _TRAIN_LOSS.min_terminal_width else column
        for column in found
        if (width >= column.min_terminal_width or column.key in choice.shown) and column.key not in choice.hidden
    ]
    keys = [key for key in choice.shown if key not in _STANDARD]
    if "tags" not in keys and "tags" not in choice.hidden and any(row.labels.tags for row in rows):
        keys.append("tags")
    if not keys and not _STANDARD.intersection(choice.shown):
        return found
    chosen = [_chosen(key, rows, width) for key in keys]
    for key in (*(key for key in _DROPPED_FIRST if key not in choice.shown), *reversed(choice.shown)):
        if _width([*found, *chosen]) <= room:
            break
        found = [column for column in found if column.key != key]
        chosen = [column for column in chosen if column.key != key]
    at = 1 if found and found[0].key == "state" else 0
    return [*found[:at], *chosen, *found[at:]]


def _chosen(key: str, rows: Sequence[RunRow], width: int) -> TableColumn:
    if key == TAGS.key:
        return TAGS._replace(width=_WIDE_TAGS if width >= _LABELED_FROM else TAGS.width)
    least, most = _CHOSEN_WIDTHS
    is_text = any(isinstance(value_at(row, key), str) for row in rows)
    return TableColumn(key, key, min(max(len(key), least), most), 0, left_aligned=is_text, is_chosen=True)


def _width(columns: Iterable[TableColumn]) -> int:
    return sum(column.width + 1 for column in columns)


def chosen_cell(row: RunRow, column: TableColumn) -> tuple[str, Tone]:
    """The text and colour of a chosen column."""
    value = value_at(row, column.key)
    if value is None:
        return fmt.UNKNOWN, "dim"
    return value_text(value, column.width), "plain"


def value_text(value: Any, width: int) -> str:
    """A value of a configuration or a metric; numbers are rounded if they do not fit."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return clean(value if isinstance(value, str) else json.dumps(value, default=str))
    exact = fmt.exact(value) if isinstance(value, float) else str(value)
    return exact if len(exact) <= width else fmt.number(value)


def known_keys(rows: Iterable[RunRow]) -> list[str]:
    """Every key that can be chosen, in alphabetical order; `-KEY` for the standard columns."""
    found = {TAGS.key, *_STANDARD, *(f"-{key}" for key in (TAGS.key, *_STANDARD))}
    for row in rows:
        found.update(row.metrics, row.config)
    return sorted(key for key in found if not any(character.isspace() for character in key))


def unknown(choice: ColumnChoice, rows: Sequence[RunRow]) -> list[str]:
    """Chosen keys that no run has."""
    keys = [key for key in choice.shown if key not in (TAGS.key, *_STANDARD)]
    return [key for key in keys if rows and all(value_at(row, key) is None for row in rows)]


def candidates(word: str, keys: Sequence[str]) -> list[str]:
    """The keys that begin with the word, then those of which a later part does, as `lr` in `optim.lr`."""
    small = word.lower()
    first = [key for key in keys if key.lower().startswith(small)]
    return first + [key for key in keys if f".{small}" in key.lower() and key not in first]


def completed(edited: EditedText, keys: Sequence[str]) -> EditedText:
    """The text with the word before the cursor completed as far as it is unambiguous."""
    word = word_at(edited)
    found = candidates(word, keys) if word else []
    if not found:
        return edited
    whole = f"{found[0]} " if len(found) == 1 else _common(found, word) or word
    return edited.erase(len(word)).insert(whole)


def word_at(edited: EditedText) -> str:
    """The word that ends at the cursor."""
    return edited.text[: edited.at].rpartition(" ")[2]


def _common(found: Sequence[str], word: str) -> str:
    """The common beginning of the candidates that begin with the word."""
    starting = [key for key in found if key.lower().startswith(word.lower())]
    first, last = min(starting, default=""), max(starting, default="")
    size = next((place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    return first[:size]


class ColumnsInput(LineInput):
    """The line in which the columns are typed; Tab completes a key."""

    class Changed(LineInput.Changed):
        """The text changed."""

    class Done(LineInput.Done):
        """Editing ended."""

    def __init__(self, keys: Callable[[], Sequence[str]], *, id: str | None = None) -> None:
        """`keys` returns the keys that can be chosen."""
        super().__init__("columns:", id=id)
        self._keys = keys

    def take_key(self, event: events.Key) -> bool:
        """Complete a key on Tab; edit on others."""
        if self.is_typing and event.key == "tab":
            self._take(completed(self._edited, self._keys()))
            return True
        return super().take_key(event)

    def known_words(self, text: str) -> str:
        """The words that are keys: an unfinished one must not become a column."""
        keys = set(self._keys())
        last_parts = {key.rpartition(".")[2] for key in keys}
        return " ".join(word for word in text.replace(",", " ").split() if word in keys or word in last_parts)

    def show_candidates(self) -> None:
        """Show the keys that the word before the cursor can become."""
        word, keys = word_at(self._edited), self._keys()
        found = candidates(word, keys) if word else []
        if word and not found:
            self.note("no run has this key", "warn")
        elif word in keys or not word:
            self.note("keys or metrics; -KEY hides one")
        else:
            self.note(f"tab: {' '.join(found[:12])}")
