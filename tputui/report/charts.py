"""Charts of metrics as HTML: curves in a stretched SVG, labels as text around it, so that any width stays readable.

The curves, y ranges and ticks are those of the screen; only the drawing differs. A chart has a bounded size, however
long the run is. Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

import msgspec

from tputui import formatting as fmt
from tputui.state.chart_data import Segment
from tputui.state.metric_series import MetricPoint, MetricSeries
from tputui.telemetry.logged_values import CONSOLE
from tputui.ui.charts.axis import AxisInfo, XAxis
from tputui.ui.charts.columns import ChartColumn, columns
from tputui.ui.charts.scale import (
    LEAST_RANGE,
    Scale,
    YRange,
    label,
    scale_for,
    step_ticks,
    suggests_log,
    ticks,
)
from tputui.ui.charts.several import note_of, outside_of, scale_of_all

COLUMNS_MAX = 360
"""Points of a curve."""
_SIZE = 1000
"""Width and height of the drawing in its own units; the style sheet stretches it."""
_DOTS = 100_001
"""Places on an x axis that the author chose."""
_LINES_X, _LINES_Y = 5, 4
_MARGIN = 0.04
"""Room above and below the curves, as a share of their range."""

STYLE = """
.tpu-chart{margin:0;min-width:0}
.tpu-chart figcaption{display:flex;flex-wrap:wrap;gap:.1em 1em;align-items:baseline;margin-bottom:.35em}
.tpu-chart figcaption b{font-weight:600;overflow-wrap:anywhere}
.tpu-chart .tpu-k{font-size:.85em;color:var(--tpu-dim)}
.tpu-chart .tpu-train,.tpu-chart .tpu-valid{font-size:.85em;font-variant-numeric:tabular-nums}
.tpu-plot{position:relative;margin:0 .6em 1.5em 4.6em;height:var(--tpu-height,10em)}
.tpu-plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:hidden}
.tpu-plot path{fill:none;vector-effect:non-scaling-stroke}
.tpu-plot .tpu-grid{stroke:var(--tpu-line);stroke-width:1px}
.tpu-plot .tpu-band{fill:var(--tpu-train);opacity:.22}
.tpu-plot .tpu-t{stroke:var(--tpu-train);stroke-width:1.6px;stroke-linejoin:round;stroke-linecap:round}
.tpu-plot .tpu-v{stroke:var(--tpu-valid);stroke-width:1.6px;stroke-linejoin:round;stroke-linecap:round}
.tpu-plot .tpu-dots{stroke-width:5px}
.tpu-plot .tpu-bad{stroke:var(--tpu-bad);stroke-width:6px;stroke-linecap:square}
.tpu-plot span{position:absolute;font-size:.78em;line-height:1;color:var(--tpu-dim);white-space:nowrap;
font-variant-numeric:tabular-nums}
.tpu-plot .tpu-y{right:100%;transform:translate(-.5em,-50%)}
.tpu-plot .tpu-x{top:100%;transform:translate(-50%,.5em)}
.tpu-train{color:var(--tpu-train)}.tpu-valid{color:var(--tpu-valid)}
"""


class _Axes(NamedTuple):
    """The steps and values of a drawing; on an axis that the author chose, dots of it in place of steps."""

    first: int
    last: int
    y: Scale
    chosen: XAxis | None = None

    def x(self, step: float) -> float:
        """Position of a step, 0 to `_SIZE`."""
        return _SIZE * (step - self.first) / (self.last - self.first) if self.last > self.first else _SIZE / 2

    def ticks(self) -> list[tuple[int, str]]:
        """Round steps, or dots, with their labels."""
        if self.chosen is None:
            return [(step, _short_step(step)) for step in step_ticks(self.first, self.last, _LINES_X)]
        return [(self.chosen.dot(value), escape(text)) for value, text in self.chosen.ticks(_LINES_X)]

    def of_column(self, column: ChartColumn) -> float:
        return _SIZE * column.x / (COLUMNS_MAX - 1) if self.last > self.first else _SIZE / 2

    def at(self, value: float) -> float:
        """Position of a value, from the top; outside the range at its edge."""
        share = self.y.place(value)
        share = min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.5
        return _SIZE * (1 - _MARGIN - share * (1 - 2 * _MARGIN))


def chart(series: MetricSeries, band: Sequence[Segment] = ()) -> str:
    """A metric in training and validation as a `<figure>`. `band` are the segments of `train` with minimum and maximum
    over the cores, which are drawn behind it."""
    train = band or _segments(series.train)
    valid = _segments(series.valid)
    both = [*train, *valid]
    if not both:
        return ""
    first, last = min(segment.first_step for segment in both), max(segment.last_step for segment in both)
    first = first if band else min(segment.last_step for segment in both)
    x = None
    if series.x is not None:
        ends = [msgspec.structs.replace(both[0], first_step=step, last_step=step) for step in (first, last)]
        x = XAxis(ends, "chosen", AxisInfo(chosen=series.x), _DOTS)
        train, valid = _moved(train, x), _moved(valid, x)
        first, last = 0, _DOTS - 1
    scale = _scale(train, valid)
    caption = _caption(series, scale, train, valid)
    if scale is None:
        return f'<figure class="tpu-chart">{caption}<p class="tpu-k">every value is NaN or infinite</p></figure>'
    axes = _Axes(first, last, scale, x)
    of_train, of_valid = (columns(part, first, last, COLUMNS_MAX) for part in (train, valid))
    shapes = [
        _grid(axes),
        _band(of_train, axes) if band else "",
        _curve(of_train, axes, "tpu-t", steps=series.is_stepped),
        _curve(of_valid, axes, "tpu-v"),
        _dots(of_train, axes, "tpu-t") if len(of_train) == 1 else "",
        _dots(of_valid, axes, "tpu-v") if len(of_valid) <= COLUMNS_MAX // 6 else "",
        _bad([*of_train, *of_valid], axes),
    ]
    name, by = escape(fmt.inert(series.name)), escape(x.name) if x is not None else "step"
    view = f'<svg viewBox="0 0 {_SIZE} {_SIZE}" preserveAspectRatio="none" role="img" aria-label="{name} by {by}">'
    plot = f'<div class="tpu-plot">{view}{"".join(shapes)}</svg>{"".join(_labels(axes))}</div>'
    return f'<figure class="tpu-chart">{caption}{plot}</figure>'


def _moved(segments: Sequence[Segment], x: XAxis) -> list[Segment]:
    """Segments with dots of an axis in place of steps."""

    def dot(step: int) -> int:
        return x.dot(x.at(step))

    return [
        msgspec.structs.replace(segment, first_step=dot(segment.first_step), last_step=dot(segment.last_step))
        for segment in segments
    ]


def _segments(points: Sequence[MetricPoint]) -> list[Segment]:
    """Points as segments of the step that they are at."""
    return [
        Segment(
            first_step=point.step,
            last_step=point.step,
            mean=point.value,
            min=point.value,
            max=point.value,
            num_values=int(math.isfinite(point.value)),
            num_bad=int(point.is_bad),
            t=point.t,
        )
        for point in points
    ]


def _finite(segments: Sequence[Segment]) -> list[float]:
    return [segment.mean for segment in segments if segment.num_values and math.isfinite(segment.mean)]


def _scale(train: Sequence[Segment], valid: Sequence[Segment]) -> Scale | None:
    """The range without outliers; logarithmic if a linear axis would hide the newest values."""
    of_train, of_valid = _finite(train), _finite(valid)
    if all(value > 0 for value in (*of_train, *of_valid)) and suggests_log(of_train, scale_for(of_train)):
        return scale_for([*of_train, *of_valid], log=True)
    return scale_of_all((of_train, of_valid), YRange())


def _caption(series: MetricSeries, scale: Scale | None, train: Sequence[Segment], valid: Sequence[Segment]) -> str:
    newest = series.newest("train")
    value = series.newest_train if series.newest_train is not None else newest.value if newest is not None else None
    unit = f" {series.unit}" if series.unit else ""
    parts = [f"<b>{escape(fmt.inert(series.name))}</b>"]
    if value is not None:
        parts.append(f'<span class="tpu-train">\u2500 train {fmt.number(value)}{escape(unit)}</span>')
    if (point := series.newest("valid")) is not None:
        parts.append(f'<span class="tpu-valid">\u2500\u2022 validation {fmt.number(point.value)}{escape(unit)}</span>')
    notes = []
    if (best := series.best("valid")) is not None:
        notes.append(f"best epoch {best.epoch}: {fmt.number(best.value)}")
    if scale is not None:
        notes += ["log axis"] if scale.log else []
        points = ((segment.first_step, segment.mean) for segment in (*train, *valid) if segment.num_values)
        notes.append(note_of(outside_of(points, scale), scale))
    if num_bad := sum(segment.num_bad for segment in (*train, *valid)):
        notes.append(f"{fmt.counted(num_bad, 'value')} NaN or infinite")
    notes += [f"by {fmt.inert(series.x.name)}"] if series.x is not None else []
    if series.source:
        notes.append("from console" if series.source == CONSOLE else f"from {fmt.inert(series.source)}")
    parts += [f'<span class="tpu-k">{escape(note)}</span>' for note in notes if note]
    return f"<figcaption>{''.join(parts)}</figcaption>"


def _grid(axes: _Axes) -> str:
    lines = [f"M0 {axes.at(value):.1f}H{_SIZE}" for value in _y_ticks(axes.y)]
    lines += [f"M{axes.x(step):.1f} 0V{_SIZE}" for step, _ in axes.ticks()]
    return f'<path class="tpu-grid" d="{"".join(lines)}"/>'


def _y_ticks(scale: Scale) -> list[float]:
    # The distance of values near the largest or the smallest float is not a normal number.
    is_normal = LEAST_RANGE < scale.high - scale.low < math.inf
    return (ticks(scale, _LINES_Y) if is_normal else []) or [scale.low, scale.high]


def _labels(axes: _Axes) -> Iterable[str]:
    values = _y_ticks(axes.y)
    distance = min((b - a for a, b in itertools.pairwise(values)), default=abs(axes.y.high - axes.y.low)) or 1.0
    for value in values:
        round_one = f"{value:.3g}" if axes.y.log or values == [axes.y.low, axes.y.high] else None
        text = round_one or label(value, distance, max(map(abs, values)))
        yield f'<span class="tpu-y" style="top:{axes.at(value) / _SIZE:.2%}">{text}</span>'
    for step, text in axes.ticks():
        yield f'<span class="tpu-x" style="left:{axes.x(step) / _SIZE:.2%}">{text}</span>'


def _short_step(step: int) -> str:
    """`500`, `20k`, `1.5M`."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if step >= 10 * size or (step >= size and unit == "M"):
            return f"{step / size:.4g}{unit}"
    return str(step)


def _curve(columns: Sequence[ChartColumn], axes: _Axes, name: str, *, steps: bool = False) -> str:
    """The means, interrupted where there is no finite value; with `steps` they change at once."""
    parts: list[str] = []
    pen = "M"
    for column in columns:
        if math.isfinite(column.mean):
            x, y = f"{axes.of_column(column):.1f}", f"{axes.at(column.mean):.1f}"
            parts.append(f"V{y}H{x}" if steps and pen == "L" else f"{pen}{x} {y}")
            pen = "L"
        else:
            pen = "M"
    return f'<path class="{name}" d="{"".join(parts)}"/>' if parts else ""


def _dots(columns: Sequence[ChartColumn], axes: _Axes, name: str) -> str:
    """A dot for each value: lines of no length with round ends, which stretching leaves round."""
    points = [column for column in columns if math.isfinite(column.mean)]
    path = "".join(f"M{axes.of_column(column):.1f} {axes.at(column.mean):.1f}h0" for column in points)
    return f'<path class="{name} tpu-dots" d="{path}"/>' if path else ""


def _band(columns: Sequence[ChartColumn], axes: _Axes) -> str:
    """The area from the minimum to the maximum over the cores, in one part per run of finite values."""
    parts: list[str] = []
    for is_finite, group in itertools.groupby(columns, key=lambda column: math.isfinite(column.mean)):
        if is_finite and len(part := list(group)) > 1:
            upper = [f"{axes.of_column(column):.1f} {axes.at(column.high):.1f}" for column in part]
            lower = [f"{axes.of_column(column):.1f} {axes.at(column.low):.1f}" for column in reversed(part)]
            parts.append(f"M{'L'.join([*upper, *lower])}Z")
    return f'<path class="tpu-band" d="{"".join(parts)}"/>' if parts else ""


def _bad(columns: Sequence[ChartColumn], axes: _Axes) -> str:
    """Marks on the x axis at values that are NaN or infinite."""
    path = "".join(f"M{axes.of_column(column):.1f} {_SIZE - 4}h0" for column in columns if column.bad)
    return f'<path class="tpu-bad" d="{path}"/>' if path else ""
