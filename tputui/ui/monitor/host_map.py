"""The map of hosts: a block per host with a cell per core, or per several cores or hosts if there is no room.

A cell shows one value: the loss relative to the median core, steps behind, time of a step, memory, or the phase.
Colours go from the background to one side or both, as in the heat map; without them the cells are shades. A sign in
place of the value names a problem, so the map is readable without colours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from tputui import formatting as fmt
from tputui.state.outlier import distance_of
from tputui.state.snapshot import CoreView, HostView
from tputui.telemetry.events import HbmReading, Phase
from tputui.ui.base.host_text import HostProblem, ProblemKind, median_step, non_finite_cores
from tputui.ui.render.lines import STEPS, Line, Ramp, Span, Tone, joined

MapValue = Literal["loss", "lag", "time", "memory", "phase"]
MAP_VALUES: tuple[MapValue, ...] = get_args(MapValue)
MAP_WORDS: dict[MapValue, str] = {
    "loss": "loss",
    "lag": "steps behind",
    "time": "time of a step",
    "memory": "memory",
    "phase": "phase",
}
"""The values in words."""
SHADES_ABOVE = "\u00b7\u2591\u2592\u2593\u2588"
SHADES_BELOW = "\u00b7\u2581\u2582\u2584\u2586"
"""Shades without colours, of values above and below the median."""
_PHASES: dict[Phase, tuple[str, Tone]] = {
    "executing": ("e", "accent"),
    "data": ("d", "warn"),
    "tracing": ("t", "info"),
    "compiling": ("c", "info"),
    "reporting": ("r", "label"),
    "evaluating": ("v", "good"),
    "saving": ("s", "label"),
    "starting": ("i", "info"),
    "ending": ("n", "label"),
    "unknown": ("u", "dim"),
}
"""Letter and tone of a phase."""
_NO_PHASE: tuple[str, Tone, str] = ("\u00b7", "dim", "")

_NOISE = 4.0
"""Multiple of the 90th percentile of the distances that has the full colour: a healthy map is pale."""
_TIME_MOST = 0.05
"""Least relative distance from the median time that has the full colour."""
_LAG_MOST = 10
"""Least number of steps behind that has the full colour."""
_FULL = 0.9
"""Share of the memory from which a cell has the colour of high values."""
_BAR = 8
"""Cells of the colour bar."""
_EVEN = 8
"""Hosts in a line are a multiple of this if there is room, so that a host is found by counting."""
_WIDE = 2
"""Maximum number of cells of a core."""
_WHOLE: frozenset[ProblemKind] = frozenset({"missing", "lost", "stalled", "link"})
"""Problems whose sign takes the place of all values of the host."""
_FIRST: frozenset[ProblemKind] = frozenset({"slow", "lag", "memory"})
"""Problems whose sign takes the place of the first value."""


class Grid(NamedTuple):
    """Where the hosts are."""

    num_hosts: int
    per_line: int
    """Blocks per line."""
    hosts: int
    """Hosts of a block; 1 if there is room."""
    cells: int
    """Values of a block: as many as a host has cores if there is room."""
    scale: int
    """Terminal cells of a value."""
    gap: int
    """Terminal cells before a block, for the marks of the chosen one."""
    label: int
    """Terminal cells before the first block."""

    @property
    def lines(self) -> int:
        """Number of lines."""
        return math.ceil(self.num_hosts / (self.per_line * self.hosts))

    @property
    def pitch(self) -> int:
        """Terminal cells from block to block."""
        return self.cells * self.scale + self.gap

    def position_at(self, line: int, cell: int) -> int | None:
        """The position in the list of the first host of the block at a terminal cell; None if there is none."""
        block = (cell - self.label) // self.pitch
        position = (line * self.per_line + block) * self.hosts
        return position if 0 <= block < self.per_line and line >= 0 and position < self.num_hosts else None


def lines_least(num_hosts: int, width: int) -> int:
    """Lines of a map with one cell per host."""
    return math.ceil(num_hosts / max(width - len(str(max(num_hosts - 1, 0))) - 2, 1))


def grid_of(num_hosts: int, cores_per_host: int, width: int, height: int) -> Grid:
    """The grid with the most detail that fits; hosts share a block if there is no other way."""
    digits = len(str(max(num_hosts - 1, 0)))
    room, rows = max(width - digits - 2, 1), max(height, 1)
    cells = max(cores_per_host, 1)
    options = [(cells, _WIDE, 1)]
    while cells > 1:
        options.append((cells, 1, 1))
        cells = math.ceil(cells / 2)
    for cores_shown, scale, gap in [*options, (1, _WIDE, 1), (1, 1, 1), (1, 1, 0)]:
        per_line = _per_line(num_hosts, room // (cores_shown * scale + gap), rows)
        if per_line:
            return Grid(num_hosts, per_line, 1, cores_shown, scale, gap, digits + 1 - gap)
    hosts = 2
    while math.ceil(num_hosts / hosts) > room * rows:
        hosts *= 2
    return Grid(num_hosts, _per_line(math.ceil(num_hosts / hosts), room, rows), hosts, 1, 1, 0, digits + 1)


def _per_line(blocks: int, most: int, rows: int) -> int:
    """Blocks per line: an even number of them if they fit in the rows; 0 if they do not fit."""
    if most < 1 or math.ceil(blocks / most) > rows:
        return 0
    even = most // _EVEN * _EVEN
    chosen = next((count for count in (16, 32, 64) if count <= even and math.ceil(blocks / count) <= rows), 0)
    per_line = chosen or (even if even and math.ceil(blocks / even) <= rows else most)
    return min(per_line, max(blocks, 1))


class HostValues(NamedTuple):
    """The values of the cells, as shares of the full colour: negative ones have the colour of low values."""

    of_core: Mapping[int, float]
    of_host: Mapping[int, float]
    """Shares of hosts whose cores have no value of their own."""
    title: str
    low: float
    high: float
    """The ends of the colour bar, and their texts."""
    ends: tuple[str, str]


def draw_map(
    hosts: Sequence[HostView],
    cores: Mapping[int, CoreView],
    problems: Iterable[HostProblem],
    values: HostValues | None,
    grid: Grid,
    *,
    ramp: Ramp | None,
    chosen: int | None,
) -> list[Line]:
    """The lines of the map. `values` is None for the phases; `chosen` is the index of a host that is marked."""
    marks = {problem.host: problem for problem in problems}
    bad = non_finite_cores(cores.values())
    painter = _Painter(grid.scale, ramp)
    blocks = [hosts[first : first + grid.hosts] for first in range(0, len(hosts), grid.hosts)]
    drawn = [_block(block, cores, bad, marks, values, grid, painter) for block in blocks]
    at = next((at for at, block in enumerate(blocks) if any(host.index == chosen for host in block)), None)
    rows: list[Line] = []
    for first in range(0, len(blocks), grid.per_line):
        last = min(first + grid.per_line, len(blocks))
        line: Line = [Span(f"{blocks[first][0].index:<{grid.label}}", "dim")]
        for number in range(first, last):
            if grid.gap:
                before = "[" if number == at else "]" if number - 1 == at and number > first else " "
                line += [Span(before, "strong"), *drawn[number]]
            else:
                line += [Span("\u276f", "strong")] if number == at else drawn[number]
        rows.append(joined([*line, Span("]" if grid.gap and last - 1 == at else " ", "strong")]))
    return rows


def _block(
    block: Sequence[HostView],
    cores: Mapping[int, CoreView],
    bad: set[int],
    marks: Mapping[int, HostProblem],
    values: HostValues | None,
    grid: Grid,
    painter: _Painter,
) -> Line:
    """The cells of a host, or the cell of several ones, which shows the worst of them."""
    problem = next((marks[host.index] for host in block if host.index in marks), None) if marks else None
    if problem is not None and (problem.kind in _WHOLE or (len(block) > 1 and problem.kind in {*_FIRST, "nan"})):
        return [Span(problem.mark * (grid.cells * grid.scale), problem.tone)]
    indices = block[0].cores if len(block) == 1 else [core for host in block for core in host.cores]
    is_plain = len(block) == 1 and len(indices) == grid.cells and problem is None and bad.isdisjoint(indices)
    if is_plain and values is not None:
        # Most hosts of most maps; the same as below at a third of the cost.
        of_host = values.of_host.get(block[0].index)
        return [painter.cell(values.of_core.get(core, of_host)) for core in indices]
    size = max(math.ceil(len(indices) / grid.cells), 1)
    line: Line = []
    for first in range(0, grid.cells * size, size):
        members = indices[first : first + size]
        if not bad.isdisjoint(members):
            line.append(Span("\u2716" * grid.scale, "bad"))
        elif values is None:
            line.append(_phase_cell(members, cores, block, grid.scale))
        else:
            line.append(painter.cell(_share(members, block, values)))
    if problem is not None and problem.kind in _FIRST:
        line[0] = Span(problem.mark * grid.scale, problem.tone)
    return line


def _share(members: Sequence[int], block: Sequence[HostView], values: HostValues) -> float | None:
    """The most extreme value of some cores, or else of their hosts."""
    if len(members) == 1 and (share := values.of_core.get(members[0])) is not None:
        return share
    shares = [values.of_core[core] for core in members if core in values.of_core]
    shares = shares or [values.of_host[host.index] for host in block if host.index in values.of_host]
    return max(shares, key=abs, default=None)


class _Painter:
    """Draws cells in colours or shades; a value near the middle is a dot. Equal cells are one object."""

    def __init__(self, width: int, ramp: Ramp | None) -> None:
        self._width = width
        self._ramp = ramp
        self._steps = STEPS if ramp is not None else len(SHADES_ABOVE) - 1
        self._known: dict[int, Span] = {}

    def cell(self, share: float | None) -> Span:
        """The cell of a share of the full colour; a dot if there is none."""
        step = 0 if share is None or share != share else round(min(max(share, -1.0), 1.0) * self._steps)
        span = self._known.get(step)
        if span is None:
            span = self._known[step] = self._draw(step)
        return span

    def _draw(self, step: int) -> Span:
        if not step:
            return Span(SHADES_ABOVE[0] * self._width, "dim")
        if self._ramp is not None:
            return Span(" " * self._width, "plain", (self._ramp.text, self._ramp.at(step)))
        shades = SHADES_ABOVE if step > 0 else SHADES_BELOW
        return Span(shades[abs(step)] * self._width, "alert" if step > 0 else "accent")


def values_of(
    value: MapValue, hosts: Sequence[HostView], cores: Iterable[CoreView], hbm: Iterable[HbmReading]
) -> HostValues | None:
    """The values of the map; None for the phases, which are no numbers."""
    match value:
        case "loss":
            losses = {c.core: c.loss for c in cores if c.loss is not None and math.isfinite(c.loss)}
            return _from_median("loss from median", losses, {}, 0.0)
        case "time":
            spent = {host.index: own for host in hosts if (own := own_time_s(host)) is not None}
            return _from_median("time of a step from median", {}, spent, _TIME_MOST)
        case "lag":
            usual = median_step(hosts)
            lags = {host.index: max(usual - host.step, 0) for host in hosts if host.step}
            most = max([_LAG_MOST, *lags.values()])
            shares = {index: lag / most for index, lag in lags.items()}
            return HostValues({}, shares, "steps behind the median", 0.0, 1.0, ("0", f"{most:,}"))
        case "memory":
            shares = {r.core: r.used_bytes / r.limit_bytes for r in hbm if r.limit_bytes}
            of_host = {h.index: h.used_bytes / h.total_bytes for h in hosts if h.used_bytes and h.total_bytes}
            title = "HBM" if shares else "host memory"
            return HostValues(
                {core: _filled(share) for core, share in shares.items()},
                {} if shares else {host: _filled(share) for host, share in of_host.items()},
                title,
                0.0,
                -1.0,
                ("0 %", "100 %"),
            )
    return None


def own_time_s(host: HostView) -> float | None:
    """Seconds of a step that the host itself takes, or if that is not known the whole step."""
    parts = [part for part in (host.data_s, host.compute_s) if part is not None]
    return math.fsum(parts) if parts else host.step_s


def _filled(share: float) -> float:
    return share if share >= _FULL else -share


def _from_median(title: str, of_core: Mapping[int, float], of_host: Mapping[int, float], least: float) -> HostValues:
    """Relative distances from the median, so that a few far ones have the full colour and noise is pale."""
    in_order = sorted([*of_core.values(), *of_host.values()])
    if not in_order:
        return HostValues({}, {}, title, -1.0, 1.0, (fmt.UNKNOWN, fmt.UNKNOWN))
    median = in_order[len(in_order) // 2]
    unit = abs(median) or 1.0
    noise, farthest = (
        distance_of(in_order, median, place) / unit for place in (len(in_order) * 9 // 10, len(in_order) - 1)
    )
    most = max(_NOISE * noise, least) or farthest or 1.0
    cores, hosts = (
        {key: (value - median) / unit / most for key, value in values.items()} for values in (of_core, of_host)
    )
    percent = f"{100 * most:.2g} %" if most < 1 else f"{100 * most:,.0f} %"
    return HostValues(cores, hosts, title, -1.0, 1.0, (f"-{percent}", f"+{percent}"))


def legend_of(values: HostValues | None, hosts: Iterable[HostView], ramp: Ramp | None) -> Line:
    """What the cells mean: the ends of the colours, or the letters of the phases that occur."""
    if values is None:
        return _phase_legend(hosts)
    low, high = values.ends
    if not values.of_core and not values.of_host:
        return [Span(f"{values.title}: not known", "label")]
    if ramp is not None:
        bar: Line = [Span(" "), *ramp.bar(values.low, values.high, _BAR), Span(" ")]
    else:
        shades = [_Painter(1, None).cell(end) for end in (values.low, values.high)]
        bar = [Span(" "), shades[0], Span(".."), shades[1], Span(" ")]
    return [Span(f"{values.title} ", "label"), Span(low), *bar, Span(high)]


def _phase_cell(members: Sequence[int], cores: Mapping[int, CoreView], block: Sequence[HostView], width: int) -> Span:
    sign, tone, _ = _sign_of(cores[members[0]] if members and members[0] in cores else block[0])
    return Span(sign * width, tone)


def _sign_of(view: CoreView | HostView) -> tuple[str, Tone, str]:
    """Sign, tone and words of what a core or a host does; one that has ended has no phase."""
    if view.condition == "ended":
        return "\u25a0", "dim", "ended"
    return (*_PHASES[view.phase], fmt.PHASES[view.phase]) if view.phase is not None else _NO_PHASE


def _phase_legend(hosts: Iterable[HostView]) -> Line:
    """The signs of the phases and how many hosts are in each; lost hosts have the sign of their problem instead."""
    counts = Counter(_sign_of(host) for host in hosts if host.phase is not None and host.condition != "lost")
    line: Line = [Span("phase ", "label")]
    for (sign, tone, text), count in counts.most_common():
        line += [Span(f" {sign} ", tone), Span(f"{text} {count}", "label")]
    return line
