"""The head of the launcher: what the run begins with, and whether it may be started."""

from __future__ import annotations

from tputui.ui.launch.form_state import Picked, Readiness, State
from tputui.ui.render.lines import Line, Span, Tone, clean, fit, spread
from tputui.ui.widgets.line_widget import Drawn

_SIGNS: dict[State, tuple[str, Tone]] = {
    "checking": ("\u2026", "info"),
    "wrong": ("\u2716", "bad"),
    "ready": ("\u2714", "good"),
    "starting": ("\u25cc", "info"),
}


class LaunchHead(Drawn):
    """Two lines."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._picked: Picked | None = None
        self._num_changed = 0
        self.readiness = Readiness("checking", "checking")
        """Whether the run may be started, as it is told."""
        self._notice = ""

    def show(self, picked: Picked, num_changed: int, readiness: Readiness) -> None:
        """Takes what is true now."""
        self._picked, self._num_changed, self.readiness = picked, num_changed, readiness
        self.redraw()

    def tell(self, sentence: str) -> None:
        """Shows a sentence in place of whether it may be started; an empty one gives the place back."""
        self._notice = sentence
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """What it begins with; whether it may be started."""
        sign, tone = _SIGNS[self.readiness.state]
        second: Line = [Span(f" {sign} ", tone), Span(clean(self.readiness.said), tone)]
        if self._notice:
            second = [Span(f" {self._notice}", "info")]
        changed = f"{self._num_changed} changed " if self._num_changed else ""
        return [spread(self._begins(), [Span(changed, "accent")], width), fit(second, width)]

    def _begins(self) -> Line:
        title = Span(" new run ", "strong")
        if self._picked is None:
            return [title]
        offer, resume = self._picked
        if offer.kind == "run":
            words = "going on from the last checkpoint of" if resume else "with the configuration of"
            return [title, Span(f"{words} {clean(offer.path.name)}", "label")]
        return [title, Span(f"from {clean(offer.name)}", "label")]
