"""What keys do to the player of a replay. Pure but for the player that is handed in."""

from __future__ import annotations

from tputui.ui.pump import Player

_SPEED_LEAST, _SPEED_MOST = 0.1, 1000.0


def play_or_pause(player: Player) -> None:
    """Toggles; at the end it plays from the beginning."""
    if player.playing:
        player.pause()
        return
    if player.position >= player.end:
        player.seek(player.start)
    player.play()


def seek_by(player: Player, direction: int) -> None:
    """Seeks by a twentieth of the recording, or by 10 s where that is more and the recording is long enough."""
    length = player.end - player.start
    stride = max(length / 20, min(10.0, length / 10))
    player.seek(min(max(player.position + direction * stride, player.start), player.end))


def next_speed(speed: float, direction: int) -> float:
    """Twice or half the speed, from a tenth to a thousand times."""
    return min(max(speed * 2.0**direction, _SPEED_LEAST), _SPEED_MOST)
