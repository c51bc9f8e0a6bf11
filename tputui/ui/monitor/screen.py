"""The monitor: everything of one run, live or replayed. Leaving it never touches the run.

What its keys do is in modules of their own, by what they do it to: time, the run, the panels, the charts.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal, NamedTuple

from textual import work
from textual.app import ComposeResult
from textual.message import Message

from tputui.state.snapshot import ENDED, Snapshot
from tputui.ui.base import keymap
from tputui.ui.base.reader_thread import Frame, Source
from tputui.ui.help import HelpScreen
from tputui.ui.monitor.above import AboveKeys
from tputui.ui.monitor.body import Body
from tputui.ui.monitor.header import Header
from tputui.ui.monitor.log import LogPanel
from tputui.ui.monitor.log_older import OlderLines, older_lines
from tputui.ui.monitor.stacks import StacksScreen
from tputui.ui.monitor.timekeys import TimeKeys
from tputui.ui.widgets.bars import KeyBar, PlayerBar
from tputui.ui.widgets.run_requests import REQUEST_ACTIONS, RunRequests


class MonitorResult(NamedTuple):
    """How the monitor was left."""

    reason: Literal["quit"]
    """`quit`: the user left, training goes on."""
    snapshot: Snapshot | None
    """What was true of the run then, whatever moment was shown; None where nothing was read yet."""


class MonitorScreen(TimeKeys[MonitorResult], AboveKeys[MonitorResult]):
    """One run."""

    BINDINGS = keymap.bindings(keymap.MONITOR)
    CSS_PATH = "../monitor.tcss"

    class OlderRead(Message):
        """Lines of the log before the newest ones were read."""

        def __init__(self, found: OlderLines) -> None:
            super().__init__()
            self.found = found

    def __init__(self, source: Source, run_dir: Path, *, read_only: bool = False) -> None:
        super().__init__(source, run_dir, read_only=read_only)
        # The receipts of the run replace the notice.
        self._requests = RunRequests(self, self.notices, lambda *_: self._refusal(), written_s=1.0)

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
        self.run_worker(self._pump.run, thread=True, group="pump")

    def watch_frame(self, frame: Frame | None) -> None:
        """Draws a frame: the only place from which widgets learn something."""
        if frame is None:
            return
        with self.app.batch_update():
            self.query_one(Header).show(frame.snapshot, replaying=self._replaying, behind=self._behind(frame))
            self.query_one(Body).show(frame.snapshot)
            self.query_one(KeyBar).show(self._footer_keys())
            if frame.player is not None:
                marks = self._marks_of_all(frame)
                self.query_one(PlayerBar).show(frame.player, replaying=self._replaying, over=self._is_over, marks=marks)
            self._show_above(frame)

    def keys_in_force(self) -> list[keymap.Key]:
        """The keys that do something now, those of the selected panel included."""
        of_panel = keymap.LOG if self.query_one(Body).selected == "log" else ()
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
        """For the palette: also the keys that do nothing now, each with why, and those of the log from anywhere."""
        of_log = [(key._replace(action=f"in_log({key.action!r})"), "") for key in keymap.LOG]
        return [*((key, self._why_unfit(key)) for key in keymap.MONITOR), *of_log]

    def _why_unfit(self, key: keymap.Key) -> str:
        reason = keymap.why_unfit(key, replaying=self._replaying, timed=self._timed)
        return reason or ((self._refusal() or "") if key.action in REQUEST_ACTIONS else "")

    async def action_in_log(self, action: str) -> None:
        """Does in the log what one of its keys does, whichever panel is selected."""
        self._body.select("log")
        await self.app.run_action(action, default_namespace=self.query_one(LogPanel))

    def _footer_keys(self) -> list[keymap.Key]:
        """The keys in force; that of the pictures where there are some. While a search is typed, the keys of that."""
        if self.is_mounted and self.query_one(LogPanel).is_typing:
            return list(keymap.TYPING)
        has_pictures = self.frame is not None and self.frame.snapshot.pictures is not None
        known = [key for key in self._in_force() if has_pictures or key.action != "pictures"]
        return keymap.offered(known, in_past=self._in_past, over=self._is_over)

    def action_restore(self) -> None:
        """Takes the cursor away; else leaves the full screen; else hides the alarms until there are others."""
        if self._loss.look.cursor is not None:
            self._loss.read_at(None)
        elif self._body.maximised:
            self._body.maximise(False)
        else:
            self.query_one(Header).acknowledge()

    def action_stacks(self) -> None:
        """Asks every process where it is, and shows it; in a recording, what was asked for then."""
        snapshot = self.frame.snapshot if self.frame is not None else None

        def submit() -> None:
            self._requests.submit(self._run_dir, "stacks")

        submit()
        if self._refusal() is None or (snapshot is not None and snapshot.stacks is not None):
            self._put_above(StacksScreen(snapshot, submit, lambda: self._refusal() or ""))

    def action_checkpoint(self) -> None:
        """Request a checkpoint."""
        self._requests.submit(self._run_dir, "checkpoint")

    def action_stop(self) -> None:
        """Ask how to stop, then request it."""
        self._requests.confirm_stop(self._run_dir)

    def _refusal(self) -> str | None:
        """The reason why nothing can be requested of the run now; None if requests are possible."""
        if self._replaying:
            return "this is a recording, nothing can be requested"
        if self._read_only:
            return "this view is read-only"
        if self.frame is None:
            return "the run has not been read yet"
        condition = (self._newest or self.frame.snapshot).condition
        return f"the run has ended ({condition})" if condition in ENDED else None

    def action_help(self) -> None:
        """Shows the keys and the panels."""
        self.app.push_screen(HelpScreen([*self._in_force(), *keymap.LOG], self.panels_told()))

    def action_leave(self) -> None:
        """Leaves; the run goes on."""
        self.dismiss(MonitorResult("quit", self._newest))

    def on_log_panel_typing_changed(self, message: LogPanel.TypingChanged) -> None:
        """Shows the keys of typing, or those of the screen again."""
        message.stop()
        self.query_one(KeyBar).show(self._footer_keys())

    # The log before its newest lines.

    def on_log_panel_older_wanted(self, message: LogPanel.OlderWanted) -> None:
        """Reads them."""
        message.stop()
        self._read_older()

    @work(thread=True, group="older", exclusive=True)
    def _read_older(self) -> None:
        frame = self.frame
        until = frame.snapshot.now if frame is not None and self._in_past else math.inf
        found = older_lines(self._run_dir, until, lambda: self._pump.is_stopped)
        self.post_message(self.OlderRead(found))

    def on_monitor_screen_older_read(self, message: OlderRead) -> None:
        """Hands them to the log."""
        message.stop()
        self.query_one(LogPanel).take_older(message.found.lines, message.found.where)
