"""The loss over steps: mean of all cores, and the band from the least to the greatest of them."""

from __future__ import annotations

from typing import NamedTuple

from tputui.model import format as fmt
from tputui.model.snapshot import Segment, Snapshot
from tputui.ui import words
from tputui.ui.lines import Line, Span, paragraph
from tputui.ui.plot import NON_FINITE_MARK, plot
from tputui.ui.widgets.panel import Drawing, Panel


class LossPart(NamedTuple):
    """What the panel shows."""

    segments: list[Segment]
    num_cores: int
    num_non_finite: int
    why_none: str


class LossPanel(Panel[LossPart]):
    """The loss chart."""

    key = "2"
    name_shown = "loss"
    what = "loss of every step: mean of the cores and their band; `l` switches the y axis to logarithmic"

    log_axis = False

    @staticmethod
    def pick(snapshot: Snapshot) -> LossPart:
        """The loss over all steps."""
        why = "" if snapshot.loss else words.nothing_yet(snapshot, "report")
        return LossPart(snapshot.loss, len(snapshot.cores), snapshot.num_non_finite, why)

    def draw(self, part: LossPart, width: int, height: int) -> Drawing:
        """The legend above the chart."""
        if not part.segments:
            return Drawing(paragraph(part.why_none, width, height))
        drawn = plot(part.segments, width, height - 1, log=self.log_axis)
        if drawn.scale is None and drawn.lines:
            drawn.lines[0] = [Span("every loss so far is NaN or infinite", "bad")]
        note = "log axis" if self.log_axis else ""
        return Drawing(drawn.lines, head=(_legend(part, width),), note=note)

    def toggle_log(self) -> None:
        """Switches the y axis between linear and logarithmic."""
        self.log_axis = not self.log_axis
        self.redraw()


def _legend(part: LossPart, width: int) -> Line:
    newest = part.segments[-1]
    cores = f"{part.num_cores:,} cores" if part.num_cores > 1 else "the core"
    line: Line = [
        Span(" \u2500\u2500 ", "accent"),
        Span(f"mean {fmt.number(newest.mean)} ", "plain"),
        Span(" \u28ff\u28ff ", "band"),
        Span(f"least to greatest of {cores} " if width >= 56 else f"{cores} ", "label"),
    ]
    if part.num_non_finite:
        line.append(Span(f" {NON_FINITE_MARK} {part.num_non_finite:,} NaN/inf", "bad"))
    return line
