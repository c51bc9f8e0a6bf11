"""Memory of the cores, of the run's processes and of the host; where there is no reading, why."""

from __future__ import annotations

from typing import NamedTuple

from tputui.model import format as fmt
from tputui.model.snapshot import MemoryView, Snapshot
from tputui.telemetry.events import HbmReading, ProcessSample
from tputui.ui import words
from tputui.ui.lines import Line, Span, Tone, bar, clean, crop, paragraph, width_of, wrap
from tputui.ui.widgets.panel import Drawing, Panel

_NEARLY_FULL = 0.9


class MemoryPart(NamedTuple):
    """What the panel shows."""

    memory: MemoryView
    why_none: str


class MemoryPanel(Panel[MemoryPart]):
    """Device memory, processes, host."""

    key = "6"
    name_shown = "memory"
    what = "device memory of each core, or why there is no reading; memory and CPU of the processes and of the host"

    @staticmethod
    def pick(snapshot: Snapshot) -> MemoryPart:
        """The newest readings."""
        return MemoryPart(snapshot.memory, words.nothing_yet(snapshot, "memory reading") if _none(snapshot) else "")

    def draw(self, part: MemoryPart, width: int, height: int) -> Drawing:
        """What was predicted, host, processes, then a bar a core."""
        memory = part.memory
        if part.why_none:
            return Drawing(paragraph(part.why_none, width, height))
        rows = [
            *_predicted(memory, width),
            _host(memory, width),
            *(_process(process, width) for process in memory.processes),
        ]
        if memory.hbm is None:
            reason = clean(memory.hbm_reason or "not read yet")
            return Drawing([*rows, *([Span(f" {piece}", "dim")] for piece in wrap(f"HBM: {reason}", width - 1))])
        return Drawing([*rows, *(_core(reading, width) for reading in memory.hbm)])


def _none(snapshot: Snapshot) -> bool:
    memory = snapshot.memory
    return (memory.hbm, memory.hbm_reason, memory.host_total_bytes, memory.predicted) == (None, None, None, None)


def _predicted(memory: MemoryView, width: int) -> list[Line]:
    """One row, cut where the panel is narrow: the total comes first."""
    core = memory.predicted
    if core is None:
        return []
    tone: Tone = "warn" if core.limit_bytes is not None and core.total_bytes > core.limit_bytes else "plain"
    return [[Span(f" {crop(clean(fmt.forecast(core)), width - 1)}", tone)]]


def _host(memory: MemoryView, width: int) -> Line:
    used, total = memory.host_used_bytes, memory.host_total_bytes
    if used is None or not total:
        return [Span(" host  ", "label"), Span("not read yet", "dim")]
    text = f" {fmt.size(used)} of {fmt.size(total)}  CPU {fmt.percent(memory.host_cpu_percent)}"
    return [Span(" host ", "label"), *_gauge(used / total, width - 7 - len(text)), Span(text)]


def _process(process: ProcessSample, width: int) -> Line:
    line: Line = [
        Span(f" {clean(process.role):<10} ", "label"),
        Span(f"{fmt.size(process.rss_bytes):>8}"),
        Span(f"  CPU {fmt.percent(process.cpu_percent):>5}"),
    ]
    pid = Span(f"  pid {process.pid}", "dim")
    return [*line, pid] if width_of([*line, pid]) <= width else line


def _core(reading: HbmReading, width: int) -> Line:
    text = f" {fmt.size(reading.used_bytes)} of {fmt.size(reading.limit_bytes)}"
    if reading.peak_bytes and width >= 44:
        text += f"  peak {fmt.size(reading.peak_bytes)}"
    share = reading.used_bytes / reading.limit_bytes if reading.limit_bytes else 0.0
    room = width - len(text) - 10
    line: Line = [Span(f" HBM {reading.core:>4} ", "label"), *_gauge(share, room)]
    return [*line, Span(text, "warn" if share >= _NEARLY_FULL else "plain")]


def _gauge(share: float, width: int) -> Line:
    tone: Tone = "warn" if share >= _NEARLY_FULL else "accent"
    return bar(share, min(width, 24), tone) if width >= 4 else []
