"""The failure panel: the first error of the run, where it was raised, the last output, and what failed after it."""

from __future__ import annotations

from collections.abc import Iterable

from tputui import formatting as fmt
from tputui.state import root_cause
from tputui.state.snapshot import Failure, Snapshot
from tputui.ui.render.lines import Line, Span, Tone, clean, wrap
from tputui.ui.widgets.panel import Drawing, Panel


class FailurePanel(Panel[Failure | None]):
    """The failure of the run; visible only if there is one."""

    key = "0"
    name_shown = "failure"
    what = "first error of a failed run, with its traceback, and what failed after it"

    @staticmethod
    def pick(snapshot: Snapshot) -> Failure | None:
        return snapshot.failure

    def draw(self, part: Failure | None, width: int, height: int) -> Drawing:
        """The error and its location; then calls in the user's code, the traceback, the last output, what followed."""
        if part is None:
            return Drawing([[Span(" training has not failed", "dim")]])
        error = f"\u2716 {clean(part.error)}: {clean(part.message.splitlines()[0] if part.message else '')}"
        where = f"{clean(root_cause.place_of(part))}, step {part.step:,}, while {fmt.PHASES[part.phase]}"
        head: list[Line] = [[Span(f" {piece}", "bad")] for piece in wrap(error, width - 2)[:3]]
        head += [[Span(f" {piece}", "label")] for piece in wrap(where, width - 2)[:2]]
        rows: list[Line] = []
        if part.kind != "exception":
            rows += _rows([root_cause.KINDS[part.kind], *([part.memory] if part.memory else [])], width, "warn")
        for name, lines, tone in _parts(part):
            if lines:
                rows += [*([[]] if rows else []), [Span(f" {name}", "label")], *_rows(lines, width, tone)]
        return Drawing(rows, head=tuple(head), note=part.path or "")


def _parts(part: Failure) -> Iterable[tuple[str, list[str], Tone]]:
    yield "your code, newest call first", root_cause.your_code(part), "strong"
    yield "traceback", part.traceback.rstrip().splitlines(), "plain"
    yield "stack at the end in native code", part.stack.splitlines(), "plain"
    yield "last lines printed before", part.log, "plain"
    yield "what followed", part.followers, "dim"


def _rows(lines: list[str], width: int, tone: Tone) -> list[Line]:
    return [[Span(f" {piece}", tone)] for text in lines for piece in wrap(clean(text), width - 2)]
