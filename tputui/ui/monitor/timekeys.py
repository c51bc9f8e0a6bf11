"""What the keys of time do to the run that a screen watches: the player, looking back, and jumping between events.

Where now is followed, the cursor of the charts jumps in place of the moment that is shown, and the log with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from textual import work
from textual.message import Message
from textual.screen import ScreenResultType

from tputui.state.chart_data import Mark
from tputui.ui.base.reader_thread import Player
from tputui.ui.charts.events_line import sign_of
from tputui.ui.monitor.chartkeys import ChartKeys
from tputui.ui.monitor.events import EventsPanel
from tputui.ui.monitor.log import LogPanel
from tputui.ui.monitor.loss import LossPanel
from tputui.ui.monitor.run_screen import RunScreen
from tputui.ui.render.lines import clean
from tputui.ui.widgets.panelkeys import PanelKeys
from tputui.ui.widgets.player import KnownMarks, by_step, by_time, looked_from, marks_of, stay_at
from tputui.ui.widgets.playerkeys import PlayerKeys


class TimeKeys(
    ChartKeys[ScreenResultType],
    PanelKeys[ScreenResultType],
    PlayerKeys[ScreenResultType],
    RunScreen[ScreenResultType],
    Generic[ScreenResultType],
):
    """A screen with the charts, the events and the log of a run, which all look at the same moment."""

    class MarksFound(Message):
        """What happened in a recording was read."""

        def __init__(self, known: KnownMarks) -> None:
            super().__init__()
            self.known = known

    # Events.

    def action_open(self) -> None:
        """Goes to the event that is chosen; elsewhere the selected panel fills the screen."""
        panel = self._body.panel
        if not (isinstance(panel, EventsPanel) and panel.go()):
            self.action_maximise()

    def action_next_kind(self) -> None:
        """Events of the next kind alone."""
        self.query_one(EventsPanel).next_kind()

    def on_events_panel_wanted(self, message: EventsPanel.Wanted) -> None:
        """Goes to an event."""
        message.stop()
        self._go_to(message.mark)

    def action_event(self, by: int) -> None:
        """To the next event of the kind that is shown, or to the one before."""
        frame = self.frame
        if frame is None:
            return
        if not self._in_past:
            cursor = self._loss.look.cursor
            self._go_or_tell(by_step(self._of_kind(frame.snapshot.marks), cursor, by), by, self._marks_known(frame))
        elif self._replaying and by > 0 and not self._known_marks.marks:
            self.notices.show("looking through the recording for its events ...")
            self._find_marks()
        elif frame.player is not None:
            known = self._marks_known(frame)
            self._go_or_tell(by_time(self._of_kind(known.marks), looked_from(frame.player, by), by), by, known)

    def _of_kind(self, marks: list[Mark]) -> list[Mark]:
        kind = self.query_one(EventsPanel).kind
        return marks if kind is None else [mark for mark in marks if mark.kind == kind]

    def _go_or_tell(self, mark: Mark | None, by: int, known: KnownMarks) -> None:
        if mark is not None:
            self._go_to(mark, known.lack)
        else:
            self.notices.show(f"no {'later' if by > 0 else 'earlier'} event{known.lack}")

    def _go_to(self, mark: Mark, lack: str = "") -> None:
        """In time where that is played; else the charts' cursor and the log go there. `lack` is said besides."""
        sign = sign_of(mark.kind)
        self.notices.show(f"{sign.mark} step {mark.step:,}: {clean(mark.text)}{lack}")
        if self._in_past:
            self._pump.ask(lambda player: stay_at(player, mark.t))
        else:
            self._loss.read_at(mark.step)
            self.query_one(LogPanel).show_moment(mark.t)

    @work(thread=True, group="marks", exclusive=True)
    def _find_marks(self) -> None:
        self.post_message(self.MarksFound(marks_of(self._run_dir, lambda: self._pump.is_stopped)))

    def on_time_keys_marks_found(self, message: MarksFound) -> None:
        """Goes on to the next event, now that they are known."""
        message.stop()
        self._known_marks = message.known
        if message.known.marks:
            self.action_event(1)
        else:
            self.notices.show("no later event")

    # The charts and the log look at the same moment.

    def on_loss_panel_read(self, message: LossPanel.Read) -> None:
        """Shows the log of the moment under the cursor."""
        message.stop()
        self.query_one(LogPanel).show_moment(message.t)

    def on_log_panel_line_selected(self, message: LogPanel.LineSelected) -> None:
        """Puts the cursor at the moment of a line of the log."""
        message.stop()
        self._loss.read_at_time(message.t)

    # The player.

    def action_home(self) -> None:
        """To the beginning: of what can be played, else of the panel; at the end of a run the log is read from its."""
        reads_log = isinstance(self._body.panel, LogPanel)
        if self._in_past or (self._timed and self._is_over and not reads_log):
            self._move_time(lambda player: player.seek(player.start))
        else:
            self.action_scroll(-1_000_000)

    def action_end(self) -> None:
        """To the end."""
        if self._in_past:
            self.action_back_to_now()
        else:
            self.action_scroll(1_000_000)

    def _move_time(self, command: Callable[[Player], None]) -> None:
        """Another moment is shown, of which what was said last is not true."""
        self.notices.clear()
        self._pump.ask(command)

    def _ask_player(self, command: Callable[[Player], None]) -> None:
        self._pump.ask(command)
