"""The meters panel: newest value, average, sum and count of each AverageMeter, its curve, and how it was reduced."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.chart_data import LoggedView, MeterPoint
from tputui.state.snapshot import MeterView, Snapshot, best_epoch
from tputui.state.state_struct import once
from tputui.telemetry.events import EpochEnded, Split
from tputui.telemetry.logged_values import class_of, first_of
from tputui.ui.base import status_text
from tputui.ui.charts.series_chart import blocks
from tputui.ui.render.lines import Cell, Line, Span, clean, paragraph, stack_tables, wrap
from tputui.ui.render.names import shortened
from tputui.ui.widgets.panel import Drawing, RunPanel


class MetersPart(NamedTuple):
    """The content of the panel."""

    meters: list[MeterView]
    best: EpochEnded | None
    """The best epoch so far."""
    scores: dict[str, float]
    scores_epoch: int
    why_none: str
    logged: Sequence[LoggedView] = ()
    """What the script logged itself, if it is not among the meters."""
    history: Sequence[MeterPoint] = ()
    epochs: Sequence[EpochEnded] = ()
    num_more: int = 0
    """Number of the logged ones that are left out."""


LOGGED_MAX = 256
"""Logged metrics that have a row, losses and validation values first; pages of charts have all."""


@once
def _first_logged(logged: list[LoggedView]) -> list[LoggedView]:
    return first_of(logged, LOGGED_MAX, lambda view: class_of(view.name, view.split))


_LEAST_CURVES_WIDTH = 56
_LEAST_CURVE = 12
"""Fewest cells of a curve."""
_TALLEST = 3
"""Most lines of a curve."""

_LOG_FROM = 20.0
"""Ratio of the highest to the lowest value from which a curve has a log scale."""

_Points = list[tuple[float, float]]
"""Step and value."""


class MetersPanel(RunPanel[MetersPart]):
    """AverageMeters of training and validation."""

    key = "3"
    name_shown = "meters"
    what = (
        "AverageMeters of training and validation: average, newest value, sum, count, reduction, and the average of "
        "the best epoch; scores of the whole validation split; with enough room a curve of each"
    )

    @staticmethod
    def pick(snapshot: Snapshot) -> MetersPart:
        """The meters of the current or last epoch, and of the best one."""
        scored = next((epoch for epoch in reversed(snapshot.epochs) if epoch.scores), None)
        scores, epoch = (scored.scores, scored.epoch) if scored is not None else ({}, 0)
        best = best_epoch(snapshot.epochs)
        why = "" if snapshot.meters else status_text.nothing_yet(snapshot, "meter")
        of_meters = {meter.name for meter in snapshot.meters}
        few = _first_logged(snapshot.logged)
        logged = [view for view in few if view.name not in of_meters]
        names = {view.name for view in logged}
        scores = {name: score for name, score in scores.items() if name not in names}
        more, history = len(snapshot.logged) - len(few), snapshot.meter_history
        return MetersPart(snapshot.meters, best, scores, epoch, why, logged, history, snapshot.epochs, more)

    def draw(self, part: MetersPart, width: int, height: int) -> Drawing:
        """One row per meter, then one row per score, then the curves."""
        if not part.meters and not part.scores and not part.logged:
            return Drawing(paragraph(part.why_none, width, height))
        names = list(dict.fromkeys(meter.name for meter in part.meters))
        rows = [_row(name, part) for name in names]
        newest: dict[str, dict[Split, float]] = {}
        for view in part.logged:
            newest.setdefault(view.name, {})[view.split] = view.value
        rows += [_logged_row(name, of, part.best) for name, of in newest.items()]
        rows += [_score_row(name, score, part.best) for name, score in part.scores.items()]
        titles = _titles(part)
        rows = _with_room_for_values(titles, rows, width)
        first, *others = stack_tables(titles, [row[: len(titles)] for row in rows], width)
        more = f" {fmt.more(part.num_more, 'logged metric')} on the pages of charts: m"
        below = [[Span(more, "dim")]] if part.num_more else []
        below += [*_scored(part, width), *_reduced(part.meters, width)]
        room = height - 1 - len(rows) - len(below)
        if self.has_class("-maximised"):
            below = [*(line for table in others for line in ([], table.head, *table.rows)), [], *below]
            room = height - 1 - len(rows) - len(below)
        return Drawing(
            [*first.rows, *below, *_curves(part, width, room)],
            head=(first.head,),
            note=self._note(part, first.num_hidden, width),
        )

    def _note(self, part: MetersPart, num_hidden: int, width: int) -> str:
        """The epochs of the values and the number of hidden columns, as much of it as fits."""
        epochs = _of_epochs(part)
        if not num_hidden or self.has_class("-maximised"):
            return epochs
        hidden = (f", {status_text.hidden_columns(num_hidden)}", f", +{num_hidden}", "")
        notes = [of + more for of in (epochs, _of_epochs(part, in_short=True)) for more in hidden]
        return next((note for note in notes if len(note) < width - len(self.name_shown) - 8), notes[-1])


_FIGURES = ("last", "sum", "count")
_NUM_FIRST = 4
"""Columns that are shown whatever the names are: the name, both averages, and that of the best epoch."""
_LEAST_NAME = 14


def _titles(part: MetersPart) -> list[str]:
    best = [f"\u2605 epoch {part.best.epoch}"] if part.best is not None else []
    if not part.meters and not part.scores:
        return ["metric", "train", "valid", *best]
    more = [f"{split} {figure}" for figure in _FIGURES for split in ("train", "valid")]
    return ["meter", "train avg", "valid avg", *best, *more]


def _with_room_for_values(titles: list[str], rows: list[list[Cell]], width: int) -> list[list[Cell]]:
    """The rows with names so short that the averages, and the value of the best epoch, fit beside them."""
    columns = zip(titles[1:_NUM_FIRST], *(row[1:_NUM_FIRST] for row in rows), strict=False)
    values = sum(2 + max(len(title), *(len(cell.text) for cell in cells)) for title, *cells in columns)
    short = shortened(tuple(row[0].text for row in rows), max(width - values - 2, _LEAST_NAME))
    return [[row[0]._replace(text=short[row[0].text]), *row[1:]] for row in rows]


def _of_epochs(part: MetersPart, *, in_short: bool = False) -> str:
    """The epochs of the values: `train epoch 8, valid epoch 7`, in short `ep 8 / 7`."""
    epochs = {meter.split: meter.epoch for meter in part.meters}
    if len(epochs) > 1 and len(set(epochs.values())) == 1:
        return f"epoch {next(iter(epochs.values()))}"
    if in_short:
        return f"ep {' / '.join(map(str, epochs.values()))}"
    return ", ".join(f"{split} epoch {epoch}" for split, epoch in epochs.items())


def _row(name: str, part: MetersPart) -> list[Cell]:
    of = {meter.split: meter for meter in part.meters if meter.name == name}
    sides = (of.get("train"), of.get("valid"))
    cells = [Cell(clean(name), "strong"), *(_average(meter, part.best) for meter in sides)]
    if part.best is not None:
        cells.append(_in_best(name, part.best))
    cells += [Cell(fmt.number(meter.reading.val)) if meter is not None else _NOTHING for meter in sides]
    cells += [Cell(fmt.number(meter.reading.sum)) if meter is not None else _NOTHING for meter in sides]
    return cells + [Cell(fmt.count(meter.reading.count)) if meter is not None else _NOTHING for meter in sides]


_NOTHING = Cell(fmt.UNKNOWN, "dim")


def _in_best(name: str, best: EpochEnded) -> Cell:
    """The value of the best epoch, in validation if it has one."""
    reading = best.valid.get(name) or best.train.get(name)
    value = best.scores.get(name, reading.avg if reading is not None else None)
    return Cell(fmt.number(value), "good") if value is not None else _NOTHING


def _average(meter: MeterView | None, best: EpochEnded | None) -> Cell:
    """An average; with a star if it is of the best epoch."""
    if meter is None:
        return _NOTHING
    average = meter.reading.avg
    star = "\u2605 " if best is not None and meter.split == "valid" and meter.epoch == best.epoch else ""
    return Cell(f"{star}{fmt.number(average)}", "bad" if average != average else "good" if star else "accent")


def _score_row(name: str, score: float, best: EpochEnded | None) -> list[Cell]:
    """A score is not a mean, so it has no sum or count."""
    figure = Cell(f"{fmt.number(score)}*", "accent" if score == score else "bad")
    then = [_in_best(name, best)] if best is not None else []
    return [Cell(clean(name), "strong"), _NOTHING, figure, *then, *[_NOTHING] * 6]


def _logged_row(name: str, of: dict[Split, float], best: EpochEnded | None) -> list[Cell]:
    """The newest values that the script logged, and that of the best epoch."""
    newest = [_number(of.get("train")), _number(of.get("valid"))]
    then = [_in_best(name, best)] if best is not None else []
    return [Cell(clean(name), "strong"), *newest, *then, *[_NOTHING] * 6]


def _number(value: float | None) -> Cell:
    if value is None:
        return _NOTHING
    return Cell(fmt.number(value), "accent" if value == value else "bad")


def _curves(part: MetersPart, width: int, room: int) -> list[Line]:
    """A curve of blocks for each metric and split over the steps of the run; the first ones if they do not all fit."""
    if room < 1 or width < _LEAST_CURVES_WIDTH:
        return []
    curves = list(itertools.islice((curve for curve in _all_curves(part) if len(curve[2]) > 1), room))
    if not curves:
        return []
    steps = [step for _, _, points in curves for step in (points[0][0], points[-1][0])]
    cleaned = tuple(clean(name) for name, _, _ in curves)
    short = shortened(cleaned, max(width // 3, _LEAST_NAME))
    names = [short[name] for name in cleaned]
    bounds = [_bounds(points) for _, _, points in curves]
    most_name, most_bounds = max(map(len, names)), max(map(len, bounds))
    across = width - most_name - most_bounds - 10
    if across < _LEAST_CURVE:
        return []
    tall = min(room // len(curves), _TALLEST)
    lines: list[Line] = []
    for name, (_, split, points), bound in zip(names, curves, bounds, strict=True):
        shown = [(step, math.log(value)) for step, value in points] if _spans_decades(points) else points
        drawn = blocks(shown, (min(steps), max(steps)), across, tall)
        heads = [f" {'':<{most_name}}       "] * (tall - 1) + [f" {name:<{most_name}} {split} "]
        lines += [[Span(head, "label"), *line] for head, line in zip(heads, drawn, strict=True)]
        lines[-1] += [Span(f"  {bound}", "dim")]
    return lines


def _all_curves(part: MetersPart) -> Iterable[tuple[str, Split, _Points]]:
    """Name, split and points of each curve, in the order of the rows of the table."""
    splits: tuple[Split, ...] = ("train", "valid")
    for name in dict.fromkeys(meter.name for meter in part.meters):
        for split in splits:
            yield name, split, _of_meter(name, split, part)
    for view in part.logged:
        yield view.name, view.split, [(point.last_step, point.mean) for point in view.points]
    for name in part.scores:
        yield name, "valid", [(epoch.step, epoch.scores[name]) for epoch in part.epochs if name in epoch.scores]


def _of_meter(name: str, split: Split, part: MetersPart) -> _Points:
    """Averages of a meter: in training those of the epoch so far, by report; in validation those of the epochs."""
    points: _Points = []
    if split == "train":
        points = [(means.step, means.avg[name]) for means in part.history if means.split == split and name in means.avg]
    if points:
        return points
    ended = ((epoch.step, (epoch.train if split == "train" else epoch.valid).get(name)) for epoch in part.epochs)
    return [(step, reading.avg) for step, reading in ended if reading is not None]


def _bounds(points: _Points) -> str:
    finite = [value for _, value in points if math.isfinite(value)]
    if not finite:
        return "NaN/inf"
    log = ", log" if _spans_decades(points) else ""
    return f"{fmt.number(min(finite), 3)} to {fmt.number(max(finite), 3)}{log}"


def _spans_decades(points: _Points) -> bool:
    """Whether a curve is drawn on a log scale, because a linear one would show only its beginning."""
    values = [value for _, value in points]
    return all(map(math.isfinite, values)) and min(values) > 0 and max(values) >= _LOG_FROM * min(values)


def _scored(part: MetersPart, width: int) -> list[Line]:
    if not part.scores:
        return []
    sentence = f"* over the whole validation split, not a mean; epoch {part.scores_epoch}"
    return [[Span(f" {piece}", "dim")] for piece in wrap(sentence, width - 1)]


def _reduced(meters: list[MeterView], width: int) -> list[Line]:
    ways = dict.fromkeys(clean(meter.reduced) for meter in meters if meter.reduced)
    return [[Span(f" {piece}", "dim")] for way in ways for piece in _sentence(way, width)]


def _sentence(way: str, width: int) -> list[str]:
    return wrap(clean(f"avg: {way}"), width - 1, 3)
