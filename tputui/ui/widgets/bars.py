"""The bars at the lower edge: the player of a run, the keys, and what is told over them for a while."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from tputui.state.chart_data import Mark
from tputui.ui.base.keymap import Key
from tputui.ui.base.reader_thread import PlayerState
from tputui.ui.charts import events_line
from tputui.ui.render.lines import Line, Span, bar, clean, fit, width_of
from tputui.ui.terminal.capabilities import keys_told
from tputui.ui.widgets.line_widget import Drawn

_TICKS = frozenset({"failure", "non_finite", "stall", "recompile", "request", "resume", "best"})
"""Kinds of events that stand on the bar of the player; the others would fill it."""


class PlayerBar(Drawn):
    """Which moment is shown: of a recording, or of a live run, where it is now unless somebody looks back."""

    class Scrubbed(Message):
        """Somebody wants a moment, in unix time."""

        def __init__(self, t: float) -> None:
            super().__init__()
            self.t = t

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state: PlayerState | None = None
        self._replaying = True
        self._over = False
        self._marks: Sequence[Mark] = ()
        self._bar = (0, 0)
        """First cell of the bar, and how many it has."""
        self._dragging = False

    def show(
        self, state: PlayerState, *, replaying: bool = True, over: bool = False, marks: Sequence[Mark] = ()
    ) -> None:
        """Takes a newer state; `over` says of a run that is followed that it has ended."""
        self._state, self._replaying, self._over, self._marks = state, replaying, over, marks
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """Sign, speed, time, and how far."""
        state = self._state
        if state is None:
            return [[Span(" opening the recording ...", "dim")]]
        length = max(state.end - state.start, 0.0)
        at = min(max(state.position - state.start, 0.0), length)
        left = [*self._sign(state, at, length), Span(f"{clock(at)} / {clock(length)}  ")]
        hint = keys_told(self.app if self.is_mounted else None, self._hint(state, width))
        right: Line = [Span(hint, "label")]
        room = max(width - width_of(left) - width_of(right), 0)
        self._bar = (width_of(left), room)
        return [[*left, *self._line(state, at / length if length else 1.0, length, room), *right]]

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Goes to the moment under the mouse."""
        event.stop()
        self._dragging = True
        self.capture_mouse()
        self._scrub(event.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Goes along with the mouse."""
        if self._dragging:
            self._scrub(event.x)

    def on_mouse_up(self, _: events.MouseUp) -> None:
        """Stays where the mouse was let go."""
        self._dragging = False
        self.release_mouse()

    def _scrub(self, x: int) -> None:
        first, cells = self._bar
        if self._state is not None and cells > 1:
            share = min(max((x - first) / (cells - 1), 0.0), 1.0)
            self.post_message(self.Scrubbed(self._state.start + share * (self._state.end - self._state.start)))

    def _sign(self, state: PlayerState, at: float, length: float) -> Line:
        if state.live:
            return [Span(" \u25a0 the end  ", "info") if self._over else Span(" \u25cf live  ", "good")]
        sign = "\u25b6 playing" if state.playing else "\u2016 at the end" if at >= length else "\u2016 paused"
        return [Span(f" {sign} ", "good" if state.playing else "info"), Span(f"x{state.speed:g}  ", "strong")]

    def _hint(self, state: PlayerState, width: int) -> str:
        if width < 72:
            return " "
        if self._replaying:
            return "  \u2190 \u2192 seek  [ ] speed "
        return "  \u2190 looks back " if state.live else f"  \u2190 \u2192 seek  b {'end' if self._over else 'now'} "

    def _line(self, state: PlayerState, share: float, length: float, room: int) -> Line:
        """The bar with the events that matter on it."""
        ticks = events_line.strip(
            [mark for mark in self._marks if mark.kind in _TICKS],
            lambda mark: round((mark.t - state.start) / length * (room - 1)) if length else -1,
            room,
        )
        return events_line.over(bar(share, room, "good" if state.live and not self._over else "info"), ticks)


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
        entries = [
            (keys_told(self.app, key.shown.split()[0]), key.footer, key.action) for key in self._keys if key.footer
        ]
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


class NoticeBar(Drawn):
    """A sentence over the last line of a screen, on a layer of its own so that nothing moves for it."""

    DEFAULT_CSS = "NoticeBar { layer: notice; dock: bottom; height: 1; display: none; background: $surface; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._sentence = ""

    def show_notice(self, sentence: str) -> None:
        """Show a sentence; an empty one removes it."""
        self._sentence = sentence
        self.display = bool(sentence)
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """The sentence, as much as fits."""
        return [fit([Span(f" \u276f {clean(self._sentence)}", "info")], width)]


def clock(seconds: float) -> str:
    """A place in a recording: `1:02:07`, `02:07.4`."""
    if seconds >= 3600:
        whole = int(seconds)
        return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    tenths = int(seconds * 10)
    return f"{tenths // 600:02d}:{tenths % 600 // 10:02d}.{tenths % 10}"
