"""What may be asked of a run from a screen: a checkpoint, or to stop in one of three ways.

A request is a file, written in a thread. Must not know whether the screen shows one run or many.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Generic

from textual import work
from textual.message import Message
from textual.screen import ScreenResultType

from tputui.telemetry import requests
from tputui.telemetry.events import RequestKind
from tputui.ui.base.status_text import REQUEST_NAMES
from tputui.ui.widgets.dialogs import ConfirmStop
from tputui.ui.widgets.notices import NOTICE_S, Notices

ASKED: dict[str, RequestKind] = {"checkpoint": "checkpoint", "stop": "stop"}
"""What the actions of the keys ask of a run."""


class RunRequests(Notices[ScreenResultType], Generic[ScreenResultType]):
    """A screen from which requests are made; it says where none may be, and why."""

    asked = "asked"
    """Said of a request that was written ..."""
    asked_s = NOTICE_S
    """... for so long."""

    class Answered(Message):
        """A request was written, or could not be."""

        def __init__(self, sentence: str, shown_s: float) -> None:
            super().__init__()
            self.sentence = sentence
            self.shown_s = shown_s

    # What a screen says of itself.

    def _run_asked(self) -> Path | None:
        """The run that is asked; None where there is none."""
        raise NotImplementedError

    def _why_not(self, run_dir: Path, kind: RequestKind) -> str:
        """Why a request may not be made of it; empty where it may."""
        raise NotImplementedError

    def _called(self, run_dir: Path) -> str:
        """What a sentence on a run begins with, where the screen shows several."""
        return ""

    # The keys.

    def action_checkpoint(self) -> None:
        """Asks for a checkpoint."""
        self._ask("checkpoint")

    def action_stop(self) -> None:
        """Asks how to stop, then for it."""
        run_dir = self._run_asked()
        if run_dir is None or not self._may_ask(run_dir, "stop"):
            return

        def stop_as(kind: RequestKind | None) -> None:
            if kind is not None:
                self._ask(kind, run_dir)

        self.app.push_screen(ConfirmStop(run_dir.name), stop_as)

    def _ask(self, kind: RequestKind, run_dir: Path | None = None) -> None:
        run_dir = run_dir or self._run_asked()
        if run_dir is not None and self._may_ask(run_dir, kind):
            self._submit(run_dir, kind)

    def _may_ask(self, run_dir: Path, kind: RequestKind) -> bool:
        """Whether a request may be made; where not, the reason is told."""
        why_not = self._why_not(run_dir, kind)
        if why_not:
            self.tell(f"{self._called(run_dir)}{REQUEST_NAMES[kind]}: {why_not}")
        return not why_not

    @work(thread=True, group="requests")
    def _submit(self, run_dir: Path, kind: RequestKind) -> None:
        said, shown_s = self.asked, self.asked_s
        try:
            requests.submit(run_dir, kind, by="screen", now=time.time())
        except OSError as error:
            said, shown_s = f"the request cannot be written: {error}", NOTICE_S
        self.post_message(self.Answered(f"{self._called(run_dir)}{REQUEST_NAMES[kind]}: {said}", shown_s))

    def on_run_requests_answered(self, message: Answered) -> None:
        """Tells what became of writing a request."""
        message.stop()
        self.tell(message.sentence, message.shown_s)
