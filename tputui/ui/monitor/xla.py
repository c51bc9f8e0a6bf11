"""The xla panel: counters of the runtime, and how they grew over the time of the run. Problems are highlighted."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.chart_data import Mark, XlaPoint
from tputui.state.snapshot import Snapshot
from tputui.state.xla_view import XlaView
from tputui.text import phrases
from tputui.ui.base import status_text
from tputui.ui.charts.series_chart import blocks
from tputui.ui.render.lines import Line, Span, Tone, clean, paragraph
from tputui.ui.widgets.panel import Drawing, RunPanel

_LABEL = 12

_LEAST_CHARTS_WIDTH = 24
_TALLEST = 3
"""Most lines of the blocks of a chart."""
_TALLEST_IN_FULL = 6
"""The same in full screen, but for compilations, which are a few bars."""


class XlaPart(NamedTuple):
    """The content of the panel."""

    xla: XlaView | None
    why_none: str
    history: Sequence[XlaPoint] = ()
    started: float | None = None
    """When the run began."""
    marks: Sequence[Mark] = ()


class XlaPanel(RunPanel[XlaPart]):
    """Compiles, executions, transfers, fallbacks."""

    key = "5"
    name_shown = "xla"
    what = (
        "compiles, executions and transfers of the XLA runtime; recompiles, extra executions per step, scalar reads of "
        "the task and CPU fallbacks are highlighted; with enough room also compile time, execute time of a step and "
        "programs per step, by report over the time of the run"
    )

    @staticmethod
    def pick(snapshot: Snapshot) -> XlaPart:
        why = "" if snapshot.xla else status_text.nothing_yet(snapshot, "XLA counter")
        return XlaPart(snapshot.xla, why, snapshot.xla_history, snapshot.started, snapshot.marks)

    def draw(self, part: XlaPart, width: int, height: int) -> Drawing:
        """One line per counter; below, the counters over time."""
        xla = part.xla
        if xla is None:
            return Drawing(paragraph(part.why_none, width, height))
        room = width - _LABEL - 1
        rows = [
            _row("compiles", f"{fmt.count(xla.compiles)} in {fmt.duration(xla.compile_s)}"),
            _recompiles(xla),
            _executes(xla, room),
            _row("to device", _transfers(xla.transfers_to_device, xla.bytes_to_device, room)),
            _row("from device", _transfers(xla.transfers_from_device, xla.bytes_from_device, room)),
            *_task_reads(xla),
            *_fallbacks(xla.fallbacks),
        ]
        is_full, compiles = self.has_class("-maximised"), _compiles(part) if part.history else []
        charts = _over_time(part, width, height - len(rows), len(compiles) if is_full else None)
        if not charts:
            return Drawing(rows)
        rows += charts
        if is_full or height - len(rows) >= len(compiles):
            rows += compiles
        return Drawing(rows, note=f"{status_text.clock(0.0)} to {status_text.clock(part.history[-1].t - _began(part))}")


class _Chart(NamedTuple):
    """Blocks over the time of the run, with a line of text above."""

    title: str
    low: str
    high: str
    points: list[tuple[float, float]]
    """Unix time and value."""
    adds: bool = False


def _over_time(part: XlaPart, width: int, height: int, num_below: int | None) -> list[Line]:
    """The charts that fit. Their time is from the start of the run to the newest reading.

    `num_below`: lines below the charts in full screen, where the charts take the rest; else None.
    """
    if len(part.history) < 2 or width < _LEAST_CHARTS_WIDTH or height < 2:
        return []
    charts = _charts(part.history)[: height // 2]
    if not charts:
        return []
    lines: list[Line] = []
    x_range = (_began(part), part.history[-1].t)
    for chart, rows in zip(charts, _heights(charts, height - len(charts), num_below), strict=True):
        lines.append(_heading(chart, width))
        drawn = blocks(chart.points, x_range, width - 2, rows, from_zero=True, adds=chart.adds)
        lines += [[Span(" "), *line] for line in drawn]
    return lines


def _heights(charts: Sequence[_Chart], room: int, num_below: int | None) -> list[int]:
    """The lines of each chart without its heading. A line too many is not for compilations, which are a few bars."""
    if num_below is not None and room - num_below >= 2 * len(charts):
        room -= num_below
    most = _TALLEST if num_below is None else _TALLEST_IN_FULL
    bars = sum(chart.adds for chart in charts)
    of_bars = min(room // len(charts), _TALLEST)
    tall, spare = divmod(room - bars * of_bars, max(len(charts) - bars, 1))
    return [of_bars if chart.adds else min(tall + (index - bars < spare), most) for index, chart in enumerate(charts)]


def _charts(history: Sequence[XlaPoint]) -> list[_Chart]:
    """What was compiled and executed between two readings, each at the time of the later one. Training steps are only
    known of readings with new steps."""
    zero = XlaPoint(t=0.0, step=0, compiles=0, compile_s=0.0, executes=0, execute_s=0.0)
    compiled: list[tuple[float, float]] = []
    executed: list[tuple[float, float]] = []
    programs: list[tuple[float, float]] = []
    for before, point in itertools.pairwise([zero, *history]):
        steps = point.step - before.step
        if point.compiles > before.compiles:
            compiled.append((point.t, max(point.compile_s - before.compile_s, 0.0)))
        if steps > 0 and before is not zero:
            executed.append((point.t, max(point.execute_s - before.execute_s, 0.0) / steps))
            programs.append((point.t, max(point.executes - before.executes, 0) / steps))
    charts: list[_Chart] = []
    if compiled:
        charts.append(_Chart("compile/report", "", fmt.duration(_most(compiled)), compiled, adds=True))
    if executed and _most(executed) > 0:
        low, high = fmt.duration(_least(executed)), fmt.duration(_most(executed))
        charts.append(_Chart("execute/step", low, high, executed))
    if programs:
        charts.append(_Chart("programs/step", f"{_least(programs):.1f}", f"{_most(programs):.1f}", programs))
    return charts


def _heading(chart: _Chart, width: int) -> Line:
    """The title of a chart and its range; only the highest value if there is no room, or no lowest one."""
    title = f" {chart.title}  "
    whole = f"{chart.low} to {chart.high}" if chart.low != chart.high else chart.high
    fits = chart.low and len(title) + len(whole) <= width
    return [Span(title, "label"), Span(whole if fits else f"up to {chart.high}")]


def _most(points: Sequence[tuple[float, float]]) -> float:
    return max(value for _, value in points)


def _least(points: Sequence[tuple[float, float]]) -> float:
    return min(value for _, value in points)


def _began(part: XlaPart) -> float:
    first = part.history[0].t
    return first if part.started is None else min(part.started, first)


def _compiles(part: XlaPart) -> list[Line]:
    """When programs were compiled, and how long it took."""
    began = _began(part)
    lines = []
    for mark in part.marks:
        if mark.kind in ("compile", "recompile"):
            at = status_text.clock(max(mark.t - began, 0.0))
            lines.append(_row(f"at {at}", mark.text, "warn" if mark.kind == "recompile" else "plain"))
    return lines


def _row(label: str, text: str, tone: Tone = "plain") -> Line:
    return [Span(f" {label:<{_LABEL}}", "label"), Span(text, tone)]


def _recompiles(xla: XlaView) -> Line:
    if xla.recompiles:
        return _row("recompiles", f"\u25b2 {phrases.recompiles(xla)}", "warn")
    return _row("recompiles", phrases.recompiles(xla), "good" if xla.is_never_recompiled else "plain")


def _executes(xla: XlaView, width: int) -> Line:
    """The executions, with those per step once there are steps after warm-up; without time and number if too long."""
    per_step = phrases.executes_a_step(xla)
    if xla.has_extra_executes:
        return _row("executes", f"\u25b2 {per_step}; {fmt.count(xla.executes)} in all", "warn")
    number = fmt.count(xla.executes)
    forms = [", ".join(filter(None, (f"{number} in {fmt.duration(xla.execute_s)}", per_step)))]
    forms += [f"{number}, {per_step}", per_step] if per_step else [number]
    return _row("executes", next((form for form in forms if len(form) <= width), forms[-1]))


def _transfers(number: int, num_bytes: int, room: int) -> str:
    """How many and how much; the word gives way to the numbers."""
    text = f"{fmt.counted(number, 'transfer')}, {fmt.size(num_bytes)}"
    return text if len(text) <= room else f"{number:,}, {fmt.size(num_bytes)}"


def _task_reads(xla: XlaView) -> list[Line]:
    reads = phrases.reads_a_step(xla)
    if not xla.reads_a_step:
        return [_row("host reads", reads, "good")] if reads else []
    return [_row("host reads", f"\u25b2 {reads}", "warn")]


def _fallbacks(fallbacks: dict[str, int]) -> list[Line]:
    if not fallbacks:
        return [_row("fallbacks", "0 to the CPU", "good")]
    rows = [_row("fallbacks", f"\u25b2 {fmt.count(sum(fallbacks.values()))} to the CPU", "warn")]
    ranked = sorted(fallbacks.items(), key=lambda item: (-item[1], item[0]))
    return rows + [_row("", f"{clean(name)}  {fmt.count(times)}", "warn") for name, times in ranked]
