"""The memory panel: memory of the cores, of the processes and of the host, now and over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.chart_data import DevicePoint, MemoryPoint
from tputui.state.snapshot import DevicesView, HostView, MemoryView, Snapshot
from tputui.telemetry.events import HbmReading, ProcessSample
from tputui.text import phrases
from tputui.ui.base import host_text, status_text
from tputui.ui.charts.series_chart import Area, area_grid, evenly
from tputui.ui.render.lines import DrawnLate, Line, Span, Tone, bar, clean, crop, fit, paragraph, width_of, wrap
from tputui.ui.widgets.panel import Drawing, RunPanel

NEARLY_FULL = 0.9
"""Share of the memory from which a value is highlighted."""
_PROCESSES_MAX, _LARGEST = 32, 4
"""Maximum number of processes listed; of more the largest ones, since the screen of a host lists its own."""


_BESIDE_FROM, _NOW_WIDTH = 140, 60
"""Cells of the panel from which the charts of the full screen are beside the newest readings, and cells of these."""


class MemoryPart(NamedTuple):
    """The content of the panel."""

    memory: MemoryView
    history: list[MemoryPoint]
    why_none: str
    devices: DevicesView | None = None
    duty_history: Sequence[DevicePoint] = ()
    hosts: Sequence[HostView] = ()
    """The hosts of the run if there are several."""
    started: float | None = None
    """Unix time of the start of the run."""

    def processes(self) -> list[tuple[ProcessSample, int | None]]:
        """The processes that have a line, each with its host if there are several; of many the largest ones."""
        listed: list[tuple[ProcessSample, int | None]] = [(sample, None) for sample in self.memory.processes]
        if self.hosts:
            listed = [(sample, host.index) for host in self.hosts for sample in host.processes]
        if len(listed) > _PROCESSES_MAX:
            listed = sorted(listed, key=lambda entry: -entry[0].rss_bytes)[:_LARGEST]
        return listed


class MemoryPanel(RunPanel[MemoryPart]):
    """Device memory, processes, host."""

    key = "6"
    name_shown = "memory"
    what = (
        "device memory of each core, or why it is not available; duty cycle of a TPU; memory and CPU of the processes "
        "and of the host; history, in full screen with CPU, disks and network of the host"
    )

    @staticmethod
    def pick(snapshot: Snapshot) -> MemoryPart:
        """The newest readings."""
        why = status_text.nothing_yet(snapshot, "memory reading") if _none(snapshot) else ""
        hosts = snapshot.hosts if host_text.has_hosts(snapshot) else ()
        history = snapshot.memory_history
        devices = snapshot.devices, snapshot.device_history
        return MemoryPart(snapshot.memory, history, why, *devices, hosts, snapshot.started)

    def draw(self, part: MemoryPart, width: int, height: int) -> Drawing:
        """Prediction, device, history, host, processes, then one bar per core."""
        memory = part.memory
        if part.why_none:
            return Drawing(paragraph(part.why_none, width, height))
        readings = memory.hbm if memory.hbm is not None and len(memory.hbm) > 1 else []
        areas = _areas(part) if self.has_class("-maximised") else []
        if not areas:
            return Drawing(_Rows(self._now(part, width, height, is_full=False), readings, width))
        started, newest = _times(part)
        if width >= _BESIDE_FROM:
            now = self._now(part, _NOW_WIDTH, height, is_full=True)
            charts = area_grid(areas, (started, newest), width - _NOW_WIDTH - 1, height)
            return Drawing(_Rows(now, readings, _NOW_WIDTH, charts))
        now = self._now(part, width, height, is_full=True)
        room = max(height - len(now) - len(readings), height // 2)
        return Drawing(_Rows([*area_grid(areas, (started, newest), width, room), *now], readings, width))

    @staticmethod
    def _now(part: MemoryPart, width: int, height: int, *, is_full: bool) -> list[Line]:
        """The newest readings; what is drawn over time in full screen is a line each otherwise."""
        memory, few = part.memory, part.processes()
        over_time = [*_over_time(part.history, width), *_duty_over_time(part.duty_history, width)]
        rows = [
            *_predicted(memory, width),
            *_device(memory, width, height - len(few) - 4),
            *([] if is_full else over_time),
            *_device_notes(part, width),
            _host(memory, width),
            *(_not_counted(part, width) if is_full else []),
            *(process_line(process, width, host) for process, host in few),
        ]
        if len(few) < len(memory.processes):
            rows.append([Span(f" and {len(memory.processes) - len(few):,} more processes, listed by host (h)", "dim")])
        return rows


class _Rows(DrawnLate):
    """Lines, then a line per core, drawn on access: a pod has thousands of cores. Charts are at the right of them."""

    def __init__(
        self, lines: Sequence[Line], readings: Sequence[HbmReading], width: int, charts: Sequence[Line] = ()
    ) -> None:
        self._lines, self._readings, self._width, self._charts = lines, readings, width, charts

    def __len__(self) -> int:
        return max(len(self._lines) + len(self._readings), len(self._charts))

    def line_at(self, row: int) -> Line:
        core = row - len(self._lines)
        line = self._lines[row] if core < 0 else []
        if 0 <= core < len(self._readings):
            line = _core(self._readings[core], self._width)
        if row >= len(self._charts):
            return line
        return [*fit(line, self._width), Span(" " * (self._width - width_of(line) + 1)), *self._charts[row]]


def _times(part: MemoryPart) -> tuple[float, float]:
    """Unix time of the start of the run, and of the newest reading."""
    histories: list[Sequence[MemoryPoint | DevicePoint]] = [part.history, part.duty_history]
    times = [point.t for points in histories for point in (*points[:1], *points[-1:])]
    first = min(times)
    return min(part.started, first) if part.started is not None else first, max(times)


def _areas(part: MemoryPart) -> list[Area]:
    """The charts of the full screen: what at least two readings have, host first."""
    memory = part.memory
    of = f" of {len(part.hosts)} hosts" if part.hosts else ""
    readings, size = memory.hbm or (), fmt.size
    hbm = max((reading.used_bytes for reading in readings), default=None)
    hbm_limit = max((reading.limit_bytes for reading in readings), default=0)
    rss = sum(process.rss_bytes for process in memory.processes) or None
    drawn: list[tuple[str, str, float | None, float, Callable[[float], str]]] = [
        (f"host CPU{of}", "cpu_percent", memory.host_cpu_percent, 100.0, fmt.percent),
        (f"host memory{of}", "host_used_bytes", memory.host_used_bytes, memory.host_total_bytes or 0, size),
        ("processes", "rss_bytes", rss, 0, size),
        ("HBM, fullest core", "hbm_used_bytes", hbm, hbm_limit, size),
        ("disk reads", "disk_read_bytes_per_s", memory.disk_read_bytes_per_s, 0, _per_s),
        ("disk writes", "disk_written_bytes_per_s", memory.disk_written_bytes_per_s, 0, _per_s),
        ("network in", "network_received_bytes_per_s", memory.network_received_bytes_per_s, 0, _per_s),
        ("network out", "network_sent_bytes_per_s", memory.network_sent_bytes_per_s, 0, _per_s),
    ]
    areas: list[Area | None] = []
    for name, field, now, high, text in drawn:
        values = ((point.t, getattr(point, field)) for point in part.history)
        areas.append(_area(name, now, [(t, value) for t, value in values if value is not None], high, text))
    duty = [(point.t, point.duty_cycle_percent) for point in part.duty_history]
    return [area for area in (*areas, _area("duty cycle", None, duty, 100.0, fmt.percent)) if area is not None]


def _area(
    name: str,
    now: float | None,
    points: Sequence[tuple[float, float]],
    high: float,
    text: Callable[[float], str],
) -> Area | None:
    """The chart of a value, which is `now`, or that of the newest point; None without two points."""
    if len(points) < 2:
        return None
    newest = points[-1][1] if now is None or not math.isfinite(now) else now
    most = max(newest, *(value for _, value in points))
    title = [Span(f"{name} ", "label"), Span(text(newest), "strong"), Span(f"  max {text(most)}", "dim")]
    return Area(title, points, high or most or 1.0, text)


def _per_s(bytes_per_s: float) -> str:
    return f"{fmt.size(bytes_per_s)}/s"


def _not_counted(part: MemoryPart, width: int) -> list[Line]:
    """Why a chart of the traffic of the host is missing."""
    memory = part.memory
    counted = {
        "disk traffic": memory.disk_read_bytes_per_s,
        "network traffic": memory.network_sent_bytes_per_s,
    }
    missing = " and ".join(name for name, rate in counted.items() if rate is None)
    if not missing or memory.host_used_bytes is None:
        return []
    why = f"{missing}: not recorded, by an older version or since the system does not count it"
    return [[Span(f" {piece}", "dim")] for piece in wrap(why, width - 1)]


def _device(memory: MemoryView, width: int, height: int) -> list[Line]:
    """The fullest core if not all of them are visible, or why there is no reading."""
    if memory.hbm is None:
        reason = clean(memory.hbm_reason or "not read yet")
        return [[Span(f" {piece}", "dim")] for piece in wrap(f"HBM: {reason}", width - 1)]
    if 1 < len(memory.hbm) <= height:
        return []
    if not memory.hbm:
        return []
    shares = [reading.used_bytes / reading.limit_bytes if reading.limit_bytes else 0.0 for reading in memory.hbm]
    line = _core(memory.hbm[shares.index(max(shares))], width)
    return [[*line, Span("  fullest", "label")] if len(memory.hbm) > 1 and width_of(line) + 9 <= width else line]


def _over_time(points: list[MemoryPoint], width: int) -> list[Line]:
    """The memory over time: of the fullest core, if it is known, and of the processes."""
    kinds = {
        "HBM": [point.hbm_used_bytes for point in points if point.hbm_used_bytes is not None],
        "processes": [point.rss_bytes for point in points if point.rss_bytes is not None],
    }
    rows: list[Line] = []
    for name, values in kinds.items():
        if len(values) < 2:
            continue
        bounds = f" {fmt.size(min(values))} to {fmt.size(max(values))}"
        if width - 12 - len(bounds) < 10:
            bounds = f" to {fmt.size(max(values))}"
        room = width - 12 - len(bounds)
        if room >= 4:
            line = evenly([float(value) for value in values], room)
            rows.append([Span(f" {name:<10} ", "label"), *line, Span(bounds, "dim")])
    return rows


def _duty_over_time(points: Sequence[DevicePoint], width: int) -> list[Line]:
    """The mean duty cycle of the cores over time."""
    if len(points) < 2:
        return []
    newest = f" {fmt.percent(points[-1].duty_cycle_percent)}"
    room = width - 12 - len(newest)
    if room < 4:
        return []
    line = evenly([point.duty_cycle_percent for point in points], room)
    return [[Span(f" {'duty cycle':<10} ", "label"), *line, Span(newest, "dim")]]


def _device_notes(part: MemoryPart, width: int) -> list[Line]:
    """Throttled cores, bad links, and why the TPU runtime cannot be read, unless that is said already."""
    if part.devices is None:
        return []
    notes: list[tuple[str, Tone]] = [(text, "warn") for text in phrases.device_problems(part.devices.cores)]
    if part.devices.reason and part.devices.reason != part.memory.hbm_reason:
        notes.append((f"TPU: {part.devices.reason}", "dim"))
    return [[Span(f" {piece}", tone)] for text, tone in notes for piece in wrap(clean(text), width - 1)]


def _share(reading: HbmReading) -> float:
    return reading.used_bytes / reading.limit_bytes if reading.limit_bytes else 0.0


def _none(snapshot: Snapshot) -> bool:
    memory = snapshot.memory
    return (memory.hbm, memory.hbm_reason, memory.host_total_bytes, memory.predicted) == (None, None, None, None)


def _predicted(memory: MemoryView, width: int) -> list[Line]:
    """The predicted memory as one row, shortened in a narrow panel; the total comes first."""
    core = memory.predicted
    if core is None:
        return []
    tone: Tone = "warn" if core.limit_bytes is not None and core.total_bytes > core.limit_bytes else "plain"
    return [[Span(f" {_shortened(clean(fmt.forecast(core)), width - 1)}", tone)]]


def _shortened(forecast: str, width: int) -> str:
    """As many whole values as fit of `predicted 412 MiB a core of 16.0 GiB: activations 300 MiB, optimizer 75 MiB`."""
    total, _, parts = forecast.partition(": ")
    names = parts.split(", ")
    cut = [", ".join([f"{total}: {names[0]}", *names[1:count], "\u2026"]) for count in range(len(names) - 1, 0, -1)]
    shorter = [total, total.replace(" a core", ""), total.partition(" a core")[0]]
    return next((text for text in (forecast, *cut, *shorter) if len(text) <= width), crop(shorter[-1], width))


def _host(memory: MemoryView, width: int) -> Line:
    used, total = memory.host_used_bytes, memory.host_total_bytes
    if used is None or not total:
        return [Span(f" {'host':<10} ", "label"), Span("not read yet", "dim")]
    text = f"{fmt.size(used):>8} of {fmt.size(total)}"
    cpu = f"  CPU {fmt.percent(memory.host_cpu_percent)}"
    line: Line = [Span(f" {'host':<10} ", "label"), Span(text), Span(cpu if width >= 12 + len(text + cpu) else "")]
    room = width - width_of(line) - 2
    return [*line, Span("  "), *_gauge(used / total, room)] if room >= 6 else line


def process_line(process: ProcessSample, width: int, host: int | None = None) -> Line:
    """Memory, CPU and number of a process; before these its host, if that is given. The last ones need room."""
    line: Line = [Span(f" {clean(process.role):<10} ", "label"), Span(f"{fmt.size(process.rss_bytes):>8}")]
    cpu = Span(f"  CPU {fmt.percent(process.cpu_percent):>5}")
    pid = Span(f"  pid {process.pid}", "dim")
    place = [] if host is None else [Span(f"  host {host}", "label")]
    forms = ([cpu, *place, pid], [cpu, *place], place)
    return [*line, *next((form for form in forms if width_of([*line, *form]) <= width), place or [cpu])]


def _core(reading: HbmReading, width: int) -> Line:
    share = _share(reading)
    text = f"{fmt.size(reading.used_bytes):>8} of {fmt.size(reading.limit_bytes)}"
    peak = f"  peak {fmt.size(reading.peak_bytes)}" if reading.peak_bytes else ""
    line: Line = [Span(f" HBM {reading.core:<6} ", "label"), Span(text, "warn" if share >= NEARLY_FULL else "plain")]
    if peak and width_of(line) + len(peak) <= width:
        line.append(Span(peak, "label"))
    room = width - width_of(line) - 2
    return [*line, Span("  "), *_gauge(share, room)] if room >= 6 else line


def _gauge(share: float, width: int) -> Line:
    tone: Tone = "warn" if share >= NEARLY_FULL else "accent"
    return bar(share, min(width, 24), tone)
