"""The monitor: everything of one run, live or replayed. Leaving it never touches the run."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Literal, NamedTuple

from textual import work
from textual.app import ComposeResult
from textual.message import Message
from textual.reactive import reactive

from tputui.model.snapshot import ENDED, Mark, Snapshot
from tputui.telemetry import control
from tputui.telemetry.events import RequestKind
from tputui.ui import keys
from tputui.ui.charts.timeline import sign_of
from tputui.ui.draw.lines import clean
from tputui.ui.logs.older import OlderLines, older_lines
from tputui.ui.playing import by_step, by_time, marks_of, next_speed, play_or_pause, seek_by, to_newest
from tputui.ui.pump import Frame, Pump, Source
from tputui.ui.screens.chartkeys import ChartKeys
from tputui.ui.screens.confirm import ConfirmStop
from tputui.ui.screens.help import HelpScreen
from tputui.ui.screens.pictures import PicturesScreen
from tputui.ui.screens.skipped import SkippedScreen
from tputui.ui.widgets.bars import KeyBar, PlayerBar
from tputui.ui.widgets.body import NAMES, PANEL_TYPES, Body
from tputui.ui.widgets.chart import LossPanel
from tputui.ui.widgets.events import EventsPanel
from tputui.ui.widgets.header import Behind, Header
from tputui.ui.widgets.log import LogPanel
from tputui.ui.words import REQUEST_NAMES

NOTICE_S = 6.0
"""Seconds that a sentence to the user stays."""
ASKED_S = 1.0
"""Seconds for which a request is said to be asked; the receipts of the run stand in the same place."""


class MonitorResult(NamedTuple):
    """How the monitor was left."""

    reason: Literal["quit"]
    """`quit`: the user left, training goes on."""
    snapshot: Snapshot | None
    """The newest one; None where nothing was read yet."""


class MonitorScreen(ChartKeys[MonitorResult]):
    """One run."""

    BINDINGS = keys.bindings(keys.MONITOR)
    CSS_PATH = "../monitor.tcss"

    frame: reactive[Frame | None] = reactive(None, init=False)

    class FrameTaken(Message):
        """The pump has a frame."""

        def __init__(self, frame: Frame) -> None:
            super().__init__()
            self.frame = frame

    class Answered(Message):
        """A request was written, or could not be."""

        def __init__(self, sentence: str, shown_s: float) -> None:
            super().__init__()
            self.sentence = sentence
            self.shown_s = shown_s

    class MarksFound(Message):
        """What happened in a recording was read."""

        def __init__(self, marks: list[Mark]) -> None:
            super().__init__()
            self.marks = marks

    class OlderRead(Message):
        """Lines of the log before the newest ones were read."""

        def __init__(self, found: OlderLines) -> None:
            super().__init__()
            self.found = found

    def __init__(self, source: Source, run_dir: Path, *, read_only: bool = False) -> None:
        super().__init__()
        self._run_dir = run_dir
        self._read_only = read_only
        self._timed = source.player is not None
        """Whether time can be played: in a replay, and in a live view that can look back."""
        self._replaying = source.player is not None and not source.player.live
        self._newest: Snapshot | None = None
        """The newest one of a live run, also while somebody looks back."""
        self._known_marks: list[Mark] = []
        """What happened in all of a recording, once somebody asked for it."""
        self._pump = Pump(source, lambda frame: void(self.post_message(self.FrameTaken(frame))))
        self._notices = 0
        self._above: PicturesScreen | SkippedScreen | None = None
        """What stands over the monitor and is to be told what is read."""

    def compose(self) -> ComposeResult:
        """Head, panels, bars."""
        yield Header(read_only=self._read_only and not self._replaying, id="header")
        yield Body(id="body")
        if self._timed:
            yield PlayerBar(id="player")
        yield KeyBar(self._footer_keys(), panels="1-9", id="keys")

    def on_mount(self) -> None:
        """Starts to read."""
        self.query_one(Body).select("cores")
        self._read()

    def on_unmount(self) -> None:
        """Stops reading; the pump closes the session."""
        self._pump.stop()

    @work(thread=True, group="pump")
    def _read(self) -> None:
        self._pump.run()

    def on_monitor_screen_frame_taken(self, message: FrameTaken) -> None:
        """A frame came from the pump."""
        message.stop()
        self.frame = message.frame
        self._pump.drawn()

    def watch_frame(self, frame: Frame | None) -> None:
        """Draws a frame: the only place from which widgets learn something."""
        if frame is None:
            return
        with self.app.batch_update():
            if not self._looks_back:
                self._newest = frame.snapshot
            self.query_one(Header).show(frame.snapshot, replaying=self._replaying, behind=self._behind(frame))
            self.query_one(Body).show(frame.snapshot)
            self.query_one(KeyBar).show(self._footer_keys())
            if frame.player is not None:
                marks = self._marks_of_all(frame)
                self.query_one(PlayerBar).show(frame.player, replaying=self._replaying, over=self._is_over, marks=marks)
            self._show_above(frame)

    def keys_in_force(self) -> list[keys.Key]:
        """The keys that do something now, those of the selected panel included."""
        body = self.query_one(Body)
        of_panel = keys.LOG if body.selected == "log" else ()
        return [*keys.in_force(keys.MONITOR, replaying=self._replaying, timed=self._timed), *of_panel]

    def panels_told(self) -> list[tuple[str, str]]:
        """Each panel with what it shows."""
        return [(panel.key, f"{panel.name_shown}: {panel.what}") for panel in PANEL_TYPES]

    @property
    def _is_over(self) -> bool:
        """Whether the run that is followed has ended by now."""
        newest = self._newest or (self.frame.snapshot if self.frame is not None else None)
        return not self._replaying and newest is not None and newest.condition in ENDED

    @property
    def _looks_back(self) -> bool:
        """Whether a live view shows another moment than now."""
        player = self.frame.player if self.frame is not None else None
        return player is not None and not self._replaying and not player.live

    def _behind(self, frame: Frame) -> Behind | None:
        if not self._looks_back or frame.player is None:
            return None
        newest = self._newest if self._newest is not None else frame.snapshot
        seconds = max(frame.player.end - frame.player.position, 0.0)
        return Behind(seconds, max(newest.steps, frame.snapshot.steps), not self._is_over)

    def _marks_of_all(self, frame: Frame) -> list[Mark]:
        """What happened in the whole run as far as it is known, also after the moment that is shown."""
        ahead = self._newest.marks if self._newest is not None and not self._replaying else self._known_marks
        return ahead or frame.snapshot.marks

    def _footer_keys(self) -> list[keys.Key]:
        """The keys in force; that of the pictures where there are some."""
        has_pictures = self.frame is not None and self.frame.snapshot.pictures is not None
        in_force = keys.in_force(keys.MONITOR, replaying=self._replaying, timed=self._timed)
        hidden = {"pictures"} if not has_pictures else set()
        hidden |= {"checkpoint", "stop"} if self._is_over else set()
        hidden |= {"back_to_now"} if not (self._replaying or self._looks_back) else set()
        hidden |= {"play_or_pause"} if not (self._replaying or self._looks_back or self._is_over) else set()
        return [key for key in in_force if key.action not in hidden]

    def _show_above(self, frame: Frame) -> None:
        if self._above is None or not self._above.is_mounted:
            return
        if isinstance(self._above, PicturesScreen):
            self._above.show(frame)
        else:
            self._above.show(frame.snapshot)

    # The log before its newest lines.

    def on_log_panel_older_wanted(self, message: LogPanel.OlderWanted) -> None:
        """Reads them."""
        message.stop()
        self._read_older()

    @work(thread=True, group="older", exclusive=True)
    def _read_older(self) -> None:
        frame = self.frame
        past = self._replaying or self._looks_back
        until = frame.snapshot.now if frame is not None and past else math.inf
        found = older_lines(self._run_dir, until, lambda: self._pump.is_stopped)
        self.post_message(self.OlderRead(found))

    def on_monitor_screen_older_read(self, message: OlderRead) -> None:
        """Hands them to the log."""
        message.stop()
        self.query_one(LogPanel).take_older(message.found.lines, message.found.where)

    # What may be asked of the run.

    def action_checkpoint(self) -> None:
        """Asks for a checkpoint."""
        self._ask("checkpoint")

    def action_stop(self) -> None:
        """Asks how to stop, then for it."""
        why_not = self._why_not("stop")
        if why_not:
            self.tell(why_not)
            return
        self.app.push_screen(ConfirmStop(self._run_dir.name), self._stop_as)

    def _stop_as(self, kind: RequestKind | None) -> None:
        if kind is not None:
            self._ask(kind)

    def _ask(self, kind: RequestKind) -> None:
        why_not = self._why_not(kind)
        if why_not:
            self.tell(why_not)
        else:
            self._submit(kind)

    def _why_not(self, kind: RequestKind) -> str:
        """The sentence that refuses a request; empty where it may be made."""
        what = REQUEST_NAMES[kind]
        if self._replaying:
            return f"{what}: this is a recording, nothing can be asked of it"
        if self._read_only:
            return f"{what}: this view is read-only"
        if self.frame is None:
            return f"{what}: the run has not been read yet"
        condition = (self._newest or self.frame.snapshot).condition
        return f"{what}: the run has ended ({condition})" if condition in ENDED else ""

    @work(thread=True, group="requests")
    def _submit(self, kind: RequestKind) -> None:
        try:
            control.submit(self._run_dir, kind, by="screen", now=time.time())
        except OSError as error:
            self.post_message(self.Answered(f"{REQUEST_NAMES[kind]}: the request cannot be written: {error}", NOTICE_S))
        else:
            self.post_message(self.Answered(f"{REQUEST_NAMES[kind]}: asked", ASKED_S))

    def on_monitor_screen_answered(self, message: Answered) -> None:
        """Tells what became of writing a request."""
        message.stop()
        self.tell(message.sentence, message.shown_s)

    def tell(self, sentence: str, shown_s: float = NOTICE_S) -> None:
        """Shows a sentence for a while."""
        self._notices += 1
        number = self._notices
        self.query_one(Header).tell(sentence)
        self.set_timer(shown_s, lambda: self._untell(number))

    def _untell(self, number: int) -> None:
        if number == self._notices:
            self.query_one(Header).tell("")

    # Panels.

    def action_select(self, number: int) -> None:
        """Selects a panel; the selected one again fills the screen."""
        body, name = self.query_one(Body), NAMES[number - 1]  # 0 is the last one, the failure
        if body.selected == name:
            body.maximise(not body.maximised)
        else:
            body.select(name)

    def action_cycle(self, by: int) -> None:
        """Selects a neighbour."""
        self.query_one(Body).cycle(by)

    def action_maximise(self) -> None:
        """Full screen and back."""
        body = self.query_one(Body)
        body.maximise(not body.maximised)

    def action_restore(self) -> None:
        """Takes the cursor away; without one, back from the full screen."""
        if self._loss.look.cursor is not None:
            self._loss.read_at(None)
        else:
            self.query_one(Body).maximise(False)

    # Scrolling.

    def action_scroll(self, rows: int) -> None:
        """Scrolls the selected panel."""
        self.query_one(Body).panel.scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        """Scrolls the selected panel by pages."""
        self.query_one(Body).panel.page(pages)

    def action_follow(self) -> None:
        """Has the selected panel follow the newest again."""
        self.query_one(Body).panel.follow()

    def action_pictures(self) -> None:
        """Shows the pictures of predictions."""
        self._put_above(PicturesScreen(self._run_dir, self.frame, self._pump.ask, replaying=self._replaying))

    def action_skipped(self) -> None:
        """Shows the examples that were left out."""
        self._put_above(SkippedScreen(self.frame.snapshot if self.frame is not None else None))

    def _put_above(self, above: PicturesScreen | SkippedScreen) -> None:
        self._above = above
        self.app.push_screen(above, self._forget_above)

    def _forget_above(self, _: None) -> None:
        self._above = None

    def action_help(self) -> None:
        """Shows the keys and the panels."""
        in_force = keys.in_force(keys.MONITOR, replaying=self._replaying, timed=self._timed)
        self.app.push_screen(HelpScreen([*in_force, *keys.LOG], self.panels_told()))

    def action_leave(self) -> None:
        """Leaves; the run goes on."""
        self.dismiss(MonitorResult("quit", self.frame.snapshot if self.frame is not None else None))

    # Events.

    def action_open(self) -> None:
        """Goes to the event that is chosen; elsewhere the selected panel fills the screen."""
        panel = self.query_one(Body).panel
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
        if not (self._replaying or self._looks_back):
            cursor = self._loss.look.cursor
            self._go_or_tell(by_step(self._of_kind(frame.snapshot.marks), cursor, by), by)
        elif self._replaying and by > 0 and not self._known_marks:
            self.tell("looking through the recording for its events ...")
            self._find_marks()
        elif frame.player is not None:
            self._go_or_tell(by_time(self._of_kind(self._marks_of_all(frame)), frame.player.position, by), by)

    def _of_kind(self, marks: list[Mark]) -> list[Mark]:
        kind = self.query_one(EventsPanel).kind
        return marks if kind is None else [mark for mark in marks if mark.kind == kind]

    def _go_or_tell(self, mark: Mark | None, by: int) -> None:
        if mark is not None:
            self._go_to(mark)
        else:
            self.tell(f"no {'later' if by > 0 else 'earlier'} event")

    def _go_to(self, mark: Mark) -> None:
        """In time where that is played; else the charts' cursor and the log go there."""
        sign = sign_of(mark.kind)
        self.tell(f"{sign.mark} step {mark.step:,}: {clean(mark.text)}")
        if self._replaying or self._looks_back:
            self._pump.ask(lambda player: player.seek(mark.t))
        else:
            self._loss.read_at(mark.step)
            self.query_one(LogPanel).show_moment(mark.t)

    @work(thread=True, group="marks", exclusive=True)
    def _find_marks(self) -> None:
        self.post_message(self.MarksFound(marks_of(self._run_dir, lambda: self._pump.is_stopped)))

    def on_monitor_screen_marks_found(self, message: MarksFound) -> None:
        """Goes on to the next event, now that they are known."""
        message.stop()
        self._known_marks = message.marks
        if message.marks:
            self.action_event(1)
        else:
            self.tell("no later event")

    # The charts and the log look at the same moment.

    def on_loss_panel_read(self, message: LossPanel.Read) -> None:
        """Shows the log of the moment under the cursor."""
        message.stop()
        self.query_one(LogPanel).show_moment(message.t)

    def on_log_panel_line_selected(self, message: LogPanel.LineSelected) -> None:
        """Puts the cursor at the moment of a line of the log."""
        message.stop()
        self._loss.read_at_time(message.t)

    # Time, where it can be played.

    def action_home(self) -> None:
        """To the beginning."""
        if self._replaying or self._looks_back:
            self._pump.ask(lambda player: player.seek(player.start))
        else:
            self.query_one(Body).panel.scroll_rows(-1_000_000)

    def action_end(self) -> None:
        """To the end."""
        if self._replaying or self._looks_back:
            self.action_back_to_now()
        else:
            self.query_one(Body).panel.scroll_rows(1_000_000)

    def action_back_to_now(self) -> None:
        """To the newest moment: of the run, or of the recording."""
        self._pump.ask(to_newest)

    def action_play_or_pause(self) -> None:
        """Plays or pauses; at the end of a replay it plays from the beginning."""
        self._pump.ask(play_or_pause)

    def action_seek(self, direction: int) -> None:
        """Moves by a twentieth of the recording."""
        self._pump.ask(lambda player: seek_by(player, direction))

    def action_speed(self, direction: int) -> None:
        """Doubles or halves the speed."""
        self._pump.ask(lambda player: player.set_speed(next_speed(player.speed, direction)))

    def on_player_bar_scrubbed(self, message: PlayerBar.Scrubbed) -> None:
        """Goes to the moment under the mouse."""
        message.stop()
        self._pump.ask(lambda player: player.seek(message.t))


def void(_: object) -> None:
    """For callbacks whose result nobody wants."""
