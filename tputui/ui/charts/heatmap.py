"""A heat map of cores over steps: how far each core is from the others at the same step.

The loss of all cores falls together, which would hide everything else, so a cell shows the distance from the median
core of its step as a share of that median; with a log axis, and for a single core, it shows the loss itself. Where the
terminal has the colours, cells are painted from blue over the background to red, two rows of cores in a line if there
are more cores than lines. Elsewhere shade and colour grow together, so the map is readable without colours.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

from tputui import formatting as fmt
from tputui.state.chart_data import CoreColumn
from tputui.ui.charts.axis import Axes
from tputui.ui.charts.chart_view import (
    Chart,
    ChartView,
    VisibleData,
    cursor_cell,
    grouped,
    rows_for,
    sampled,
    with_axes,
    x_axis_of,
)
from tputui.ui.charts.columns import ReducedColumns
from tputui.ui.charts.events_line import SIGNS
from tputui.ui.render.braille import DOTS_X, GUIDE
from tputui.ui.render.lines import RGB, STEPS, Line, Ramp, Span, Tone

SHADES = " \u2591\u2592\u2593\u2588"
"""Shades from none to full."""
LOWER = " \u2581\u2582\u2584\u2586"
"""Shades for cores below the median, distinguishable from those above it without colours."""

_MOST = len(SHADES) - 1
_BAR = 12
"""Cells of the colour bar."""
_UPPER_HALF = "\u2580"
_BAD, _NONE = 99, -99
"""Levels of a cell with a NaN or infinite value, and of a cell without a value."""

_THICK_MOST = 5
_FAR = 4.0
"""Values above this multiple of the 90th percentile all get the full shade."""

Level = Callable[[float], int]


def draw(data: VisibleData, width: int, height: int, memory: ReducedColumns[list[float]]) -> Chart:
    """A row for each core or group of cores, a cell for one or more steps; axes and line of events below."""
    num_cores = len(data.cores[-1].means) if data.cores else 0
    rows = max(rows_for(height), 1)
    is_halved = data.ramp is not None and num_cores > rows
    groups = grouped(num_cores, 2 * rows if is_halved else rows)
    left = max(len(str(num_cores)) + 2, 6)
    thick = thickness(len(groups), rows)
    of_lines = _pairs(groups) if is_halved else [cores for cores in groups for _ in range(thick)]
    labels = {index: _label(of_lines[index], data.view) for index in range(0, len(of_lines), thick)}
    axes = Axes(x_axis_of(data, (width - left) * DOTS_X), None, labels, left, width - left, rows)
    loss = data.view.log or num_cores < 2
    columns_of_cells = cells_of(data.cores, axes)
    reduced = memory.of(data.cores, (len(groups), loss), functools.partial(_reduce, groups=groups, loss=loss))
    cells = [_farthest(reduced[low:high]) for low, high in columns_of_cells]
    cells = _with_spikes(cells, data, axes, groups, loss=loss)
    level, legend = _level(cells, loss=loss, log=data.view.log, ramp=data.ramp)
    bad = [{core for column in data.cores[low:high] for core in column.bad_cores} for low, high in columns_of_cells]
    levels = [
        [
            _BAD if wrong and not wrong.isdisjoint(cores) else level(cell[row]) if cell else _NONE
            for cell, wrong in zip(cells, bad, strict=True)
        ]
        for row, cores in enumerate(groups)
    ]
    guide = cursor_cell(data, axes)
    if data.ramp is None:
        body = [_line(row, guide, "accent" if loss else "alert") for row in levels for _ in range(thick)]
    elif is_halved:
        body = [_halved_line(levels[row : row + 2], data.ramp, guide) for row in range(0, len(levels), 2)]
    else:
        body = [line for row in levels for line in [_halved_line([row, row], data.ramp, guide)] * thick]
    body += [[]] * (rows - len(body))
    of_row = "half row" if is_halved else "row"
    size = len(groups[0]) if groups else 1
    rows_note = f"{size} cores per {of_row}, showing the farthest" if size > 1 else f"1 core per {of_row}"
    # While the cursor takes the place of the legend, the frame has the range.
    texts = [span.text.strip() for span in legend if span.text.strip()]
    shown = (f"{texts[0]} {texts[1]} to {texts[-1]}",) if data.view.cursor is not None and len(texts) > 1 else ()
    notes = (*shown, *sampled(data), rows_note)
    return Chart(with_axes(data, body, axes, height), axes, notes, rows=of_lines, legend=legend)


def _pairs(groups: Sequence[range]) -> list[range]:
    """The cores of each line that shows two groups."""
    return [range(two[0].start, two[-1].stop) for two in (groups[at : at + 2] for at in range(0, len(groups), 2))]


def _with_spikes(
    cells: list[list[float]], data: VisibleData, axes: Axes, groups: Sequence[range], *, loss: bool
) -> list[list[float]]:
    """Adds the spikes and the farthest value to the cells of their cores and steps, since the columns contain means."""
    cells = [list(cell) for cell in cells]
    farthest = data.extremes.farthest
    for extreme, distance, _ in (*data.extremes.spikes, *([farthest] if farthest is not None else [])):
        index, row = axes.cell_of(extreme.step), extreme.core // len(groups[0]) if groups else 0
        value = extreme.value if loss else distance
        if 0 <= index < len(cells) and row < len(cells[index]):
            drawn = cells[index][row]
            if drawn != drawn or (value > drawn if loss else abs(value) > abs(drawn)):
                cells[index][row] = value
    return cells


def _label(cores: range, view: ChartView) -> str:
    """The first core of a row, with a sign if the cursor is in the row."""
    return f"\u276f{cores.start}" if view.cursor is not None and view.core in cores else str(cores.start)


def thickness(count: int, rows: int) -> int:
    """Lines per row of the map: with few cores several, to fill the room."""
    return min(max(rows // max(count, 1), 1), _THICK_MOST)


def cells_of(columns: Sequence[CoreColumn], axes: Axes) -> list[tuple[int, int]]:
    """The range of columns in each cell, up to the last step; a column extends to the start of the next one."""
    across = axes.across
    end = min(axes.cell_of(columns[-1].last_step) + 1, across) if columns else 0
    starts = [min(max(axes.cell_of(column.first_step), 0), across - 1) for column in columns]
    ranges = [(0, 0)] * end
    for cell, group in itertools.groupby(range(len(columns)), key=starts.__getitem__):
        numbers = list(group)
        stop = starts[numbers[-1] + 1] if numbers[-1] + 1 < len(columns) else end
        for index in range(cell, min(max(stop, cell + 1), end)):
            ranges[index] = (numbers[0], numbers[-1] + 1)
    return ranges


def _reduce(column: CoreColumn, groups: Sequence[range], *, loss: bool) -> list[float]:
    means = column.means
    total = sum(means)
    whole = total - total == 0.0
    finite = sorted(means) if whole else sorted(filter(math.isfinite, means))
    if not finite:
        return [math.nan] * len(groups)
    median = 0.0 if loss else finite[len(finite) // 2]
    unit = 1.0 if loss else abs(median) or 1.0
    distances = []
    for cores in groups:
        part = means[cores.start : cores.stop]
        values = part if whole else [value for value in part if math.isfinite(value)]
        if not values:
            distances.append(math.nan)
            continue
        above, below = max(values) - median, median - min(values)
        distances.append((above if loss or above >= below else -below) / unit)
    return distances


def _farthest(columns: Sequence[list[float]]) -> list[float]:
    """Merge columns: the value with the largest magnitude of each row."""
    farthest = columns[0] if columns else []
    for column in columns[1:]:
        farthest = [b if a != a or abs(b) > abs(a) else a for a, b in zip(farthest, column, strict=True)]
    return farthest


def _level(cells: Sequence[list[float]], *, loss: bool, log: bool, ramp: Ramp | None) -> tuple[Level, Line]:
    """A function from a value to its shade, negative below the median, and the legend of the shades."""
    values = [value for cell in cells for value in cell if value == value]
    steps = STEPS if ramp is not None else _MOST
    if not values:
        return lambda value: _NONE, [Span("no finite value", "label")]
    if not loss:
        most, more = _most(values)
        low, high = (min(max(value / most, -1.0), 1.0) for value in (min(values), max(values)))
        below, above = (_signed(value * most) for value in (low, high))
        legend = _legend("deviation from median", (low, below), (high, f"{above}{more}"), ramp)
        return lambda value: _NONE if value != value else round(min(max(value / most, -1.0), 1.0) * steps), legend
    if log:
        values = [value for value in values if value > 0] or [1.0]
    low, high = min(values), max(values)
    form = math.log if log else float
    # Of halves, because the difference of two floats may be greater than the greatest one.
    least, span = form(low) / 2, (form(high) / 2 - form(low) / 2) or 1.0

    def level(value: float) -> int:
        if value != value:
            return _NONE
        return round((form(max(value, low)) / 2 - least) / span * steps)

    return level, _legend("loss", (0.0, fmt.number(low, 3)), (1.0, fmt.number(high, 3)), ramp)


def _signed(share: float) -> str:
    if not share:
        return "0 %"
    return f"{share * 100:+,.0f} %" if abs(share) >= 0.1 else f"{share * 100:+.2g} %"


def _legend(title: str, low: tuple[float, str], high: tuple[float, str], ramp: Ramp | None) -> Line:
    """The ends of the colours and their values, with a colour bar or the two signs between them."""
    if ramp is not None:
        bar = [Span(" "), *ramp.bar(low[0], high[0], _BAR), Span(" ")]
    else:
        bar = [Span(f" {LOWER[-1]} " if low[0] < 0 else " "), Span("..."), Span(f" {SHADES[-1]} ")]
    return [Span(f" {title} ", "label"), Span(low[1]), *bar, Span(f"{high[1]} ")]


def _most(values: Sequence[float]) -> tuple[float, str]:
    """The distance with the full shade: not the largest one if it would leave all others blank."""
    sizes = sorted(map(abs, values))
    usual = _FAR * sizes[len(sizes) * 9 // 10]
    return (usual, " or more") if 0.0 < usual < sizes[-1] else (sizes[-1] or 1.0, "")


def _line(levels: Sequence[int], guide: int | None, above: Tone) -> Line:
    line: Line = []
    start = 0
    for level, run in itertools.groupby(levels):
        count = len(list(run))
        if level == _BAD:
            line.append(Span(SIGNS["non_finite"].mark * count, "bad"))
        elif level == _NONE:
            line.append(Span("\u00b7" * count, "dim"))
        else:
            text = (SHADES if level >= 0 else LOWER)[abs(level)] * count
            if not level and guide is not None and start <= guide < start + count:
                text = text[: guide - start] + "\u250a" + text[guide - start + 1 :]
            line.append(Span(text, above if level >= 0 else "accent"))
        start += count
    return line


@functools.lru_cache(maxsize=8)
def _palette(ramp: Ramp) -> dict[int, RGB]:
    """The colour of each level; of a cell without a value the background."""
    return {level: ramp.at(level) for level in range(-STEPS, STEPS + 1)} | {_NONE: ramp.middle}


def _halved_line(halves: Sequence[Sequence[int]], ramp: Ramp, guide: int | None) -> Line:
    """A line of one or two rows of levels, painted: the upper one in the upper half of each cell."""
    upper, lower = halves[0], halves[-1]
    colour_of = _palette(ramp)
    line: Line = []
    start = 0
    for (above, below), run in itertools.groupby(zip(upper, lower, strict=True)):
        count = len(list(run))
        if _BAD in (above, below):
            line.append(Span(SIGNS["non_finite"].mark * count, "bad"))
        elif above == below == _NONE:
            line.append(Span("\u00b7" * count, "dim"))
        else:
            at = guide - start if guide is not None else -1
            line += _painted_run(count, colour_of[above], colour_of[below], ramp.text, at)
        start += count
    if len(halves) == 1:
        # The last line has only an upper half.
        line = [span if span.colours is None else _without_lower_half(span, ramp) for span in line]
    return line


def _without_lower_half(span: Span, ramp: Ramp) -> Span:
    assert span.colours is not None
    ground = span.colours[1] or ramp.middle
    return Span(_UPPER_HALF * len(span.text), span.tone, (ground, ramp.middle)) if span.text.isspace() else span


def _painted_run(count: int, upper: RGB, lower: RGB, text: RGB, guide: int) -> Line:
    """Cells of one colour, or of one colour in each half; a cursor in them is drawn on their lower colour."""
    piece = Span((" " if upper == lower else _UPPER_HALF) * count, "plain", (text if upper == lower else upper, lower))
    if not 0 <= guide < count:
        return [piece]
    before, after = (piece._replace(text=piece.text[0] * length) for length in (guide, count - guide - 1))
    return [span for span in (before, Span(GUIDE, "plain", (text, lower)), after) if span.text]
