"""A sentence to the user that stays for a while; they are counted, so that the end of one takes no newer one away."""

from __future__ import annotations

from typing import Generic

from textual.screen import Screen, ScreenResultType

from tputui.ui.widgets.bars import NoticeBar

NOTICE_S = 6.0
"""Seconds that a sentence to the user stays."""


class Notices(Screen[ScreenResultType], Generic[ScreenResultType]):
    """A screen with a place for a sentence. Subclasses say where that is."""

    _notices = 0

    def tell(self, sentence: str, shown_s: float = NOTICE_S) -> None:
        """Shows a sentence for a while."""
        self._notices += 1
        number = self._notices
        self._put_notice(sentence)
        self.set_timer(shown_s, lambda: self._untell(number))

    def hush(self) -> None:
        """Takes the sentence away: it tells of a moment that is left."""
        self._notices += 1
        self._put_notice("")

    def _untell(self, number: int) -> None:
        if number == self._notices:
            self._put_notice("")

    def _put_notice(self, sentence: str) -> None:
        """Puts a sentence into its place; an empty one gives the place back."""
        raise NotImplementedError


class NoticesBelow(Notices[ScreenResultType], Generic[ScreenResultType]):
    """A screen that hides where the one below it tells: sentences stand over its own last line."""

    def _put_notice(self, sentence: str) -> None:
        self.query_one(NoticeBar).tell(sentence)
