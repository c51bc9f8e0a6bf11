"""The hosts panel: a table of a few hosts, or a map of many; hosts that stand out are named with the reason.

Moving the cursor chooses a host; Enter opens it. Without a chosen host the arrow keys to the left and right keep their
usual meaning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from textual import events
from textual.message import Message

from tputui import formatting as fmt
from tputui.state.chart_data import OutlierView
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import CoreView, HostCondition, HostView, SlowHostView, Snapshot
from tputui.telemetry.events import HbmReading
from tputui.ui.base import host_text, keymap, status_text
from tputui.ui.base.host_text import SIGNS, HostProblem
from tputui.ui.base.preferences import undo_of, views_of
from tputui.ui.base_app import ShowsNotices
from tputui.ui.monitor.host_map import (
    MAP_VALUES,
    MAP_WORDS,
    Grid,
    MapValue,
    draw_map,
    grid_of,
    legend_of,
    lines_least,
    values_of,
)
from tputui.ui.render.lines import (
    ItemColumn,
    Line,
    Ramp,
    Span,
    Tone,
    clean,
    columns_that_fit,
    crop,
    paragraph,
    width_of,
)
from tputui.ui.terminal.themes import paints_grounds, ramp_of
from tputui.ui.widgets.panel import FRAME, Drawing, RunPanel

_STATE = 16
"""Cells of the state."""
_NAME_WIDTHS = (8, 20)
"""Minimum and maximum number of cells of the name of a host."""

_CONDITIONS: dict[HostCondition, tuple[str, Tone]] = {
    "starting": ("\u25cc", "info"),
    "running": ("\u25cf", "good"),
    "stalled": ("\u25b2", "warn"),
    "ended": ("\u25a0", "dim"),
    "lost": ("?", "bad"),
    "missing": ("\u25cb", "bad"),
}


def _seconds(value: float | None) -> str:
    return fmt.UNKNOWN if value is None else fmt.duration(value)


def _memory(host: HostView) -> str:
    return (
        fmt.percent(100 * host.used_bytes / host.total_bytes) if host.used_bytes and host.total_bytes else fmt.UNKNOWN
    )


def clock(host: HostView) -> str:
    """How far its clock is from that of the first host: `+90 s`; 0 if the difference is within the error."""
    offset = host.clock_offset_s
    if offset is None:
        return fmt.UNKNOWN
    if abs(offset) <= max(host.clock_error_s or 0.0, 1e-3):
        return "0"
    return f"{'+' if offset > 0 else ''}{fmt.duration(offset)}"


def _hbm(host: HostView) -> str:
    return fmt.UNKNOWN if host.hbm_used_share is None else fmt.percent(100 * host.hbm_used_share)


# In the order of their importance.
_COLUMNS: tuple[ItemColumn[HostView], ...] = (
    ItemColumn("step", 8, lambda host: f"{host.step:,}" if host.step else fmt.UNKNOWN),
    ItemColumn("lag", 6, lambda host: f"{host.lag_steps:,}" if host.step else fmt.UNKNOWN),
    ItemColumn("loss", 10, lambda host: fmt.number(host.loss), lambda host: "bad" if _is_bad(host.loss) else "plain"),
    ItemColumn("data", 9, lambda host: _seconds(host.data_s), is_usual=False),
    ItemColumn("compute", 9, lambda host: _seconds(host.compute_s), is_usual=False),
    ItemColumn("wait", 9, lambda host: _seconds(host.wait_s), is_usual=False),
    ItemColumn("CPU", 7, lambda host: fmt.percent(host.cpu_percent)),
    ItemColumn("memory", 8, _memory),
    ItemColumn("HBM", 6, _hbm, is_usual=False),
    ItemColumn("clock", 10, clock, is_usual=False),
    ItemColumn("gen", 5, lambda host: str(host.generation), is_usual=False),
)


def _is_bad(loss: float | None) -> bool:
    return loss is not None and not math.isfinite(loss)


def state_of(host: HostView, problem: HostProblem | None, slow: SlowHostView | None) -> tuple[str, Tone]:
    """The state of a host in a few words, and its tone."""
    if slow is not None and slow.index == host.index and host.condition == "running":
        return f"{SIGNS['slow'].mark} {fmt.slower(slow.share)}", "warn"
    mark, tone = _CONDITIONS[host.condition]
    if problem is not None and problem.kind in ("nan", "link"):
        mark, tone = problem.mark, problem.tone
        return f"{mark} {'NaN or inf' if problem.kind == 'nan' else 'not connected'}", tone
    if host.condition == "stalled" and host.silent_s is not None:
        return f"{mark} silent {status_text.age(host.silent_s)}", tone
    if host.condition in ("starting", "running", "stalled"):
        return f"{mark} {status_text.phase_in_short(host.phase, host.phase_s) or host.condition}", tone
    return f"{mark} {host.condition}", tone


def table_lines(
    hosts: Sequence[HostView],
    listed: Iterable[HostProblem],
    slow: SlowHostView | None,
    width: int,
    chosen: int | None,
) -> tuple[Line, list[Line], int]:
    """Head and rows of the table, and the number of columns without room."""
    problems: Mapping[int, HostProblem] = {problem.host: problem for problem in listed}
    digits = max(4, len(str(hosts[-1].index)) + 1 if hosts else 0)
    longest = max((len(clean(host.name)) for host in hosts), default=0)
    name = min(max(longest, _NAME_WIDTHS[0]), _NAME_WIDTHS[1], max(width // 4, _NAME_WIDTHS[0]))
    room = width - digits - name - 2 - _STATE - 2
    steps = max((len(_COLUMNS[0].text(host)) for host in hosts), default=0) + 2
    of_step = _COLUMNS[0]._replace(width=max(_COLUMNS[0].width, steps))
    columns = [
        candidate
        for candidate in (of_step, *_COLUMNS[1:])
        if candidate.is_usual or any(_is_worth(candidate.text(host)) for host in hosts)
    ]
    shown, room = columns_that_fit(columns, room)
    links = any(host.link is not None for host in hosts) and room >= 14
    titles = f"{'host':>{digits}} {'name':<{name}} {'state':<{_STATE}}" + "".join(
        f"{c.title:>{c.width}}" for c in shown
    )
    head: Line = [Span(titles, "label"), *([Span("  link", "label")] if links else [])]
    rows: list[Line] = []
    for host in hosts:
        state, tone = state_of(host, problems.get(host.index), slow)
        is_chosen = host.index == chosen
        mark = f"\u276f{host.index:>{digits - 1}}" if is_chosen else f"{host.index:>{digits}}"
        line: Line = [
            Span(mark, "strong"),
            Span(f" {crop(clean(host.name), name):<{name}}", "chosen" if is_chosen else "plain"),
            Span(f" {crop(state, _STATE):<{_STATE}}", tone),
            *(Span(f"{column.text(host):>{column.width}}", column.tone(host)) for column in shown),
        ]
        rows.append([*line, Span(f"  {clean(host.link or fmt.UNKNOWN)}", "label")] if links else line)
    return head, rows, len(columns) - len(shown)


def _is_worth(text: str) -> bool:
    return text not in (fmt.UNKNOWN, "0")


def summary_of(host: HostView, problem: HostProblem | None, width: int) -> Line:
    """One line about a host, of whole parts: `host 37 tpu-vm-37  ● executing  step 1,200  loss 2.3104  data 1.2 ms`."""
    line: Line = []
    for part in summary_parts(host, problem):
        longer: Line = [*line, Span("  "), *part] if line else part
        if line and width_of(longer) > width:
            break
        line = longer
    return line


def summary_parts(host: HostView, problem: HostProblem | None) -> list[Line]:
    """The parts of the line about a host, without the gaps between them."""
    state, tone = state_of(host, None, None)
    name = crop(clean(host.name), _NAME_WIDTHS[1])
    parts: list[Line] = [
        [Span(f"host {host.index}", "strong"), *([Span(f" {name}")] if name else [])],
    ]
    mark, _, state_text = state.partition(" ")
    if problem is not None and problem.text.startswith(state_text):
        parts.append([Span(f"{mark} {problem.text}", problem.tone)])
    else:
        parts.append([Span(state, tone)])
        parts += [[Span(problem.text, problem.tone)]] if problem is not None else []
    pairs = [
        ("step", f"{host.step:,}" if host.step else fmt.UNKNOWN),
        ("lag", f"{host.lag_steps:,}"),
        ("loss", fmt.number(host.loss)),
        ("data", _seconds(host.data_s)),
        ("compute", _seconds(host.compute_s)),
        ("wait", _seconds(host.wait_s)),
        ("memory", _memory(host)),
        ("HBM", _hbm(host)),
    ]
    parts += [[Span(f"{name} ", "label"), Span(text)] for name, text in pairs if _is_worth(text)]
    return parts


TABLE_MAX = 16
"""Maximum number of hosts that are rows of a table."""
_LISTED_SHARE = 3
"""Part of the panel that the list of problems takes at most: a third."""
_MARK = 3
"""Cells before the name of a host that stands out."""
_NAME = 20
"""Maximum number of cells of the name of a host that stands out."""
_TITLE = 16
"""Cells of the frame that its note cannot have."""


class HostsPart(NamedTuple):
    """The content of the panel."""

    hosts: list[HostView]
    cores: list[CoreView]
    hbm: list[HbmReading]
    slow: SlowHostView | None
    outlier: OutlierView | None
    late_steps: int | None
    is_over: bool
    size: str
    """`256 hosts x 8 TPU cores`."""
    why_none: str

    def problems(self) -> list[HostProblem]:
        """The hosts that stand out, the most severe problem first."""
        return host_text.problems(
            self.hosts,
            self.cores,
            slow=self.slow,
            outlier=self.outlier,
            late_steps=self.late_steps,
            is_over=self.is_over,
        )


class HostsPanel(RunPanel[HostsPart]):
    """The hosts of a run."""

    BINDINGS = keymap.bindings(keymap.HOSTS)

    key = "h"
    name_shown = "hosts"
    what = (
        "the hosts of a run with several: a table, or from 17 on a map of hosts and cores, whose value `F` changes; "
        "hosts that are silent, slow, behind or missing are named; enter opens the chosen one"
    )

    class HostOpened(Message):
        """The user opened a host."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.value: MapValue = "loss"
        """The value of the map."""
        self.chosen: int | None = None
        """Index of the chosen host."""
        self._grid: Grid | None = None
        """Where the hosts of the map are; None for the table."""
        self._num_head = 0
        self._drawn_with: Ramp | None = None
        self._paints = True

    @property
    def has_map(self) -> bool:
        """Whether the hosts are a map, whose value can be changed."""
        num_hosts = len(self._part.hosts) if self._part is not None else 0
        return self._grid is not None or num_hosts > TABLE_MAX

    @staticmethod
    def pick(snapshot: Snapshot) -> HostsPart:
        """The hosts, their cores, and what stands out."""
        topology = snapshot.topology
        size = ""
        if topology is not None:
            size = host_text.size_of(host_text.num_hosts(snapshot), topology.num_cores, topology.device)
        why = "" if snapshot.hosts else status_text.nothing_yet(snapshot, "host")
        if not host_text.has_hosts(snapshot) and snapshot.hosts:
            why = "this run has one host; see the panels cores and memory"
        return HostsPart(
            snapshot.hosts,
            snapshot.cores,
            snapshot.memory.hbm or [],
            snapshot.slow_host,
            snapshot.outlier,
            host_text.late_steps(snapshot),
            snapshot.condition in ENDED,
            size,
            why,
        )

    def on_mount(self) -> None:
        """Restore the value of the map."""
        stored = views_of(self.app).get("hosts.value", self.value)
        self.value = next((value for value in MAP_VALUES if value == stored), self.value)

    # Drawing.

    def draw(self, part: HostsPart, width: int, height: int) -> Drawing:
        """The table or the map, and the hosts that stand out."""
        self._grid, self._num_head = None, 0
        if part.why_none:
            return Drawing(paragraph(part.why_none, width, height))
        problems = part.problems()
        if len(part.hosts) <= TABLE_MAX and (len(part.hosts) < height or self.has_class("-maximised")):
            return self._table(part, problems, width, height)
        return self._map(part, problems, width, height)

    def _table(self, part: HostsPart, problems: list[HostProblem], width: int, height: int) -> Drawing:
        head, rows, hidden = table_lines(part.hosts, problems, part.slow, width, self.chosen)
        self._num_head = 1
        room = height - 1 - len(rows)
        listed = _listed(part, problems, room - 1, width) if room > 1 and problems else []
        note = _note(part, problems, width, named=bool(listed)) if problems else part.size
        more = status_text.hidden_columns(hidden) if hidden and not self.has_class("-maximised") else ""
        return Drawing(
            [*rows, *([[]] if listed else []), *listed], head=(head,), note=more if more and not problems else note
        )

    def _map(self, part: HostsPart, problems: list[HostProblem], width: int, height: int) -> Drawing:
        """The map; a line with the legend or the chosen host, and a list of the problems, if there is room."""
        spare = height - lines_least(len(part.hosts), width)
        listed = _listed(part, problems, min(height // _LISTED_SHARE, spare - 1), width)
        ramp = self._drawn_with = self._ramp()
        values = values_of(self.value, part.hosts, part.cores, part.hbm)
        head = [legend_of(values, part.hosts, ramp)] if spare > 0 else []
        chosen = next((host for host in part.hosts if host.index == self.chosen), None)
        if chosen is not None and spare > 0:
            problem = next((candidate for candidate in problems if candidate.host == chosen.index), None)
            head = [summary_of(chosen, problem, width)]
        most = max((len(host.cores) for host in part.hosts), default=1)
        room = height - len(head) - len(listed)
        self._grid = grid_of(len(part.hosts), most, width, room)
        self._num_head = len(head)
        cores = {core.core: core for core in part.cores}
        rows = draw_map(part.hosts, cores, problems, values, self._grid, ramp=ramp, chosen=self.chosen)
        spare = room - len(rows)
        between: list[Line] = [[]] if listed and spare > 0 else []
        note = _note(part, problems, width, named=bool(listed))
        if not head:
            note = _of_map(chosen, problems, MAP_WORDS[self.value], note, width)
        return Drawing([*rows, *between, *listed], head=tuple(head), note=note)

    def _ramp(self) -> Ramp | None:
        """The colours of the map; None if nothing is painted as a background."""
        is_painted = self.is_attached and self._paints and paints_grounds(self.app)
        return ramp_of(self.app.current_theme) if is_painted else None

    def notify_style_update(self) -> None:
        """Draw again in the colours of another theme."""
        super().notify_style_update()
        if self._grid is not None and self._drawn_with != self._ramp():
            self.call_next(self.redraw)

    def as_text(self) -> str:
        """The panel without colours, so the map is made of shades."""
        self._paints = False
        try:
            return super().as_text()
        finally:
            self._paints = True

    # The chosen host.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Without a chosen host, leave the keys to the left and right to the screen."""
        return self.chosen is not None if action in ("cursor", "drop_host") else True

    def scroll_rows(self, rows: int) -> None:
        """Choose the host so many rows away."""
        grid = self._grid
        per_row = 1 if grid is None else grid.per_line * grid.hosts
        self._move(rows * per_row, only_within=grid is not None and abs(rows) == 1)

    def action_cursor(self, by: int) -> None:
        """Choose the next host, or the one before."""
        self._move(by * (1 if self._grid is None else self._grid.hosts))

    def action_drop_host(self) -> None:
        """Choose no host."""
        self.choose(None)

    def action_next_value(self) -> None:
        """Show the next value in the map."""
        if not self.has_map:
            several = self._part is not None and not self._part.why_none
            self._notify("the table of hosts shows every value" if several else "this run has one host")
            return
        before = self.value
        undo_of(self.app).push("value of the map of hosts", lambda: self._show_value(before))
        self._show_value(MAP_VALUES[(MAP_VALUES.index(before) + 1) % len(MAP_VALUES)])

    def _notify(self, sentence: str) -> None:
        if isinstance(self.screen, ShowsNotices):
            self.screen.notices.show(sentence)

    def _show_value(self, value: MapValue) -> None:
        self.value = value
        views_of(self.app).set("hosts.value", value)
        self.redraw()

    def _move(self, by: int, *, only_within: bool = False) -> None:
        """Move the cursor, at most to the first or last host; not at all if `only_within` and it would go beyond."""
        hosts = self._part.hosts if self._part is not None and not self._part.why_none else []
        if not hosts:
            return
        at = next((at for at, host in enumerate(hosts) if host.index == self.chosen), None)
        if at is None:
            self.choose(self._first_choice())
            return
        target = at + by
        if only_within and not 0 <= target < len(hosts):
            return
        self.choose(hosts[min(max(target, 0), len(hosts) - 1)].index)

    def _first_choice(self) -> int:
        """The host with the most severe problem, or else the first one."""
        assert self._part is not None
        problems = self._part.problems()
        return problems[0].host if problems else self._part.hosts[0].index

    def choose(self, index: int | None) -> None:
        """Choose a host; None chooses none."""
        self.chosen = index
        if index is not None and self._part is not None and self._grid is None:
            row = next((row for row, host in enumerate(self._part.hosts) if host.index == index), 0)
            room = max(self.size.height - FRAME - self._num_head, 1)
            self._top = min(max(self._first_row(), row - room + 1), row)
        self.redraw()

    def follow(self) -> None:
        """Choose no host."""
        self.choose(None)

    def go(self) -> bool:
        """Open the chosen host; returns whether there is one."""
        if self.chosen is None or self._part is None or self._part.why_none:
            return False
        self.post_message(self.HostOpened(self.chosen))
        return True

    def on_click(self, event: events.Click) -> None:
        """Choose the host that is clicked; a second click opens it."""
        row = event.y - FRAME // 2 - self._num_head
        if self._part is None or row < 0 or not self.is_inside(event.x, event.y):
            return
        row += self._first_row()
        hosts = self._part.hosts
        at = row if self._grid is None else self._grid.position_at(row, event.x - FRAME // 2)
        if at is not None and 0 <= at < len(hosts):
            self.choose(hosts[at].index)
            if event.chain == 2:
                event.stop()
                event.prevent_default()
                self.go()


def _of_map(chosen: HostView | None, problems: list[HostProblem], value: str, note: str, width: int) -> str:
    """What a map without a legend shows: the chosen host, or else its value, and the worst problem if there is room."""
    if chosen is not None:
        problem = next((candidate for candidate in problems if candidate.host == chosen.index), None)
        return crop("".join(span.text for span in summary_of(chosen, problem, width - _TITLE)), width - _TITLE)
    both = f"{value}, {note}"
    return both if len(both) <= width - _TITLE else note


def _note(part: HostsPart, problems: list[HostProblem], width: int, *, named: bool) -> str:
    """The number of hosts; the worst problem if it is not listed below."""
    if not problems:
        return part.size
    worst = problems[0]
    more = f" +{len(problems) - 1}" if len(problems) > 1 else ""
    text = f"{worst.mark} host {worst.host} {worst.text}"
    if named:
        return f"{fmt.counted(len(problems), 'host')} of {len(part.hosts)} stand{'s' if len(problems) == 1 else ''} out"
    room = width - _TITLE - len(more)
    return (crop(text, room) if room > 0 else "") + more


def _listed(part: HostsPart, problems: list[HostProblem], most: int, width: int) -> list[Line]:
    """The hosts that stand out, a line each, with their names if there is room; and how many have no line."""
    if most < 1:
        return []
    names: Mapping[int, str] = {host.index: clean(host.name) for host in part.hosts}
    lines: list[Line] = []
    if not problems:
        return [[Span(" no host is missing, silent, slow or behind", "dim")]] if most > 1 else []
    rows = host_text.grouped(problems)
    for problem, indices in rows:
        if len(indices) == 1:
            name, text = _fitting(problem, names.get(problem.host, ""), width - _MARK)
        else:
            name, text = host_text.listed(indices), f"  {host_text.SIGNS[problem.kind].word}"
        lines.append([Span(f" {problem.mark} ", problem.tone), Span(name, "strong"), Span(text, problem.tone)])
    if len(lines) > most:
        num_hidden = sum(len(indices) for _, indices in rows[most - 1 :])
        last: Line = [Span(f"   and {fmt.counted(num_hidden, 'host')} more", "label")]
        lines = [*lines[: most - 1], last] if most > 1 else lines[:1]
    return lines


def _fitting(problem: HostProblem, name: str, room: int) -> tuple[str, str]:
    """The host and its problem; in a narrow panel without the name of the host, then without what follows from it."""
    host = f"host {problem.host}"
    named = f"{host} {crop(name, _NAME)}".rstrip()
    forms = ((named, problem.text), (host, problem.text), (host, problem.text.partition("; ")[0]))
    first, text = next((form for form in forms if width_of([Span("  ".join(form))]) <= room), forms[-1])
    return first, f"  {text}"
