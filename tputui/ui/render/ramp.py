"""Diverging colours: from one colour at -1 over the background at 0 to another colour at 1."""

from __future__ import annotations

from typing import NamedTuple

from tputui.ui.render.lines import RGB, Line, Span

STEPS = 16
"""Number of colours on either side of the middle. Cells of one colour are drawn together."""


class Ramp(NamedTuple):
    """The colours of a map."""

    below: RGB
    middle: RGB
    above: RGB
    text: RGB
    """Colour of signs in the map."""

    def at(self, step: int) -> RGB:
        """The colour of a step, from -`STEPS` to `STEPS`."""
        end = self.above if step >= 0 else self.below
        share = min(abs(step), STEPS) / STEPS
        red, green, blue = (round(a + (b - a) * share) for a, b in zip(self.middle, end, strict=True))
        return red, green, blue

    def bar(self, low: float, high: float, width: int) -> Line:
        """A colour bar from one share to another, -1 to 1."""
        places = [low + (high - low) * cell / max(width - 1, 1) for cell in range(width)]
        return [Span(" ", "plain", (self.text, self.at(round(place * STEPS)))) for place in places]
