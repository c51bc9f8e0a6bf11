"""The table of the run list and the header above it. Column positions do not depend on the values.

optim.lr best.accuracy   keys of configuration and metrics; a configuration key may be given by its last part
took                     a standard column also where a narrow terminal would hide it
-curve                   hides a standard column

What the run list says when it shows no run, and the keys that lead on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from textual import events
from textual.message import Message

from tputui import formatting as fmt
from tputui.ui.base import status_text
from tputui.ui.base.export import Figure, Figures
from tputui.ui.base.keymap import Key
from tputui.ui.charts.axis import NON_FINITE_MARK
from tputui.ui.charts.series_chart import sparkline
from tputui.ui.render.lines import Line, Sign, Span, Tone, cells_of, clean, crop, fit, spread, width_of, wrap
from tputui.ui.runs.filter import RunFilter, unknown_keys
from tputui.ui.runs.rows import NUM_COLUMNS, Listing, RowState, RunRow, value_at
from tputui.ui.runs.sort_order import SortOrder
from tputui.ui.widgets.line_widget import Drawn, EditedText, LineInput

_CARD_WIDTH = 64
_CARD_MIN_WIDTH = 40
_CARD_LINES = 5
"""Lines of a card besides its text: two of the frame, two of padding, one between sentence and keys."""


class Empty(NamedTuple):
    """Why there are no rows."""

    sentences: tuple[str, ...]
    keys: tuple[tuple[str, str], ...] = ()
    """Keys that lead on, with what they do. With them the text is a card in the middle."""

    def draw(self, width: int, height: int) -> list[Line]:
        """The sentences, or the card if there is room."""
        if self.keys and width >= _CARD_MIN_WIDTH:
            inner = min(_CARD_WIDTH, width - 4) - 4
            sentences = [piece for text in self.sentences for piece in wrap(text, inner)]
            if len(sentences) + len(self.keys) + _CARD_LINES <= height:
                return _card(sentences, self.keys, inner, width, height)
        hints = [f"{key}  {action}" for key, action in self.keys]
        return [[], *([Span(f"  {piece}")] for text in (*self.sentences, *hints) for piece in wrap(text, width - 4))]


def _card(sentences: Sequence[str], keys: Sequence[tuple[str, str]], inner: int, width: int, height: int) -> list[Line]:
    names = max(len(key) for key, _ in keys)
    body: list[Line] = [[], *([Span(sentence, "strong")] for sentence in sentences), []]
    body += [[Span(f"{key:>{names}}", "accent"), Span(f"  {action}")] for key, action in keys]
    body.append([])
    rule = "\u2500" * (inner + 2)
    left = " " * ((width - inner - 4) // 2)
    frame: list[Line] = [[Span(f"{left}\u256d{rule}\u256e", "dim")]]
    for line in body:
        fitted = fit(line, inner)
        gap = " " * (inner - width_of(fitted))
        frame.append([Span(f"{left}\u2502 ", "dim"), *fitted, Span(f"{gap} \u2502", "dim")])
    frame.append([Span(f"{left}\u2570{rule}\u256f", "dim")])
    return [*([[]] * ((height - len(frame)) // 2)), *frame]


def empty_keys(keys: Sequence[Key], *, may_start: bool) -> list[Key]:
    """The footer keys that act if there are no runs; enter opens the demo."""
    demo = [key._replace(footer="digits demo") for key in keys if key.action == "open" and may_start]
    return [*(key for key in keys if key.action in ("leave", "new")), *demo, *(k for k in keys if k.action == "help")]


def empty_text(
    runs_dir: Path, listing: Listing | None, run_filter: RunFilter, *, may_start: bool, num_hidden: int = 0
) -> Empty:
    """Why the table is empty, and what to do next."""
    directory = clean(str(runs_dir))
    if listing is None:
        return Empty((f"Looking for runs in {directory} ...",))
    if listing.error is not None:
        return Empty((clean(listing.error), "Choose another directory with tputui --runs-dir DIR or $TPUTUI_RUNS."))
    listed = list(listing.rows.values())
    if listed:
        if num_hidden == len(listed):
            return Empty((f"{fmt.counted(num_hidden, 'run')}, all archived. Press a to show them.",))
        unknown = unknown_keys(run_filter, listed)
        reason = f"No run has a key called {', '.join(unknown)}." if unknown else "No run matches the filter."
        return Empty((f"{reason} Press esc to show all {len(listed) - num_hidden} runs.",))
    none = f"No runs in {directory} yet."
    if not may_start:
        return Empty((none, "Start one with `tputui run CONFIG`."))
    keys = (
        ("n", "new run: choose a configuration and start it"),
        ("enter", "digits demo: set up a small network"),
        ("?", "help"),
    )
    return Empty((none,), keys)


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
    names = text.replace(",", " ").split()
    hidden = frozenset(word[1:] for word in names if word.startswith("-"))
    shown = dict.fromkeys(word for word in names if not word.startswith("-") and word not in hidden)
    return ColumnChoice(tuple(shown)[:CHOSEN_MAX], hidden)


def layout(choice: ColumnChoice, rows: Sequence[RunRow], width: int, room: int) -> list[TableColumn]:
    """The columns of a terminal of this width that fit into `room` cells: `state`, the chosen ones, the others.

    Tags have a column as soon as a run has one.
    """
    curve = next(cells for min_width, cells in _CURVES if width >= min_width)
    columns = [column._replace(width=curve) if column.key == "curve" else column for column in COLUMNS]
    if rows:
        state = max(5, *(cells_of(_state(row)[0]) for row in rows))
        columns = [c._replace(width=min(state, c.width)) if c.key == "state" else c for c in columns]
    columns = [
        _TRAIN_LOSS if column.key == "loss" and width >= _TRAIN_LOSS.min_terminal_width else column
        for column in columns
        if (width >= column.min_terminal_width or column.key in choice.shown) and column.key not in choice.hidden
    ]
    keys = [key for key in choice.shown if key not in _STANDARD]
    if "tags" not in keys and "tags" not in choice.hidden and any(row.labels.tags for row in rows):
        keys.append("tags")
    if not keys and not _STANDARD.intersection(choice.shown):
        return columns
    chosen = [_chosen(key, rows, width) for key in keys]
    for key in (*(key for key in _DROPPED_FIRST if key not in choice.shown), *reversed(choice.shown)):
        if _width([*columns, *chosen]) <= room:
            break
        columns = [column for column in columns if column.key != key]
        chosen = [column for column in chosen if column.key != key]
    at = 1 if columns and columns[0].key == "state" else 0
    return [*columns[:at], *chosen, *columns[at:]]


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
    if column.key in row.metrics and isinstance(value, float):
        return fmt.number(value), "plain"
    return value_text(value, column.width), "plain"


def value_text(value: Any, width: int) -> str:
    """A value of a configuration or a metric; numbers are rounded if they do not fit."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return clean(value if isinstance(value, str) else json.dumps(value, default=str))
    exact = fmt.exact(value) if isinstance(value, float) else str(value)
    return exact if len(exact) <= width else fmt.number(value)


def known_keys(rows: Iterable[RunRow]) -> list[str]:
    """Every key that can be chosen, in alphabetical order; `-KEY` for the standard columns."""
    keys = {TAGS.key, *_STANDARD, *(f"-{key}" for key in (TAGS.key, *_STANDARD))}
    for row in rows:
        keys.update(row.metrics, row.config)
    return sorted(key for key in keys if not any(character.isspace() for character in key))


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
    matching = candidates(word, keys) if word else []
    if not matching:
        return edited
    whole = f"{matching[0]} " if len(matching) == 1 else _common(matching, word) or word
    return edited.erase(len(word)).insert(whole)


def word_at(edited: EditedText) -> str:
    """The word that ends at the cursor."""
    return edited.text[: edited.at].rpartition(" ")[2]


def _common(keys: Sequence[str], word: str) -> str:
    """The common beginning of the candidates that begin with the word."""
    starting = [key for key in keys if key.lower().startswith(word.lower())]
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
        matching = candidates(word, keys) if word else []
        if word and not matching:
            self.note("no run has this key", "warn")
        elif word in keys or not word:
            self.note("keys or metrics; -KEY hides one")
        else:
            self.note(f"tab: {' '.join(matching[:12])}")


_MARKS = 4
"""Cells for the cursor and the mark, left of the name."""
_NAME_WIDTHS = (14, 34)
_NAME_LEAST = 24
"""Cells that names may take before chosen columns: the time and the task of a run without a name of its own."""


STATES: dict[RowState, Sign] = {
    **{condition: sign for condition, sign in status_text.CONDITIONS.items()},
    "reading": Sign("\u2026", "dim", "READING"),
    "unreadable": Sign("!", "warn", "UNREADABLE"),
    "log": Sign("=", "info", "LOG"),
}


def sign_of(row: RunRow) -> Sign:
    """The sign and colour of a row's state."""
    if row.state == "reading" or row.state == "unreadable" or row.state == "log":
        return STATES[row.state]
    return status_text.sign_of(row.state, row.num_bad)


class RunsTable(Drawn):
    """Rows in the given order, with a cursor and marks."""

    can_focus = True

    class RunOpened(Message):
        """The run under the cursor was clicked."""

    class CursorMoved(Message):
        """The cursor is on another run."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: Sequence[RunRow] = ()
        self._indices: dict[Path, int] = {}
        self._empty = Empty(())
        self._order = SortOrder()
        self._choice = ColumnChoice()
        self._marked: frozenset[Path] = frozenset()
        self._chosen: Path | None = None
        self._pending: Path | None = None
        """A run that the cursor goes to once it is listed."""
        self._is_placed = False
        """Whether the cursor stays on its run. Until all runs are read and sorted, or a key, it is on the first row."""
        self._now = 0.0
        self._top = 0

    @property
    def chosen(self) -> Path | None:
        """Directory of the run under the cursor."""
        return self._chosen

    @property
    def rows(self) -> Sequence[RunRow]:
        """The rows in display order."""
        return self._rows

    @property
    def row(self) -> RunRow | None:
        """The row under the cursor."""
        index = self._indices.get(self._chosen) if self._chosen is not None else None
        return None if index is None else self._rows[index]

    def show(self, rows: Sequence[RunRow], order: SortOrder, marked: frozenset[Path], now: float, empty: Empty) -> None:
        """Replaces the rows; the cursor stays on its run. `empty` is shown if there are no rows."""
        index = self._cursor_index
        self._rows, self._order, self._marked, self._now, self._empty = rows, order, marked, now, empty
        self._indices = {row.path: number for number, row in enumerate(rows)}
        if self._chosen in self._indices:
            self._pending = None
        elif self._chosen is None or self._chosen != self._pending:
            # If its run is gone, the cursor stays on the same line.
            self._choose(rows[min(index, len(rows) - 1)].path if rows else None)
        if not self._is_placed and self._pending is None:
            self._choose(rows[0].path if rows else None)
            self._is_placed = bool(rows) and not any(row.state == "reading" for row in rows)
        self.redraw()

    def hold_cursor(self) -> None:
        """Leaves the cursor on its run from now on, however the rows move."""
        self._is_placed = True

    def choose_columns(self, choice: ColumnChoice) -> None:
        """Shows other columns."""
        self._choice = choice
        self.redraw()

    @property
    def without_room(self) -> list[str]:
        """Keys of the chosen columns for which the terminal is too narrow."""
        shown = {column.key for column in self._columns(self.size.width)[0]} if self._rows else set(self._choice.shown)
        return [key for key in self._choice.shown if key not in shown]

    def choose(self, path: Path) -> None:
        """Moves the cursor to a run, at once or as soon as the run is listed."""
        self._pending = path
        self.hold_cursor()
        self._choose(path)
        self.redraw()

    def move(self, by: int) -> None:
        """Moves the cursor by rows, down if positive."""
        self.hold_cursor()
        if self._rows:
            self._choose(self._rows[min(max(self._cursor_index + by, 0), len(self._rows) - 1)].path)
            self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """The column titles and rows, or `empty`."""
        if not self._rows:
            return self._empty.draw(width, height)
        columns, name = self._columns(width)
        chosen = self._cursor_index
        rows = max(height - 1, 1)
        self._top = min(max(self._top, chosen - rows + 1), chosen, max(len(self._rows) - rows, 0))
        usual = layout(ColumnChoice(hidden=self._choice.hidden), self._rows, width, width)
        num_gone = len({column.key for column in usual} - {column.key for column in columns})
        lines = [self._titles(columns, name, num_gone)]
        for index in range(self._top, min(self._top + rows, len(self._rows))):
            line = self._line(self._rows[index], columns, name, is_current=index == chosen)
            lines.append(fit([*line, Span(" " * max(width - width_of(line), 0))], width))
        return lines

    def figures(self) -> Figures:
        """The rows for a CSV file; times in unix seconds."""
        keys = [key for key in self._choice.shown if key != "tags"]
        rows: list[tuple[Figure, ...]] = [
            (
                *(str(row.path), row.state, row.task, row.epoch, row.num_epochs, row.steps, row.total_steps, row.loss),
                *(row.best, row.best_name, row.best_epoch, row.created, row.started, row.end_time, row.num_cores),
                *(" ".join(row.labels.tags), row.labels.note, row.form, *(_figure(value_at(row, key)) for key in keys)),
            )
            for row in self._rows
        ]
        head: tuple[str, ...] = ("run", "state", "task", "epoch", "num_epochs", "steps", "total_steps", "loss")
        head += ("best", "best_name", "best_epoch", "created", "started", "over", "num_cores", "tags", "note", "format")
        return Figures((*head, *keys), rows)

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor to a run; opens the run that is already under it."""
        self.hold_cursor()
        index = self._top + event.y - 1
        if event.y < 1 or index >= len(self._rows):
            return
        if self._rows[index].path == self._chosen:
            self.post_message(self.RunOpened())
        else:
            self._choose(self._rows[index].path)
            self.redraw()

    def on_mouse_scroll_down(self) -> None:
        """Moves with the wheel."""
        self.move(3)

    def on_mouse_scroll_up(self) -> None:
        """Moves with the wheel."""
        self.move(-3)

    @property
    def _cursor_index(self) -> int:
        return self._indices.get(self._chosen, 0) if self._chosen is not None else 0

    def _choose(self, path: Path | None) -> None:
        if path != self._chosen:
            self._chosen = path
            self.post_message(self.CursorMoved())

    def _columns(self, width: int) -> tuple[list[TableColumn], int]:
        """The columns that fit, and the width of the name."""
        longest = max(cells_of(clean(row.name)) for row in self._rows)
        least = min(max(longest, _NAME_WIDTHS[0]), _NAME_LEAST)
        shown = layout(self._choice, self._rows, width, width - _MARKS - least)
        room = width - _MARKS - sum(column.width + 1 for column in shown)
        return shown, max(min(longest, room, _NAME_WIDTHS[1] if width < 200 else room), min(_NAME_WIDTHS[0], room))

    def _titles(self, columns: Sequence[TableColumn], name: int, num_gone: int) -> Line:
        """`num_gone`: columns that gave way to chosen ones; their number is at the end of the column of names."""
        gone = f" +{num_gone}" if num_gone else ""
        line: Line = [Span(" " * _MARKS), *self._title("run", "run", name - len(gone), left_aligned=True)]
        line.append(Span(gone, "dim"))
        for column in columns:
            line += [Span(" "), *self._title(column.key, column.title, column.width, left_aligned=column.left_aligned)]
        return line

    def _title(self, key: str, title: str, width: int, *, left_aligned: bool) -> Line:
        sorted_by = key == self._order.key
        arrow = "\u2193" if self._order.descending else "\u2191"
        text = title + arrow if sorted_by else title
        return [Span(_aligned(text, width, left_aligned=left_aligned), "accent" if sorted_by else "label")]

    def _line(self, row: RunRow, columns: Sequence[TableColumn], name: int, *, is_current: bool) -> Line:
        labels = row.labels
        cursor = "\u276f" if is_current else " "
        line: Line = (
            [Span(cursor, "accent"), Span("\u2605", "warn")] if labels.pinned else [Span(f"{cursor} ", "accent")]
        )
        line.append(Span("\u25c6 " if row.path in self._marked else "  ", "info"))
        tone: Tone = "strong" if is_current else "dim" if labels.archived else "plain"
        line.append(Span(_aligned(_short_name(row, name), name, left_aligned=True), tone))
        for column in columns:
            line.append(Span(" "))
            if column.key == "curve":
                line += sparkline(row.curve.columns if row.curve else (), NUM_COLUMNS, column.width)
                continue
            text, tone = cell(row, column, self._now)
            line.append(Span(_aligned(text, column.width, left_aligned=column.left_aligned), tone))
        return line


def cell(row: RunRow, column: TableColumn, now: float) -> tuple[str, Tone]:
    """The text and colour of a column other than the curve."""
    if column.is_chosen:
        return chosen_cell(row, column)
    if column.key == "tags":
        return clean(" ".join(row.labels.tags)), "info"
    if column.key == "state":
        return _state(row)
    if column.key == "step":
        return _steps(row, column.width), "plain" if row.steps is not None else "dim"
    if column.key == "loss":
        bad = f"{NON_FINITE_MARK} " if row.num_bad else ""
        tone: Tone = "bad" if row.num_bad else "accent" if row.loss is not None else "dim"
        return _number(row.loss, column.width, bad), tone
    if column.key == "best":
        return _number(row.best, column.width), "plain" if row.best is not None else "dim"
    if column.key == "age":
        return short_age(row.age_s(now)), "label" if not row.ended else "dim"
    if column.key == "took":
        duration = row.duration_s(now)
        # Rounded as in the header of the run.
        return short_span(round(duration) if duration is not None else None), "dim"
    if column.key == "cores":
        return (fmt.UNKNOWN if row.num_cores is None else f"{row.num_cores:,}"), "dim"
    return clean(row.task) or fmt.UNKNOWN, "dim"


def _state(row: RunRow) -> tuple[str, Tone]:
    sign = sign_of(row)
    word = row.form if row.is_log else f"{sign.mark} {sign.word.lower()}"
    return f"{word}{' !' if row.alarms else ''}", sign.tone


def _short_name(row: RunRow, width: int) -> str:
    """The name; of a log that has no room the end of its path."""
    name = clean(row.name)
    parts = name.split("/") if row.is_log else []
    while cells_of(name) > width and len(parts) > 1:
        parts = parts[1:]
        name = "/".join(("\u2026", *parts))
    # Names of W&B runs differ at their ends.
    return f"\u2026{name[1 - width :]}" if row.is_log and cells_of(name) > width > 1 else name


def _figure(value: Any) -> Figure:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def summary_text(row: RunRow) -> str:
    """The state of a run in one line: `done, train loss 0.0812, step 66/66`."""
    parts = [sign_of(row).word.lower()]
    parts += [f"train loss {fmt.number(row.loss)}"] if row.loss is not None else []
    parts += [f"step {_steps(row, 24)}"] if row.steps is not None else []
    return ", ".join(parts)


def short_age(seconds: float | None) -> str:
    """An age in its largest unit, `now` up to 2 s."""
    if seconds is None:
        return fmt.UNKNOWN
    return "now" if seconds < 2 else fmt.short_age(seconds)


def short_span(seconds: float | None) -> str:
    """A duration in two units: `42s`, `7m12s`, `3h05m`, `12d04h`."""
    if seconds is None:
        return fmt.UNKNOWN
    whole = int(seconds)
    for unit, size, small, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02d}{small}"
    return f"{whole}s"


def _steps(row: RunRow, width: int) -> str:
    if row.steps is None:
        return fmt.UNKNOWN
    if row.total_steps is None:
        return f"{row.steps:,}"
    exact = f"{row.steps:,}/{row.total_steps:,}"
    return exact if len(exact) <= width else f"{_thousands(row.steps)}/{_thousands(row.total_steps)}"


def _thousands(number: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:.3g}{unit}" if number < 1000 * size else f"{number // size}{unit}"
    return str(number)


def _number(value: float | None, width: int, mark: str = "") -> str:
    exact = fmt.number(value)
    return mark + (exact if len(mark + exact) <= width else fmt.number(value, 2))


def _aligned(text: str, width: int, *, left_aligned: bool) -> str:
    text = crop(text, width)
    gap = " " * (width - cells_of(text))
    return text + gap if left_aligned else gap + text


class RunsHeader(Drawn):
    """The directory, the number of runs, and a sentence about the run under the cursor."""

    def __init__(self, runs_dir: Path) -> None:
        super().__init__(id="head")
        self._runs_dir = runs_dir
        self._counts = ""
        self._sentence: Line = []

    def show(self, counts: str, sentence: Line) -> None:
        """Replaces the counts and the sentence."""
        self._counts, self._sentence = counts, sentence
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """Two lines."""
        left: Line = [Span(" runs ", "strong"), Span(f"in {clean(str(self._runs_dir))}", "label")]
        return [spread(left, [Span(f"{self._counts} ", "dim")], width), fit([Span(" "), *self._sentence], width)]


def counts_text(listing: Listing | None, num_marked: int, order: SortOrder, num_hidden: int = 0) -> str:
    """How many runs there are, are running, are still being read and are marked, and the sort order. `num_hidden` is
    the number of archived runs that are not shown."""
    if listing is None:
        return "loading"
    rows = [row for row in listing.rows.values() if not row.is_log]
    num_logs = len(listing.rows) - len(rows)
    unread = sum(row.state == "reading" for row in rows)
    parts = [fmt.counted(len(rows), "run")]
    parts += [f"{sum(not row.ended and row.state != 'reading' for row in rows)} running"]
    parts += [f"{unread:,} loading"] if unread else []
    if num_logs or listing.more_logs:
        parts.append(f"{num_logs:,}+ logs" if listing.more_logs else fmt.counted(num_logs, "log"))
    parts += [f"{num_hidden:,} archived"] if num_hidden else []
    parts += [f"{num_marked} marked"] if num_marked else []
    return f"{', '.join(parts)} \u00b7 {order.label}"


def reason_line(row: RunRow | None) -> Line:
    """The alarms of a run, its note and the reason of its state; alarms first, since narrow terminals cut the end."""
    if row is None or not (row.reason or row.alarms or row.labels.note):
        return []
    alarms = [Span(f"! {', '.join(row.alarms)}  ", "alert")] if row.alarms else []
    note = [Span(f": {clean(row.labels.note)}", "info")] if row.labels.note else []
    mark = " \u00b7" if note else ":"
    return [*alarms, Span(clean(row.name), "label"), *note, Span(f"{mark} {clean(row.reason)}", "dim")]
