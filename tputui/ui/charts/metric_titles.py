"""The texts of charts of metrics: titles with values and units, and the legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.logged_series import SPLITS
from tputui.state.metric_series import LR, STEP_TIME, THROUGHPUT, MetricSeries
from tputui.telemetry.events import Split
from tputui.telemetry.logged_values import CONSOLE
from tputui.ui.charts import validation
from tputui.ui.charts.chart_view import VisibleData
from tputui.ui.render.lines import Line, Span, clean, fit, width_of

TRAIN_SIGN = "\u2500"
"""Sign of training values: a line, as in the chart."""
_CHOSEN = "\u203a"
"""Sign of the selected chart."""


def value_text(name: str, value: float) -> str:
    """A value of a metric with its unit."""
    if name == THROUGHPUT:
        return fmt.rate(value, "examples") if math.isfinite(value) else fmt.number(value)
    if name == STEP_TIME:
        return f"{fmt.number(value)} s"
    return f"{value:.4g}" if name == LR else fmt.number(value)


def titles(series: MetricSeries, data: VisibleData, width: int, count: int, *, chosen: bool) -> list[Line]:
    """Name and values at the cursor, else the newest ones; and the value of the best epoch. `chosen` marks the chart
    that keys act on."""
    name = [Span(_CHOSEN if chosen else " ", "accent"), Span(clean(series.name), "chosen" if chosen else "strong")]
    limits = data.view.y_of(series.name).note
    remarks = [Span("  from console", "label")] if series.source == CONSOLE else []
    remarks += [Span(f"  {limits}", "label")] if limits else []
    train, valid = (_value(series, split, data.view.cursor) for split in SPLITS)
    best = _best(series)
    if count > 1:
        return [_first_fitting(name, [train], width, remarks), _first_fitting([], [[*valid, *best], valid], width)]
    return [_first_fitting(name, [[*train, *valid, *best], [*train, *valid]], width, remarks)]


class _Value(NamedTuple):
    """A value in a title: its sign, the words before and after it."""

    sign: Span
    before: str
    text: str
    after: str = ""


def _value(series: MetricSeries, split: Split, cursor: int | None) -> list[_Value]:
    point = series.newest(split) if cursor is None else series.at(split, cursor)
    if point is None:
        return []
    if cursor is None and split == "train" and series.newest_train is not None:
        point = point._replace(value=series.newest_train)
    sign = Span(TRAIN_SIGN, "accent") if split == "train" else Span(validation.MARK.mark, validation.TONE)
    word = "" if series.basis == "report" else f"{split} "
    tone_sign = sign._replace(tone="bad") if not math.isfinite(point.value) else sign
    return [_Value(tone_sign, word, value_text(series.name, point.value))]


def _best(series: MetricSeries) -> list[_Value]:
    """The validation value of the best epoch, else its training value."""
    point = series.best("valid") or series.best("train")
    if point is None or series.basis == "report":
        return []
    star = Span(validation.BEST.mark, validation.BEST.tone)
    return [_Value(star, "", value_text(series.name, point.value), f" epoch {point.epoch}")]


def _first_fitting(start: Line, choices: Sequence[Sequence[_Value]], width: int, remarks: Sequence[Span] = ()) -> Line:
    """The longest form of the values that fits: with words, with signs, or without the sign of training, which could be
    mistaken for a minus; each after `start` with or without `remarks`. The last form is cut if none fits."""
    starts = [[*start, *remarks], start] if remarks else [start]
    forms = [form(one, values) for values in choices for form in (_with_words, _with_signs, _tight) for one in starts]
    return next((line for line in forms if width_of(line) <= width), fit(forms[-1], width))


def _with_words(start: Line, values: Sequence[_Value]) -> Line:
    line = list(start)
    for value in values:
        sign = value.sign._replace(text=f"  {value.sign.text} ")
        line += [sign, Span(value.before, "label"), _number(value), Span(value.after, "label")]
    return line


def _with_signs(start: Line, values: Sequence[_Value]) -> Line:
    signs = [(value.sign._replace(text=f" {value.sign.text} "), value) for value in values]
    return [*start, *(span for sign, value in signs for span in (sign, _number(value)))]


def _tight(start: Line, values: Sequence[_Value]) -> Line:
    line = list(start)
    for value in values:
        sign = " " if value.sign.text == TRAIN_SIGN else f" {value.sign.text}"
        line += [value.sign._replace(text=sign), _number(value)]
    return line


def _number(value: _Value) -> Span:
    return Span(value.text, "bad" if value.sign.tone == "bad" else "plain")


def legend(best_epoch: int | None, monitored: str, width: int) -> Line:
    """What the lines and signs mean."""
    line: Line = [
        Span(" \u2500\u2500 ", "accent"),
        Span("train", "label"),
        Span(f"  \u00b7{validation.MARK.mark}\u00b7 ", validation.TONE),
        Span("valid", "label"),
    ]
    if best_epoch is None:
        return line
    star = [*line, Span(f"  {validation.BEST.mark} ", validation.BEST.tone), Span(f"best epoch {best_epoch}", "label")]
    longer = [*star, Span(f" by {clean(monitored)}", "label")]
    return longer if width_of(longer) <= width else star
