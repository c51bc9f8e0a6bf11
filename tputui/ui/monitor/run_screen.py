"""A screen that a run is read for: the frames of its pump, and which moment of the run they show.

Must not know what stands on the screen below its head, nor what may be done to the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Generic

from textual.message import Message
from textual.reactive import var
from textual.screen import Screen, ScreenResultType

from tputui.state.chart_data import Mark
from tputui.state.snapshot import ENDED, Snapshot
from tputui.ui.base.reader_thread import Frame, ReaderThread, Source
from tputui.ui.monitor.header import Behind, Header
from tputui.ui.widgets.notices import Notices
from tputui.ui.widgets.player import KnownMarks


class RunScreen(Screen[ScreenResultType], Generic[ScreenResultType]):
    """A screen with frames of one run, live or replayed. Subclasses draw them in `watch_frame`."""

    frame: var[Frame | None] = var(None, init=False)
    """The newest one. A `var`: to take one repaints nothing; the widgets repaint the lines that changed."""

    class FrameTaken(Message):
        """The pump has a frame."""

        def __init__(self, frame: Frame) -> None:
            super().__init__()
            self.frame = frame

    def __init__(self, source: Source, run_dir: Path, *, read_only: bool = False) -> None:
        super().__init__()
        self._run_dir = run_dir
        self._read_only = read_only
        self._timed = source.player is not None
        """Whether time can be played: in a replay, and in a live view that can look back."""
        self._replaying = source.player is not None and not source.player.live
        self._known_marks = KnownMarks([], 0)
        """What happened in all of a recording, once somebody asked for it."""
        self.notices = Notices(self, self._put_notice)
        self._pump = ReaderThread(source, lambda frame: self.post_message(self.FrameTaken(frame)))

    def on_unmount(self) -> None:
        """Stops reading; the thread closes the session."""
        self._pump.stop()

    def on_run_screen_frame_taken(self, message: FrameTaken) -> None:
        """A frame came from the pump."""
        message.stop()
        self.frame = message.frame
        self._pump.drawn()

    @property
    def _newest(self) -> Snapshot | None:
        """What is true of a live run now, also while its past is shown."""
        return self.frame.newest if self.frame is not None else None

    @property
    def _is_over(self) -> bool:
        """Whether the run that is followed has ended by now."""
        newest = self._newest
        return not self._replaying and newest is not None and newest.condition in ENDED

    @property
    def _looks_back(self) -> bool:
        """Whether a live view shows another moment than now."""
        player = self.frame.player if self.frame is not None else None
        return player is not None and not self._replaying and not player.live

    @property
    def _in_past(self) -> bool:
        """Whether a moment is shown that is not now, so that keys move through time."""
        return self._replaying or self._looks_back

    def _behind(self, frame: Frame) -> Behind | None:
        """How far a look back is from now."""
        if not self._looks_back or frame.player is None:
            return None
        seconds = max(frame.player.end - frame.player.position, 0.0)
        return Behind(seconds, max(frame.newest.steps, frame.snapshot.steps), frame.newest.condition)

    def _marks_known(self, frame: Frame) -> KnownMarks:
        """What happened in the whole run as far as it is known, also after the moment that is shown."""
        if self._replaying and self._known_marks.marks:
            return self._known_marks
        return KnownMarks(frame.newest.marks, frame.newest.num_marks)

    def _marks_of_all(self, frame: Frame) -> list[Mark]:
        """The same, without how many they are samples of."""
        return self._marks_known(frame).marks

    def _put_notice(self, sentence: str) -> None:
        self.query_one(Header).show_notice(sentence)
