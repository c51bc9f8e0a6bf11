"""The epochs panel: averages and scores of every finished epoch, and the sections of its time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.snapshot import GenerationView, Snapshot, best_epoch, monitored
from tputui.telemetry.events import EpochEnded, Split
from tputui.ui.base import host_text, status_text
from tputui.ui.charts.events_line import sign_of
from tputui.ui.render.lines import (
    Cell,
    Line,
    Span,
    TextTable,
    Tone,
    align_table,
    clean,
    fit,
    paragraph,
    stack_tables,
    width_of,
    wrap,
)
from tputui.ui.widgets.panel import Drawing, RunPanel

SECTIONS = ("data", "trace", "compile", "execute", "wait", "report", "evaluate", "save", "stall", "other")
"""In the order of a step."""

COMPILED = "\u25c6"
"""Marks an epoch in which programs were compiled, because its time is not comparable."""

_TABLE_LEAST = 30
"""Minimum number of cells of the table beside the bars."""

_TWO_HEADS_FROM = 9
"""Lines of the panel from which titles may have two lines."""

_UNITS = "sections in s"

_BAR_MOST, _BAR_LEAST = 28, 12
"""Cells of the bar of an epoch's sections."""

_NUM_BEFORE_BARS = 2
"""Figures, as a rule both losses, without which there are no bars."""

_LONGER = "\u203a"
"""Ends the bar of an epoch that does not fit."""

_LONG_BY = 3.0
"""Scale of the bars in median epochs at most: the first epoch, which compiles, would leave no room to the others."""

SECTION_GLYPHS: dict[str, tuple[str, Tone]] = {
    "data": ("\u2592", "warn"),
    "trace": ("\u2591", "accent"),
    "compile": ("\u2593", "info"),
    "execute": ("\u2588", "accent"),
    "wait": ("\u2585", "info"),
    "report": ("\u259e", "label"),
    "evaluate": ("\u259a", "good"),
    "save": ("\u25aa", "label"),
    "stall": ("\u25b2", "warn"),
    "other": ("\u00b7", "label"),
}
"""Glyph and tone of a section in the bar."""


class EpochsPart(NamedTuple):
    """The content of the panel."""

    epochs: list[EpochEnded]
    monitored: str
    """The validation metric that selects the best epoch."""
    why_none: str
    first_step: int = 1
    """The first step of the run."""
    global_batch: int = 0
    """Examples of a step; 0 if unknown."""
    generations: Sequence[GenerationView] = ()
    """The training processes between restarts."""


class EpochsPanel(RunPanel[EpochsPart]):
    """The table of epochs."""

    key = "4"
    name_shown = "epochs"
    what = (
        "each epoch: averages, scores, examples/s of training, time of training and validation (`steady s` without "
        f"compiling), a bar of the sections of that time; {COMPILED} compiled; sections and tracing in seconds in full "
        "screen"
    )
    follows_end = True

    @staticmethod
    def pick(snapshot: Snapshot) -> EpochsPart:
        """The finished epochs."""
        why = "" if snapshot.epochs else status_text.nothing_yet(snapshot, "finished epoch")
        plan = snapshot.plan
        first_step, global_batch = (plan.first_step, plan.global_batch) if plan is not None else (1, 0)
        return EpochsPart(
            snapshot.epochs,
            monitored(snapshot.config, snapshot.epochs),
            why,
            first_step,
            global_batch,
            snapshot.generations,
        )

    def draw(self, part: EpochsPart, width: int, height: int) -> Drawing:
        """One row per epoch, the best one with a star; above them what was lost by restarts."""
        restarts = _restarts(part.generations, width, max(height // (4 if part.epochs else 2), 1))
        if not part.epochs:
            return Drawing([*restarts, *paragraph(part.why_none, width, height)])
        drawing = self._draw_epochs(part, width, height - len(restarts))
        return drawing._replace(head=(*restarts, *drawing.head))

    def _draw_epochs(self, part: EpochsPart, width: int, height: int) -> Drawing:
        """The table with its bars."""
        columns = _columns(part)
        best = best_epoch(part.epochs)
        rows = [_row(epoch, columns, part.monitored if epoch is best else None) for epoch in part.epochs]
        wide = min(max(width // 4, _BAR_LEAST), _BAR_MOST, width - _TABLE_LEAST)
        wide = wide if wide >= _BAR_LEAST and columns.sections else 0
        titles = _titles(columns)
        texts = [title.text for title in titles]
        drawn = stack_tables(texts, rows, width - wide - 2 if wide else width)
        if wide and len(texts) - drawn[0].num_hidden < 1 + len(columns.figures[:_NUM_BEFORE_BARS]):
            wide, drawn = 0, stack_tables(texts, rows, width)
        if wide:
            above: Line = []
            if drawn[0].num_hidden and height >= _TWO_HEADS_FROM and not self.has_class("-maximised"):
                above, drawn[0] = _in_two_heads(titles, rows, width - wide - 2)
            return self._with_bars(part.epochs, columns, above, drawn, width, wide)
        deep = sum(1 + len(table.rows) for table in drawn)
        if deep <= height or self.has_class("-maximised"):
            note = _note(_UNITS, part.epochs, width)
            return Drawing(drawn[0].rows, head=(drawn[0].head,), note=note, along=drawn[1:])
        hidden = drawn[0].num_hidden
        note = _note(status_text.hidden_columns(hidden) if hidden else _UNITS, part.epochs, width)
        return Drawing(drawn[0].rows, head=(drawn[0].head,), note=note)

    def _with_bars(
        self, epochs: list[EpochEnded], columns: _Columns, above: Line, drawn: list[TextTable], width: int, wide: int
    ) -> Drawing:
        """The table with a bar per epoch at its right: as long as the epoch took, divided into its sections.

        `above` is the upper line of the head, if it has two.
        """
        scale = bar_scale_s([sum(epoch.sections_s.values()) for epoch in epochs])
        first = drawn[0]
        bars = [_bar(epoch, columns.sections, scale, wide) for epoch in epochs]
        rows = [_beside(row, bar, width - wide - 1) for row, bar in zip(first.rows, bars, strict=True)]
        head = _beside(first.head, [Span(f"0 to {fmt.duration(scale)}", "label")], width - wide - 1)
        legend = _legend(epochs, columns.sections, width)
        heads = (above, head, *legend) if above else (head, *legend)
        if not self.has_class("-maximised"):
            hidden = status_text.hidden_columns(first.num_hidden) if first.num_hidden else ""
            return Drawing(rows, head=heads, note=_note(hidden, epochs, width))
        return Drawing(rows, head=heads, note=_note(_UNITS, epochs, width), along=drawn[1:])


def _restarts(generations: Sequence[GenerationView], width: int, most: int) -> list[Line]:
    """What was lost by each restart, in at most so many lines; by the newest ones if there is no room for all."""
    sign = sign_of("restart")
    lines: list[Line] = []
    for generation in reversed(generations[1:]):
        text = host_text.lost_by(generation)
        pieces = wrap(text, max(width - 3, 1))
        if len(lines) + len(pieces) > most:
            if lines:
                break
            pieces = [text]
        marks = [f" {sign.mark} ", *["   "] * (len(pieces) - 1)]
        wrapped = zip(marks, pieces, strict=True)
        lines = [*(fit([Span(mark + piece, sign.tone)], width) for mark, piece in wrapped), *lines]
    return lines


def _in_two_heads(titles: list[_Title], rows: list[list[Cell]], width: int) -> tuple[Line, TextTable]:
    """The upper line of titles in two lines, and the table below it, which has room for more columns."""
    upper = [Cell(title.above, "label") for title in titles]
    table = align_table([title.name for title in titles], [upper, *rows], width, left=frozenset({0}))
    return table.rows[0], table._replace(rows=table.rows[1:])


def bar_scale_s(spent_s: list[float]) -> float:
    """Seconds of a full bar: the longest epoch, unless it is far longer than the median one."""
    median = sorted(spent_s)[len(spent_s) // 2]
    return min(max(spent_s), _LONG_BY * median) or max(spent_s)


def _bar(epoch: EpochEnded, sections: list[str], scale_s: float, width: int) -> Line:
    """The sections of an epoch. Each end is rounded on its own, so that errors do not add up. The last cell marks an
    epoch that does not fit."""
    line: Line = []
    spent_s, filled = 0.0, 0
    is_longer = sum(epoch.sections_s.values()) > scale_s * (1 + 1e-9)
    width -= is_longer
    for name in sections:
        spent_s += epoch.sections_s.get(name, 0.0)
        end = min(round(spent_s / scale_s * width), width) if scale_s > 0 else 0
        glyph, tone = SECTION_GLYPHS.get(name, SECTION_GLYPHS["other"])
        line.append(Span(glyph * (end - filled), tone))
        filled = end
    return [*line, Span(_LONGER, "warn")] if is_longer else line


def _legend(epochs: list[EpochEnded], sections: list[str], width: int) -> tuple[Line, ...]:
    """The glyphs of the sections, in the order of the bars; without room for all of them, those of the longest."""
    spent = {name: sum(epoch.sections_s.get(name, 0.0) for epoch in epochs) for name in sections}
    entries: dict[str, Line] = {}
    for name in sorted(sections, key=lambda name: -spent[name]):
        glyph, tone = SECTION_GLYPHS.get(name, SECTION_GLYPHS["other"])
        entry = [Span(f" {glyph} ", tone), Span(clean(name), "label")]
        if sum(map(width_of, entries.values())) + width_of(entry) > width:
            break
        entries[name] = entry
    return ([span for name in sections if name in entries for span in entries[name]],)


def _beside(line: Line, right: Line, at: int) -> Line:
    return [*line, Span(" " * max(at - width_of(line), 1)), *right]


class _Columns(NamedTuple):
    """The values of the epochs; each is a column."""

    figures: list[tuple[Split, str]]
    """Averages and scores by split and name: the losses first, then the metric that selects the best epoch."""
    sections: list[str]
    trace: list[str]
    rates: dict[int, float]
    """Examples per second of training by epoch, as far as known."""
    has_lr: bool
    """Whether the learning rate of any epoch is known."""


class _Title(NamedTuple):
    """The title of a column."""

    above: str
    """The first word, which may have a line of its own."""
    name: str

    @property
    def text(self) -> str:
        """The title in one line."""
        return f"{self.above} {self.name}".strip()


def _columns(part: EpochsPart) -> _Columns:
    epochs = part.epochs
    figures: list[tuple[Split, str]] = [("train", name) for name in _names(epoch.train for epoch in epochs)]
    figures += [("valid", name) for name in _names({**epoch.valid, **epoch.scores} for epoch in epochs)]
    first = [("train", "loss"), ("valid", "loss"), ("valid", part.monitored)]
    return _Columns(
        figures=sorted(figures, key=lambda figure: first.index(figure) if figure in first else len(first)),
        sections=_sections(epochs),
        trace=_names(epoch.trace_s for epoch in epochs),
        rates=_rates(part),
        has_lr=not all(math.isnan(epoch.lr) for epoch in epochs),
    )


def _rates(part: EpochsPart) -> dict[int, float]:
    """Examples per second of each epoch's training, which includes compiling."""
    rates: dict[int, float] = {}
    before, done = None, part.first_step - 1
    for epoch in part.epochs:
        steps = epoch.step - done
        # The steps of an epoch whose predecessor is missing are not known.
        if before in (None, epoch.epoch - 1) and steps > 0 and epoch.train_s > 0 and part.global_batch:
            rates[epoch.epoch] = steps * part.global_batch / epoch.train_s
        before, done = epoch.epoch, epoch.step
    return rates


def _titles(columns: _Columns) -> list[_Title]:
    return [
        _Title("", "epoch"),
        *(_Title(split, clean(name)) for split, name in columns.figures),
        *([_Title("", "examples/s")] if columns.rates else []),
        _Title("train", "s"),
        _Title("valid", "s"),
        _Title("steady", "s"),
        *([_Title("", "lr")] if columns.has_lr else []),
        *(_Title("", clean(name)) for name in columns.sections),
        *(_Title("trace", clean(name)) for name in columns.trace),
    ]


def _note(note: str, epochs: list[EpochEnded], width: int) -> str:
    """The note, with the meaning of the compile mark if it is used and there is room."""
    longer = f"{COMPILED} compiled{', ' if note else ''}{note}"
    return longer if any(epoch.compile_s for epoch in epochs) and len(longer) < width - 14 else note


def _names(readings: Iterable[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(name for reading in readings for name in reading))


def _sections(epochs: list[EpochEnded]) -> list[str]:
    names = _names(epoch.sections_s for epoch in epochs)
    return [*(name for name in SECTIONS if name in names), *(name for name in names if name not in SECTIONS)]


def _row(epoch: EpochEnded, columns: _Columns, best_by: str | None) -> list[Cell]:
    """`best_by` is the metric by which this is the best epoch; None if it is not the best."""
    best = best_by is not None
    marks = " ".join([epoch.numbers, *([COMPILED] if epoch.compile_s else []), *(["\u2605 best"] if best else [])])
    return [
        Cell(marks, "good" if best else "strong"),
        *(_figure(epoch, split, name, is_best=name == best_by) for split, name in columns.figures),
        *([Cell(_rate(columns.rates.get(epoch.epoch)))] if columns.rates else []),
        Cell(_seconds(epoch.train_s)),
        Cell(fmt.in_seconds(epoch.valid_s or None)),
        Cell(_seconds(epoch.steady_s), "strong"),
        *([Cell(fmt.UNKNOWN if math.isnan(epoch.lr) else f"{epoch.lr:.3g}", "dim")] if columns.has_lr else []),
        *(_section(epoch, name) for name in columns.sections),
        *(Cell(fmt.in_seconds(epoch.trace_s.get(name)), "dim") for name in columns.trace),
    ]


def _figure(epoch: EpochEnded, split: Split, name: str, *, is_best: bool) -> Cell:
    reading = (epoch.train if split == "train" else epoch.valid).get(name)
    if split == "train":
        return Cell(fmt.number(reading.avg if reading is not None else None))
    value = reading.avg if reading is not None else epoch.scores.get(name)
    return Cell(fmt.number(value), "good" if is_best else "accent")


def _rate(rate: float | None) -> str:
    return fmt.UNKNOWN if rate is None else f"{rate:,.0f}" if rate >= 100 else fmt.number(rate, 2)


def _section(epoch: EpochEnded, name: str) -> Cell:
    spent = epoch.sections_s.get(name)
    largest = bool(spent) and spent == max(epoch.sections_s.values())
    if name == "compile" and spent:
        return Cell(f"{COMPILED} {fmt.in_seconds(spent)}", "strong" if largest else "info")
    return Cell(fmt.in_seconds(spent), "strong" if largest else "dim")


def _seconds(spent: float) -> str:
    """Seconds; unknown if NaN, as the logs of a script do not contain them."""
    return fmt.in_seconds(spent)
