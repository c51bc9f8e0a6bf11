"""What may be asked of the one run that a screen watches; its receipts come back with the frames of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Generic

from textual.screen import ScreenResultType

from tputui.state.snapshot import ENDED
from tputui.telemetry.events import RequestKind
from tputui.ui.monitor.run_screen import RunScreen
from tputui.ui.widgets.run_requests import RunRequests


class RequestKeys(RunScreen[ScreenResultType], RunRequests[ScreenResultType], Generic[ScreenResultType]):
    """A screen that watches a run and asks it."""

    asked_s = 1.0
    """The receipts of the run stand in the same place."""

    def _run_asked(self) -> Path:
        return self._run_dir

    def _why_not(self, run_dir: Path, kind: RequestKind) -> str:
        if self._replaying:
            return "this is a recording, nothing can be asked of it"
        if self._read_only:
            return "this view is read-only"
        if self.frame is None:
            return "the run has not been read yet"
        condition = (self._newest or self.frame.snapshot).condition
        return f"the run has ended ({condition})" if condition in ENDED else ""
