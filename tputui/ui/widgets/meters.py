"""AverageMeters: newest value, average, sum and count, and how they were reduced."""

from __future__ import annotations

from typing import NamedTuple

from tputui.model import format as fmt
from tputui.model.snapshot import MeterView, Snapshot
from tputui.ui import table, words
from tputui.ui.lines import Line, Span, clean, paragraph, wrap
from tputui.ui.table import Cell
from tputui.ui.widgets.panel import Drawing, Panel


class MetersPart(NamedTuple):
    """What the panel shows."""

    meters: list[MeterView]
    scores: dict[str, float]
    scores_epoch: int
    why_none: str


class MetersPanel(Panel[MetersPart]):
    """AverageMeters of training and validation."""

    key = "3"
    name_shown = "meters"
    what = (
        "AverageMeters of training and validation: newest value, average, sum, count, and how they were reduced; "
        "scores of the whole validation split"
    )

    @staticmethod
    def pick(snapshot: Snapshot) -> MetersPart:
        """The meters of the running epoch, or the last one."""
        told = next((epoch for epoch in reversed(snapshot.epochs) if epoch.scores), None)
        scores, epoch = (told.scores, told.epoch) if told is not None else ({}, 0)
        why = "" if snapshot.meters else words.nothing_yet(snapshot, "meter")
        return MetersPart(snapshot.meters, scores, epoch, why)

    def draw(self, part: MetersPart, width: int, height: int) -> Drawing:
        """A row a meter, then a row a score."""
        if not part.meters and not part.scores:
            return Drawing(paragraph(part.why_none, width, height))
        rows = [_row(meter) for meter in part.meters]
        rows += [_score_row(name, part.scores_epoch, score) for name, score in part.scores.items()]
        drawn = table.align(["meter", "epoch", "avg", "val", "sum", "count"], rows, width, left=frozenset({0}))
        return Drawing([*drawn.rows, *_scored(part.scores, width), *_reduced(part.meters, width)], head=(drawn.head,))


def _row(meter: MeterView) -> list[Cell]:
    reading = meter.reading
    return [
        Cell(f"{meter.split} {clean(meter.name)}", "strong"),
        Cell(str(meter.epoch), "dim"),
        Cell(fmt.number(reading.avg), "accent" if reading.avg == reading.avg else "bad"),
        Cell(fmt.number(reading.val)),
        Cell(fmt.number(reading.sum)),
        Cell(fmt.count(reading.count)),
    ]


def _score_row(name: str, epoch: int, score: float) -> list[Cell]:
    """A score is no mean, so there is nothing to sum or count."""
    figure = Cell(f"{fmt.number(score)}*", "accent" if score == score else "bad")
    nothing = Cell(fmt.UNKNOWN, "dim")
    return [Cell(f"valid {clean(name)}", "strong"), Cell(str(epoch), "dim"), figure, nothing, nothing, nothing]


def _scored(scores: dict[str, float], width: int) -> list[Line]:
    if not scores:
        return []
    return [[Span(f" {piece}", "dim")] for piece in wrap("* of the whole validation split, no mean", width - 1)]


def _reduced(meters: list[MeterView], width: int) -> list[Line]:
    ways = dict.fromkeys(clean(meter.reduced) for meter in meters if meter.reduced)
    return [[Span(f" {piece}", "dim")] for way in ways for piece in _sentence(way, width)]


def _sentence(way: str, width: int) -> list[str]:
    return [span.text for line in paragraph(f"avg: {way}", width - 1, 3) for span in line]
