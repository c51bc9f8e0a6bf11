"""The player of a run: its bar with play, pause, seek and speed, and the jumps from event to event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from textual import events

from tputui.session.player import SPEEDS
from tputui.session.session import Session
from tputui.state.chart_data import Mark
from tputui.ui.base.keymap import HELP, TYPING, Key
from tputui.ui.base.reader_thread import PlayerControls, PlayerState
from tputui.ui.charts import events_line
from tputui.ui.render.lines import Line, Span, bar, clean, fit, width_of
from tputui.ui.terminal.themes import key_names
from tputui.ui.widgets.line_widget import Drawn

PlayerCommand: TypeAlias = Callable[[PlayerControls], None]
"""A command to the player, run in the thread that reads the run."""

GRACE_S = 1.0
"""While a replay plays, seconds in front of the terminal after an event in which `N` still jumps to the one before."""

_TICKS = frozenset({"failure", "non_finite", "stall", "recompile", "request", "resume", "restart", "best"})
"""Kinds of events marked on the player bar; the others would fill it."""


class PlayerBar(Drawn):
    """Shows which moment of a run is displayed, and moves to others by key and by mouse."""

    def __init__(
        self, move: Callable[[PlayerCommand], None], send: Callable[[PlayerCommand], None], *, id: str
    ) -> None:
        """`move` runs a command that changes the moment, `send` any other command."""
        super().__init__(id=id)
        self._move = move
        self._send = send
        self._state: PlayerState | None = None
        self._replaying = True
        self._over = False
        self._marks: Sequence[Mark] = ()
        self._bar = (0, 0)
        """First cell of the bar, and its number of cells."""
        self._dragging = False

    def show(
        self, state: PlayerState, *, replaying: bool = True, over: bool = False, marks: Sequence[Mark] = ()
    ) -> None:
        """Draw a newer state; `over` is whether the run that is followed has ended."""
        self._state, self._replaying, self._over, self._marks = state, replaying, over, marks
        self.redraw()

    def action_play_or_pause(self) -> None:
        """Play or pause; at the end of a replay play from the beginning."""
        self._move(play_or_pause)

    def action_seek(self, direction: int) -> None:
        """Seek by a twentieth of the run."""
        self._move(lambda player: seek_by(player, direction))

    def action_speed(self, direction: int) -> None:
        """Double or halve the speed."""
        self._send(lambda player: player.set_speed(next_speed(player.speed, direction)))

    def action_back_to_now(self) -> None:
        """Go to the newest moment: of the run, or of the recording."""
        self._move(to_newest)

    def paint(self, width: int, height: int) -> list[Line]:
        """State, speed, time, and the bar."""
        state = self._state
        if state is None:
            return [[Span(" opening the recording ...", "dim")]]
        length = max(state.end - state.start, 0.0)
        at = min(max(state.position - state.start, 0.0), length)
        left = [*self._sign(state, at, length), Span(f"{clock(at)} / {clock(length)}  ")]
        hint = key_names(self.app if self.is_mounted else None, self._hint(state, width))
        right: Line = [Span(hint, "label")]
        first = width_of(left)
        room = max(width - first - width_of(right), 0)
        self._bar = (first, room)
        return [[*left, *self._line(state, at / length if length else 1.0, length, room), *right]]

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Go to the moment under the mouse."""
        event.stop()
        self._dragging = True
        self.capture_mouse()
        self._seek_to_cell(event.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Follow the mouse."""
        if self._dragging:
            self._seek_to_cell(event.x)

    def on_mouse_up(self, _: events.MouseUp) -> None:
        """End the drag."""
        self._dragging = False
        self.release_mouse()

    def _seek_to_cell(self, x: int) -> None:
        first, cells = self._bar
        if self._state is not None and cells > 1:
            share = min(max((x - first) / (cells - 1), 0.0), 1.0)
            t = self._state.start + share * (self._state.end - self._state.start)
            self._move(lambda player: player.seek(t))

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
        return "  \u2190 look back " if state.live else f"  \u2190 \u2192 seek  b {'end' if self._over else 'now'} "

    def _line(self, state: PlayerState, share: float, length: float, room: int) -> Line:
        """The bar with the important events."""
        ticks = events_line.strip(
            [mark for mark in self._marks if mark.kind in _TICKS],
            lambda mark: round((mark.t - state.start) / length * (room - 1)) if length else -1,
            room,
        )
        return events_line.over(bar(share, room, "good" if state.live and not self._over else "info"), ticks)


def clock(seconds: float) -> str:
    """A time in a recording: `1:02:07`, `02:07.4`."""
    if seconds >= 3600:
        whole = int(seconds)
        return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    tenths = int(seconds * 10)
    return f"{tenths // 600:02d}:{tenths % 600 // 10:02d}.{tenths % 10}"


# Commands.


def play_or_pause(player: PlayerControls) -> None:
    """Toggle; at the end of a recording play from the beginning."""
    if player.playing:
        player.pause()
        return
    if player.position >= player.end:
        player.seek(player.start)
    player.play()


def seek_by(player: PlayerControls, direction: int) -> None:
    """Seek by a twentieth of the run, or by 10 s if that is more and the run is long enough."""
    length = player.end - player.start
    stride = max(length / 20, min(10.0, length / 10))
    player.seek(min(max(player.position + direction * stride, player.start), player.end))


def pause_at(player: PlayerControls, t: float) -> None:
    """Go to the unix time `t` and pause."""
    player.seek(t)
    player.pause()


def to_newest(player: PlayerControls) -> None:
    """Go to now and follow a live run; go to the end of a recording."""
    player.follow()


def next_speed(speed: float, direction: int) -> float:
    """The next faster or slower of the speeds offered."""
    if direction > 0:
        return next((faster for faster in SPEEDS if faster > speed), SPEEDS[-1])
    return next((slower for slower in reversed(SPEEDS) if slower < speed), SPEEDS[0])


# Events.


class KnownMarks(NamedTuple):
    """The events of a run, or a sample of them."""

    marks: list[Mark]
    num_marks: int
    """The number of all events, including those that are not in the sample."""

    @property
    def thinned(self) -> str:
        """A remark on the events that a jump may pass over; empty if every event is known."""
        num_known = len(self.marks)
        if num_known >= self.num_marks:
            return ""
        return f"; only {num_known:,} of {self.num_marks:,} events are available"


def marks_of(run_dir: Path, is_stopped: Callable[[], bool]) -> KnownMarks:
    """The events of a whole recording. Takes as long as reading it; gives up once `is_stopped`."""
    session = Session.live(run_dir)
    try:
        session.poll()
        while not session.caught_up and not is_stopped():
            session.poll()
        snapshot = session.snapshot()
        return KnownMarks(snapshot.marks, snapshot.num_marks)
    finally:
        session.close()


def jump_origin(player: PlayerState, by: int) -> float:
    """The unix time from which the next event is searched. Backwards while playing, it is a second in the past: the
    user presses `N` after the event that just passed."""
    return player.position - (GRACE_S * player.speed if by < 0 and player.playing else 0.0)


def by_step(marks: Sequence[Mark], step: int | None, by: int) -> Mark | None:
    """The first event after a step, or the last one before it; the newest one if there is no step."""
    if step is None:
        return marks[-1] if marks else None
    if by > 0:
        return next((mark for mark in marks if mark.step > step), None)
    return next((mark for mark in reversed(marks) if mark.step < step), None)


def by_time(marks: Sequence[Mark], t: float, by: int) -> Mark | None:
    """The first event after the unix time `t`, or the last one before it."""
    if by > 0:
        return next((mark for mark in marks if mark.t > t), None)
    return next((mark for mark in reversed(marks) if mark.t < t), None)


class KeyBar(Drawn):
    """The footer with the active keys."""

    def __init__(self, keys: Sequence[Key], *, panels: str = "", id: str | None = None) -> None:
        """`panels` are the keys that select panels, such as `1-9`; empty if the screen has none."""
        super().__init__(id=id)
        self._keys = keys
        self._panels = panels
        self._entries: list[tuple[int, str]] = []
        """The cell at which each entry ends, and its action; an empty action for the panels."""

    def show(self, keys: Sequence[Key]) -> None:
        """Draw the keys that are active now; those of the panels too, unless the user types a text."""
        if keys != self._keys:
            self._keys = keys
            self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """As many keys with a footer word as fit, without gaps if more fit so; the key of the help in any case."""
        entries = [
            (key_names(self.app, key.shown.split()[0]), key.footer, key.action) for key in self._keys if key.footer
        ]
        wide = sum(len(shown) + len(word) + 3 for shown, word, _ in entries)
        while wide - len(entries) > width and len(entries) > 1:
            shown, word, _ = entries.pop(-1 if entries[-1][2] != HELP else -2)
            wide -= len(shown) + len(word) + 3
        panels = len(self._panels) + len("panels") + 2
        if self._panels and list(self._keys) != list(TYPING) and wide - len(entries) + panels <= width:
            entries.append((self._panels, "panels", ""))
            wide += panels + 1
        gap = " " if wide <= width + 1 else ""
        line: Line = []
        self._entries = []
        for shown, word, action in entries:
            line += [Span(f" {shown} ", "accent"), Span(f"{word}{gap}", "label")]
            self._entries.append((width_of(line), action))
        if width_of(line) > width:
            # Nothing follows the gap after the last word.
            line[-1] = line[-1]._replace(text=line[-1].text.rstrip())
        return [fit(line, width)]

    async def on_click(self, event: events.Click) -> None:
        """Run the action of the key that is clicked."""
        action = next((action for end, action in self._entries if event.x < end), "")
        if action:
            event.stop()
            await self.app.run_action(action, default_namespace=self.screen)


class NoticeBar(Drawn):
    """A notice over the last line of a screen, on a layer of its own so that nothing moves."""

    DEFAULT_CSS = "NoticeBar { layer: notice; dock: bottom; height: 1; display: none; background: $surface; }"

    def __init__(self) -> None:
        super().__init__()
        self._sentence = ""

    def show_notice(self, sentence: str) -> None:
        """Show a sentence; an empty one removes it."""
        self._sentence = sentence
        self.display = bool(sentence)
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """The sentence, as much as fits."""
        return [fit([Span(f" \u276f {clean(self._sentence)}", "info")], width)]
