"""The examples that were left out, each with what is wrong with it."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from tputui import formatting as fmt
from tputui.state.snapshot import SkippedView, Snapshot
from tputui.ui.base import status_text
from tputui.ui.render.lines import Line, Span, clean, paragraph, wrap
from tputui.ui.widgets.overlay import RunOverlay
from tputui.ui.widgets.panel import Drawing, Panel


class SkippedPanel(Panel[SkippedView]):
    """A list of examples."""

    key = "d"
    name_shown = "left out"
    what = "the examples that were left out, each with what is wrong with it"

    @staticmethod
    def pick(snapshot: Snapshot) -> SkippedView:
        """The examples that were left out."""
        return snapshot.skipped

    def draw(self, part: SkippedView, width: int, height: int) -> Drawing:
        """Where each stands, then what is wrong with it."""
        if not part.count:
            return Drawing(paragraph("no example was left out", width, height), note="esc closes")
        rows: list[Line] = []
        for number, example in enumerate(part.examples, start=1):
            split = "validation" if example.split == "valid" else "training"
            head = f" {number:>3}  "
            where, *more = wrap(clean(example.where), max(width - len(head) - len(split) - 3, 8))
            rows.append([Span(head, "dim"), Span(where, "strong"), Span(f"  {split}", "label")])
            rows += [[Span(" " * len(head)), Span(piece, "strong")] for piece in more]
            why = wrap(clean(example.why), max(width - len(head) - 1, 8))
            rows += [[Span(" " * len(head)), Span(piece, "warn")] for piece in why]
        rows += [[], *_rest(part, width)] if part.count > len(part.examples) else []
        head_line: Line = [Span(f" {status_text.left_out(part)}; in training another one takes the place", "label")]
        return Drawing(rows, head=(head_line,), note="esc closes")


class SkippedScreen(RunOverlay):
    """The list over the monitor, which hands it what it reads."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,d", "dismiss", show=False),
    ]

    def __init__(self, snapshot: Snapshot | None) -> None:
        super().__init__(SkippedPanel(id="skipped"), snapshot)


def _rest(part: SkippedView, width: int) -> list[Line]:
    rest = part.count - len(part.examples)
    return paragraph(f" and {fmt.count(rest)} more: each stands as a warning in the log (7)", width, 3)
