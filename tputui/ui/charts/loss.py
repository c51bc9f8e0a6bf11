"""The loss chart of a run in the chosen view, with the legend, the cursor readout and the note around it."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.chart_data import CoreColumn, Mark, OutlierView, Segment
from tputui.state.metric_series import LOSS, validation_points
from tputui.state.outlier import OutlierRow, OutlierSearch, deviating_cores_of
from tputui.state.snapshot import best_epoch
from tputui.telemetry.events import EpochEnded
from tputui.ui.charts import heatmap, small_multiples, validation
from tputui.ui.charts.axis import NON_FINITE_MARK, XKind
from tputui.ui.charts.chart_view import Chart, ChartSeries, ChartView, ValidCurve, VisibleData, column_at, visible_data
from tputui.ui.charts.columns import ColumnCache, ReducedColumns, smoothed
from tputui.ui.charts.curves import draw_band, draw_overlay
from tputui.ui.charts.events_line import sign_of
from tputui.ui.charts.spikes import SpikeFinder, max_in, named_extremes
from tputui.ui.render.lines import Line, Span, clean, fit, width_of

_LEAST_WIDTH, _LEAST_HEIGHT = 16, 3
_BAND_SAMPLES = ([Span(" \u28ff\u28ff ", "band")], [Span(" "), Span("  ", "in_band"), Span(" ")])
"""The band in the legend: as dots, and painted."""
_EDGES_SAMPLE = [Span(" \u2841\u2841 ", "band")]
"""The band without colours: dots at the minimum and the maximum."""
_KINDS_WITH_VALID = ("band", "overlay")
"""Views whose y axis is the loss."""

_VALUES_A_CALL = 100_000
"""Maximum number of values examined per call: about 20 ms."""


REUSE_S = 0.5
"""Seconds for which a chart is shown again while new steps would only change its last cell."""


class OutlierDetector:
    """Finds the outlier among the visible columns of cores. Results are cached by column: a run adds one at a time."""

    def __init__(self) -> None:
        self._cached: dict[int, tuple[CoreColumn, OutlierRow]] = {}
        self._found: tuple[tuple[int, ...], OutlierView | None] = ((), None)
        self._search: tuple[tuple[int, ...], OutlierSearch] = ((), OutlierSearch())
        """The search over all but the newest columns, and which those are: a running run only adds to them."""
        self.complete = True
        """Whether every column of the last call was examined; if not, the next call continues."""

    def outlier(self, columns: Sequence[CoreColumn]) -> OutlierView | None:
        """The core that deviated longest within the columns; the newest columns are examined first."""
        budget = _VALUES_A_CALL
        cached = self._cached
        key = tuple(map(id, columns))
        num_cached = len(columns)
        if not cached.keys() >= set(key):
            for position, column in enumerate(reversed(columns)):
                if id(column) not in cached:
                    if budget < 0:
                        num_cached = position
                        break
                    budget -= len(column.means)
                    cached[id(column)] = (column, deviating_cores_of(column))
        self.complete = num_cached == len(columns)
        key = key[len(columns) - num_cached :]
        if key != self._found[0]:
            self._found = (key, self._searched(key))
        # Columns outside the window are dropped only when there are many: the window may move back.
        if len(cached) > 4 * len(columns):
            self._cached = {key: cached[key] for key in {*self._found[0], *self._search[0]}}
        return self._found[1]

    def median_of(self, column: CoreColumn) -> float:
        """The loss of the median core in a column; NaN if it was not examined yet."""
        examined = self._cached.get(id(column))
        return examined[1].median if examined is not None else math.nan

    def _searched(self, key: tuple[int, ...]) -> OutlierView | None:
        """The outlier of columns; continues the search of the previous call if its columns are the first ones."""
        begun, search = self._search
        if key[: len(begun)] != begun:
            begun, search = (), OutlierSearch()
        # The newest column and the point after it change with every report.
        lasting = max(len(key) - 2, len(begun))
        for column_id in key[len(begun) : lasting]:
            search.add(self._cached[column_id][1])
        self._search = (key[:lasting], search)
        search = search.fork()
        for column_id in key[lasting:]:
            search.add(self._cached[column_id][1])
        return search.outlier()


class DrawnLoss(NamedTuple):
    """A drawing of the loss chart, which may be shown again for newer losses."""

    drawn_with: object
    """Everything but the losses that changes the chart at once."""
    newest_step: int
    shows_newest: bool
    """Whether the newest step is visible."""
    drawn_at: float
    data: VisibleData
    chart: Chart | None

    def holds_for(self, drawn_with: object, newest_step: int, now: float) -> bool:
        """Whether it can be shown again: the newest steps would only change its last cell."""
        if self.chart is None or drawn_with != self.drawn_with or not self.drawn_at <= now < self.drawn_at + REUSE_S:
            return False
        axes = self.chart.axes
        return newest_step >= self.newest_step and axes.cell_of(newest_step) == axes.cell_of(self.newest_step)


class LossChart:
    """Draws the loss of a run, with caches for the outlier, the heat map and the small multiples."""

    def __init__(self) -> None:
        self._columns = ColumnCache()
        self._detector = OutlierDetector()
        self._heat = ReducedColumns[list[float]]()
        self._spans = ReducedColumns[list[tuple[float, float, float] | None]]()
        self._spikes = SpikeFinder()
        self._valid: tuple[Sequence[EpochEnded], object, ValidCurve | None] = ((), None, None)
        """The epochs and the visible steps of the validation loss, and its curve."""

    @property
    def complete(self) -> bool:
        """Whether the outlier search is complete; if not, the next drawing continues it."""
        return self._detector.complete

    def visible(self, series: ChartSeries, view: ChartView, epochs: Sequence[EpochEnded] = ()) -> VisibleData:
        """The visible part of the run, smoothed, with its outlier and the validation loss of the epochs."""
        why_not = series.axis_info.why_not(view.x, series.segments)
        view = view._replace(x="step") if why_not else view
        smooth = smoothed(series.segments, view.weight) if view.weight else []
        data = visible_data(series, view, smooth, self._columns)
        outlier = _shown_outlier(series.outlier, self._detector.outlier(data.cores), data.segments)
        steps = (data.segments[0].first_step, data.segments[-1].last_step) if view.window and data.segments else None
        extremes = self._spikes.find(data.cores, self._detector.median_of, steps)
        named = named_extremes(extremes, data.segments, data.columns.highs)
        data = replace(data, outlier=outlier, extremes=extremes, named_extremes=named)
        if view.kind not in _KINDS_WITH_VALID or not epochs:
            return data
        if self._valid[0] is not epochs or self._valid[1] != steps:
            self._valid = (epochs, steps, _valid_curve(epochs, steps))
        return replace(data, valid=self._valid[2])

    def draw(self, data: VisibleData, width: int, height: int) -> Chart | None:
        """The chart; None if there is not enough room."""
        if width < _LEAST_WIDTH or height < _LEAST_HEIGHT or not data.segments:
            return None
        if data.view.kind == "overlay":
            return draw_overlay(data, width, height)
        if data.view.kind == "multiples":
            return small_multiples.draw(data, width, height, self._spans)
        if data.view.kind == "heat":
            return heatmap.draw(data, width, height, self._heat)
        return draw_band(data, width, height)


def _valid_curve(epochs: Sequence[EpochEnded], steps: tuple[int, int] | None) -> ValidCurve | None:
    """The validation loss of the epochs that ended at `steps`, by default of all; None without any."""
    points = validation_points(epochs, LOSS)
    if steps is not None:
        points = [point for point in points if steps[0] <= point.step <= steps[1]]
    best = best_epoch(epochs)
    return ValidCurve.of(points, best.epoch if best is not None else None) if points else None


def _shown_outlier(
    now: OutlierView | None, in_sight: OutlierView | None, segments: Sequence[Segment]
) -> OutlierView | None:
    """The current outlier, as in other panels, if the newest step is visible; else the one of the visible steps."""
    if now is None or not segments or now.last_step > segments[-1].last_step:
        return in_sight
    return in_sight if in_sight is not None and in_sight.core == now.core else now


def curve_legend(data: VisibleData, newest: float | None, num_cores: int, num_non_finite: int, width: int) -> Line:
    """The legend of the curves; `newest` is the mean of the newest step if that is visible."""
    cores = f"{num_cores:,} cores"
    line: Line = [
        Span(" \u2500\u2500 ", "accent"),
        Span(f"smooth {fmt.number(data.smooth[-1])} " if data.smooth else f"{_mean(data, newest)} "),
    ]
    if data.smooth:
        line += [Span(" \u2500\u2500 ", "label"), Span("raw ", "label")]
    of_cores: Line = []
    if data.view.kind == "band" and num_cores > 1:
        of_cores = [
            *(_EDGES_SAMPLE if data.colourless else _BAND_SAMPLES[data.ramp is not None]),
            Span(f"min-max over {cores} " if width >= 56 else f"{cores} ", "label"),
        ]
    elif data.view.kind == "overlay":
        of_cores = [Span(" \u2500\u2500 ", "band"), Span("each core ", "label")]
    bad = [Span(f" {NON_FINITE_MARK} {num_non_finite:,} NaN/inf", "bad")] if num_non_finite else []
    valid = _valid_value(data)
    forms = [[*line, *valid, *_best_value(data), *of_cores, *bad], [*line, *valid, *of_cores, *bad]]
    forms += [[*line, *valid, *bad], [*line, *bad]]
    return next((form for form in forms if width_of(form) <= width), forms[-1] if valid else forms[1])


def _valid_value(data: VisibleData) -> Line:
    """The newest visible validation loss; at the cursor that of the newest epoch that had ended."""
    cursor = data.view.cursor
    points = data.valid.points if data.valid is not None else ()
    num_reached = len(points) if cursor is None else bisect.bisect_right(points, cursor, key=lambda point: point.step)
    if not num_reached:
        return []
    point = points[num_reached - 1]
    epoch = f" epoch {point.epoch}" if cursor is not None else ""
    value = Span(f"{fmt.number(point.value)}{epoch} ", "plain" if math.isfinite(point.value) else "bad")
    return [Span(f" {validation.MARK.mark} ", validation.TONE), Span("valid ", "label"), value]


def _best_value(data: VisibleData) -> Line:
    """The validation loss of the best epoch, if that is visible."""
    valid = data.valid
    best = next((p for p in reversed(valid.points) if p.epoch == valid.best_epoch), None) if valid is not None else None
    if best is None:
        return []
    star = validation.BEST
    return [
        Span(f" {star.mark} ", star.tone),
        Span(f"epoch {best.epoch} ", "label"),
        Span(f"{fmt.number(best.value)} "),
    ]


def _mean(data: VisibleData, newest: float | None) -> str:
    """`train 0.0039`, the mean over the cores; if the window ends earlier, with the steps of the last value."""
    last = data.segments[-1]
    if newest is not None:
        return f"train {fmt.number(newest)}"
    return f"train {fmt.number(last.mean)} at {_steps(last)}"


def odd_in_short(outlier: OutlierView | None) -> Line:
    """The outlier in a few characters, for charts with a one-line legend."""
    if outlier is None:
        return []
    return [Span(f" {chr(0x25B4 if outlier.by > 0 else 0x25BE)} core {outlier.core} {outlier.by:+.3g}", "alert")]


def odd_core(outlier: OutlierView | None, num_cores: int, width: int, bad: Sequence[int] = ()) -> Line:
    """The outlier, its deviation and its steps; else the cores `bad`, which have NaN or infinite values."""
    if outlier is None and bad:
        more = f" and {len(bad) - 1:,} more" if len(bad) > 1 else ""
        return [Span(f" {NON_FINITE_MARK} NaN or inf on core {bad[0]}{more} in this window", "bad")]
    if outlier is None:
        return [Span(" no outlier", "dim")] if num_cores > 1 else []
    sign, side = ("\u25b4", "above") if outlier.by > 0 else ("\u25be", "below")
    steps = f"steps {outlier.first_step:,} to {outlier.last_step:,}"
    if outlier.first_step == outlier.last_step:
        steps = f"step {outlier.first_step:,}"
    by = fmt.number(abs(outlier.by), 3)
    short = f" {sign} core {outlier.core}: {by} {side} the others, {steps}"
    long = f" {sign} outlier: core {outlier.core}, up to {by} {side} the median core, {steps}"
    return [Span(long if len(long) <= width else short, "alert")]


def cursor_values(data: VisibleData, row: range | None = None, *, brief: bool = False) -> tuple[Line, Line]:
    """The position of the cursor, and the values there; in the heat map the values of the cores in `row`.

    `brief`: without the range over the cores, so that there is room for the core with the highest value.
    """
    step = data.view.cursor
    if step is None or not data.segments:
        return [], []
    index = min(
        bisect.bisect_left(data.segments, step, key=lambda candidate: candidate.last_step), len(data.segments) - 1
    )
    segment = data.segments[index]
    column = column_at(data.cores, segment.first_step)
    if row is not None and column is not None and row.stop <= len(column.means):
        return _position(segment, column, data, step), _of_row(column, row)
    smooth = data.smooth[index] if data.smooth else None
    train, *more = _values(segment, column, data, smooth, brief=brief)
    return _position(segment, segment, data, step), [train, *_valid_value(data), *more]


def _steps(of: Segment | CoreColumn) -> str:
    if of.last_step == of.first_step:
        return f"step {of.first_step:,}"
    return f"steps {of.first_step:,} to {of.last_step:,}"


def _position(segment: Segment, read: Segment | CoreColumn, data: VisibleData, step: int) -> Line:
    """Step, epoch, time and examples of a segment; `read` has the steps of the values shown."""
    axis_info = data.axis_info
    line: Line = [Span(f" {_steps(read) if read.last_step > read.first_step else f'step {step:,}'}", "strong")]
    if not axis_info.why_not("epoch", [segment]):
        line.append(Span(f"  epoch {axis_info.epoch_at(step):.2f}", "label"))
    if not axis_info.why_not("time", [segment]) and axis_info.started is not None:
        line.append(Span(f"  {fmt.duration(max(segment.t - axis_info.started, 0.0))}", "label"))
    if axis_info.global_batch:
        line.append(Span(f"  {step * axis_info.global_batch:,} examples", "label"))
    return line


def _values(
    segment: Segment, column: CoreColumn | None, data: VisibleData, smooth: float | None, *, brief: bool
) -> Line:
    bad = [Span(f"  {NON_FINITE_MARK} {segment.num_bad:,} NaN/inf", "bad")] if segment.num_bad else []
    if not segment.num_values:
        return [Span(" no finite value", "bad"), *bad]
    line: Line = [Span(f" train {fmt.number(segment.mean)}", "accent")]
    if smooth is not None and smooth == smooth:
        line.append(Span(f"  smooth {fmt.number(smooth)}"))
    if segment.max > segment.min and not brief:
        line.append(Span(f"  {fmt.number(segment.min)} to {fmt.number(segment.max)}", "label"))
    if column is None or len(column.means) < 2:
        return [*line, *bad]
    if data.outlier is not None and data.outlier.core < len(column.means):
        line.append(Span(f"  core {data.outlier.core} {fmt.number(column.means[data.outlier.core])}", "alert"))
    elif column.highest is not None:
        return [*line, Span(f"  {max_in(column)}", "label"), *bad]
    else:
        line.append(_greatest(list(column.means)))
    return [*line, *_averaged(column, segment), *bad]


def _averaged(column: CoreColumn, segment: Segment) -> Line:
    """The steps over which the value of a core is averaged, if they differ from those of the segment."""
    if (column.first_step, column.last_step) == (segment.first_step, segment.last_step) and not column.is_sampled:
        return []
    if column.last_step == column.first_step:
        return [Span(f" at {_steps(column)}", "label")]
    sampled_of = f"{column.num_steps:,} of " if column.is_sampled else ""
    return [Span(f" mean of {sampled_of}{_steps(column)}", "label")]


def _of_row(column: CoreColumn, row: range) -> Line:
    """A core of the heat map and its loss; in a row of several cores the one farthest from the median of all."""
    finite = sorted(filter(math.isfinite, column.means))
    median = finite[len(finite) // 2] if finite else math.nan
    wrong = [core for core in row if not math.isfinite(column.means[core])]
    core = wrong[0] if wrong else max(row, key=lambda core: abs(column.means[core] - median))
    value = column.means[core]
    among = f", farthest of {row.start:,} to {row.stop - 1:,}" if len(row) > 1 and not wrong else ""
    share = (value - median) / abs(median) if median else math.nan
    away = f"  {share * 100:+.3g} % from the median core" if math.isfinite(share) else ""
    sampled = f", {column.num_steps:,} steps sampled" if column.is_sampled else ""
    mean = f"  mean {fmt.number(math.fsum(finite) / len(finite))}" if finite else "  no finite value"
    return [
        Span(f" core {core} {fmt.number(value)}", "bad" if wrong else "strong"),
        Span(f"{away}{among}", "label"),
        Span(mean, "accent"),
        Span(f"  {max_in(column)}" if column.last_step > column.first_step and column.highest else "", "label"),
        Span(sampled, "label"),
    ]


def _greatest(means: list[float]) -> Span:
    core = max(range(len(means)), key=lambda core: means[core] if means[core] == means[core] else -math.inf)
    return Span(f"  highest core {core} {fmt.number(means[core])}", "label")


def nearest_mark(marks: list[Mark], step: int) -> Line:
    """The event nearest to a step."""
    if not marks:
        return []
    mark = min(marks, key=lambda mark: abs(mark.step - step))
    sign = sign_of(mark.kind)
    away = mark.step - step
    steps = fmt.counted(abs(away), "step")
    where = "here" if not away else f"{steps} {'later' if away > 0 else 'before'}"
    return [Span(f"  {sign.mark} ", sign.tone), Span(f"{clean(mark.text)}, {where}", "label")]


def legend(
    data: VisibleData,
    newest: float | None,
    num_cores: int,
    num_non_finite: int,
    width: int,
    *,
    short: bool,
    of_map: Sequence[Span] = (),
) -> list[Line]:
    """The legend of the curves or of the map, and the outlier; both in the first line if room is `short`."""
    first = curve_legend(data, newest, num_cores, num_non_finite, width)
    odd = odd_in_short(data.outlier)
    if of_map:
        odd = odd if short else []
        forms = ([*first, *of_map, *odd], [*of_map, *odd], [*of_map[1:], *odd], of_map)
        first = next((list(form) for form in forms if width_of(form) <= width), list(of_map[1:]))
    elif short and odd:
        mean = first[:2]
        first = next((line for line in ([*first, *odd], [*mean, *odd]) if width_of(line) <= width), first)
    bad = sorted(set(chain.from_iterable(map(attrgetter("bad_cores"), data.cores))))
    second = odd_core(data.outlier, num_cores, width, bad)
    for text in data.named_extremes if num_cores > 1 else []:
        if short and text.startswith("spike") and width_of(first) + 2 + len(text) <= width:
            first = [*first, Span(f"  {text}", "label")]
        if width_of(second) + 2 + len(text) <= width:
            second = [*second, Span(f"  {text}", "label")]
    return [first, second]


def readout(data: VisibleData, marks: list[Mark], width: int, *, short: bool, rows: Sequence[range] = ()) -> list[Line]:
    """Position and values of the cursor, and the nearest event if there is room; `rows` are those of a heat map."""
    row = next((cores for cores in rows if data.view.core in cores), None)
    position, values = cursor_values(data, row)
    event = nearest_mark(marks, data.view.cursor or 0)
    if short:
        if width_of([*position[:1], *values]) > width:
            values = cursor_values(data, row, brief=True)[1]
        return [fit([*position[:1], *values], width)]
    return [[*position, *event] if width_of(position) + 12 < width else position, values]


def _range_note(view: ChartView) -> str:
    """The y range of the selected metric, if it is not the default; the loss in its own chart needs no name."""
    y = view.y_of(view.metric).note
    return f"{clean(view.metric)} {y}" if y and view.metric else y


def note(
    series: ChartSeries, data: VisibleData, chart: Chart | None, wanted: XKind, width: int, named: str = ""
) -> str:
    """The non-default settings, the most important first, as many as fit, and the name of the loss; `wanted` is the
    chosen x axis."""
    view = data.view
    why_not = series.axis_info.why_not(wanted, series.segments)
    hidden = f", {chart.hidden:,} points <= 0 not shown" if chart is not None and chart.hidden else ""
    parts = [
        f"log axis{hidden}" if view.log else "",
        chart.outside if chart is not None else "",
        "l: log axis" if chart is not None and chart.log_helps else "",
        _range_note(view) if view.kind != "heat" else "",
        f"EMA {view.weight:g}" if view.weight else "",
        why_not or (f"by {view.x}" if view.x != "step" else ""),
        f"steps {data.segments[0].first_step:,} to {data.segments[-1].last_step:,}"
        if view.window is not None and data.segments
        else "",
        *(chart.notes if chart is not None else ()),
        clean(named),
    ]
    joined: str = view.kind if view.kind != "band" else ""
    for text in filter(None, parts):
        longer = f"{joined} \u00b7 {text}" if joined else text
        if len(longer) < width - 14:
            joined = longer
    return joined
