"""Where the panels of the monitor stand, for every size of the terminal. Pure.

Small terminals show cores, loss and one more panel, the selected one; larger ones show everything, log and events in
one place where there is no room for both. The selected panel is always in sight, and a maximised one is alone.
"""

from __future__ import annotations

from typing import NamedTuple

PANELS = ("cores", "loss", "meters", "epochs", "xla", "memory", "log", "events", "pace")
"""In the order of their keys, from 1 to 9."""

FAILURE = "failure"
"""Stands above the others when training broke."""

_TINY_WIDTH, _TINY_HEIGHT = 60, 13
_WIDE_WIDTH, _WIDE_HEIGHT = 110, 26
_FEW_CORES = 32
_LEAST_LOWER = 6
_BOTH_FROM = 140
"""Cells of width from which log and events stand beside each other."""


class Box(NamedTuple):
    """A rectangle of terminal cells."""

    x: int
    y: int
    width: int
    height: int


def arrange(width: int, height: int, selected: str, *, maximised: bool, failed: bool, num_cores: int) -> dict[str, Box]:
    """The boxes of the panels in sight, which tile `width` by `height` cells."""
    if width < 1 or height < 1:
        return {}
    if maximised or width < _TINY_WIDTH or height < _TINY_HEIGHT:
        return {selected: Box(0, 0, width, height)}
    boxes: dict[str, Box] = {}
    top = 0
    if failed:
        top = max(8, height * 2 // 5)
        boxes[FAILURE] = Box(0, 0, width, top)
    panel = "cores" if selected == FAILURE else selected
    rest = height - top
    if width >= _WIDE_WIDTH and rest >= _WIDE_HEIGHT:
        return boxes | _wide(width, rest, top, panel, num_cores)
    if rest < _TINY_HEIGHT:
        return boxes | {panel: Box(0, top, width, rest)}
    return boxes | _narrow(width, rest, top, panel, num_cores)


def _narrow(width: int, height: int, top: int, selected: str, num_cores: int) -> dict[str, Box]:
    """Cores beside the loss, and one panel below."""
    third = selected if selected not in ("cores", "loss") else "meters"
    upper = min(max(_lines_for_cores(num_cores), height * 5 // 10), height - _LEAST_LOWER)
    left = min(max(36, width * 2 // 5), 46)
    return {
        "cores": Box(0, top, left, upper),
        "loss": Box(left, top, width - left, upper),
        third: Box(0, top + upper, width, height - upper),
    }


def _wide(width: int, height: int, top: int, selected: str, num_cores: int) -> dict[str, Box]:
    """Everything, in three rows."""
    share = 31 if num_cores <= _FEW_CORES else 38
    left = min(max(42, width * share // 100), 90)
    upper = max(height * 42 // 100, min(_lines_for_cores(num_cores), height * 45 // 100))
    middle = max(9, (height - upper) * 45 // 100)
    y, z = top + upper, top + upper + middle
    boxes = {"cores": Box(0, top, left, upper), "loss": Box(left, top, width - left, upper)}
    boxes |= _beside(
        ("pace", "meters", "epochs"), (max(34, width * 25 // 100), max(40, width * 33 // 100)), width, y, middle
    )
    lower = height - upper - middle
    xla, memory = max(30, width * 19 // 100), max(36, width * 23 // 100)
    if width >= _BOTH_FROM:
        widths = (xla, memory, width * 27 // 100)
        return boxes | _beside(("xla", "memory", "events", "log"), widths, width, z, lower)
    last = "events" if selected == "events" else "log"
    return boxes | _beside(("xla", "memory", last), (xla, memory), width, z, lower)


def _beside(names: tuple[str, ...], widths: tuple[int, ...], width: int, y: int, height: int) -> dict[str, Box]:
    """Panels in a row; the last one takes what the others leave."""
    boxes, x = {}, 0
    for name, wide in zip(names, (*widths, width - sum(widths)), strict=True):
        boxes[name] = Box(x, y, wide, height)
        x += wide
    return boxes


def _lines_for_cores(num_cores: int) -> int:
    """Lines of a panel that lists every core of a small number: a head, a sum and the frame besides."""
    return min(max(num_cores, 4), 16) + 3
