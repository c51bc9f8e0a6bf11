"""Notices: one sentence shown to the user for a few seconds. A newer one replaces it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.screen import Screen
from textual.timer import Timer

NOTICE_S = 6.0
"""Seconds for which a notice is shown."""


class Notices:
    """The notices of one screen."""

    def __init__(self, screen: Screen[Any], put: Callable[[str], None], shown_s: float = NOTICE_S) -> None:
        """`put` displays a sentence; an empty one removes the sentence displayed before."""
        self._screen = screen
        self._put = put
        self._shown_s = shown_s
        self._timer: Timer | None = None

    def show(self, sentence: str, shown_s: float | None = None) -> None:
        """Show a sentence for `shown_s` seconds, by default as long as the screen shows all of its notices."""
        self._stop_timer()
        self._put(sentence)
        self._timer = self._screen.set_timer(self._shown_s if shown_s is None else shown_s, self.clear)

    def clear(self) -> None:
        """Remove the sentence now, for example because it describes a moment that is no longer shown."""
        self._stop_timer()
        self._put("")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
