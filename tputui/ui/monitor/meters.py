"""The meters panel: newest value, average, sum and count of each AverageMeter, and how they were reduced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.chart_data import LoggedView
from tputui.state.snapshot import EpochView, MeterView, Snapshot, best_epoch
from tputui.ui.base import status_text
from tputui.ui.render.lines import Cell, Line, Span, clean, paragraph, stack_tables, wrap
from tputui.ui.widgets.panel import Drawing, RunPanel


class MetersPart(NamedTuple):
    """The content of the panel."""

    meters: list[MeterView]
    best: EpochView | None
    """The best epoch so far."""
    scores: dict[str, float]
    scores_epoch: int
    why_none: str
    logged: Sequence[LoggedView] = ()
    """What the script logged itself, if it is not among the meters."""


class MetersPanel(RunPanel[MetersPart]):
    """AverageMeters of training and validation."""

    key = "3"
    name_shown = "meters"
    what = (
        "AverageMeters of training and validation: average, newest value, sum, count, reduction, and the average of "
        "the best epoch; scores of the whole validation split"
    )

    @staticmethod
    def pick(snapshot: Snapshot) -> MetersPart:
        """The meters of the current or last epoch, and of the best one."""
        scored = next((epoch for epoch in reversed(snapshot.epochs) if epoch.scores), None)
        scores, epoch = (scored.scores, scored.epoch) if scored is not None else ({}, 0)
        best = best_epoch(snapshot.epochs)
        why = "" if snapshot.meters else status_text.nothing_yet(snapshot, "meter")
        known = {meter.name for meter in snapshot.meters}
        logged = [view for view in snapshot.logged if view.name not in known]
        names = {view.name for view in logged}
        scores = {name: score for name, score in scores.items() if name not in names}
        return MetersPart(snapshot.meters, best, scores, epoch, why, logged)

    def draw(self, part: MetersPart, width: int, height: int) -> Drawing:
        """One row per meter, then one row per score."""
        if not part.meters and not part.scores and not part.logged:
            return Drawing(paragraph(part.why_none, width, height))
        names = list(dict.fromkeys(meter.name for meter in part.meters))
        rows = [_row(name, part) for name in names]
        rows += [_logged_row(name, part) for name in dict.fromkeys(view.name for view in part.logged)]
        rows += [_score_row(name, score, part.best) for name, score in part.scores.items()]
        titles = _titles(part)
        first, *more = stack_tables(titles, [row[: len(titles)] for row in rows], width)
        rest = [*_scored(part, width), *_reduced(part.meters, width)]
        if self.has_class("-maximised"):
            rest = [*(line for each in more for line in ([], each.head, *each.rows)), [], *rest]
        return Drawing([*first.rows, *rest], head=(first.head,), note=self._note(part, first.num_hidden, width))

    def _note(self, part: MetersPart, num_hidden: int, width: int) -> str:
        """The epochs of the values and the number of hidden columns, as much of it as fits."""
        epochs = _of_epochs(part)
        if not num_hidden or self.has_class("-maximised"):
            return epochs
        both = (f"{epochs}, {status_text.hidden_columns(num_hidden)}", f"{epochs}, +{num_hidden}")
        return next((note for note in both if len(note) < width - len(self.name_shown) - 8), epochs)


_FIGURES = ("val", "sum", "count")


def _titles(part: MetersPart) -> list[str]:
    best = [f"\u2605 epoch {part.best.epoch}"] if part.best is not None else []
    if not part.meters and not part.scores:
        return ["metric", "train", "valid", *best]
    more = [f"{split} {figure}" for figure in _FIGURES for split in ("train", "valid")]
    return ["meter", "train avg", "valid avg", *best, *more]


def _of_epochs(part: MetersPart) -> str:
    """The epochs of the values."""
    epochs = {meter.split: meter.epoch for meter in part.meters}
    return ", ".join(f"{split} epoch {epoch}" for split, epoch in epochs.items())


def _row(name: str, part: MetersPart) -> list[Cell]:
    of = {meter.split: meter for meter in part.meters if meter.name == name}
    sides = (of.get("train"), of.get("valid"))
    cells = [Cell(clean(name), "strong"), *(_average(meter, part.best) for meter in sides)]
    if part.best is not None:
        reading = part.best.valid.get(name) or part.best.train.get(name)
        cells.append(Cell(fmt.number(reading.avg), "good") if reading is not None else _NOTHING)
    cells += [Cell(fmt.number(meter.reading.val)) if meter is not None else _NOTHING for meter in sides]
    cells += [Cell(fmt.number(meter.reading.sum)) if meter is not None else _NOTHING for meter in sides]
    return cells + [Cell(fmt.count(meter.reading.count)) if meter is not None else _NOTHING for meter in sides]


_NOTHING = Cell(fmt.UNKNOWN, "dim")


def _average(meter: MeterView | None, best: EpochView | None) -> Cell:
    """An average; with a star if it is of the best epoch."""
    if meter is None:
        return _NOTHING
    average = meter.reading.avg
    star = "\u2605 " if best is not None and meter.split == "valid" and meter.epoch == best.epoch else ""
    return Cell(f"{star}{fmt.number(average)}", "bad" if average != average else "good" if star else "accent")


def _score_row(name: str, score: float, best: EpochView | None) -> list[Cell]:
    """A score is not a mean, so it has no sum or count."""
    figure = Cell(f"{fmt.number(score)}*", "accent" if score == score else "bad")
    then = [Cell(fmt.number(best.scores.get(name)), "good")] if best is not None else []
    return [Cell(clean(name), "strong"), _NOTHING, figure, *then, *[_NOTHING] * 6]


def _logged_row(name: str, part: MetersPart) -> list[Cell]:
    """The newest values that the script logged, and that of the best epoch."""
    of = {view.split: view.value for view in part.logged if view.name == name}
    newest = [_number(of.get("train")), _number(of.get("valid"))]
    then = [Cell(fmt.number(part.best.scores.get(name)), "good")] if part.best is not None else []
    return [Cell(clean(name), "strong"), *newest, *then, *[_NOTHING] * 6]


def _number(value: float | None) -> Cell:
    if value is None:
        return _NOTHING
    return Cell(fmt.number(value), "accent" if value == value else "bad")


def _scored(part: MetersPart, width: int) -> list[Line]:
    if not part.scores:
        return []
    sentence = f"* over the whole validation split, not a mean; epoch {part.scores_epoch}"
    return [[Span(f" {piece}", "dim")] for piece in wrap(sentence, width - 1)]


def _reduced(meters: list[MeterView], width: int) -> list[Line]:
    ways = dict.fromkeys(clean(meter.reduced) for meter in meters if meter.reduced)
    return [[Span(f" {piece}", "dim")] for way in ways for piece in _sentence(way, width)]


def _sentence(way: str, width: int) -> list[str]:
    return [span.text for line in paragraph(f"avg: {way}", width - 1, 3) for span in line]
