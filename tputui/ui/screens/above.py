"""What a screen puts over itself while it goes on watching a run: pictures, and examples that were left out."""

from __future__ import annotations

from typing import Generic

from textual.screen import ScreenResultType

from tputui.ui.pump import Frame
from tputui.ui.screens.pictures import PicturesScreen
from tputui.ui.screens.sheet import RunSheet
from tputui.ui.screens.skipped import SkippedScreen
from tputui.ui.screens.watching import Watching


class AboveKeys(Watching[ScreenResultType], Generic[ScreenResultType]):
    """A screen that tells what stands over it of every frame."""

    _above: PicturesScreen | RunSheet | None = None
    """What stands over the screen and is to be told what is read."""

    def action_pictures(self) -> None:
        """Shows the pictures of predictions."""
        self._put_above(PicturesScreen(self._run_dir, self.frame, self._pump.ask, replaying=self._replaying))

    def action_skipped(self) -> None:
        """Shows the examples that were left out."""
        self._put_above(SkippedScreen(self.frame.snapshot if self.frame is not None else None))

    def _put_above(self, above: PicturesScreen | RunSheet) -> None:
        self._above = above
        self.app.push_screen(above, self._forget_above)

    def _forget_above(self, _: None) -> None:
        self._above = None

    def _show_above(self, frame: Frame) -> None:
        if self._above is None or not self._above.is_mounted:
            return
        if isinstance(self._above, PicturesScreen):
            self._above.show(frame)
        else:
            self._above.show(frame.snapshot)
