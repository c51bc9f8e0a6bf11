"""The monitor: everything about one run, live or replayed. Leaving it does not affect the run."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from textual import on, work
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen

from tputui.state.chart_data import Mark
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot
from tputui.ui.base import keymap
from tputui.ui.base.reader_thread import Frame, ReaderThread, SessionSource
from tputui.ui.base_app import BaseApp
from tputui.ui.charts.events_line import sign_of
from tputui.ui.monitor.arrangement import PANELS
from tputui.ui.monitor.body import Body
from tputui.ui.monitor.events import EventsPanel
from tputui.ui.monitor.header import Behind, Header
from tputui.ui.monitor.hosts import HostsPanel
from tputui.ui.monitor.layouts import DEFAULT_NAME
from tputui.ui.monitor.log import LogPanel
from tputui.ui.monitor.log_lines import OlderLines, host_lane, older_lines
from tputui.ui.monitor.loss import LossPanel
from tputui.ui.render.lines import clean
from tputui.ui.terminal.bell import is_fresh
from tputui.ui.widgets import player_bar
from tputui.ui.widgets.dialogs import REQUEST_ACTIONS, Notices, RequestSender
from tputui.ui.widgets.panel import RunOverlay
from tputui.ui.widgets.player_bar import KeyBar, KnownMarks, PlayerBar, PlayerCommand

if TYPE_CHECKING:
    from tputui.ui.monitor.pictures import PicturesScreen, RunMoment

ONE_HOST = "this run has one host"


class FooterState(NamedTuple):
    """What the keys of the footer depend on."""

    is_typing: bool
    has_pictures: bool
    in_past: bool
    is_over: bool
    hidden: frozenset[str]
    """The hidden panels."""
    has_hosts: bool
    has_map: bool
    """Whether the hosts are a map, whose value can be changed."""


def state_of(body: Body, snapshot: Snapshot | None, *, in_past: bool, is_over: bool) -> FooterState:
    """What the keys depend on now. `in_past` and `is_over` are as for `keymap.offered`."""
    return FooterState(
        is_typing=body.get(LogPanel).is_typing or body.get(LossPanel).is_typing,
        has_pictures=snapshot is not None and snapshot.pictures is not None,
        in_past=in_past,
        is_over=is_over,
        hidden=body.layout_now.hidden,
        has_hosts=body.has_hosts,
        has_map=body.has_hosts and body.get(HostsPanel).has_map,
    )


def footer_keys(in_force: Sequence[keymap.Key], state: FooterState, body: Body) -> list[keymap.Key]:
    """The keys that act now, with the numbers of the hidden panels; while a search is typed, its keys."""
    if state.is_typing:
        return list(keymap.TYPING)
    acting = {"pictures": state.has_pictures, keymap.SELECT_HOSTS: state.has_hosts, keymap.NEXT_VALUE: state.has_map}
    effective = [key for key in in_force if acting.get(key.action, True)]
    return _with_hidden(keymap.offered(effective, in_past=state.in_past, over=state.is_over), body)


def _with_hidden(keys: Sequence[keymap.Key], body: Body) -> list[keymap.Key]:
    """The keys without those of hidden panels, and with the numbers of the hidden panels."""
    hidden = body.hidden()
    ids = tuple(f"app.on_widget({panel.id!r}," for panel in hidden)
    word = f"hidden {' '.join(panel.key for panel in hidden)}" if hidden else ""
    of_layouts = keymap.on_widget("body", "layouts")
    return [
        key._replace(footer=word if key.action == of_layouts else key.footer)
        for key in keys
        if not key.action.startswith(ids)
    ]


def why_no_hosts(key: keymap.Key, body: Body) -> str:
    """Why a key of the hosts does nothing; empty if it is none of them, or if there are several hosts."""
    return ONE_HOST if key.action in (keymap.SELECT_HOSTS, keymap.NEXT_VALUE) and not body.has_hosts else ""


def of_panels(body: Body) -> list[keymap.Key]:
    """Entries of the palette: the keys of log and hosts from any panel, each panel, and each saved layout."""
    of_log = [key._replace(action=f"in_log({key.action!r})") for key in keymap.LOG]
    of_hosts = [key._replace(action=keymap.on_widget("hosts", key.action)) for key in keymap.HOSTS if body.has_hosts]
    panels = [
        keymap.Key(
            "",
            "",
            keymap.on_widget("body", f"hide_or_show({panel.id!r})"),
            "",
            f"{'hide' if body.layout_now.shows(panel.id or '') else 'show'} {panel.name_shown}",
            "panels",
            also="hidden toggle",
        )
        for panel in body.panels()
        if panel.id in PANELS and body.exists(panel.id)
    ]
    layouts = [
        keymap.Key(
            "",
            "",
            keymap.on_widget("body", f"choose_layout({name!r})"),
            "",
            f"layout: {clean(name)}",
            "layouts",
            also="arrangement panels saved",
        )
        for name in (DEFAULT_NAME, *body.saved.names())
    ]
    return [*panels, *layouts, *of_log, *of_hosts]


# The screens above this one are imported when they are opened, so that the monitor opens faster.


class MonitorResult(NamedTuple):
    """How the monitor was left."""

    reason: Literal["quit"]
    """`quit`: the user left, training continues."""
    snapshot: Snapshot | None
    """The newest state of the run, whichever moment was shown; None if nothing was read yet."""


class MonitorScreen(Screen[MonitorResult]):
    """One run: header, panels, player, keys. A thread reads the run; each of its frames is drawn by `draw_frame`."""

    BINDINGS = keymap.bindings(keymap.MONITOR)
    CSS_PATH = "../monitor.tcss"
    # Textual renders every visible widget for every frame, also this one, which the others cover.
    BLANK = True

    def __init__(self, source: SessionSource, run_dir: Path, *, read_only: bool = False) -> None:
        """With `read_only` no request can be made of the run."""
        super().__init__()
        self.frame: Frame | None = None
        """The newest frame."""
        self.is_drawing = False
        """Whether the widgets draw a frame, so that all changed lines are painted together after it."""
        self._opened_dir = run_dir
        self._read_only = read_only
        self._timed = source.player is not None
        """Whether the shown moment can be changed: in a replay, and in a live view that can look back."""
        self._replaying = source.player is not None and not source.player.live
        self._known_marks = KnownMarks([], 0)
        """The events of the whole recording, once they were read."""
        self._was_read = False
        """Whether all events up to the shown moment were read once."""
        self._newest_alert_t = -math.inf
        """Time of the newest alert that was shown."""
        self._overlay: PicturesScreen | RunOverlay | None = None
        """The screen above this one that is updated with every frame."""
        self._keys_depend_on: FooterState | None = None
        """What the keys of the footer were found from."""
        self._reader = ReaderThread(source, partial(self.call_later, self._take_frame))
        self.notices = Notices(self, self._put_notice)
        # The receipts of the run appear in the place of the notice.
        self._requests = RequestSender(
            self, self.notices, lambda *_: self._refusal(), written_s=1.0, on_written=self._reader.refresh
        )

    def compose(self) -> ComposeResult:
        """Header, panels, bars."""
        yield Header(read_only=self._read_only and not self._replaying, id="header")
        yield Body(id="body")
        if self._timed:
            yield PlayerBar(self._move_time, self._reader.ask, id="player")
        yield KeyBar([], panels="1-9", id="keys")

    def on_mount(self) -> None:
        """Start reading."""
        self.query_one(Body).select("cores")
        self._show_keys()
        self.query_one(LogPanel).read_older = self._older_lines
        self.run_worker(self._reader.run, thread=True, group="reader")

    def on_unmount(self) -> None:
        """Stop reading; the thread closes the session."""
        self._reader.stop()

    # Frames.

    def _take_frame(self, frame: Frame) -> None:
        """Draw the frame, then let the thread deliver the next one."""
        self.frame, self.is_drawing = frame, True
        self.draw_frame(frame)
        self.is_drawing = False
        # Now rather than at the next tick of a timer, which has to be woken.
        self._on_timer_update()
        self._reader.drawn()

    def draw_frame(self, frame: Frame) -> None:
        """Draw a frame: the only place that updates the widgets. They repaint the lines that changed."""
        self.query_one(Header).show(
            frame.snapshot,
            replaying=self._replaying,
            behind=self._behind(frame),
            verdicts=frame.verdicts,
            is_reading=self._is_reading(frame),
        )
        self.query_one(Body).show(frame.snapshot, frame.verdicts)
        self._show_keys()
        if frame.player is not None:
            marks = self._marks(frame).marks
            self.query_one(PlayerBar).show(frame.player, replaying=self._replaying, over=self._is_over, marks=marks)
        if self._overlay is not None and self._overlay.is_mounted:
            self._show_overlay(self._overlay, frame)
        self._show_alerts(frame.newest)

    def _show_alerts(self, snapshot: Snapshot) -> None:
        """Show alerts that were just raised, and ring the terminal for them; none of a recording or of the past."""
        now = time.time()
        fresh = [alert for alert in snapshot.alerts if alert.t > self._newest_alert_t and is_fresh(alert.t, now)]
        if self._replaying or not fresh:
            return
        self._newest_alert_t = max(alert.t for alert in fresh)
        self.notices.show(f"alert: {clean(fresh[-1].text)}")
        for alert in fresh:
            if alert.bell and isinstance(self.app, BaseApp):
                self.app.ring(alert.text)

    @property
    def _newest(self) -> Snapshot | None:
        """The current state of a live run, also while its past is shown."""
        return self.frame.newest if self.frame is not None else None

    @property
    def _snapshot(self) -> Snapshot | None:
        """The moment that is shown."""
        return self.frame.snapshot if self.frame is not None else None

    @property
    def _run_dir(self) -> Path:
        """The directory of the run, also after it was renamed or moved."""
        is_moved = self.frame is not None and not self._opened_dir.is_dir()
        return Path(self.frame.newest.dir) if self.frame is not None and is_moved else self._opened_dir

    @property
    def _is_over(self) -> bool:
        """Whether the run that is followed has ended."""
        newest = self._newest
        return not self._replaying and newest is not None and newest.condition in ENDED

    @property
    def _looks_back(self) -> bool:
        """Whether a live view shows a past moment."""
        player = self.frame.player if self.frame is not None else None
        return player is not None and not self._replaying and not player.live

    @property
    def _in_past(self) -> bool:
        """Whether a moment other than now is shown, so that keys move through time."""
        return self._replaying or self._looks_back

    def _is_reading(self, frame: Frame) -> bool:
        """Whether a run is being opened, or a moment read; not if a few events of one that moves on are missing."""
        self._was_read |= frame.caught_up
        moves_on = self._was_read and (frame.player is None or frame.player.playing)
        return not frame.caught_up and not moves_on

    def _behind(self, frame: Frame) -> Behind | None:
        if not self._looks_back or frame.player is None:
            return None
        seconds = max(frame.player.end - frame.player.position, 0.0)
        return Behind(seconds, max(frame.newest.steps, frame.snapshot.steps), frame.newest.condition)

    # Keys.

    def keys_in_force(self) -> list[keymap.Key]:
        """The keys that do something now, including those of the selected panel."""
        of_panel = {"log": keymap.LOG, "hosts": keymap.HOSTS}.get(self.query_one(Body).selected, ())
        return [*self._in_force(), *of_panel]

    def _in_force(self) -> list[keymap.Key]:
        return keymap.in_force(
            keymap.MONITOR,
            replaying=self._replaying,
            timed=self._timed,
            over=self._is_over,
            read_only=self._read_only,
        )

    def keys_offered(self) -> list[tuple[keymap.Key, str]]:
        """For the palette: every key with the reason why it does nothing now, and the log's keys from every panel."""
        keys_of_panels = [(key, "") for key in of_panels(self.query_one(Body))]
        return [*((key, self._why_unfit(key)) for key in keymap.MONITOR), *keys_of_panels]

    async def action_in_log(self, action: str) -> None:
        """Select the log, and run one of its actions."""
        self.query_one(Body).select("log")
        await self.app.run_action(action, default_namespace=self.query_one(LogPanel))

    def _why_unfit(self, key: keymap.Key) -> str:
        reason = keymap.why_unfit(key, replaying=self._replaying, timed=self._timed)
        reason = reason or why_no_hosts(key, self.query_one(Body))
        return reason or ((self._refusal() or "") if key.action in REQUEST_ACTIONS else "")

    def _show_keys(self) -> None:
        """Show the keys in force, found again only if something changed that they depend on: frames change little."""
        body = self.query_one(Body)
        depend_on = state_of(body, self._snapshot, in_past=self._in_past, is_over=self._is_over)
        if depend_on != self._keys_depend_on:
            self._keys_depend_on = depend_on
            self.query_one(KeyBar).show(footer_keys(self._in_force(), depend_on, body))

    def panel_descriptions(self) -> list[tuple[str, str]]:
        """The key of each panel, and its name with what it shows."""
        return self.query_one(Body).descriptions()

    def action_help(self) -> None:
        """Show the keys and the panels."""
        from tputui.ui.help import HelpScreen

        of_hosts = keymap.HOSTS if self.query_one(Body).has_hosts else ()
        self.app.push_screen(HelpScreen([*self._in_force(), *keymap.LOG, *of_hosts], self.panel_descriptions()))

    def action_restore(self) -> None:
        """Remove the cursor; else end the search for metrics; else leave the full screen; else hide the alarms until
        there are new ones."""
        body, loss = self.query_one(Body), self.query_one(LossPanel)
        if loss.look.cursor is not None and loss.display:
            loss.read_at(None)
        elif loss.is_searching and loss.look.metric and loss.display:
            loss.drop_search()
        elif body.maximised:
            body.maximise(False)
        else:
            self.query_one(Header).acknowledge()

    def action_leave(self) -> None:
        """Leave; the run continues."""
        self.dismiss(MonitorResult("quit", self._newest))

    # Notices and requests.

    def _put_notice(self, sentence: str) -> None:
        self.query_one(Header).show_notice(sentence)
        if sentence and self._overlay is not None and self._overlay.is_mounted:
            self._overlay.notices.show(sentence)

    def action_checkpoint(self) -> None:
        """Request a checkpoint."""
        self._requests.submit(self._run_dir, "checkpoint")

    def action_stop(self) -> None:
        """Ask how to stop, then request it."""
        self._requests.confirm_stop(self._run_dir)

    def action_trace(self) -> None:
        """Request a profile of the next steps."""
        self._requests.submit(self._run_dir, "trace")

    def action_stacks(self) -> None:
        """Request the stacks of every process, and show them; in a recording, show the stacks dumped then."""
        from tputui.ui.monitor.events import StacksScreen

        refused, has_stacks = (
            self._refusal() is not None,
            self._snapshot is not None and self._snapshot.stacks is not None,
        )
        if not (refused and has_stacks):  # else the screen of the stacks shows the refusal
            self._request_stacks()
        if has_stacks or not refused:
            self._push_overlay(StacksScreen(self._snapshot, self._request_stacks, self._refusal))

    def _request_stacks(self) -> None:
        self._requests.submit(self._run_dir, "stacks")

    def _refusal(self) -> str | None:
        """The reason why no request can be made of the run now; None if requests are possible."""
        if self._replaying:
            return "not possible in a recording"
        if self._read_only:
            return "this view is read-only"
        if self.frame is None:
            return "the run has not been read yet"
        condition = (self._newest or self.frame.snapshot).condition
        return f"the run has ended ({condition})" if condition in ENDED else None

    # Screens above this one.

    def action_pictures(self) -> None:
        """Show the pictures of examples and predictions."""
        from tputui.ui.monitor.pictures import PicturesScreen

        moment = self._moment(self.frame) if self.frame is not None else None
        self._push_overlay(
            PicturesScreen(self._run_dir, moment, self._reader.ask, replaying=self._replaying, timed=self._timed)
        )

    def action_skipped(self) -> None:
        """Show the examples that were skipped."""
        from tputui.ui.monitor.events import SkippedScreen

        self._push_overlay(SkippedScreen(self._snapshot))

    def action_details(self) -> None:
        """Show where the run comes from, and its configuration."""
        from tputui.ui.monitor.details import DetailsScreen

        self._push_overlay(DetailsScreen(self._snapshot))

    def on_hosts_panel_host_opened(self, message: HostsPanel.HostOpened) -> None:
        """Show one host."""
        from tputui.ui.monitor.host_screen import HostScreen

        message.stop()
        self._push_overlay(HostScreen(message.index, self._snapshot, self._show_log_of_host))

    def _show_log_of_host(self, index: int) -> None:
        self.query_one(Body).select("log")
        self.query_one(LogPanel).show_lane(host_lane(index))

    def _push_overlay(self, overlay: PicturesScreen | RunOverlay) -> None:
        def forget(_: None) -> None:
            self._overlay = None

        self._overlay = overlay
        self.app.push_screen(overlay, forget)

    def _show_overlay(self, overlay: PicturesScreen | RunOverlay, frame: Frame) -> None:
        if isinstance(overlay, RunOverlay):
            overlay.show(frame.snapshot)
        else:
            overlay.show(self._moment(frame))

    def _moment(self, frame: Frame) -> RunMoment:
        from tputui.ui.monitor.pictures import RunMoment

        return RunMoment(frame, self._is_over, self._marks(frame).marks)

    # Time.

    def _move_time(self, command: PlayerCommand) -> None:
        """Show another moment, for which the current notice does not hold."""
        self.notices.clear()
        self._reader.ask(command)

    def action_home(self) -> None:
        """Go to the beginning of the recording or of a run that is over; else of the selected panel."""
        body = self.query_one(Body)
        if self._in_past or (self._timed and self._is_over and body.selected != "log"):
            self._move_time(lambda player: player.seek(player.start))
        else:
            body.action_scroll(-1_000_000)

    def action_end(self) -> None:
        """Go to the newest moment; else to the end of the selected panel."""
        if self._in_past:
            self._move_time(player_bar.to_newest)
        else:
            self.query_one(Body).action_scroll(1_000_000)

    # Events, and the log and the charts at the same moment.

    def _marks(self, frame: Frame) -> KnownMarks:
        """The known events of the whole run, including those after the moment that is shown."""
        if self._replaying and self._known_marks.marks:
            return self._known_marks
        return KnownMarks(frame.newest.marks, frame.newest.num_marks)

    def action_event(self, by: int) -> None:
        """Go to the next event of the kinds shown, or to the one before: by step in a live view, else in time."""
        frame = self.frame
        if frame is None:
            return
        if self._replaying and by > 0 and not self._known_marks.marks:
            self.notices.show("searching the recording for events ...")
            self._read_marks()
            return
        marks, panel = self._marks(frame), self.query_one(EventsPanel)
        if not self._in_past:
            mark = player_bar.by_step(panel.of_kind(frame.snapshot.marks), self.query_one(LossPanel).look.cursor, by)
        elif frame.player is not None:
            mark = player_bar.by_time(panel.of_kind(marks.marks), player_bar.jump_origin(frame.player, by), by)
        else:
            return
        if mark is not None:
            self._go_to(mark, marks.thinned)
        else:
            self.notices.show(f"no {'later' if by > 0 else 'earlier'} event{marks.thinned}")

    @work(thread=True, group="marks", exclusive=True)
    def _read_marks(self) -> None:
        self.call_later(self._take_marks, player_bar.marks_of(self._run_dir, lambda: self._reader.is_stopped))

    def _take_marks(self, known: KnownMarks) -> None:
        """Go to the next event, now that the events are known."""
        self._known_marks = known
        if known.marks:
            self.action_event(1)
        else:
            self.notices.show("no later event")

    def on_events_panel_event_chosen(self, message: EventsPanel.EventChosen) -> None:
        """Go to the event that was chosen."""
        message.stop()
        self._go_to(message.mark)

    def _go_to(self, mark: Mark, remark: str = "") -> None:
        """Go to an event: in time if the past is shown, else by the cursor of the charts and the line of the log."""
        self.notices.show(f"{sign_of(mark.kind).mark} step {mark.step:,}: {clean(mark.text)}{remark}")
        if self._in_past:
            self._reader.ask(lambda player: player_bar.pause_at(player, mark.t))
        else:
            self.query_one(LossPanel).read_at(mark.step)
            self.query_one(LogPanel).show_moment(mark.t)

    def on_loss_panel_read(self, message: LossPanel.Read) -> None:
        """Show the log of the moment under the cursor."""
        message.stop()
        self.query_one(LogPanel).show_moment(message.t)

    def on_log_panel_line_selected(self, message: LogPanel.LineSelected) -> None:
        """Put the cursor at the moment of the line."""
        message.stop()
        self.query_one(LossPanel).read_at_time(message.t)

    # The log.

    @on(Body.LayoutChanged)
    @on(LogPanel.TypingChanged)
    @on(LossPanel.TypingChanged)
    def _footer_changed(self, message: Message) -> None:
        """Show the keys that act now: hidden panels, or the keys of typing."""
        message.stop()
        self._show_keys()

    def _older_lines(self) -> OlderLines:
        """The older lines of the log up to the moment that is shown. Called in a thread."""
        frame = self.frame
        until = frame.snapshot.now if frame is not None and self._in_past else math.inf
        return older_lines(self._run_dir, until, lambda: self._reader.is_stopped)
