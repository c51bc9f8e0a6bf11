"""What the keys of the player do, and its bar, on whichever screen shows a moment of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from textual.screen import Screen, ScreenResultType

from tputui.ui.base.reader_thread import Player
from tputui.ui.widgets.bars import PlayerBar
from tputui.ui.widgets.player import next_speed, play_or_pause, seek_by, to_newest


class PlayerKeys(Screen[ScreenResultType], Generic[ScreenResultType]):
    """A screen that steers a player. Subclasses say how it is asked."""

    def action_back_to_now(self) -> None:
        """To the newest moment: of the run, or of the recording."""
        self._move_time(to_newest)

    def action_play_or_pause(self) -> None:
        """Plays or pauses; at the end of a replay it plays from the beginning."""
        self._move_time(play_or_pause)

    def action_seek(self, direction: int) -> None:
        """Moves by a twentieth of the recording."""
        self._move_time(lambda player: seek_by(player, direction))

    def action_speed(self, direction: int) -> None:
        """Doubles or halves the speed."""
        self._ask_player(lambda player: player.set_speed(next_speed(player.speed, direction)))

    def on_player_bar_scrubbed(self, message: PlayerBar.Scrubbed) -> None:
        """Goes to the moment under the mouse."""
        message.stop()
        self._move_time(lambda player: player.seek(message.t))

    def _move_time(self, command: Callable[[Player], None]) -> None:
        """Another moment is to be shown."""
        raise NotImplementedError

    def _ask_player(self, command: Callable[[Player], None]) -> None:
        """Hands a command to the player."""
        raise NotImplementedError
