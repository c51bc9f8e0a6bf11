"""What a screen puts over itself while it goes on watching a run: pictures, and examples that were left out."""

from __future__ import annotations

from typing import Generic

from textual.screen import ScreenResultType

from tputui.ui.base.reader_thread import Frame
from tputui.ui.monitor.pictures import PictureFilter, PicturesScreen
from tputui.ui.monitor.run_screen import RunScreen
from tputui.ui.monitor.skipped import SkippedScreen
from tputui.ui.widgets.overlay import RunOverlay


class AboveKeys(RunScreen[ScreenResultType], Generic[ScreenResultType]):
    """A screen that tells what stands over it of every frame."""

    _above: PicturesScreen | RunOverlay | None = None
    """What stands over the screen and is to be told what is read."""

    def action_pictures(self) -> None:
        """Shows the pictures of predictions."""
        sight = self._sight(self.frame) if self.frame is not None else None
        self._put_above(
            PicturesScreen(self._run_dir, sight, self._pump.ask, replaying=self._replaying, timed=self._timed)
        )

    def action_skipped(self) -> None:
        """Shows the examples that were left out."""
        self._put_above(SkippedScreen(self.frame.snapshot if self.frame is not None else None))

    def _put_above(self, above: PicturesScreen | RunOverlay) -> None:
        self._above = above
        self.app.push_screen(above, self._forget_above)

    def _forget_above(self, _: None) -> None:
        self._above = None

    def _put_notice(self, sentence: str) -> None:
        super()._put_notice(sentence)
        if sentence and self._above is not None and self._above.is_mounted:
            self._above.notices.show(sentence)

    def _show_above(self, frame: Frame) -> None:
        if self._above is None or not self._above.is_mounted:
            return
        if isinstance(self._above, PicturesScreen):
            self._above.show(self._sight(frame))
        else:
            self._above.show(frame.snapshot)

    def _sight(self, frame: Frame) -> PictureFilter:
        return PictureFilter(frame, self._is_over, self._marks_of_all(frame))
