"""What broke training: the error first, the traceback below."""

from __future__ import annotations

from tputui.model import format as fmt
from tputui.model.snapshot import Failure, Snapshot
from tputui.ui.draw.lines import Line, Span, clean, wrap
from tputui.ui.widgets.panel import Drawing, Panel


class FailurePanel(Panel[Failure | None]):
    """The failure of the run; in sight only where there is one."""

    key = "0"
    name_shown = "failure"
    what = "what broke training, with its traceback; there only when it did"

    @staticmethod
    def pick(snapshot: Snapshot) -> Failure | None:
        """The failure, if there is one."""
        return snapshot.failure

    def draw(self, part: Failure | None, width: int, height: int) -> Drawing:
        """Error, where, traceback."""
        if part is None:
            return Drawing([[Span(" training has not failed", "dim")]])
        error = f"\u2716 {clean(part.error)}: {clean(part.message.splitlines()[0] if part.message else '')}"
        where = f"{clean(part.writer)}, step {part.step}, while {fmt.PHASES[part.phase]}"
        head: list[Line] = [[Span(f" {piece}", "bad")] for piece in wrap(error, width - 2)[:3]]
        head.append([Span(f" {where}", "label")])
        rows: list[Line] = []
        for text in part.traceback.rstrip().splitlines():
            rows += [[Span(f" {piece}", "plain")] for piece in wrap(clean(text), width - 2)]
        return Drawing(rows, head=tuple(head))
