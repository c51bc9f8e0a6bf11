"""Where the panels of the comparison stand, for every size of the terminal. Pure.

The runs are always on top, for they are the legend of the rest. Small terminals show one more panel, the selected one.
"""

from __future__ import annotations

from tputui.ui.widgets.layout import Box

PANELS = ("runs", "curves", "figures", "config")
"""In the order of their keys, from 1."""

_TINY_WIDTH, _TINY_HEIGHT = 50, 10
_WIDE_WIDTH, _WIDE_HEIGHT = 110, 26
_BESIDE_WIDTH = 150
"""From here on the tables stand beside the curves."""
_LEAST_STACKED = 24
"""Lines below the runs from which curves and tables stand on top of each other."""


def arrange(width: int, height: int, selected: str, *, maximised: bool, num_runs: int) -> dict[str, Box]:
    """The boxes of the panels in sight, which tile `width` by `height` cells."""
    if width < 1 or height < 1:
        return {}
    if maximised or width < _TINY_WIDTH or height < _TINY_HEIGHT:
        return {selected: Box(0, 0, width, height)}
    top = min(num_runs + 3, max(5, height * 2 // 5))
    boxes = {"runs": Box(0, 0, width, top)}
    stacked = width < _BESIDE_WIDTH
    if width < _WIDE_WIDTH or height < _WIDE_HEIGHT or (stacked and height - top < _LEAST_STACKED):
        below = selected if selected != "runs" else "curves"
        return boxes | {below: Box(0, top, width, height - top)}
    return boxes | (_stacked(width, height, top) if stacked else _beside(width, height, top))


def _beside(width: int, height: int, top: int) -> dict[str, Box]:
    """Curves at the left, the tables at the right."""
    left, rest = width * 54 // 100, height - top
    upper = rest * 60 // 100
    return {
        "curves": Box(0, top, left, rest),
        "figures": Box(left, top, width - left, upper),
        "config": Box(left, top + upper, width - left, rest - upper),
    }


def _stacked(width: int, height: int, top: int) -> dict[str, Box]:
    """Curves above, the tables below."""
    upper, left = (height - top) * 52 // 100, width // 2
    return {
        "curves": Box(0, top, width, upper),
        "figures": Box(0, top + upper, left, height - top - upper),
        "config": Box(left, top + upper, width - left, height - top - upper),
    }
