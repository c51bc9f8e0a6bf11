"""How the panels of the monitor share the screen: rows of panels, in default sizes or in those that the user chose.

An arrangement is made of splits: parts beside or below each other. A part has a key, by which `Layout.sizes` has its
share of the split. The keys of narrow and of wide terminals differ, so each keeps its own sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from tputui.ui.monitor.cores import strip_rows
from tputui.ui.widgets.panel import FRAME, Box

DIAGNOSIS = "diagnosis"
"""Visible on a wide terminal only if something was found, or if it is selected."""
HOSTS = "hosts"
"""Visible only if the run has several hosts."""
PANELS = ("cores", "loss", "meters", "epochs", "xla", "memory", "log", "events", "pace", DIAGNOSIS, HOSTS)
"""In the order of their keys, from 1 to 9, W and h."""

LASTING = frozenset(PANELS) - {HOSTS}
"""Panels that every run has; one of them must be visible."""

FAILURE = "failure"
"""Shown above the others if the run failed."""

LEAST_WIDTH, LEAST_HEIGHT = 20, 5
"""Minimum size of a panel that shares the screen, in cells."""
_LEAST_STRIP = 3

_TINY_WIDTH, _TINY_HEIGHT = 60, 13
_WIDE_WIDTH, _WIDE_HEIGHT = 110, 26
_FEW_CORES = 32
_FEW_HOSTS = 4
"""Maximum number of hosts whose table has the place of the strip; more are a map."""
_THREE_FROM, _FOUR_FROM = 16, 22
"""Rows of the body from which a narrow terminal shows a third panel, and the epochs beside the meters."""
_MIDDLE = ("meters", "epochs")
_BOTH_FROM = 74
"""Cells beside the other panels of the last row from which log and events are both visible."""
_TALL = 56
"""Rows of the body from which cores and loss take half of them."""
_HOST_ROWS_FROM = 36
"""Rows of the body from which a table of hosts has a row of its own."""
_MAP_WIDTH = 180
"""Cells from which a map of hosts is beside the cores, and not in their place."""
_LAST = ("log", "events", "meters", "epochs", "xla", "memory", "pace", "loss", "cores", HOSTS, DIAGNOSIS)
"""Panels for the last row of a narrow terminal, the first visible one if none of them was selected."""

Axis = Literal["x", "y"]


class Layout(NamedTuple):
    """The user's arrangement: which panels are hidden, and the sizes that differ from the default."""

    hidden: frozenset[str] = frozenset()
    sizes: Mapping[str, float] = {}
    """The share of a part in its split, by the key of the part."""

    def shows(self, panel: str) -> bool:
        return panel not in self.hidden


DEFAULT = Layout()


class Part(NamedTuple):
    """A part of a split."""

    key: str
    size: int
    """In cells."""
    least: int
    panels: tuple[str, ...]
    """Its panels; of several rows those of the first row."""


class Split(NamedTuple):
    """Parts beside each other (axis x) or below each other (axis y)."""

    axis: Axis
    parts: tuple[Part, ...]
    start: int
    """The first cell along the axis."""
    across: range
    """The cells across the axis."""

    def index_of(self, panel: str) -> int | None:
        """The part that contains a panel."""
        return next((index for index, part in enumerate(self.parts) if panel in part.panels), None)

    def moved(self, index: int, by: int) -> dict[str, float] | None:
        """The shares after the border behind a part was moved by cells; None if a panel would become too small."""
        before, behind = self.parts[index], self.parts[index + 1]
        by = max(min(by, behind.size - behind.least), before.least - before.size)
        if not by:
            return None
        sizes = [part.size for part in self.parts]
        sizes[index] += by
        sizes[index + 1] -= by
        return {part.key: round(size / sum(sizes), 4) for part, size in zip(self.parts, sizes, strict=True)}


class Border(NamedTuple):
    """The border between a part of a split and the next one."""

    split: Split
    number: int
    """Index of the part before the border."""

    @property
    def end(self) -> int:
        """The first cell behind the border, along the axis."""
        return self.split.start + sum(part.size for part in self.split.parts[: self.number + 1])

    @property
    def title_row(self) -> int | None:
        """The line of the border that has the titles of panels; None between panels beside each other."""
        return self.end if self.split.axis == "y" else None

    @property
    def edges(self) -> dict[str, str]:
        """The edge of each panel that touches the border."""
        before, behind = self.split.parts[self.number], self.split.parts[self.number + 1]
        names = ("right", "left") if self.split.axis == "x" else ("bottom", "top")
        return dict.fromkeys(before.panels, names[0]) | dict.fromkeys(behind.panels, names[1])


class Arrangement(NamedTuple):
    """The visible panels, and the splits that they are in."""

    boxes: dict[str, Box]
    splits: tuple[Split, ...] = ()

    def border_at(self, x: int, y: int) -> Border | None:
        """The border at a cell: the two lines of frames between neighbours."""
        for split in self.splits:
            along, across = (x, y) if split.axis == "x" else (y, x)
            if across not in split.across:
                continue
            for index in range(len(split.parts) - 1):
                border = Border(split, index)
                if along in (border.end - 1, border.end):
                    return border
        return None

    def split_of(self, panel: str, axis: Axis) -> tuple[Split, int] | None:
        """The innermost split with several parts along an axis, one of which contains the panel."""
        for split in reversed(self.splits):
            index = split.index_of(panel)
            if split.axis == axis and len(split.parts) > 1 and index is not None:
                return split, index
        return None


class _PanelRow(NamedTuple):
    key: str
    height: int
    cells: tuple[tuple[str, str, int], ...]
    """Panels: key of the part, name of the panel, width."""
    least: int = LEAST_HEIGHT


def arrange(
    width: int,
    height: int,
    wanted: str,
    *,
    num_cores: int,
    num_hosts: int = 1,
    failed: bool = False,
    diagnosed: bool = False,
    maximised: bool = False,
    layout: Layout = DEFAULT,
) -> Arrangement:
    """The visible panels, which tile `width` by `height` cells. `wanted` is the panel that the user selected: it is
    visible even if there is no room for all of them. `diagnosed`: there is something to show in the diagnosis."""
    if width < 1 or height < 1:
        return Arrangement({})
    if maximised or width < _TINY_WIDTH or height < _TINY_HEIGHT:
        return Arrangement({wanted: Box(0, 0, width, height)})
    visible = [name for name in PANELS if layout.shows(name) and (name != HOSTS or num_hosts > 1)]
    panel = wanted if wanted in visible else "cores" if "cores" in visible else visible[0]
    if not diagnosed and panel != DIAGNOSIS and DIAGNOSIS in visible:
        visible.remove(DIAGNOSIS)
    boxes: dict[str, Box] = {}
    splits: list[Split] = []
    top = 0
    if failed:
        top = max(8, height * 2 // 5)
        halves = (Part("failure", top, LEAST_HEIGHT, (FAILURE,)), Part("others", height - top, LEAST_HEIGHT, ()))
        parts = _sized(halves, height, layout)
        top = parts[0].size
        boxes[FAILURE] = Box(0, 0, width, top)
    rows = _rows(width, height - top, panel, visible, num_cores, num_hosts)
    names = [tuple(name for _, name, _ in row.cells) for row in rows]
    if failed:
        splits.append(Split("y", (parts[0], parts[1]._replace(panels=names[0])), 0, range(width)))
    of_rows = [Part(row.key, row.height, row.least, panels) for row, panels in zip(rows, names, strict=True)]
    splits.append(Split("y", _sized(of_rows, height - top, layout), top, range(width)))
    y = top
    for row, part in zip(rows, splits[-1].parts, strict=True):
        cells = _sized([Part(key, wide, LEAST_WIDTH, (name,)) for key, name, wide in row.cells], width, layout)
        splits.append(Split("x", cells, 0, range(y, y + part.size)))
        x = 0
        for cell in cells:
            boxes[cell.panels[0]] = Box(x, y, cell.size, part.size)
            x += cell.size
        y += part.size
    return Arrangement(boxes, tuple(splits))


def _sized(parts: Sequence[Part], total: int, layout: Layout) -> tuple[Part, ...]:
    """The parts in the sizes of the layout, which add up to `total`."""
    wanted = [layout.sizes[part.key] * total if part.key in layout.sizes else float(part.size) for part in parts]
    sizes = apportioned(total, wanted, [part.least for part in parts])
    return tuple(part._replace(size=size) for part, size in zip(parts, sizes, strict=True))


def apportioned(total: int, wanted: Sequence[float], least: Sequence[int]) -> list[int]:
    """Whole numbers that add up to `total`, proportional to `wanted`, and at least `least` if `total` permits."""
    free, fixed = set(range(len(wanted))), dict[int, int]()
    if sum(least) <= total:
        while True:
            scale = _scale(total - sum(fixed.values()), [wanted[index] for index in free])
            short = {index for index in free if wanted[index] * scale < least[index]}
            if not short:
                break
            fixed |= {index: least[index] for index in short}
            free -= short
    scale = _scale(total - sum(fixed.values()), [wanted[index] for index in free])
    sizes, end = [], 0.0
    for index, size in enumerate(wanted):
        begin, end = end, end + (fixed[index] if index in fixed else size * scale)
        sizes.append(math.floor(end + 0.5) - math.floor(begin + 0.5))
    return sizes


def _scale(total: int, wanted: Sequence[float]) -> float:
    return total / sum(wanted) if sum(wanted) else 0.0


def _rows(
    width: int, height: int, wanted: str, visible: Sequence[str], num_cores: int, num_hosts: int
) -> list[_PanelRow]:
    if width >= _WIDE_WIDTH and height >= _WIDE_HEIGHT:
        return _wide(width, height, wanted, visible, num_cores, num_hosts)
    if height < _TINY_HEIGHT:
        return [_PanelRow("only", height, (("only", wanted, width),))]
    return _narrow(width, height, wanted, visible, num_cores, num_hosts)


def _narrow(
    width: int, height: int, wanted: str, visible: Sequence[str], num_cores: int, num_hosts: int
) -> list[_PanelRow]:
    """A strip of cores or hosts, the loss, the selected panel or the log; meters and epochs too if there is room."""
    of_strip, visible = _cores_or_hosts(wanted, visible)
    strip = 0
    if of_strip == "cores":
        strip = strip_rows(num_cores, width - FRAME, max(height // 4, 4)) + FRAME
    elif of_strip == HOSTS:
        strip = (num_hosts + 1 if num_hosts <= _FEW_HOSTS else max(height // 4, 4)) + FRAME
    free = height - strip
    chart = ("loss",) if "loss" in visible and height >= _THREE_FROM else ()
    has_middle = height >= (_FOUR_FROM if chart else _THREE_FROM)
    middle = tuple(name for name in _MIDDLE if name in visible and has_middle)
    above = {*chart, *middle, of_strip}
    first = wanted if height >= _THREE_FROM or wanted != of_strip else "loss"
    last = next((name for name in (first, *_LAST) if name in visible and name not in above), None)
    lower = 0 if last is None else max(5, free // 4 if middle else free * 3 // 8)
    between = max(6, free // 4) if middle else 0
    rows = []
    if strip:
        rows.append(_PanelRow("narrow.strip", strip, (("narrow.cores", of_strip, width),), _LEAST_STRIP))
    if chart:
        rows.append(_PanelRow("narrow.chart", free - lower - between, (("narrow.loss", "loss", width),)))
    if middle:
        left = min(max(width // 2, 40), width - 30)
        widths = dict(zip(_MIDDLE, (left, width - left), strict=True))
        cells = tuple((f"narrow.{name}", name, widths[name]) for name in middle)
        rows.append(_PanelRow("narrow.middle", between if chart or last else free, cells))
    if last is not None:
        rows.append(_PanelRow("narrow.last", lower if chart else free - between, (("narrow.log", last, width),)))
    return rows


def _cores_or_hosts(wanted: str, visible: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The panel in the shared place of cores and hosts, empty if both are hidden, and the visible panels without the
    other one."""
    both = [name for name in ("cores", HOSTS) if name in visible]
    if len(both) < 2:
        return (both[0] if both else ""), visible
    shown = "cores" if wanted == "cores" else HOSTS
    return shown, [name for name in visible if name not in both or name == shown]


def _wide(
    width: int, height: int, wanted: str, visible: Sequence[str], num_cores: int, num_hosts: int
) -> list[_PanelRow]:
    """Everything, in three rows, and in rows between them the diagnosis and a table of hosts.

    A map of hosts is beside the cores, or in their place.
    """
    diagnosis = LEAST_HEIGHT if DIAGNOSIS in visible else 0
    height -= diagnosis
    table = max(num_hosts + 1 + FRAME, LEAST_HEIGHT)
    if HOSTS not in visible or height < _HOST_ROWS_FROM or table > height // 4:
        table = 0
    height -= table
    beside_cores = HOSTS in visible and not table
    if beside_cores and width < _MAP_WIDTH:
        _, visible = _cores_or_hosts(wanted, visible)
    upper = _upper_height(height, num_cores)
    middle = max(9, (height - upper) * 45 // 100)
    share = 31 if num_cores <= _FEW_CORES else 38
    left = min(max(42, width * share // 100), 90)
    xla, memory = max(30, width * 19 // 100), max(36, width * 23 // 100)
    beside = sum(wide for name, wide in (("xla", xla), ("memory", memory)) if name in visible)
    last = [name for name in ("events", "log") if name in visible]
    if len(last) == 2 and width - beside < _BOTH_FROM:
        last = ["events" if wanted == "events" else "log"]
    below = [("log", last[0])] if len(last) == 1 else [(name, name) for name in last]
    first = [name for name in (HOSTS, "cores") if name in visible and (name != HOSTS or beside_cores)]
    lefts = (left, max(40, width * 20 // 100)) if len(first) == 2 else (left,) * len(first)
    rows = (
        ("upper", upper, (*zip(("cores", "cores2"), first, strict=False), ("loss", "loss")), lefts),
        ("hosts", table, ((HOSTS, HOSTS if table else ""),), ()),
        ("diagnosis", diagnosis, ((DIAGNOSIS, DIAGNOSIS),), ()),
        (
            "middle",
            middle,
            (("pace", "pace"), ("meters", "meters"), ("epochs", "epochs")),
            (max(34, width * 25 // 100), max(40, width * 33 // 100)),
        ),
        ("lower", height - upper - middle, (("xla", "xla"), ("memory", "memory"), *below), (xla, memory)),
    )
    arranged = []
    for key, tall, panels, widths in rows:
        wides = _widths(width, len(panels), (*widths, width * 27 // 100) if len(panels) == 4 else widths)
        cells = [(f"wide.{own}", name, wide) for (own, name), wide in zip(panels, wides, strict=True)]
        kept = tuple(cell for cell in cells if cell[1] in visible)
        if kept:
            arranged.append(_PanelRow(f"wide.{key}", tall, kept))
    return arranged


def _upper_height(height: int, num_cores: int) -> int:
    """Height of the row of cores and loss."""
    most = height * 45 // 100
    upper = max(height * (50 if height >= _TALL else 42) // 100, min(_lines_for_cores(num_cores), most))
    # A sparkline below each core, and the head of the table.
    return max(upper, 2 * num_cores + 3) if 2 * num_cores + 3 <= most else upper


def _widths(width: int, count: int, first: Sequence[int]) -> list[int]:
    """The widths of panels in a row; the last one takes the rest."""
    firsts = first[: count - 1]
    return [*firsts, width - sum(firsts)]


def _lines_for_cores(num_cores: int) -> int:
    """Height of the cores panel as a table, at most 16 cores, with head and frame."""
    return min(max(num_cores, 4), 16) + 3
