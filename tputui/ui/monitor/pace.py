"""The pace panel: examples per second, step time, and when the epoch and the run will end."""

from __future__ import annotations

import math
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.diagnosis.step_budget import DeviceLane, Lane, StepBudget, step_budget
from tputui.state import facts
from tputui.state.chart_data import Mark, ThroughputView
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import FlopsView, Snapshot
from tputui.text import phrases
from tputui.text.verdict_lines import percent
from tputui.ui.base import status_text
from tputui.ui.base.export import Figures
from tputui.ui.charts.axis import AxisInfo, axis_info_of
from tputui.ui.charts.chart_view import ChartSeries, ChartView
from tputui.ui.charts.series_chart import LEAST_CHART, as_segments, chart_of_view, evenly
from tputui.ui.monitor.epochs import SECTION_GLYPHS, SECTIONS
from tputui.ui.render.lines import Line, Span, clean, paragraph, width_of
from tputui.ui.widgets.panel import Drawing, RunPanel

_LEAST_BAR = 8
_BAR_MOST = 80
_LEGEND_MOST = 2
"""Lines of the shares in a panel that shares the screen."""
_IDLE = "\u00b7"


def budget_rows(budget: StepBudget | None, width: int, room: int, *, is_full: bool) -> list[Line]:
    """The newest reports, then the whole run, each only if all of its lines fit; in full screen also why there is no
    budget."""
    if budget is None:
        text = " step budget: not measured by the program of this run"
        return paragraph(text, width, 2) if is_full and room >= 2 else []
    rows: list[Line] = []
    newest = budget.newest
    lanes = [("newest", newest, f"{fmt.counted(budget.newest_steps, 'step')}, ")] if newest is not None else []
    for label, lane, of in [*lanes, ("total", budget.whole, "")]:
        if lane is None or not lane.sections_s:
            continue
        host = _host(label, lane, of, width, is_full, room - len(rows))
        device = _device(lane.device, width)
        for lines in (host, device):
            if len(rows) + len(lines) > room:
                return rows
            rows += lines
    return rows


def _host(label: str, lane: Lane, of: str, width: int, is_full: bool, room: int) -> list[Line]:
    """A bar divided into sections, and the shares of the longest ones."""
    names = [*(name for name in SECTIONS if name in lane.sections_s), *sorted(set(lane.sections_s) - set(SECTIONS))]
    total = sum(lane.sections_s.values())
    if total <= 0:
        return []
    taken = Span(f" {of}{fmt.duration(lane.wall_s)}" if is_full else "", "label")
    wide = min(width - _LABEL - 2 - width_of([taken]), _BAR_MOST)
    if wide < _LEAST_BAR:
        return []
    bar: Line = [Span(f" {label:<{_LABEL}}", "label")]
    spent, filled = 0.0, 0
    for name in names:
        spent += lane.sections_s[name]
        end = min(round(spent / total * wide), wide)
        glyph, tone = SECTION_GLYPHS.get(name, SECTION_GLYPHS["other"])
        bar.append(Span(glyph * (end - filled), tone))
        filled = end
    shares = {name: lane.sections_s[name] / total for name in names}
    return [[*bar, taken], *_legend(shares, width, min(len(names) if is_full else _LEGEND_MOST, max(room - 1, 1)))]


def _legend(shares: dict[str, float], width: int, most: int) -> list[Line]:
    """The shares, the largest first; those that do not fit are joined to the rest, which a single line may lack."""
    lines: list[Line] = [[]]
    remainder = 1.0
    for name in sorted(shares, key=lambda name: -shares[name]):
        if shares[name] < 0.005:
            break
        glyph, tone = SECTION_GLYPHS.get(name, SECTION_GLYPHS["other"])
        entry = [Span(f" {glyph} ", tone), Span(f"{clean(name)} ", "label"), Span(percent(shares[name]), "plain")]
        is_last = len(lines) == most
        tail = (
            f"  rest {percent(remainder - shares[name])}"
            if remainder - shares[name] >= 0.005 and is_last and most > 1
            else ""
        )
        if width_of([*lines[-1], *entry]) + len(tail) > width and lines[-1]:
            if is_last:
                break
            lines.append([])
        lines[-1] += entry
        remainder -= shares[name]
    others = [Span("  rest ", "label"), Span(percent(remainder))]
    if remainder >= 0.005 and width_of([*lines[-1], *others]) <= width:
        lines[-1] += others
    return lines


def _device(device: DeviceLane, width: int) -> list[Line]:
    """Busy and idle with what they were measured by, or why they are not known."""
    label = Span(f" {'device':<{_LABEL}}", "label")
    if device.busy is None:
        return [[label, Span(device.by, "dim")]]
    wide = min(width - _LABEL - 2, _BAR_MOST)
    if wide < _LEAST_BAR:
        return []
    busy = round(device.busy * wide)
    figures: Line = [Span(f" {'':<{_LABEL}}"), Span(f"busy {percent(device.busy)}")]
    idle = [Span(f", idle {percent(1 - device.busy)}", "label")]
    by = [Span(f" by {device.by}", "dim")]
    if width_of([*figures, *idle, *by]) <= width:
        figures += idle
    elif width_of([*figures, *by]) > width:
        figures[0] = Span(" ")
    return [[label, Span("\u2588" * busy, "accent"), Span(_IDLE * (wide - busy), "label")], [*figures, *by]]


_LABEL = 8


_OVER = "the run has ended"


class PacePart(NamedTuple):
    """The content of the panel."""

    pace: ThroughputView | None
    eta_s: float | None
    why_no_end: str
    """Why there is no ETA; empty if there is one."""
    now: float
    """Unix time in whole seconds; 0 if no ETA is shown, so that the panel is not redrawn every second."""
    marks: list[Mark]
    axis_info: AxisInfo
    why_none: str
    budget: StepBudget | None = None
    """None if the process does not measure sections."""
    flops: FlopsView | None = None
    """Operations of a step, and how much of the peak they use; None if not counted."""


class PacePanel(RunPanel[PacePart]):
    """Throughput."""

    key = "9"
    name_shown = "pace"
    what = (
        "examples per second, now and steady; step time (median, 95th percentile); when epoch and run will end; "
        "the step budget: shares of the wall time by section of the host, and how busy the device is, over the newest "
        "reports and over the whole run"
    )

    look = ChartView(x="time")

    @staticmethod
    def pick(snapshot: Snapshot) -> PacePart:
        """The newest values and their history."""
        why = "" if snapshot.throughput is not None else status_text.nothing_yet(snapshot, "report")
        why_no_end = ""
        if snapshot.condition in ENDED:
            why_no_end = _OVER
        elif snapshot.plan is None:
            why_no_end = "number of steps unknown"
        elif snapshot.eta_s is None:
            why_no_end = "not known before the second report"
        now = 0.0 if why_no_end else float(int(snapshot.now))
        return PacePart(
            snapshot.throughput,
            snapshot.eta_s,
            why_no_end,
            now,
            snapshot.marks,
            axis_info_of(snapshot),
            why,
            step_budget(snapshot),
            snapshot.flops,
        )

    def draw(self, part: PacePart, width: int, height: int) -> Drawing:
        """The values, then the history as large as it fits."""
        pace = part.pace
        if pace is None:
            return Drawing(paragraph(part.why_none, width, height))
        rows = [*_speed(pace, width, is_over=part.why_no_end == _OVER), *_step(pace, width), *_ends(part, pace, width)]
        rows += _flops(part.flops, width) if len(rows) < height else []
        is_full = self.has_class("-maximised")
        rows += budget_rows(part.budget, width, height - len(rows), is_full=is_full)
        if len(rows) >= height:
            return Drawing(rows)
        is_known = math.isfinite(pace.examples_per_s)
        speeds = [point.examples_per_s if is_known else point.step_s for point in pace.history]
        unit = "examples/s" if is_known else "s/step"
        room = height - len(rows) - 1
        chart = None
        if room >= LEAST_CHART:
            points = [(point.t, point.step, speed) for point, speed in zip(pace.history, speeds, strict=True)]
            whole = ChartSeries(as_segments(points), [], part.marks, part.axis_info)
            chart = chart_of_view(whole, self.look, width, room)
        if chart is not None:
            return Drawing([*rows, [Span(f" {unit}", "label")], *chart.lines])
        spark = _spark(speeds, unit, width)
        return Drawing([*rows, *(spark if len(rows) + len(spark) <= height else [])])

    def figures(self) -> Figures:
        """The history as a table."""
        pace = self._part.pace if self._part is not None else None
        points = pace.history if pace is not None else []
        return Figures(
            ("t", "step", "step_s", "examples_per_s"), [(p.t, p.step, p.step_s, p.examples_per_s) for p in points]
        )


def _row(label: str, *spans: Span) -> Line:
    return [Span(f" {label:<{_LABEL}}", "label"), *spans]


def _speed(pace: ThroughputView, width: int, *, is_over: bool) -> list[Line]:
    if math.isnan(pace.examples_per_s):
        if not is_over:
            return []
        steady = f"{fmt.step_time(pace.steady_step_s)}/step"
    else:
        steady = facts.STEADY_SPEED.format(pace.steady_examples_per_s)
    now = facts.SPEED.format(pace.examples_per_s)
    of = Span(f"  of {fmt.counted(pace.num_reports, 'report')}", "dim")
    lines = [_row("steady", Span(steady, "accent"), *([of] if width >= 44 else []))]
    return lines if is_over else [_row("now", Span(now, "strong")), *lines]


def _step(pace: ThroughputView, width: int) -> list[Line]:
    half, most = fmt.step_time(pace.step_p50_s), fmt.step_time(pace.step_p95_s)
    name = "p50 " if width >= 36 else ""
    spans = [Span(name, "label"), Span(half, "strong"), Span("  p95 ", "label"), Span(most, "strong")]
    return [_row("step", *spans)]


def _flops(flops: FlopsView | None, width: int) -> list[Line]:
    """Operations of a step and the share of the peak that they use, in as far as they fit."""
    if flops is None or flops.flops_per_step is None:
        return []
    work, utilisation = phrases.flops(flops)
    line, is_known = _row("flops", Span(work, "strong")), flops.mfu is not None
    more: Line = [Span(f"  {utilisation}", "accent" if is_known else "dim")]
    return [[*line, *more] if width_of([*line, *more]) <= width else line]


def _ends(part: PacePart, pace: ThroughputView, width: int) -> list[Line]:
    if part.why_no_end == _OVER:
        return []
    if part.why_no_end:
        return [_row("ends", Span(part.why_no_end, "dim"))]
    epoch = Span("not known yet", "dim")
    if pace.eta_epoch_s is not None:
        epoch = Span(f"ends in {status_text.seconds(pace.eta_epoch_s)}", "strong")
    run = Span(f"ends in {status_text.seconds(part.eta_s or 0.0)}", "strong")
    at = status_text.time_of_day(part.now + (part.eta_s or 0.0))
    line = _row("run", run)
    clock: Line = [Span(f"  at {at}", "label")]
    return [_row("epoch", epoch), [*line, *clock] if width_of([*line, *clock]) <= width else line]


def _spark(values: list[float], unit: str, width: int) -> list[Line]:
    """The history as a sparkline, with its minimum and maximum below."""
    if len(values) < 2:
        return []
    bounds = f" {unit} {_rate(min(values))} to {_rate(max(values))}"
    return [[Span(" "), *evenly(values, width - 2)], [Span(bounds, "dim")]]


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else fmt.number(value, 3)
