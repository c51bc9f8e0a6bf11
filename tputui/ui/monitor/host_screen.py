"""The screen of one host: its state, cores, memory, processes and log, over the monitor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from textual.binding import Binding, BindingType

from tputui import formatting as fmt
from tputui.state.chart_data import CoreColumn, OutlierView, SlowCoreView
from tputui.state.snapshot import HostView, LogLine, Snapshot
from tputui.telemetry.events import HbmReading, ProcessSample
from tputui.ui.base import status_text
from tputui.ui.base.host_text import HostProblem
from tputui.ui.monitor.cores import CoreHistory, loss_span, state_of
from tputui.ui.monitor.hosts import HostsPanel, HostsPart, clock, summary_parts
from tputui.ui.monitor.log_lines import folded, host_of_source
from tputui.ui.monitor.memory import NEARLY_FULL, process_line
from tputui.ui.render.lines import Line, Span, Tone, clean, crop, fit, width_of
from tputui.ui.terminal.themes import key_names
from tputui.ui.widgets.panel import Drawing, RunOverlay, RunPanel

NOTE = "\u2190 \u2192 other hosts, 7 its log, esc closes"
_LOG_LINES = 200
"""Maximum number of newest lines of the log of the host."""
_STATE = 16
"""Cells of the state of a core."""
_TIME = 9
_HBM, _HBM_LONG = 6, 22
"""Cells of the device memory of a core: of its share, and of bytes."""
_LONG_FROM = 100


class HostPart(NamedTuple):
    """The content of the panel: that of the hosts panel, and what belongs to single hosts."""

    whole: HostsPart
    columns: list[CoreColumn]
    slow_core: SlowCoreView | None
    outlier: OutlierView | None
    processes: list[ProcessSample]
    hbm_reason: str | None
    logs: list[LogLine]


class HostPanel(RunPanel[HostPart]):
    """One host."""

    key = ""
    name_shown = "host"
    what = "a host: its cores with the loss so far, memory, processes and log"

    def __init__(self, index: int, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.index = index
        self._history = CoreHistory()

    @property
    def title(self) -> str:
        return f"host {self.index}"

    @staticmethod
    def pick(snapshot: Snapshot) -> HostPart:
        """What belongs to the hosts."""
        return HostPart(
            HostsPanel.pick(snapshot),
            snapshot.core_columns,
            snapshot.slow_core,
            snapshot.outlier,
            snapshot.memory.processes,
            snapshot.memory.hbm_reason,
            snapshot.logs,
        )

    @property
    def _note(self) -> str:
        return key_names(self.app if self.is_attached else None, NOTE)

    def move(self, by: int) -> None:
        """Show another host."""
        hosts = self._part.whole.hosts if self._part is not None else []
        at = next((at for at, host in enumerate(hosts) if host.index == self.index), None)
        if at is not None:
            self.index = hosts[(at + by) % len(hosts)].index
            self._history = CoreHistory()
            self.follow()

    def draw(self, part: HostPart, width: int, height: int) -> Drawing:
        """State, cores, memory, processes, log."""
        host = next((candidate for candidate in part.whole.hosts if candidate.index == self.index), None)
        if host is None:
            return Drawing([[Span(" this host is not in the run at this moment", "dim")]], note=self._note)
        problem = next((of_host for of_host in part.whole.problems() if of_host.host == host.index), None)
        rows = [
            *self._cores(part, host, width),
            *_memory(part, host, width),
            *_log(part.logs, host, width),
        ]
        return Drawing(rows, head=tuple(_head(part, host, problem, width)), note=self._note)

    def _cores(self, part: HostPart, host: HostView, width: int) -> list[Line]:
        """A line per core: loss, step, state, time and device memory as far as known, and its loss so far."""
        views = {core.core: core for core in part.whole.cores}
        cores = [views[core] for core in host.cores if core in views]
        if not cores:
            return [_title("cores", "none reported yet"), []]
        steps = max(4, *(len(f"{core.step:,}") for core in cores))
        times = _TIME if any(core.compute_s is not None for core in cores) else 0
        readings = {reading.core: reading for reading in part.whole.hbm if reading.core in host.cores}
        filled = (_HBM_LONG if width >= _LONG_FROM else _HBM) if readings else 0
        room = max(width - (7 + 10 + 1 + steps + 2 + _STATE + times + filled + 2), 8)
        sparklines = self._history.sparklines(part.columns, [core.core for core in cores], room, 1)
        titles = f"{'loss':>7}    {'step':>{steps}}  {'state':<{_STATE}}{'time' if times else '':>{times}}"
        rows = [_title("cores", f"{titles}{'HBM' if filled else '':>{filled}}  loss so far")]
        for core in cores:
            state, tone = state_of(core, part.slow_core, _STATE)
            line: Line = [
                Span(f"{core.core:>7}", "strong"),
                loss_span(core, part.outlier, 10),
                Span(f" {core.step:>{steps},}  "),
                Span(f"{crop(state, _STATE):<{_STATE}}", tone),
            ]
            if times:
                line.append(Span(f"{fmt.duration(core.compute_s):>{times}}"))
            if filled:
                line.append(_hbm(readings.get(core.core), filled))
            rows.append([*line, Span("  "), *(sparklines.get(core.core) or [[]])[0]])
        return [*rows, []]


def _hbm(reading: HbmReading | None, width: int) -> Span:
    """The device memory of a core: its share, or bytes if there is room."""
    if reading is None or not reading.limit_bytes:
        return Span(f"{fmt.UNKNOWN:>{width}}", "dim")
    share = reading.used_bytes / reading.limit_bytes
    text = fmt.percent(100 * share)
    if width == _HBM_LONG:
        text = f"{fmt.size(reading.used_bytes)} of {fmt.size(reading.limit_bytes)}"
    return Span(f"{text:>{width}}", "warn" if share >= NEARLY_FULL else "plain")


def _title(name: str, text: str = "") -> Line:
    return [Span(f" {name:<7}", "title"), Span(text, "label")]


def _head(part: HostPart, host: HostView, problem: HostProblem | None, width: int) -> list[Line]:
    pairs = [
        ("time per step", fmt.step_time(host.step_s) if host.step_s is not None else fmt.UNKNOWN),
        *([("newest event", f"{status_text.age(host.silent_s)} ago")] if host.silent_s is not None else []),
        ("clock", _clock(host)),
        ("generation", str(host.generation)),
        *([("link", clean(host.link))] if host.link is not None else []),
    ]
    figures: list[Line] = [[Span(f"{name} ", "label"), Span(text)] for name, text in pairs]
    lines = _flowed([*summary_parts(host, problem), *figures], width)
    if host.reason and (problem is None or clean(host.reason) not in problem.text):
        tone: Tone = problem.tone if problem is not None else "dim"
        lines.append(fit([Span(f" {clean(host.reason)}", tone)], width))
    return [*lines, []]


def _flowed(parts: Sequence[Line], width: int) -> list[Line]:
    """As many lines as the parts need; none is divided, unless it is wider than a line."""
    lines: list[Line] = []
    for part in parts:
        gap = Span("  " if lines else " ")
        if lines and width_of([*lines[-1], gap, *part]) <= width:
            lines[-1] += [gap, *part]
        else:
            lines.append(fit([Span(" "), *part], width))
    return lines


def _clock(host: HostView) -> str:
    if host.index == 0:
        return "that of all hosts"
    if host.clock_offset_s is None:
        return "not compared"
    error = f" \u00b1 {fmt.duration(host.clock_error_s)}" if host.clock_error_s is not None else ""
    text = clock(host)
    return f"as host 0{error}" if text == "0" else f"{text}{error}, corrected"


def _memory(part: HostPart, host: HostView, width: int) -> list[Line]:
    """Memory of the host, why that of its cores is not known, then its processes."""
    text = "not read yet"
    if host.used_bytes is not None and host.total_bytes:
        text = f"{fmt.size(host.used_bytes)} of {fmt.size(host.total_bytes)}  CPU {fmt.percent(host.cpu_percent)}"
    rows = [_title("memory", text)]
    if not part.whole.hbm and part.hbm_reason:
        rows.append(fit([Span(f" HBM: {clean(part.hbm_reason)}", "dim")], width))
    rows += [process_line(process, width) for process in host.processes]
    return [*rows, []]


def _log(logs: Sequence[LogLine], host: HostView, width: int) -> list[Line]:
    """The newest lines of the host, the newest first, so that they are visible without scrolling."""
    own = [line for line in logs if host_of_source(line.source) == host.index][-_LOG_LINES:]
    if not own:
        return [_title("log", "no line among the newest of the run")]
    rows = [_title("log", "newest line first")]
    for entry in reversed(folded(own)):
        count = f"x{entry.num_lines} " if entry.num_lines > 1 else ""
        tone: Tone = {"warning": "warn", "error": "bad"}.get(entry.line.level, "plain")  # type: ignore[assignment]
        head = Span(f" {status_text.time_of_day(entry.line.t)} ", "dim")
        rows.append(fit([head, Span(count, "accent"), Span(entry.text, tone)], width))
    return rows


class HostScreen(RunOverlay):
    """One host, over the monitor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,h", "dismiss", show=False),
        Binding("left", "other(-1)", show=False),
        Binding("right", "other(1)", show=False),
        Binding("7", "log", show=False),
    ]

    def __init__(self, index: int, snapshot: Snapshot | None, show_log: Callable[[int], None]) -> None:
        """`show_log` shows the log of a host in the monitor."""
        self._host = HostPanel(index, id="host")
        self._show_log = show_log
        super().__init__(self._host, snapshot)

    @property
    def index(self) -> int:
        """The host that is shown."""
        return self._host.index

    def action_other(self, by: int) -> None:
        """Show the next host, or the one before."""
        self._host.move(by)

    def action_log(self) -> None:
        """Close, and show the whole log of this host in the monitor."""
        self.dismiss()
        self._show_log(self.index)
