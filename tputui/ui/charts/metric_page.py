"""Small charts of metrics, each with its training and validation curve.

The x axis is that of the loss chart, or the one that the author of a metric chose.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.logged_series import SPLITS
from tputui.state.metric_series import (
    LR,
    STEP_TIME,
    THROUGHPUT,
    MetricPoint,
    Metrics,
    MetricSeries,
    MetricSource,
)
from tputui.telemetry.events import Split
from tputui.telemetry.logged_values import CONSOLE
from tputui.ui.base.export import Figure, Figures
from tputui.ui.charts import axis, metric_layout, validation
from tputui.ui.charts.axis import Axes, XAxis
from tputui.ui.charts.chart_view import Chart, VisibleData, cursor_cell, with_arrows, x_axis_of
from tputui.ui.charts.columns import smoothed
from tputui.ui.charts.curves import dot_of
from tputui.ui.charts.metric_layout import Choice, Heading, PageLayout
from tputui.ui.charts.scale import Scale, end_labels, y_labels
from tputui.ui.charts.series_chart import as_segments
from tputui.ui.charts.several import Point, empty_body, line_of, outside_of, scale_of_all
from tputui.ui.render import braille
from tputui.ui.render.braille import DOTS_X, DOTS_Y, DotLayer
from tputui.ui.render.lines import Line, Span, clean, fit, width_of
from tputui.ui.render.names import shortened_one

TRAIN_SIGN = "\u2500"
"""Sign of training values: a line, as in the chart."""
_CHOSEN = "\u203a"
"""Sign of the selected chart."""
_OPEN, _FOLDED = "\u25be", "\u25b8"
"""Signs of a group whose charts are shown, and of one whose heading alone is shown."""
_PINNED = "pinned"
_LEAST_NAME = 16
"""Cells of a shortened name from which every value stays beside it."""


def value_text(name: str, value: float) -> str:
    """A value of a metric with its unit."""
    if name == THROUGHPUT:
        return fmt.rate(value, "examples") if math.isfinite(value) else fmt.number(value)
    if name == STEP_TIME:
        return f"{fmt.number(value)} s"
    return f"{value:.4g}" if name == LR else fmt.number(value)


@lru_cache(maxsize=4)
def _cleaned(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names as they are drawn; kept since there may be thousands."""
    return tuple(map(clean, names))


def titles(
    series: MetricSeries,
    data: VisibleData,
    width: int,
    count: int,
    *,
    chosen: bool,
    names: tuple[str, ...],
    remark: str = "",
) -> list[Line]:
    """Name and values at the cursor, else the newest ones; and the value of the best epoch. `chosen` marks the chart
    that keys act on. A name is shortened, unlike the others of `names`, rather than its values. A `remark` is shown if
    there is room."""
    sign = Span(_CHOSEN if chosen else " ", "accent")

    def name_in(room: int) -> Line:
        name = clean(series.name)
        if len(name) > room:
            name = shortened_one(name, _cleaned(names or (series.name,)), room)
        return [sign, Span(name, "chosen" if chosen else "strong")]

    limits = data.view.y_of(series.name).note
    console = "from console" if series.source == CONSOLE else ""
    remarks = [Span(f"  {text}", "label") for text in (remark, console, limits) if text]
    train, valid = (_value(series, split, data.view.cursor) for split in SPLITS)
    best = _best(series)
    if count > 1:
        first = _first_fitting(name_in, [train], width, remarks)
        return [first, _first_fitting(lambda _: [], [[*valid, *best], valid], width)]
    return [_first_fitting(name_in, [[*train, *valid, *best], [*train, *valid]], width, remarks)]


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


def _first_fitting(
    name_in: Callable[[int], Line], choices: Sequence[Sequence[_Value]], width: int, remarks: Sequence[Span] = ()
) -> Line:
    """The longest form of the values that fits: with words, with signs, or without the sign of training, which could be
    mistaken for a minus; each after the name with or without `remarks`. Before values are left out, the name is
    shortened."""
    whole = name_in(width)
    starts = [[*whole, *remarks], whole] if remarks else [whole]
    for values in choices:
        for form in (_with_words, _with_signs, _tight):
            for start in starts:
                if width_of(line := form(start, values)) <= width:
                    return line
        room = width - 1 - width_of(_tight([], values))
        if room >= (_LEAST_NAME if values is not choices[-1] else 1):
            return fit(_tight(name_in(room), values), width)
    return fit(_tight(whole, choices[-1]), width)


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


_TWO_TITLES_FROM = 11
"""Height of a chart in cells from which its title has two lines."""
_TICKS_FROM = 8
"""Height of the curves in cells from which the y axis has round ticks instead of its ends."""
_EPOCH_DOTS = 8
"""Dot columns of an epoch below which only the mean of the whole epoch is drawn."""
_AXIS_LINES = 2

Points = Sequence[tuple[int, float]]
"""Dot column and value."""


class MetricPage(NamedTuple):
    """The drawn page."""

    chart: Chart
    shown: list[MetricSeries]
    chosen: str
    """Name of the selected chart, which keys act on, or of the selected group, which is folded."""
    first: int
    """Index of the first chart."""
    num_charts: int
    """Number of charts on all pages."""
    num_folded: int
    """Number of metrics in folded groups."""
    has_head: bool
    """Whether there is a line above the charts."""
    layout: PageLayout

    @property
    def chosen_metric(self) -> str:
        """The selected metric; empty if a folded group is selected."""
        return self.chosen if any(metric.name == self.chosen for metric in self.shown) else ""


class MetricCharts:
    """Draws pages of metrics; curves are computed again only if they have new values."""

    def __init__(self) -> None:
        self.choose: Callable[[tuple[str, ...]], tuple[str, ...]] = tuple
        """Chooses the metrics that are shown, by their names."""
        self.choice = Choice()
        self._metrics: Metrics | None = None

    def metrics(self, source: MetricSource) -> Metrics:
        """Every metric of a run."""
        if self._metrics is None or self._metrics.source != source:
            self._metrics = Metrics(source, self._metrics)
        return self._metrics

    def num_found(self, source: MetricSource) -> int:
        """Number of metrics that are chosen."""
        return len(self._chosen_names(source))

    def groups(self, source: MetricSource) -> frozenset[str]:
        """The groups of the metrics that are chosen."""
        return metric_layout.groups_of(self._chosen_names(source), self.choice.pinned)

    def pages(self, source: MetricSource, width: int, height: int) -> list[PageLayout]:
        """The pages of the metrics that are chosen."""
        return metric_layout.pages(self._chosen_names(source), self.choice, width, height)

    def _chosen_names(self, source: MetricSource) -> tuple[str, ...]:
        return self.choose(self.metrics(source).names)

    def first_of_page(self, source: MetricSource, metric: str, by: int, width: int, height: int) -> str:
        """What is first on the page `by` pages after that of a metric; empty for the loss chart, the first page."""
        pages = self.pages(source, width, height)
        charts = [""] if source.loss or not pages else []
        at = next((number for number, page in enumerate(pages, len(charts)) if page.selected(metric)), 0)
        firsts = [*charts, *(page.items[0] for page in pages)]
        return firsts[(at + by) % len(firsts)]

    def neighbour(self, source: MetricSource, metric: str, by: int, width: int, height: int) -> str:
        """The metric or folded group `by` after another, on any page."""
        names = [name for page in self.pages(source, width, height) for name in page.items]
        return names[min(max(names.index(metric) + by, 0), len(names) - 1)]

    def draw(self, source: MetricSource, metric: str, data: VisibleData, width: int, height: int) -> MetricPage | None:
        """The page that contains the selected metric, or else the first one; None without any metric."""
        names = self._chosen_names(source)
        pages = metric_layout.pages(names, self.choice, width, height)
        if not pages:
            return None
        number = next((number for number, page in enumerate(pages) if page.selected(metric)), 0)
        # A line for the legend, unless it would cost a row of charts.
        smaller = metric_layout.pages(names, self.choice, width, height - 1)
        has_head = [page.shape for page in smaller] == [page.shape for page in pages]
        layout = (smaller if has_head else pages)[number]
        metrics = self.metrics(source)
        shown = [metrics[name] for name in layout.metrics]
        first = sum(len(page.metrics) for page in pages[:number])
        num_charts = sum(len(page.metrics) for page in pages)
        num_folded = sum(page.num_folded for page in pages)
        chosen = layout.selected(metric) or layout.items[0]
        pinned = self.choice.pinned if not isinstance(layout.rows[0], Heading) else ()
        chart = draw(shown, data, layout, chosen, metrics.names, pinned)
        return MetricPage(chart, shown, chosen, first, num_charts, num_folded, has_head, layout)


def draw(
    series: Sequence[MetricSeries],
    data: VisibleData,
    layout: PageLayout,
    chosen: str,
    names: tuple[str, ...],
    pinned: tuple[str, ...],
) -> Chart:
    """The rows of a page. By steps, a chart has the x axis that its author chose; other axes are those of all charts.
    The axes of the result are those of the selected chart, else of the first one. `names`: those of all charts, among
    which shortened ones stay different. The charts of `pinned` metrics say so."""
    is_beside = max(layout.shape) > 1
    gap = 1 if is_beside else 0
    num_titles = 2 if layout.height >= _TWO_TITLES_FROM else 1
    rows = max(layout.height - num_titles - _AXIS_LINES, 0)
    curves = [_visible(metric, data) for metric in series]
    scales = [_scale(metric.name, curve, data, rows) for metric, curve in zip(series, curves, strict=True)]
    labels_of = y_labels if rows >= _TICKS_FROM else end_labels
    labels = [labels_of(scale, rows) for scale in scales]
    left = max(map(axis.left_of, labels), default=0)
    across = max(layout.width - left - gap, 0)
    x_axes = {metric.name: _x_axis(metric, data, across * DOTS_X) for metric in series}
    cuts = [_cut(curve, scale) for curve, scale in zip(curves, scales, strict=True)]
    marked = chosen if len(layout.items) > 1 else ""
    charts: dict[str, list[Line]] = {}
    for metric, curve, scale, texts, cut in zip(series, curves, scales, labels, cuts, strict=True):
        axes = Axes(x_axes[metric.name], scale, texts, left, across, rows)
        body = _body(metric._replace(train=curve[0], valid=curve[1]), data, axes, cut)
        is_chosen = metric.name == marked
        remark = _PINNED if metric.name in pinned else ""
        title = titles(metric, data, layout.width - gap, num_titles, chosen=is_chosen, names=names, remark=remark)
        lines = [*title, *body]
        charts[metric.name] = [_padded(line, layout.width) for line in lines[: layout.height]]
    lines = []
    for row in layout.rows:
        if isinstance(row, Heading):
            lines.append(_heading(row, is_chosen=row.is_folded and row.group == marked))
        else:
            lines += [[span for name in row for span in charts[name][at]] for at in range(layout.height)]
    hidden = sum(point.value <= 0 for curve in curves for points in curve for point in points) if data.view.log else 0
    at = next((at for at, metric in enumerate(series) if metric.name == chosen), 0)
    if series:
        axes = Axes(x_axes[series[at].name], scales[at], labels[at], left, across, rows)
    else:
        axes = Axes(x_axis_of(data, across * DOTS_X), None, {}, 0, across, 0)
    num_cut = sum(map(len, cuts))
    outside = f"{fmt.counted(num_cut, 'value')} outside" if num_cut else ""
    return Chart(lines, axes, hidden=hidden, every=layout.width if is_beside else 0, outside=outside)


def _x_axis(metric: MetricSeries, data: VisibleData, width: int) -> XAxis:
    if metric.x is not None and data.view.x == "step":
        info = data.axis_info._replace(chosen=metric.x)
        data = replace(data, axis_info=info, view=data.view._replace(x="chosen"))
    return x_axis_of(data, width)


def _heading(heading: Heading, *, is_chosen: bool) -> Line:
    """The name of a group and the number of its metrics."""
    sign = _FOLDED if heading.is_folded else _OPEN
    return [
        Span(_CHOSEN if is_chosen else " ", "accent"),
        Span(f"{sign} ", "accent"),
        Span(clean(heading.group), "chosen" if is_chosen else "strong"),
        Span(f"  {heading.num_metrics:,}", "label"),
    ]


def _scale(name: str, curve: tuple[list[MetricPoint], list[MetricPoint]], data: VisibleData, rows: int) -> Scale | None:
    """The y axis of a chart; labels that are its ends need no round ones."""
    series = [[point.value for point in points] for points in curve]
    return scale_of_all(series, data.view.y_of(name), rows if rows >= _TICKS_FROM else 0, log=data.view.log)


def _cut(curve: tuple[list[MetricPoint], list[MetricPoint]], scale: Scale | None) -> list[Point]:
    return outside_of(((point.step, point.value) for points in curve for point in points), scale)


def _padded(line: Line, width: int) -> Line:
    line = fit(line, width)
    return [*line, Span(" " * (width - width_of(line)))]


def _visible(series: MetricSeries, data: VisibleData) -> tuple[list[MetricPoint], list[MetricPoint]]:
    """The training and validation points at the visible steps."""
    first, last = data.segments[0].first_step, data.segments[-1].last_step
    return _between(series.train, first, last), _between(series.valid, first, last)


def _between(points: list[MetricPoint], first: int, last: int) -> list[MetricPoint]:
    start = bisect.bisect_left(points, first, key=lambda point: point.step)
    return points[start : bisect.bisect_right(points, last, key=lambda point: point.step)]


def _body(series: MetricSeries, data: VisibleData, axes: Axes, cut: Sequence[Point]) -> list[Line]:
    """The curves, arrows for the points that the y axis cuts, and the x axis."""
    cursor = cursor_cell(data, axes)
    bad = validation.dots_of([point for point in (*series.train, *series.valid) if point.is_bad], axes.x)
    ruler = axis.ruler_lines(axes, axis.bad_signs(bad), cursor)
    if axes.y is None:
        return [*axis.sided(empty_body([point.value for point in (*series.train, *series.valid)], axes), axes), *ruler]
    layers = [validation.layer(series.valid, axes), *_train_layers(series, data, axes)]
    body = braille.compose(layers, guide=cursor)
    body = with_arrows(body, [(axes.x.dot(axes.x.at(int(step))), value, value) for step, value in cut], axes.y)
    if series.basis != "report":
        of = series.valid or series.train
        body = validation.marked(body, of, series.best_epoch, axes, circles=bool(series.valid))
    return [*axis.sided(body, axes), *ruler]


def _train_layers(series: MetricSeries, data: VisibleData, axes: Axes) -> list[DotLayer]:
    """The training curve, smoothed over its raw values."""
    assert axes.y is not None
    row = dot_of(axes.y, axes.rows * DOTS_Y)
    raw, smooth = _train_dots(series, data, axes)
    if axes.y.log:
        raw, smooth = _positive(raw), _positive(smooth)
    line = line_of(smooth or raw, row, axes, "accent")
    return [line_of(raw, row, axes, "label", is_behind=True), line] if smooth else [line]


def _positive(points: Points) -> Points:
    return [(x, value if value > 0 else math.nan) for x, value in points]


def _train_dots(series: MetricSeries, data: VisibleData, axes: Axes) -> tuple[Points, Points]:
    """The training curve by dot column, raw and smoothed. Means over an epoch are never smoothed."""
    x = axes.x
    if series.basis == "step":
        means = [(column.x, column.mean) for column in data.columns.merged(x.dots())]
        return means, list(dict(zip(x.dots(), data.smooth, strict=True)).items()) if data.smooth else []
    points = series.train
    if series.basis == "epoch":
        points = _resolved(points, axes)
        return list(
            dict(zip(validation.dots_of(points, x), [point.value for point in points], strict=True)).items()
        ), []
    dots = validation.dots_of(points, x)
    if series.is_stepped:
        return _steps(dots, points), []
    raw = _means(dots, [point.value for point in points])
    if not data.view.weight:
        return raw, []
    segments = as_segments([(point.t, point.step, point.value) for point in points])
    return raw, list(dict(zip(dots, smoothed(segments, data.view.weight), strict=True)).items())


def _steps(dots: Sequence[int], points: Sequence[MetricPoint]) -> Points:
    """A line that changes at once. A value is that of the steps since the previous one."""
    last = dict(zip(dots, (point.value for point in points), strict=True))
    stepped: list[tuple[int, float]] = []
    for x, value in last.items():
        if stepped:
            stepped.append((stepped[-1][0], value))
        stepped.append((x, value))
    return stepped


def _resolved(points: list[MetricPoint], axes: Axes) -> list[MetricPoint]:
    """The points without those within epochs that are too narrow to show how their mean developed."""
    ends = [point for point in points if point.ends_epoch]
    dots = validation.dots_of([*ends[:1], *ends[-1:]], axes.x)
    if len(ends) < 2 or (dots[-1] - dots[0]) / (len(ends) - 1) >= _EPOCH_DOTS:
        return points
    newest = points[-1].epoch
    return [point for point in points if point.ends_epoch or point.epoch == newest]


def _means(dots: Sequence[int], values: Sequence[float]) -> Points:
    """The mean of the finite values of each dot column."""
    values_by_dot: dict[int, list[float]] = {}
    for x, value in zip(dots, values, strict=True):
        values_by_dot.setdefault(x, []).append(value)
    finite = ((x, [value for value in of if math.isfinite(value)]) for x, of in values_by_dot.items())
    return [(x, math.fsum(of) / len(of) if of else math.nan) for x, of in finite]


def note(page: MetricPage, settings: str, cursor: int | None, width: int, *, search: str = "") -> str:
    """Which metrics the page shows, of those that are searched for, and the settings of the view; without a line for
    them the cursor or the legend too.

    The least important parts are left out if there is no room.
    """
    last = page.first + len(page.shown)
    which = f"{page.first + 1}-{last}" if len(page.shown) > 1 else f"{last}"
    parts = [f"{which} of {page.num_charts}"] if page.shown else []
    if search:
        parts = [f"/{search}/ {which} of {page.num_charts}"]
    parts += [f"{page.num_folded:,} folded"] if page.num_folded else []
    if cursor is not None and not page.has_head:
        parts.insert(0, f"step {cursor:,}")
    settings = settings.removeprefix("multiples").removeprefix(" \u00b7 ")
    parts += [settings] if settings else []
    if cursor is None and not page.has_head:
        best = page.shown[0].best_epoch if page.shown else None
        star = f", {validation.BEST.mark} best epoch {best}" if best is not None else ""
        parts.insert(0, f"{TRAIN_SIGN} train, {validation.MARK.mark} valid{star}")
        parts = parts if len(" \u00b7 ".join(parts)) < width - 14 else parts[1:]
    while len(parts) > 1 and len(" \u00b7 ".join(parts)) >= width - 14:
        parts.pop()
    return " \u00b7 ".join(parts)


def metric_figures(series: list[MetricSeries]) -> Figures:
    """A row per metric, split and step."""
    head = ("metric", "split", "step", "epoch", "t", "value", "unit", "of_epoch", "num_non_finite", "source")
    rows: list[tuple[Figure, ...]] = [
        (
            metric.name,
            split,
            p.step,
            p.epoch,
            p.t or None,
            p.value,
            metric.unit,
            p.ends_epoch,
            p.num_bad,
            metric.source or None,
        )
        for metric in series
        for split, points in (("train", metric.train), ("valid", metric.valid))
        for p in points
    ]
    return Figures(head, rows, "all metrics")
