"""The tables of the comparison: metrics of the runs, and differences between their configurations.

Each run is a column. If the columns do not fit, further tables below repeat the names and the base.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from textual import events
from textual.message import Message

from tputui import formatting as fmt
from tputui.compare.compare import ComparedRun
from tputui.compare.table import BEST, FigureRow, figure_rows, notes, raw_rows
from tputui.compare.verdict import METHOD
from tputui.config_diff import DiffRow, texts
from tputui.state import facts
from tputui.state.run_condition import ENDED
from tputui.ui.base import status_text
from tputui.ui.base.export import Figure, Figures
from tputui.ui.compare.compare_view import TONES, ComparedPart, CompareView
from tputui.ui.render.lines import (
    Cell,
    Line,
    Span,
    Tone,
    align_table,
    cells_of,
    clean,
    crop,
    fit,
    spread,
    width_of,
    wrap,
)
from tputui.ui.widgets.line_widget import Drawn
from tputui.ui.widgets.panel import FRAME, Drawing, Panel

_GAP = 2
_MARGIN = 1


class GridRow(NamedTuple):
    """A row: its name and one cell per run."""

    name: Cell
    cells: Sequence[Cell]


def grid(titles: Sequence[Cell], rows: Sequence[GridRow], width: int) -> list[Line]:
    """Draws a table, with titles, in `width` cells; the first column is the base."""
    if not titles or width < 1:
        return []
    names = min(max((cells_of(row.name.text) for row in rows), default=0), max(width // 2, 6))
    room = width - _MARGIN - names
    most = max((room - 2 * _GAP) // 2, 1)
    widths = [
        min(max([cells_of(title.text), *(cells_of(row.cells[index].text) for row in rows)]), most)
        for index, title in enumerate(titles)
    ]
    lines: list[Line] = []
    for columns in _tables(widths, room):
        lines += [[]] if lines else []
        lines.append(_line(Cell(""), titles, columns, widths, names, width))
        lines += [_line(row.name, row.cells, columns, widths, names, width) for row in rows]
    return lines


def _tables(widths: Sequence[int], room: int) -> list[list[int]]:
    """The columns of each table; the base is in all of them."""
    tables: list[list[int]] = [[0]]
    left = room - widths[0] - _GAP
    for column in range(1, len(widths)):
        if widths[column] + _GAP > left and len(tables[-1]) > 1:
            tables.append([0])
            left = room - widths[0] - _GAP
        tables[-1].append(column)
        left -= widths[column] + _GAP
    return tables


def _line(
    name: Cell, cells: Sequence[Cell], columns: Sequence[int], widths: Sequence[int], names: int, width: int
) -> Line:
    text = crop(name.text, names)
    line: Line = [Span(" " * _MARGIN), Span(text + " " * (names - cells_of(text)), name.tone)]
    for column in columns:
        text = crop(cells[column].text, widths[column])
        line += [Span(" " * (_GAP + widths[column] - cells_of(text))), Span(text, cells[column].tone)]
    return fit(line, width)


VALUE_WIDTH = 40
"""Maximum cells of a configuration value; exports are not cut."""

CHANGED = "\u2260"
"""Marks a value that differs from the base."""


class ComparedFiguresPanel(Panel[ComparedPart]):
    """Metrics of the runs."""

    key = "3"
    name_shown = "metrics"
    what = (
        "metrics of the runs, the base first: speed after warm-up, compile time, peak memory, final and best metrics; "
        f"speed is compared by the {METHOD}"
    )

    def draw(self, part: ComparedPart, width: int, height: int) -> Drawing:
        """The table, and below it why values are missing."""
        rows = [GridRow(Cell(clean(row.name), "label"), _figures(row, part)) for row in figure_rows(part.comparison)]
        return Drawing([*grid(_titles(part), rows, width), *_notes(notes(part.comparison), width)])

    def figures(self) -> Figures:
        """The same values, not rounded."""
        if self._part is None:
            return Figures(("figure",), [])
        comparison = self._part.comparison
        rows: list[tuple[Figure, ...]] = [(name, *cells) for name, cells in raw_rows(comparison)]
        return Figures(("figure", *(run.run for run in comparison.runs)), rows)


class ComparedConfigPanel(Panel[ComparedPart]):
    """Configuration keys whose values differ, what differs in the code, and the keys whose values are equal."""

    key = "4"
    name_shown = "configuration"
    what = "configuration and code, \u2260 marking values that differ from the base; then the keys with equal values"

    def draw(self, part: ComparedPart, width: int, height: int) -> Drawing:
        """The configured keys that differ, the derived values and the code, then the keys that are equal."""
        config = part.comparison.config
        number = len(config.rows)
        note = f"{number} of {number + config.num_equal} keys differ{'s' if number == 1 else ''}"
        rows: list[Line] = []
        if not config.rows:
            equal = f" all {config.num_equal} keys are equal" if config.num_equal else " no configuration was recorded"
            rows.append([Span(equal, "label")])
        rows += grid(_titles(part), [_keyed(row, part) for row in config.rows], width) if config.rows else []
        for title, difference in (("Derived", part.comparison.plan), ("Code", part.comparison.code)):
            if difference.rows:
                rows += [[], [Span(f" {title}", "title")]]
                rows += grid(_titles(part), [_keyed(row, part) for row in difference.rows], width)
        unequal = {row.key for row in config.rows}
        values = texts(part.snapshots[part.view.base].config)
        if equals := [(clean(key), clean(value)) for key, value in values.items() if key not in unequal]:
            rows += [[], [Span(" Equal", "title"), Span(f"  {fmt.counted(len(equals), 'key')}", "dim")]]
            rows += _side_by_side(equals, width)
        return Drawing(rows, note=note)

    def figures(self) -> Figures:
        """The keys whose values differ, and what differs in the code."""
        if self._part is None:
            return Figures(("key",), [])
        comparison = self._part.comparison
        differences = (*comparison.config.rows, *comparison.code.rows)
        rows: list[tuple[Figure, ...]] = [(row.key, *row.values) for row in differences]
        return Figures(("key", *(run.run for run in comparison.runs)), rows)


def _side_by_side(pairs: Sequence[tuple[str, str]], width: int) -> Iterator[Line]:
    """Keys with their values in as many columns as fit, each read from the top; values are aligned."""
    keys = min(max(cells_of(key) for key, _ in pairs), max(width // 2, 6))
    values = min(max(cells_of(value) for _, value in pairs), VALUE_WIDTH)
    across = max((width - _MARGIN) // (keys + values + 2 * _GAP), 1)
    down = -(-len(pairs) // across)
    for row in range(down):
        line: Line = [Span(" " * _MARGIN)]
        for key, value in ((crop(key, keys), crop(value, values)) for key, value in pairs[row::down]):
            line.append(Span(key + " " * (keys - cells_of(key) + _GAP), "label"))
            line.append(Span(value + " " * (values - cells_of(value) + _GAP), "dim"))
        yield fit(line, width)


def _titles(part: ComparedPart) -> list[Cell]:
    return [Cell(part.comparison.runs[run].label, TONES[run]) for run in part.view.order]


def _figures(row: FigureRow, part: ComparedPart) -> list[Cell]:
    cells = []
    for run in part.view.order:
        text = part.pretty(row.cells[run])
        if row.best == run:
            cells.append(Cell(f"{BEST} {text}", "good"))
        else:
            cells.append(Cell(text, _tone(text, run, part)))
    return cells


def _tone(text: str, run: int, part: ComparedPart) -> Tone:
    return "dim" if text == fmt.UNKNOWN else "strong" if run == part.view.chosen else "plain"


def _keyed(row: DiffRow, part: ComparedPart) -> GridRow:
    cells = []
    for run in part.view.order:
        changed = row.changed[run]
        text = crop(clean(row.values[run]), VALUE_WIDTH)
        cells.append(Cell(f"{CHANGED} {text}", "strong") if changed else Cell(text, "dim"))
    return GridRow(Cell(clean(row.key), "label"), cells)


def _notes(sentences: Sequence[str], width: int) -> list[Line]:
    pieces = [piece for sentence in sentences for piece in wrap(clean(sentence), max(width - 2, 1))]
    return [[], *([Span(f" {piece}", "dim")] for piece in pieces)] if pieces else []


_TITLES = ("", "run", "state", "vs {}", "train loss", "step", "epoch", "duration")
_MIN_NAME_WIDTH = 14
_OTHERS_WIDTH = 58
"""Cells reserved for the other columns."""


class CompareHeader(Drawn):
    """The base, the best run, and speed and state of the selected run."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._part: ComparedPart | None = None
        self._notice = ""

    def show(self, part: ComparedPart) -> None:
        """Updates the header."""
        self._part = part
        self.redraw()

    def tell(self, notice: str) -> None:
        """Shows a notice in place of the state; an empty one removes it."""
        self._notice = notice
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """Four lines."""
        part = self._part
        if part is None:
            return [[Span(" Reading the runs ...", "dim")]]
        runs = part.comparison.runs
        running = sum(run.condition not in ENDED for run in runs)
        reading = f"{len(part.unread)} loading, " if part.unread else ""
        left: Line = [Span(" compare ", "strong"), Span(f"{len(runs)} runs, base ", "label"), *_base(runs, part.view)]
        first = spread(left, [Span(f"{reading}{running} running ", "dim")], width)
        last: Line = [Span(f" \u276f {self._notice}", "info")] if self._notice else _state(part, width)
        return [first, _quality(part, width), _speed(part, width), last]


class ComparedRunsPanel(Panel[ComparedPart]):
    """One line per run."""

    key = "1"
    name_shown = "runs"
    what = "the runs with their letters and colours; n and N select, B sets the base, space hides a curve"

    class RunChosen(Message):
        """A run was clicked."""

        def __init__(self, run: int) -> None:
            super().__init__()
            self.run = run

    follows_end: ClassVar[bool] = False

    @property
    def part(self) -> ComparedPart | None:
        """What the panel shows."""
        return self._part

    def draw(self, part: ComparedPart, width: int, height: int) -> Drawing:
        """The runs, the selected one marked."""
        base = part.comparison.runs[part.view.base].label
        titles = [title.format(base) for title in _TITLES]
        name = max(_MIN_NAME_WIDTH, width - _OTHERS_WIDTH)
        aligned = align_table(
            titles, [_row(part, run, name) for run in range(len(part.snapshots))], width - 2, left=frozenset({0, 1, 2})
        )
        rows: list[Line] = [
            [Span("\u276f " if run == part.view.chosen else "  ", "accent"), *row]
            for run, row in enumerate(aligned.rows)
        ]
        hidden = len(part.view.hidden)
        notes = [f"{fmt.counted(hidden, 'curve')} hidden"] if hidden else []
        if any(facts.listed_loss(snapshot) is facts.EPOCH_LOSS for snapshot in part.snapshots):
            notes.append("loss of ended runs: mean of the epoch")
        return Drawing(rows, head=([Span("  "), *aligned.head],), note=", ".join(notes))

    def scroll_to_run(self, run: int) -> None:
        """Scrolls until a run is visible."""
        room = self.size.height - FRAME - 1
        top = self._first_row()
        if run < top:
            self.scroll_rows(run - top)
        elif room > 0 and run >= top + room:
            self.scroll_rows(run - top - room + 1)

    def on_click(self, event: events.Click) -> None:
        """Selects the run that was clicked."""
        run = self._first_row() + event.y - 2
        if self._part is not None and 0 <= run < len(self._part.snapshots) and event.y >= 2:
            self.post_message(self.RunChosen(run))


def letter(part: ComparedPart, run: int) -> Span:
    """The letter of a run in its colour."""
    return Span(part.comparison.runs[run].label, TONES[run])


def _row(part: ComparedPart, index: int, name_width: int) -> list[Cell]:
    run, view = part.comparison.runs[index], part.view
    sign = status_text.sign_of(run.condition, part.snapshots[index].num_non_finite)
    hidden = index in view.hidden
    swatch = f"({run.label})" if hidden else f"\u2500{run.label}\u2500"
    tone: Tone = "dim" if hidden else TONES[index]
    bad = bool(part.snapshots[index].num_non_finite)
    total = f"/{run.total_steps:,}" if run.total_steps else ""
    state = (
        Cell("\u2026 reading", "dim") if index in part.unread else Cell(f"{sign.mark} {sign.word.lower()}", sign.tone)
    )
    return [
        Cell(swatch, tone),
        Cell(_named(clean(run.run), name_width), "strong" if index == view.chosen else "plain"),
        state,
        _versus(part, index),
        Cell(fmt.number(run.loss) + (" \u2716" if bad else ""), "bad" if bad else "plain"),
        Cell(f"{run.steps:,}{total}"),
        Cell(f"{run.epoch}/{run.num_epochs}" if run.num_epochs else fmt.UNKNOWN),
        Cell(fmt.duration(run.duration_s), "label"),
    ]


def _named(name: str, width: int) -> str:
    """Shortens a long name at its start, because runs of one day differ at the end."""
    return name if cells_of(name) <= width else "\u2026" + name[len(crop(name, cells_of(name) - width + 2)) - 1 :]


def _versus(part: ComparedPart, index: int) -> Cell:
    verdict = part.comparison.verdicts[index]
    if verdict is None:
        return Cell("base", "label")
    if not verdict.stands_out or verdict.ratio is None:
        return Cell(part.pretty(verdict.short), "dim")
    return Cell(part.pretty(verdict.short), "good" if verdict.ratio > 1 else "warn")


def _base(runs: Sequence[ComparedRun], view: CompareView) -> Line:
    base = runs[view.base]
    return [Span(base.label, TONES[view.base]), Span(f" {clean(base.run)}", "strong")]


def _quality(part: ComparedPart, width: int) -> Line:
    """Which run is best."""
    quality = part.comparison.quality
    return fit([Span(f" {clean(quality.sentence)}", "strong" if quality.best is not None else "label")], width)


def _speed(part: ComparedPart, width: int) -> Line:
    """The speed verdict on the selected run, and what explains the difference; that alone if both do not fit, since the
    list of runs has the ratio."""
    run, verdict = part.comparison.runs[part.view.chosen], part.comparison.verdicts[part.view.chosen]
    if verdict is None:
        return [Span(f" {run.label} is the base; n selects the next run, B makes it the base", "label")]
    sentence = Span(f" {part.pretty(clean(verdict.sentence))}", "strong" if verdict.ratio is not None else "label")
    explanations = part.comparison.causes, part.comparison.upgrades
    causes = [lines[part.view.chosen] for lines in explanations if part.view.chosen < len(lines)]
    cause = next(filter(None, causes), None)
    if cause is None:
        return [sentence]
    explained = Span(f" {clean(cause)}", "warn")
    both = [sentence, Span(" \u00b7", "dim"), explained]
    return both if width_of(both) <= width else [explained]


def _state(part: ComparedPart, width: int) -> Line:
    """The state of the selected run and its reason."""
    chosen = part.view.chosen
    run, snapshot = part.comparison.runs[chosen], part.snapshots[chosen]
    if run.trouble is not None:
        return fit([Span(f" {run.label}: {clean(run.trouble)}", "warn")], width)
    sign = status_text.sign_of(run.condition, snapshot.num_non_finite)
    line: Line = [Span(f" {run.label} ", TONES[chosen]), Span(f"{clean(run.run)} "), Span(f"{sign.mark} ", sign.tone)]
    reason = "" if run.condition_reason.startswith(run.condition) else f"{run.condition}: "
    line.append(Span(f"{reason}{clean(run.condition_reason)}", "label"))
    age = snapshot.now - snapshot.newest_fact if snapshot.newest_fact is not None else 0.0
    if run.condition not in ENDED and age >= 1:
        line.append(Span(f", updated {status_text.seconds(age)} ago", "label"))
    return fit(line, width)
