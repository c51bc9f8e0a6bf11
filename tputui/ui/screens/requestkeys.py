"""What may be asked of the run that a screen watches: a checkpoint, or to stop in one of three ways.

A request is a file, written in a thread; its receipts come back with the frames of the run.
"""

from __future__ import annotations

import time
from typing import Generic

from textual import work
from textual.message import Message
from textual.screen import ScreenResultType

from tputui.model.snapshot import ENDED
from tputui.telemetry import control
from tputui.telemetry.events import RequestKind
from tputui.ui.screens.confirm import ConfirmStop
from tputui.ui.screens.watching import NOTICE_S, Watching
from tputui.ui.words import REQUEST_NAMES

ASKED_S = 1.0
"""Seconds for which a request is said to be asked; the receipts of the run stand in the same place."""


class RequestKeys(Watching[ScreenResultType], Generic[ScreenResultType]):
    """A screen from which requests are made; it says where none may be, and why."""

    class Answered(Message):
        """A request was written, or could not be."""

        def __init__(self, sentence: str, shown_s: float) -> None:
            super().__init__()
            self.sentence = sentence
            self.shown_s = shown_s

    def action_checkpoint(self) -> None:
        """Asks for a checkpoint."""
        self._request("checkpoint")

    def action_stop(self) -> None:
        """Asks how to stop, then for it."""
        why_not = self._why_not("stop")
        if why_not:
            self.tell(why_not)
            return
        self.app.push_screen(ConfirmStop(self._run_dir.name), self._stop_as)

    def _stop_as(self, kind: RequestKind | None) -> None:
        if kind is not None:
            self._request(kind)

    def _request(self, kind: RequestKind) -> None:
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

    def on_request_keys_answered(self, message: Answered) -> None:
        """Tells what became of writing a request."""
        message.stop()
        self.tell(message.sentence, message.shown_s)
