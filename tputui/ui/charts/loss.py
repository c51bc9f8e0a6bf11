"""The loss of a run in the view that was chosen, with what is said above it. Pure but for what it remembers."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

from tputui import formatting as fmt
from tputui.state.chart_data import CoreColumn, Mark, OutlierView, Segment
from tputui.ui.charts import band, heatmap, overlay, small_multiples
from tputui.ui.charts.axis import XKind
from tputui.ui.charts.chart_view import ChartView
from tputui.ui.charts.columns import SegmentMemory, smoothed
from tputui.ui.charts.events_line import sign_of
from tputui.ui.charts.frame import NON_FINITE_MARK
from tputui.ui.charts.heatmap import HeatMemory
from tputui.ui.charts.outlier import OutlierDetector, column_at
from tputui.ui.charts.small_multiples import MultiplesMemory
from tputui.ui.charts.visible_data import Chart, VisibleData, Whole, cut
from tputui.ui.render.lines import Line, Span, clean, fit, width_of

_LEAST_WIDTH, _LEAST_HEIGHT = 16, 3


class LossChart:
    """Draws a run; what was judged or reduced once is not worked out again."""

    def __init__(self) -> None:
        self._figures = SegmentMemory()
        self._watch = OutlierDetector()
        self._heat = HeatMemory()
        self._spans = MultiplesMemory()

    @property
    def complete(self) -> bool:
        """Whether all there is was looked at; if not, drawing again goes on."""
        return self._watch.complete

    def scene(self, whole: Whole, look: ChartView) -> VisibleData:
        """What of the run is in sight, smoothed, and the core that stands out there."""
        why_not = whole.grounds.why_not(look.x, whole.segments)
        look = look._replace(x="step") if why_not else look
        smooth = smoothed(whole.segments, look.weight) if look.weight else []
        scene = cut(whole, smooth, look, self._figures)
        return scene._replace(outlier=_named(whole.outlier, self._watch.outlier(scene.cores), scene.segments))

    def draw(self, scene: VisibleData, width: int, height: int) -> Chart | None:
        """The chart; None where there is no room for one."""
        if width < _LEAST_WIDTH or height < _LEAST_HEIGHT or not scene.segments:
            return None
        if scene.look.view == "overlay":
            return overlay.draw(scene, width, height)
        if scene.look.view == "multiples":
            return small_multiples.draw(scene, width, height, self._spans)
        if scene.look.view == "heat":
            return heatmap.draw(scene, width, height, self._heat)
        return band.draw(scene, width, height)


def _named(now: OutlierView | None, in_sight: OutlierView | None, segments: Sequence[Segment]) -> OutlierView | None:
    """The core that differs now, as other panels name it, where now is in sight; else the one found in sight."""
    if now is None or not segments or now.last_step > segments[-1].last_step:
        return in_sight
    return in_sight if in_sight is not None and in_sight.core == now.core else now


def curve_legend(scene: VisibleData, newest: float | None, num_cores: int, num_non_finite: int, width: int) -> Line:
    """What the lines of the chart are; `newest` is the mean of the newest step, where that is in sight."""
    cores = f"{num_cores:,} cores" if num_cores > 1 else "the core"
    line: Line = [
        Span(" \u2500\u2500 ", "accent"),
        Span(f"smooth {fmt.number(scene.smooth[-1])} " if scene.smooth else f"{_mean(scene, newest)} "),
    ]
    if scene.smooth:
        line += [Span(" \u2500\u2500 ", "label"), Span("as measured ", "label")]
    if scene.look.view == "band":
        line += [
            Span(" \u28ff\u28ff ", "band"),
            Span(f"least to greatest of {cores} " if width >= 56 else f"{cores} ", "label"),
        ]
    elif scene.look.view == "overlay":
        line += [Span(" \u2500\u2500 ", "band"), Span("each core ", "label")]
    if num_non_finite:
        line.append(Span(f" {NON_FINITE_MARK} {num_non_finite:,} NaN/inf", "bad"))
    return line


def _mean(scene: VisibleData, newest: float | None) -> str:
    """`mean 0.0039`; of a window that ends earlier, with the steps that the last value is a mean of."""
    last = scene.segments[-1]
    if newest is not None:
        return f"mean {fmt.number(newest)}"
    return f"mean {fmt.number(last.mean)} at {_steps(last)}"


def odd_in_short(outlier: OutlierView | None) -> Line:
    """Which core stands out, where there is one line for everything."""
    if outlier is None:
        return []
    return [Span(f" {chr(0x25B4 if outlier.by > 0 else 0x25BE)} core {outlier.core} {outlier.by:+.3g}", "alert")]


def odd_core(outlier: OutlierView | None, num_cores: int, width: int, bad: Sequence[int] = ()) -> Line:
    """Which core stands out, by how much and where; else the cores `bad` that said what is not finite."""
    if outlier is None and bad:
        more = f" and {len(bad) - 1:,} more" if len(bad) > 1 else ""
        return [Span(f" {NON_FINITE_MARK} core {bad[0]}{more}: NaN or inf in sight", "bad")]
    if outlier is None:
        return [Span(" no core stands out from the others", "dim")] if num_cores > 1 else []
    sign, side = ("\u25b4", "above") if outlier.by > 0 else ("\u25be", "below")
    steps = f"steps {outlier.first_step:,} to {outlier.last_step:,}"
    if outlier.first_step == outlier.last_step:
        steps = f"step {outlier.first_step:,}"
    by = fmt.number(abs(outlier.by), 3)
    short = f" {sign} core {outlier.core}: {by} {side} the others, {steps}"
    long = f" {sign} core {outlier.core} stands out most: up to {by} {side} the median core, {steps}"
    return [Span(long if len(long) <= width else short, "alert")]


def cursor_values(scene: VisibleData, row: range | None = None) -> tuple[Line, Line]:
    """What is under the cursor, in two parts: where it is, and the values there; of the cores of a `row` of the map."""
    step = scene.look.cursor
    if step is None or not scene.segments:
        return [], []
    at = min(bisect.bisect_left(scene.segments, step, key=lambda each: each.last_step), len(scene.segments) - 1)
    segment = scene.segments[at]
    column = column_at(scene.cores, segment.first_step)
    if row is not None and column is not None and row.stop <= len(column.means):
        return _where(segment, column, scene, step), _of_row(column, row)
    smooth = scene.smooth[at] if scene.smooth else None
    return _where(segment, segment, scene, step), _values(segment, column, scene, smooth)


def _steps(of: Segment | CoreColumn) -> str:
    if of.last_step == of.first_step:
        return f"step {of.first_step:,}"
    return f"steps {of.first_step:,} to {of.last_step:,}"


def _where(segment: Segment, read: Segment | CoreColumn, scene: VisibleData, step: int) -> Line:
    """The place of a segment, and the steps that values are told of."""
    grounds = scene.grounds
    line: Line = [Span(f" {_steps(read) if read.last_step > read.first_step else f'step {step:,}'}", "strong")]
    if not grounds.why_not("epoch", [segment]):
        line.append(Span(f"  epoch {grounds.epoch_at(step):.2f}", "label"))
    if not grounds.why_not("time", [segment]) and grounds.started is not None:
        line.append(Span(f"  {fmt.duration(max(segment.t - grounds.started, 0.0))}", "label"))
    if grounds.global_batch:
        line.append(Span(f"  {step * grounds.global_batch:,} examples", "label"))
    return line


def _values(segment: Segment, column: CoreColumn | None, scene: VisibleData, smooth: float | None) -> Line:
    bad = [Span(f"  {NON_FINITE_MARK} {segment.num_bad:,} NaN/inf", "bad")] if segment.num_bad else []
    if not segment.num_values:
        return [Span(" no finite value", "bad"), *bad]
    line: Line = [Span(f" mean {fmt.number(segment.mean)}", "accent")]
    if smooth is not None and smooth == smooth:
        line.append(Span(f"  smooth {fmt.number(smooth)}"))
    if segment.max > segment.min:
        line.append(Span(f"  {fmt.number(segment.min)} to {fmt.number(segment.max)}", "label"))
    if column is None or len(column.means) < 2:
        return [*line, *bad]
    if scene.outlier is not None and scene.outlier.core < len(column.means):
        line.append(Span(f"  core {scene.outlier.core} {fmt.number(column.means[scene.outlier.core])}", "alert"))
    else:
        line.append(_greatest(list(column.means)))
    return [*line, *_averaged(column, segment), *bad]


def _averaged(column: CoreColumn, segment: Segment) -> Line:
    """Over which steps a core's figure is a mean, where those are not the steps beside it."""
    if (column.first_step, column.last_step) == (segment.first_step, segment.last_step) and not column.is_sampled:
        return []
    if column.last_step == column.first_step:
        return [Span(f" at {_steps(column)}", "label")]
    some = f"{column.num_steps:,} of " if column.is_sampled else ""
    return [Span(f" mean of {some}{_steps(column)}", "label")]


def _of_row(column: CoreColumn, row: range) -> Line:
    """A core of the map and its loss; of a row of several the core farthest from the median of all."""
    finite = sorted(filter(math.isfinite, column.means))
    median = finite[len(finite) // 2] if finite else math.nan
    wrong = [core for core in row if not math.isfinite(column.means[core])]
    core = wrong[0] if wrong else max(row, key=lambda core: abs(column.means[core] - median))
    value = column.means[core]
    among = f", farthest of {row.start:,} to {row.stop - 1:,}" if len(row) > 1 and not wrong else ""
    share = (value - median) / abs(median) if median else math.nan
    away = f"  {share * 100:+.3g} % from the median core" if math.isfinite(share) else ""
    some = f", {column.num_steps:,} steps sampled" if column.is_sampled else ""
    mean = f"  mean {fmt.number(math.fsum(finite) / len(finite))}" if finite else "  no finite value"
    return [
        Span(f" core {core} {fmt.number(value)}", "bad" if wrong else "strong"),
        Span(f"{away}{among}", "label"),
        Span(mean, "accent"),
        Span(some, "label"),
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
    steps = f"{abs(away):,} step{'' if abs(away) == 1 else 's'}"
    where = "here" if not away else f"{steps} {'later' if away > 0 else 'before'}"
    return [Span(f"  {sign.mark} ", sign.tone), Span(f"{clean(mark.text)}, {where}", "label")]


def legend(
    scene: VisibleData, newest: float | None, num_cores: int, num_non_finite: int, width: int, *, short: bool
) -> list[Line]:
    """What the lines of the chart are, then which core stands out; both in the first line where room is `short`."""
    first = curve_legend(scene, newest, num_cores, num_non_finite, width)
    odd = odd_in_short(scene.outlier)
    if short and odd:
        mean = first[:2]
        first = next((line for line in ([*first, *odd], [*mean, *odd]) if width_of(line) <= width), first)
    bad = sorted({core for column in scene.cores for core in column.bad_cores})
    return [first, odd_core(scene.outlier, num_cores, width, bad)]


def readout(
    scene: VisibleData, marks: list[Mark], width: int, *, short: bool, rows: Sequence[range] = ()
) -> list[Line]:
    """Place and values under the cursor, and the nearest event where there is room; `rows` are those of a map."""
    where, values = cursor_values(scene, next((cores for cores in rows if scene.look.core in cores), None))
    event = nearest_mark(marks, scene.look.cursor or 0)
    if short:
        return [fit([*where[:1], *values], width)]
    return [[*where, *event] if width_of(where) + 12 < width else where, values]


def note(whole: Whole, scene: VisibleData, chart: Chart | None, wanted: XKind, width: int) -> str:
    """What is not as usual, the most important first, as much as fits; `wanted` is the x axis that was asked for."""
    look = scene.look
    why_not = whole.grounds.why_not(wanted, whole.segments)
    hidden = f", {chart.hidden:,} points <= 0 not shown" if chart is not None and chart.hidden else ""
    parts = [
        f"log axis{hidden}" if look.log else "",
        f"EMA {look.weight:g}" if look.weight else "",
        why_not or (f"by {look.x}" if look.x != "step" else ""),
        f"steps {scene.segments[0].first_step:,} to {scene.segments[-1].last_step:,}"
        if look.window is not None and scene.segments
        else "",
        *(chart.notes if chart is not None else ()),
    ]
    said: str = look.view if look.view != "band" else ""
    for text in filter(None, parts):
        longer = f"{said} \u00b7 {text}" if said else text
        if len(longer) < width - 14:
            said = longer
    return said
