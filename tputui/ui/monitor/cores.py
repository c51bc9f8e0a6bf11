"""The cores panel: loss, step and state of every core as a table, or a map of their losses if there are many."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.chart_data import CoreColumn, OutlierView, SlowCoreView, share_between
from tputui.state.snapshot import CoreView, DevicesView, Snapshot
from tputui.telemetry.events import CoreSample
from tputui.ui.base import host_text, status_text
from tputui.ui.charts.axis import NON_FINITE_MARK
from tputui.ui.charts.scale import Scale
from tputui.ui.charts.series_chart import BLOCKS
from tputui.ui.render.lines import ItemColumn, Line, Span, Tone, bar, columns_that_fit, joined, paragraph, width_of
from tputui.ui.widgets.panel import Drawing, RunPanel

_LOG_FROM = 8.0
"""Ratio of the highest loss to the lowest one from which the scale is logarithmic: a loss falls fast at first."""

Key = tuple[int, int, int]
"""First and last step of a cell, and the number of its steps that were sampled."""


class _HistoryCell(NamedTuple):
    """The losses of a few consecutive columns."""

    highest: tuple[float, ...]
    """The highest finite loss of each core, NaN without one."""
    bad: frozenset[int]
    """Cores with NaN or inf."""
    low: float
    high: float
    """Bounds of `highest`; infinite without a finite loss."""


def _level_scale(low: float, high: float) -> Scale:
    """The scale of losses between two bounds. A logarithmic one begins at a power of two, so that it changes rarely
    while the loss falls."""
    if low > 0 and high / low >= _LOG_FROM:
        return Scale(2.0 ** math.floor(math.log2(low)), high, log=True)
    return Scale(low, high)


def _level(scale: Scale, loss: float, levels: int) -> int:
    """1 for the lowest loss, up to the number of levels."""
    return 1 + min(int(scale.place(loss) * levels), levels - 1) if scale.low < scale.high else 1


class CoreHistory:
    """Draws the sparklines. Cells are kept between drawings, so that a new report changes the newest cell only."""

    def __init__(self) -> None:
        self._cells: dict[Key, _HistoryCell] = {}
        self._scaled: tuple[Scale, int] | None = None
        """The scale of the blocks, and their lines."""
        self._blocks: dict[Key, list[str]] = {}
        """Each cell as drawn with the scale: for each core one block per line, the top one first."""

    def sparklines(
        self, columns: Sequence[CoreColumn], cores: Sequence[int], width: int, height: int
    ) -> dict[int, list[list[Span]]]:
        """`height` lines of at most `width` cells for each core, top line first; empty without a finite loss."""
        self._cells = self._of(columns, width)
        low = min((cell.low for cell in self._cells.values()), default=math.inf)
        high = max((cell.high for cell in self._cells.values()), default=-math.inf)
        if low > high:
            return {}
        scale = _level_scale(low, high)
        cached = self._blocks if (scale, height) == self._scaled else {}
        self._scaled = scale, height
        self._blocks = {
            key: cached.get(key) or [_history_block(cell, core, scale, height) for core in range(len(cell.highest))]
            for key, cell in self._cells.items()
        }
        drawn = list(self._blocks.values())
        return {core: _lines([blocks[core] for blocks in drawn if core < len(blocks)], height) for core in cores}

    def _of(self, columns: Sequence[CoreColumn], width: int) -> dict[Key, _HistoryCell]:
        # A power of two, so that the columns of a cell change rarely.
        group = 1 << (max(math.ceil(len(columns) / max(width, 1)), 1) - 1).bit_length()
        cells: dict[Key, _HistoryCell] = {}
        for first in range(0, len(columns), group):
            members = columns[first : first + group]
            key = (members[0].first_step, members[-1].last_step, sum([column.num_steps for column in members]))
            cells[key] = self._cells.get(key) or _cell(members)
        return cells


def _cell(members: Sequence[CoreColumn]) -> _HistoryCell:
    by_core = zip(*(column.means for column in members), strict=False)
    highest = tuple(max((loss for loss in losses if not math.isnan(loss)), default=math.nan) for losses in by_core)
    finite = [loss for loss in highest if math.isfinite(loss)]
    bad = frozenset(core for column in members for core in column.bad_cores)
    return _HistoryCell(highest, bad, min(finite, default=math.inf), max(finite, default=-math.inf))


def _history_block(cell: _HistoryCell, core: int, scale: Scale, height: int) -> str:
    """The column of blocks of a core, the top one first."""
    if core in cell.bad:
        return " " * (height - 1) + NON_FINITE_MARK
    loss = cell.highest[core]
    level = _level(scale, loss, height * len(BLOCKS)) if math.isfinite(loss) else 0
    full, eighths = divmod(level, len(BLOCKS))
    blocks = BLOCKS[-1] * full + (BLOCKS[eighths - 1] if eighths else "")
    return blocks[::-1].rjust(height)


def _lines(blocks: Sequence[str], height: int) -> list[list[Span]]:
    rows = ["".join(blocks)] if height == 1 else ["".join(row) for row in zip(*blocks, strict=True)]
    return [_spans(row) for row in rows]


def _spans(row: str) -> list[Span]:
    if NON_FINITE_MARK not in row:
        return [Span(row, "band")]
    first, *parts = row.split(NON_FINITE_MARK)
    line = [Span(first, "band")]
    for part in parts:
        line += [Span(NON_FINITE_MARK, "bad"), Span(part, "band")]
    return [span for span in line if span.text]


LEVELS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
"""Blocks of growing height: the higher the loss, the higher the block."""

_COLUMN = 14
"""Cells of a core in the table of several columns."""

_BLOCK_MOST = 4
"""Maximum number of cells of a block of the map, including the gap."""

_BAR = 10
"""Cells of the bar that shows a loss relative to the highest one."""

_LEAST_DECIMAL = 1e-4
"""Smaller losses are printed with an exponent."""

_HISTORY_ROWS = 3
"""Maximum number of lines of the sparkline of a core."""

_INDENT = 5
"""Cells before the sparkline of a core, which begins below its loss."""

_STRIP_ROWS = 4
"""Maximum number of lines of the strip; more cores are drawn as a map."""

_STATE = 14
"""Cells of the longest common state."""

_TITLE = 14
"""Cells of the frame that its note cannot have."""

_TIME = 9
"""Cells of the compute time."""


class CoresPart(NamedTuple):
    """The content of the panel."""

    cores: list[CoreView]
    outlier: OutlierView | None
    why_none: str
    columns: list[CoreColumn]
    slow: SlowCoreView | None = None
    why_no_times: str | None = None
    devices: DevicesView | None = None
    host_of: Mapping[int, int] = {}
    """The index of the host of each core, if the run has several hosts."""


_DEVICE_COLUMNS: tuple[ItemColumn[CoreSample], ...] = (
    ItemColumn("duty", 7, lambda core: fmt.percent(core.duty_cycle_percent)),
    ItemColumn("queued", 8, lambda core: fmt.UNKNOWN if core.queued_programs is None else f"{core.queued_programs}"),
    ItemColumn("idle", 9, lambda core: fmt.duration(core.tensorcore_idle_s)),
    ItemColumn("HBM bw", 8, lambda core: fmt.percent(core.hbm_bandwidth_percent)),
)


class CoresPanel(RunPanel[CoresPart]):
    """Loss, step and state of every core."""

    key = "1"
    name_shown = "cores"
    what = (
        "loss, step and state of every core; its compute time, and on a TPU its duty cycle and queue, if they are "
        "known; an outlier and a slow core are named; the loss so far if there is room"
    )

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._history = CoreHistory()

    @staticmethod
    def pick(snapshot: Snapshot) -> CoresPart:
        why_none = "" if snapshot.cores else status_text.nothing_yet(snapshot, "core")
        return CoresPart(
            snapshot.cores,
            snapshot.outlier,
            why_none,
            snapshot.core_columns,
            snapshot.slow_core,
            snapshot.compute_reason,
            snapshot.devices,
            host_text.host_of_cores(snapshot),
        )

    def draw(self, part: CoresPart, width: int, height: int) -> Drawing:
        """A table, a table of several columns, or a map; then TPU cores whose losses are not known."""
        devices = part.devices.cores if part.devices is not None else []
        if not part.cores:
            return (
                _indented(_device_table(devices, width - 1))
                if devices
                else Drawing(paragraph(part.why_none, width, height))
            )
        samples = {sample.core: sample for sample in devices}
        if samples.keys() <= {core.core for core in part.cores}:
            return self._draw_cores(part, width, height, samples)
        # The script logs one loss for several cores, so the numbers of losses are not those of cores.
        drawing = self._draw_cores(part, width, max(height - len(devices) - 2, 2), {})
        table = _indented(_device_table(devices, width - 1))
        return drawing._replace(rows=[*drawing.rows, [], *table.head, *table.rows])

    def _draw_cores(self, part: CoresPart, width: int, height: int, samples: Mapping[int, CoreSample]) -> Drawing:
        """The cores whose losses are known."""
        cores = part.cores
        odd, slow = part.outlier, part.slow
        note = _note(cores, odd, slow, width - _TITLE) + _mean_duty(part, is_quiet=odd is None and slow is None)
        if self.has_class("-maximised") and part.why_no_times is not None:
            note += f", per-core times: {part.why_no_times}"
        if len(cores) <= height - 1 or (self.has_class("-maximised") and len(cores) <= 64):
            drawing = _table(cores, odd, slow, width - 1, note, samples)
            below = min((height - 1) // len(cores) - 1, _HISTORY_ROWS)
            return _indented(self._with_history(drawing, part, width - 1, below) if below > 0 else drawing)
        rows = strip_rows(len(cores), width, _STRIP_ROWS)
        if height <= _STRIP_ROWS and rows <= height and rows * (width // _COLUMN) >= len(cores):
            is_quiet = odd is None and slow is None
            return Drawing(_strip(cores, odd, slow, width, rows), note=_conditions(cores) if is_quiet else note)
        summary = [_summary(cores, odd, slow, part.host_of, width)]
        per_line = max(width // _COLUMN, 1)
        if math.ceil(len(cores) / per_line) <= height - len(summary):
            return Drawing(_grid(cores, odd, slow, per_line), head=tuple(summary), note=note)
        return _map(part, width, height, note)

    def _with_history(self, table: Drawing, part: CoresPart, width: int, rows: int) -> Drawing:
        """The table with the loss so far of each core below its row."""
        sparklines = self._history.sparklines(part.columns, [core.core for core in part.cores], width - _INDENT, rows)
        lines: list[Line] = []
        for core, line in zip(part.cores, table.rows, strict=True):
            sparkline = sparklines.get(core.core, [])
            lines += [line, *([Span(" " * _INDENT), *spans] for spans in sparkline)]
        return table._replace(rows=lines)


def _indented(table: Drawing) -> Drawing:
    """A table behind the blank that other panels begin with, also this one while it has no core."""
    rows, head = ([[Span(" "), *line] for line in lines] for lines in (table.rows, table.head))
    return table._replace(rows=rows, head=tuple(head))


def _note(cores: list[CoreView], odd: OutlierView | None, slow: SlowCoreView | None, room: int) -> str:
    if slow is not None:
        name, steps = f"core {slow.core}: {fmt.slower(slow.share)}", fmt.counted(slow.num_steps, "step")
        whole = (f"{name} than the others for {steps}", f"{name} for {steps}")
        return next((text for text in whole if len(text) <= room), name)
    if odd is None:
        return fmt.counted(len(cores), "core")
    return f"core {odd.core} {'high' if odd.by > 0 else 'low'} since step {odd.first_step:,}"


def _mean_duty(part: CoresPart, *, is_quiet: bool) -> str:
    """`, duty 91 %`, the mean over the cores; empty if something else is to be said, or if it is not known."""
    cores = part.devices.cores if part.devices is not None and is_quiet else []
    duty = [core.duty_cycle_percent for core in cores if core.duty_cycle_percent is not None]
    return f", duty {fmt.percent(math.fsum(duty) / len(duty))}" if duty and all(map(math.isfinite, duty)) else ""


def state_of(core: CoreView, slow: SlowCoreView | None = None, room: int = 99) -> tuple[str, Tone]:
    """The state of a core in words of at most `room` cells, if it can be that short, and its tone; `slow` is the core
    that is slower than the others."""
    if slow is not None and slow.core == core.core and core.condition == "running":
        return f"\u25b2 {fmt.slower(slow.share)}", "warn"
    if core.condition == "stalled":
        doing = status_text.phase_in_short(core.phase, core.phase_s) or "silent"
        forms = (f"\u25b2 stalled: {doing}", f"\u25b2 stalled {status_text.age(core.phase_s)}", "\u25b2 stalled")
        return next((form for form in forms if len(form) <= room), forms[-1]), "warn"
    if core.condition == "ended":
        return "\u25a0 ended", "dim"
    doing = status_text.phase_in_short(core.phase, core.phase_s) or core.condition
    return f"\u25cf {doing}", "good" if core.condition == "running" else "info"


def loss_span(core: CoreView, odd: OutlierView | None, width: int) -> Span:
    """The loss of a core; NaN, inf and the outlier have a sign besides their colour."""
    text = _short(core.loss, width - 3)
    if core.loss is not None and not math.isfinite(core.loss):
        return Span(f"{text:>{width - 2}} \u2716", "bad")
    if odd is not None and core.core == odd.core:
        return Span(f"{text:>{width - 2}} {chr(0x25B4 if odd.by > 0 else 0x25BE)}", "alert")
    return Span(f"{text:>{width - 2}}  ")


def _short(loss: float | None, room: int) -> str:
    """A loss in at most `room` cells, whatever those of other cores are: a column does not change its format."""
    text = fmt.number(loss)
    if loss is None or len(text) <= room:
        return text
    decimals = room - len(f"{loss:.0f}.")
    if _LEAST_DECIMAL <= abs(loss) < 1.0 and decimals > 0:
        return f"{loss:.{decimals}f}"
    return next((short for digits in (2, 1, 0) if len(short := f"{loss:.{digits}e}") <= room), f"{loss:.0e}")


def _device_table(cores: list[CoreSample], width: int) -> Drawing:
    """The cores of a run whose losses per core are not known."""
    columns, _ = _device_columns(cores, width - 4)
    head: Line = [Span("core" + "".join(f"{column.title:>{column.width}}" for column in columns), "label")]
    rows: list[Line] = [[Span(f"{core.core:>4}", "strong"), *_device_spans(core, columns)] for core in cores]
    return Drawing(rows, head=(head,), note=fmt.counted(len(cores), "core"))


def _device_columns(cores: Collection[CoreSample], room: int) -> tuple[list[ItemColumn[CoreSample]], int]:
    """The columns that some core has a value for and that fit, and the room that is left."""
    columns = [column for column in _DEVICE_COLUMNS if any(column.text(core) != fmt.UNKNOWN for core in cores)]
    return columns_that_fit(columns, room)


def _device_spans(core: CoreSample | None, columns: list[ItemColumn[CoreSample]]) -> Line:
    return [Span(f"{column.text(core) if core is not None else fmt.UNKNOWN:>{column.width}}") for column in columns]


def _table(
    cores: list[CoreView],
    odd: OutlierView | None,
    slow: SlowCoreView | None,
    width: int,
    note: str,
    samples: Mapping[int, CoreSample],
) -> Drawing:
    steps = max(4, *(len(f"{core.step:,}") for core in cores))
    room = width - (4 + 10 + 1 + steps + 2 + _STATE)
    times = _TIME if room > _TIME and any(core.compute_s is not None for core in cores) else 0
    columns, room = _device_columns(samples.values(), room - times)
    bars = _BAR if room > _BAR + 1 else 0
    hosts = len({core.host for core in cores}) > 1 and room > _BAR + 12
    greatest = max((core.loss for core in cores if core.loss is not None and math.isfinite(core.loss)), default=0.0)
    time_head = f"{'time':>{times}}" if times else ""
    device_head = "".join(f"{column.title:>{column.width}}" for column in columns)
    used = 4 + 10 + (bars + 2 if bars else 0) + steps + times + sum(column.width for column in columns) + 2
    of_state = _STATE if hosts else max(width - used, _STATE)
    titles = f"core {'loss':>7}   {'':{bars + 2 if bars else 0}}{'step':>{steps}}{time_head}{device_head}  state"
    head: Line = [Span(titles, "label")]
    rows: list[Line] = []
    for core in cores:
        state, tone = state_of(core, slow, of_state)
        line: Line = [Span(f"{core.core:>4}", "strong"), loss_span(core, odd, 10)]
        if bars:
            line += [Span(" "), *bar(_share(core.loss, greatest), bars, _bar_tone(core, odd)), Span(" ")]
        line.append(Span(f"{core.step:>{steps},}"))
        if times:
            time_tone: Tone = "warn" if slow is not None and slow.core == core.core else "plain"
            line.append(Span(f"{fmt.duration(core.compute_s):>{times}}", time_tone))
        line += [*_device_spans(samples.get(core.core), columns), Span("  "), Span(f"{state:<{_STATE}}", tone)]
        rows.append([*line, Span(f" {core.host}", "dim")] if hosts else line)
    return Drawing(rows, head=(head,), note=note)


def _share(loss: float | None, greatest: float) -> float:
    return loss / greatest if loss is not None and math.isfinite(loss) and greatest > 0 else 0.0


def _bar_tone(core: CoreView, odd: OutlierView | None) -> Tone:
    return "alert" if odd is not None and odd.core == core.core else "accent"


def strip_rows(num_cores: int, width: int, most: int) -> int:
    """Lines of the strip of cores in `width` cells; `most` if they are drawn as a map."""
    rows = math.ceil(num_cores / max(width // _COLUMN, 1)) if num_cores else 2
    return min(max(rows, 1), most) if rows <= _STRIP_ROWS else most


def _strip(
    cores: list[CoreView], odd: OutlierView | None, slow: SlowCoreView | None, width: int, rows: int
) -> list[Line]:
    """A few lines of loss, bar and sign of the state; with the state in words if there is room."""
    per_line = math.ceil(len(cores) / rows)
    cell_width = width // per_line
    state_width = _STATE if cell_width >= _COLUMN + _STATE + 4 else 1
    bars = min(cell_width - _COLUMN - state_width, _BAR)
    greatest = max((core.loss for core in cores if core.loss is not None and math.isfinite(core.loss)), default=0.0)
    lines: list[Line] = []
    for first in range(0, len(cores), per_line):
        line: Line = []
        for core in cores[first : first + per_line]:
            state, tone = state_of(core, slow, state_width)
            line += [Span(f"{core.core:>3}", "strong"), loss_span(core, odd, 9)]
            if bars > 1:
                line += bar(_share(core.loss, greatest), bars, _bar_tone(core, odd))
            mark = f" {state[:state_width]:<{state_width}}" if bars > 1 else state[:1]
            line.append(Span(mark.ljust(cell_width - 12 - (bars if bars > 1 else 0)), tone))
        lines.append(line)
    return lines


def _conditions(cores: list[CoreView]) -> str:
    """The conditions of the cores in words: `8 running`, `7 running, 1 stalled`."""
    return ", ".join(f"{count} {condition}" for condition, count in Counter(c.condition for c in cores).items())


def _grid(cores: list[CoreView], odd: OutlierView | None, slow: SlowCoreView | None, per_line: int) -> list[Line]:
    rows: list[Line] = []
    down = math.ceil(len(cores) / per_line)
    for row in range(down):
        line: Line = []
        for core in cores[row::down]:
            mark, tone = _mark(core, slow)
            line += [Span(f"{core.core:>3}", "label"), loss_span(core, odd, 9), Span(f"{mark} ", tone)]
        rows.append(line)
    return rows


def _mark(core: CoreView, slow: SlowCoreView | None) -> tuple[str, Tone]:
    state, tone = state_of(core, slow)
    return state[:1], tone


def _summary(
    cores: list[CoreView], odd: OutlierView | None, slow: SlowCoreView | None, host_of: Mapping[int, int], width: int
) -> Line:
    """The cores that stand out, and the range of the losses if there is room for it."""
    finite = sorted(core.loss for core in cores if core.loss is not None and math.isfinite(core.loss))
    stalled = [core.core for core in cores if core.condition == "stalled"]
    bad = [core.core for core in cores if core.loss is not None and not math.isfinite(core.loss)]
    line: Line = []
    if bad:
        line.append(Span(f"\u2716 NaN/inf: {_some(bad, host_of)}  ", "bad"))
    if stalled:
        line.append(Span(f"\u25b2 stalled: {_some(stalled, host_of)}  ", "warn"))
    if slow is not None:
        line.append(Span(f"\u25b2 {_some([slow.core], host_of)}: {fmt.slower(slow.share)}  ", "warn"))
    if odd is not None:
        sign = "\u25b4" if odd.by > 0 else "\u25be"
        loss = next((core.loss for core in cores if core.core == odd.core), None)
        line.append(Span(f"{sign} {_some([odd.core], host_of)}: {fmt.number(loss)}  ", "alert"))
    if finite:
        low, middle, high = finite[0], finite[len(finite) // 2], finite[-1]
        losses = f"loss {fmt.number(low)} to {fmt.number(high)}"
        room = width - width_of(line)
        text = next((text for text in (f"{losses}, median {fmt.number(middle)}", losses) if len(text) <= room), "")
        line.append(Span(text, "label"))
    return line


def _some(numbers: list[int], host_of: Mapping[int, int]) -> str:
    """The first of some cores, each with its host: `core 1033 (host 129)`."""
    shown = ", ".join(f"{core} (host {host_of[core]})" if core in host_of else f"{core}" for core in numbers[:3])
    return f"core {shown}" if len(numbers) <= 3 else f"core {shown} and {len(numbers) - 3} more"


def _map(part: CoresPart, width: int, height: int, note: str) -> Drawing:
    """One block per core, or per group of neighbours, which shows the worst of them."""
    cores, odd, slow = part.cores, part.outlier, part.slow
    labels = len(str(cores[-1].core)) + 1
    rows_free, room = max(height - 2, 1), max(width - labels - 1, 1)
    group = _power_of_two(math.ceil(len(cores) / (rows_free * room)))
    shown = [cores[first : first + group] for first in range(0, len(cores), group)]
    across = _across(len(shown), rows_free, room)
    block_width = min(room // across, _BLOCK_MOST)
    losses = [_worst(members) for members in shown]
    worst = [loss for loss in losses if loss is not None]
    bounds = (min(worst), max(worst)) if worst else (0.0, 0.0)
    signs = _signs(cores, odd, slow)
    rows: list[Line] = []
    for first in range(0, len(shown), across):
        line = [Span(f"{shown[first][0].core:>{labels}} ", "dim")]
        for place in range(first, min(first + across, len(shown))):
            ranks = [signs[core.core] for core in shown[place] if core.core in signs] if signs else []
            line.append(_block(losses[place], min(ranks, default=None), bounds, block_width))
        rows.append(joined(line))
    block = f"one block per {'core' if group == 1 else _group(shown, part.host_of)}"
    worst_of = "" if group == 1 else ", the worst shown"
    legends = (f"{block}{worst_of}; higher block = higher loss", f"{block}{worst_of}", block)
    legend = next((text for text in legends if len(text) <= width), block)
    head: tuple[Line, ...] = (_summary(cores, odd, slow, part.host_of, width), [Span(legend, "dim")])
    return Drawing(rows, head=head, note=note)


def _group(shown: Sequence[Sequence[CoreView]], host_of: Mapping[int, int]) -> str:
    """What a block of several cores is: `4 cores`, `host (8 cores)`, `2 hosts (16 cores)`."""
    cores = fmt.counted(len(shown[0]), "core")
    hosts = [{host_of[core.core] for core in members if core.core in host_of} for members in shown]
    if not host_of or len(set().union(*hosts)) != sum(map(len, hosts)):
        return cores
    return f"{fmt.counted(len(hosts[0]), 'host') if len(hosts[0]) > 1 else 'host'} ({cores})"


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _across(count: int, rows: int, room: int) -> int:
    """Blocks in a row: as few as the rows allow, rounded up to a multiple of 8 if there is room."""
    least = math.ceil(count / rows)
    even = math.ceil(least / 8) * 8
    return even if even <= room else least


def _worst(members: list[CoreView]) -> float | None:
    """The highest finite loss of a group."""
    losses = [core.loss for core in members if core.loss is not None]
    return max((loss for loss in losses if math.isfinite(loss)), default=None)


_BAD, _STALLED, _SLOW, _ODD = range(4)
"""Conditions that a block shows instead of the loss, the most severe first."""


def _signs(cores: list[CoreView], odd: OutlierView | None, slow: SlowCoreView | None) -> dict[int, int]:
    """The most severe condition of each core that has one, by core."""
    signs = {odd.core: _ODD} if odd is not None else {}
    signs |= {slow.core: _SLOW} if slow is not None else {}
    signs |= {core.core: _STALLED for core in cores if core.condition == "stalled"}
    return signs | {core.core: _BAD for core in cores if core.loss is not None and not math.isfinite(core.loss)}


def _block(worst: float | None, sign: int | None, bounds: tuple[float, float], width: int) -> Span:
    """The block of a group: its most severe condition, or its highest finite loss relative to the `bounds` of all."""
    if sign == _BAD:
        return Span(_wide("\u2716", width), "bad")
    if sign in (_STALLED, _SLOW):
        return Span(_wide("\u25b2", width), "warn")
    if worst is None:
        return Span(_wide("\u00b7", width), "dim")
    low, high = bounds
    share = share_between(worst, low, high) if high > low else 0.0
    level = LEVELS[min(int(share * len(LEVELS)), len(LEVELS) - 1)]
    if sign == _ODD:
        return Span(_wide(level, width), "alert")
    return Span(_wide(level, width), "accent" if share > 2 / 3 else "band")


def _wide(mark: str, width: int) -> str:
    return mark if width < 2 else mark * (width - 1) + " "
