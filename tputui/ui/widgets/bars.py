"""The bars at the lower edge: the player of a replay, and the keys."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from tputui.ui.keys import Key
from tputui.ui.lines import Line, Span, bar, fit, width_of
from tputui.ui.pump import PlayerState
from tputui.ui.widgets.base import Drawn


class PlayerBar(Drawn):
    """Where a replay stands."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state: PlayerState | None = None

    def show(self, state: PlayerState) -> None:
        """Takes a newer state."""
        self._state = state
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """Sign, speed, time, and how far."""
        state = self._state
        if state is None:
            return [[Span(" opening the recording ...", "dim")]]
        length = max(state.end - state.start, 0.0)
        at = min(max(state.position - state.start, 0.0), length)
        sign = "\u25b6 playing" if state.playing else "\u2016 at the end" if at >= length else "\u2016 paused"
        left: Line = [
            Span(f" {sign} ", "good" if state.playing else "info"),
            Span(f"x{state.speed:g}  ", "strong"),
            Span(f"{clock(at)} / {clock(length)}  ", "plain"),
        ]
        right: Line = [Span("  \u2190 \u2192 seek  [ ] speed ", "label")] if width >= 72 else []
        room = width - width_of(left) - width_of(right)
        return [[*left, *bar(at / length if length else 1.0, room, "info"), *right]]


class KeyBar(Drawn):
    """The keys in force."""

    def __init__(self, keys: Sequence[Key], *, panels: str = "", id: str | None = None) -> None:
        super().__init__(id=id)
        self._keys = keys
        self._panels = panels
        self._places: list[tuple[int, str]] = []
        """Cell at which each entry ends, and its action; none for the panels."""

    def show(self, keys: Sequence[Key]) -> None:
        """Takes the keys that are in force now."""
        if keys != self._keys:
            self._keys = keys
            self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """The keys that have a word, as many as fit; closer to each other where that shows more."""
        entries = [(key.shown.split()[0], key.footer, key.action) for key in self._keys if key.footer]
        entries += [(self._panels, "panels", "")] if self._panels else []
        wide = sum(len(shown) + len(word) + 3 for shown, word, _ in entries)
        gap = " " if wide <= width + 1 else ""
        line: Line = []
        self._places = []
        for shown, word, action in entries:
            line += [Span(f" {shown} ", "accent"), Span(f"{word}{gap}", "label")]
            self._places.append((width_of(line), action))
        return [fit(line, width)]

    async def on_click(self, event: events.Click) -> None:
        """Does what the key that is clicked does."""
        action = next((action for end, action in self._places if event.x < end), "")
        if action:
            event.stop()
            await self.app.run_action(action, default_namespace=self.screen)


def clock(seconds: float) -> str:
    """A place in a recording: `1:02:07`, `02:07.4`."""
    if seconds >= 3600:
        whole = int(seconds)
        return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    tenths = int(seconds * 10)
    return f"{tenths // 600:02d}:{tenths % 600 // 10:02d}.{tenths % 10}"
