"""The table of runs: how each is, how far, and its loss. Columns keep their places whatever comes in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.cells import cell_len
from textual import events
from textual.message import Message

from tputui import formatting as fmt
from tputui.ui.base import status_text
from tputui.ui.base.export_figures import Figure, Figures
from tputui.ui.base.status_text import Sign
from tputui.ui.charts.plot import NON_FINITE_MARK
from tputui.ui.charts.sparkline import sparkline
from tputui.ui.render.lines import Line, Span, Tone, clean, crop, fit, spread, width_of, wrap
from tputui.ui.runs.filter import RunFilter, unknown_keys
from tputui.ui.runs.reader import Listing
from tputui.ui.runs.rows import NUM_COLUMNS, RunRow, SortKey, SortOrder, State
from tputui.ui.widgets.line_widget import Drawn

_MARKS = 4
"""Cells before the name: cursor and mark."""
_NAME_WIDTHS = (14, 34)


class Field(NamedTuple):
    """A column of the table."""

    key: SortKey | str
    title: str
    width: int
    least: int
    """Width of the terminal from which it is shown."""
    to_left: bool = False


_NARROW_CURVE = 6
"""Cells of the curve where it must leave room for names such as runs are given by themselves."""

_BOTH_FROM = 92
"""Width of the terminal from which a run has a loss of training and a best figure of validation, each said of which."""
_TRAIN_LOSS = Field("loss", "train loss", 11, _BOTH_FROM)

FIELDS = (
    Field("state", "state", 12, 0, to_left=True),
    Field("step", "step", 12, 60),
    Field("loss", "loss", 8, 40),
    Field("best", "best valid", 11, _BOTH_FROM),
    Field("curve", "curve", _NARROW_CURVE, 68, to_left=True),
    Field("age", "age", 5, 46),
    Field("took", "took", 7, 108),
    Field("cores", "cores", 5, 72),
    Field("task", "task", 14, 124, to_left=True),
)
_CURVES = ((180, 40), (140, 24), (92, 10), (0, _NARROW_CURVE))
"""Cells of the terminal from which the curve has so many."""

STATES: dict[State, Sign] = {
    **{condition: sign for condition, sign in status_text.CONDITIONS.items()},
    "reading": Sign("\u2026", "READING", "dim"),
    "unreadable": Sign("!", "UNREADABLE", "warn"),
}


def sign_of(row: RunRow) -> Sign:
    """How the state of a row looks."""
    if row.state == "reading" or row.state == "unreadable":
        return STATES[row.state]
    return status_text.sign_of(row.state, row.num_bad)


class RunsTable(Drawn):
    """Runs in the order in which they are given, one of them chosen, any of them marked."""

    can_focus = True

    class Opened(Message):
        """The chosen run was clicked again."""

    class Moved(Message):
        """Another run is chosen."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: Sequence[RunRow] = ()
        self._places: dict[Path, int] = {}
        self._empty: tuple[str, ...] = ()
        self._order = SortOrder()
        self._marked: frozenset[Path] = frozenset()
        self._chosen: Path | None = None
        self._awaited: Path | None = None
        """A run that was chosen and is not listed yet."""
        self._now = 0.0
        self._top = 0

    @property
    def chosen(self) -> Path | None:
        """The run under the cursor."""
        return self._chosen

    @property
    def rows(self) -> Sequence[RunRow]:
        """The runs in the order in which they stand."""
        return self._rows

    @property
    def row(self) -> RunRow | None:
        """What is known of it."""
        place = self._places.get(self._chosen) if self._chosen is not None else None
        return None if place is None else self._rows[place]

    def show(
        self, rows: Sequence[RunRow], order: SortOrder, marked: frozenset[Path], now: float, empty: Sequence[str]
    ) -> None:
        """Takes newer rows; the cursor stays on its run, wherever that moved. `empty` is said where there is none."""
        place = self._places.get(self._chosen, 0) if self._chosen is not None else 0
        self._rows, self._order, self._marked, self._now, self._empty = rows, order, marked, now, tuple(empty)
        self._places = {row.path: index for index, row in enumerate(rows)}
        if self._chosen in self._places:
            self._awaited = None
        elif self._chosen is None or self._chosen != self._awaited:
            # Where its run went away, the cursor stays at its height.
            self._choose(rows[min(place, len(rows) - 1)].path if rows else None)
        self.redraw()

    def choose(self, path: Path) -> None:
        """Puts the cursor on a run; one that is not listed yet is waited for."""
        self._awaited = path
        self._choose(path)
        self.redraw()

    def move(self, by: int) -> None:
        """Moves the cursor."""
        if self._rows:
            place = self._places.get(self._chosen, 0) if self._chosen is not None else 0
            self._choose(self._rows[min(max(place + by, 0), len(self._rows) - 1)].path)
            self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """Head and rows, or why there are none."""
        if not self._rows:
            return [[], *([Span(f"  {piece}", "dim")] for said in self._empty for piece in wrap(said, width - 4))]
        fields, name = self._fields(width)
        chosen = self._places.get(self._chosen, 0) if self._chosen is not None else 0
        rows = max(height - 1, 1)
        self._top = min(max(self._top, chosen - rows + 1), chosen, max(len(self._rows) - rows, 0))
        lines = [self._head(fields, name)]
        for index in range(self._top, min(self._top + rows, len(self._rows))):
            line = self._line(self._rows[index], fields, name, here=index == chosen)
            lines.append(fit([*line, Span(" " * max(width - width_of(line), 0))], width))
        return lines

    def figures(self) -> Figures:
        """Every run that is shown, for a CSV file; times in unix seconds."""
        rows: list[tuple[Figure, ...]] = [
            (
                *(str(row.path), row.state, row.task, row.epoch, row.num_epochs, row.steps, row.total_steps, row.loss),
                *(row.best, row.best_name, row.best_epoch, row.created, row.started, row.over, row.num_cores),
            )
            for row in self._rows
        ]
        head = ("run", "state", "task", "epoch", "num_epochs", "steps", "total_steps", "loss")
        return Figures((*head, "best", "best_name", "best_epoch", "created", "started", "over", "num_cores"), rows)

    def on_click(self, event: events.Click) -> None:
        """Chooses a run; the chosen one opens."""
        place = self._top + event.y - 1
        if event.y < 1 or place >= len(self._rows):
            return
        if self._rows[place].path == self._chosen:
            self.post_message(self.Opened())
        else:
            self._choose(self._rows[place].path)
            self.redraw()

    def on_mouse_scroll_down(self) -> None:
        """Moves with the wheel."""
        self.move(3)

    def on_mouse_scroll_up(self) -> None:
        """Moves with the wheel."""
        self.move(-3)

    def _choose(self, path: Path | None) -> None:
        if path != self._chosen:
            self._chosen = path
            self.post_message(self.Moved())

    def _fields(self, width: int) -> tuple[list[Field], int]:
        """The columns that have room, and how wide the name is."""
        curve = next(cells for least, cells in _CURVES if width >= least)
        shown = [field._replace(width=curve) if field.key == "curve" else field for field in FIELDS]
        shown = [
            _TRAIN_LOSS if field.key == "loss" and width >= _BOTH_FROM else field
            for field in shown
            if width >= field.least
        ]
        room = width - _MARKS - sum(field.width + 1 for field in shown)
        longest = max(cell_len(clean(row.path.name)) for row in self._rows)
        return shown, max(min(longest, room, _NAME_WIDTHS[1] if width < 200 else room), min(_NAME_WIDTHS[0], room))

    def _head(self, fields: Sequence[Field], name: int) -> Line:
        line: Line = [Span(" " * _MARKS), *self._title("run", "run", name, to_left=True)]
        for field in fields:
            line += [Span(" "), *self._title(field.key, field.title, field.width, to_left=field.to_left)]
        return line

    def _title(self, key: str, title: str, width: int, *, to_left: bool) -> Line:
        sorted_by = key == self._order.key
        arrow = "\u2193" if self._order.backwards else "\u2191"
        text = title + arrow if sorted_by else title
        return [Span(_aligned(text, width, to_left=to_left), "accent" if sorted_by else "label")]

    def _line(self, row: RunRow, fields: Sequence[Field], name: int, *, here: bool) -> Line:
        mark = "\u25c6 " if row.path in self._marked else "  "
        line: Line = [Span("\u276f " if here else "  ", "accent"), Span(mark, "info")]
        line.append(Span(_aligned(clean(row.path.name), name, to_left=True), "strong" if here else "plain"))
        for field in fields:
            line.append(Span(" "))
            if field.key == "curve":
                line += sparkline(row.curve.columns if row.curve else (), NUM_COLUMNS, field.width)
                continue
            text, tone = cell(row, field, self._now)
            line.append(Span(_aligned(text, field.width, to_left=field.to_left), tone))
        return line


def cell(row: RunRow, field: Field, now: float) -> tuple[str, Tone]:
    """What stands in a column of a run that is no curve."""
    if field.key == "state":
        sign = sign_of(row)
        return f"{sign.mark} {sign.word.lower()}{' !' if row.alarms else ''}", sign.tone
    if field.key == "step":
        return _steps(row, field.width), "plain" if row.steps is not None else "dim"
    if field.key == "loss":
        bad = f"{NON_FINITE_MARK} " if row.num_bad else ""
        return _figure(
            row.loss, field.width, bad
        ), "bad" if row.num_bad else "accent" if row.loss is not None else "dim"
    if field.key == "best":
        return _figure(row.best, field.width), "plain" if row.best is not None else "dim"
    if field.key == "age":
        return short_age(row.age_s(now)), "label" if not row.ended else "dim"
    if field.key == "took":
        took = row.took_s(now)
        return short_span(round(took) if took is not None else None), "dim"  # as the head of the run rounds it
    if field.key == "cores":
        return (fmt.UNKNOWN if row.num_cores is None else f"{row.num_cores:,}"), "dim"
    return clean(row.task) or fmt.UNKNOWN, "dim"


def how_in_words(row: RunRow) -> str:
    """How a run is, for a line of a list: `done, step 66/66, loss 0.0812`."""
    parts = [sign_of(row).word.lower()]
    parts += [f"step {_steps(row, 24)}"] if row.steps is not None else []
    parts += [f"loss {fmt.number(row.loss)}"] if row.loss is not None else []
    return ", ".join(parts)


def short_age(seconds: float | None) -> str:
    """An age in its largest unit: `now`, `42s`, `7m`, `3h`, `12d`."""
    if seconds is None:
        return fmt.UNKNOWN
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "now" if seconds < 2 else f"{int(seconds)}s"


def short_span(seconds: float | None) -> str:
    """A length of time in two units: `42s`, `7m12s`, `3h05m`, `12d04h`."""
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


def _figure(value: float | None, width: int, mark: str = "") -> str:
    exact = fmt.number(value)
    return mark + (exact if len(mark + exact) <= width else fmt.number(value, 2))


def _aligned(text: str, width: int, *, to_left: bool) -> str:
    text = crop(text, width)
    gap = " " * (width - cell_len(text))
    return text + gap if to_left else gap + text


class RunsHead(Drawn):
    """Where the runs are, how many train, and a sentence on what is looked at."""

    def __init__(self, runs_dir: Path) -> None:
        super().__init__(id="head")
        self._runs_dir = runs_dir
        self._counts = ""
        self._said: Line = []

    def show(self, counts: str, said: Line) -> None:
        """Takes newer counts and the sentence."""
        self._counts, self._said = counts, said
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """Two lines."""
        left: Line = [Span(" runs ", "strong"), Span(f"in {clean(str(self._runs_dir))}", "label")]
        return [spread(left, [Span(f"{self._counts} ", "dim")], width), fit([Span(" "), *self._said], width)]


def counts_text(listing: Listing | None, num_marked: int, order: SortOrder) -> str:
    """How many runs there are, train, are still to be read and are marked, and how they are ordered."""
    if listing is None:
        return "looking"
    rows = listing.rows.values()
    unread = sum(row.state == "reading" for row in rows)
    parts = [f"{len(rows):,} run{'' if len(rows) == 1 else 's'}"]
    parts += [f"{sum(not row.ended and row.state != 'reading' for row in rows)} in training"]
    parts += [f"{unread:,} to be read"] if unread else []
    parts += [f"{num_marked} marked"] if num_marked else []
    return f"{', '.join(parts)} \u00b7 {order.words}"


def reason_line(row: RunRow | None) -> Line:
    """What is wrong with the chosen run, first, since a narrow terminal cuts the end; and why it is as it is."""
    if row is None or not (row.why or row.alarms):
        return []
    alarms = [Span(f"! {', '.join(row.alarms)}  ", "alert")] if row.alarms else []
    return [*alarms, Span(clean(row.path.name), "label"), Span(f": {clean(row.why)}", "dim")]


def empty_text(runs_dir: Path, listing: Listing | None, found: RunFilter, *, may_start: bool) -> tuple[str, ...]:
    """What stands where there is no run to show: why, and what to do next."""
    where = clean(str(runs_dir))
    if listing is None:
        return (f"looking for runs in {where} ...",)
    if listing.why_not:
        return (clean(listing.why_not), "name another directory: tputui --runs-dir DIR, or $TPUTUI_RUNS")
    known = list(listing.rows.values())
    if known:
        lacking = unknown_keys(found, known)
        why = f"no run has a key called {', '.join(lacking)}" if lacking else "no run is like that"
        return (f"{why}: esc shows all {len(known)} runs again",)
    here = "n starts one: pick a configuration, see every field of it, press ctrl+s."
    return (f"no run in {where} yet.", here if may_start else "`tputui run CONFIG` starts one.")
