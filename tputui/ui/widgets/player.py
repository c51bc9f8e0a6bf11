"""What keys do to time: the player of a run, and the events it goes to.

Reads a recording where its events are asked for, in whichever thread that is called from; draws nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tputui.session.player import SPEEDS
from tputui.session.session import Session
from tputui.state.chart_data import Mark
from tputui.ui.base.reader_thread import Player, PlayerState

GRACE_S = 1.0
"""Seconds in front of the terminal after an event in which the one before it is meant."""


def play_or_pause(player: Player) -> None:
    """Toggles; at the end of what does not go on it plays from the beginning."""
    if player.playing:
        player.pause()
        return
    if player.position >= player.end:
        player.seek(player.start)
    player.play()


def seek_by(player: Player, direction: int) -> None:
    """Seeks by a twentieth of the run, or by 10 s where that is more and the run is long enough."""
    length = player.end - player.start
    stride = max(length / 20, min(10.0, length / 10))
    player.seek(min(max(player.position + direction * stride, player.start), player.end))


def stay_at(player: Player, t: float) -> None:
    """Goes to a moment, in unix time, and pauses there."""
    player.seek(t)
    player.pause()


def to_newest(player: Player) -> None:
    """To now, which a live run then follows; to the end of a recording."""
    player.follow()


def looked_from(player: PlayerState, by: int) -> float:
    """From which unix time on the next event is meant; back from what is played a second ago, as a hand is not at
    the event that it saw last before the next one is reached."""
    return player.position - (GRACE_S * player.speed if by < 0 and player.playing else 0.0)


def by_step(marks: Sequence[Mark], step: int | None, by: int) -> Mark | None:
    """The event after a step, or the one before; from no step the newest one."""
    if step is None:
        return marks[-1] if marks else None
    if by > 0:
        return next((mark for mark in marks if mark.step > step), None)
    return next((mark for mark in reversed(marks) if mark.step < step), None)


def by_time(marks: Sequence[Mark], t: float, by: int) -> Mark | None:
    """The event after a moment in unix time, or the one before."""
    if by > 0:
        return next((mark for mark in marks if mark.t > t), None)
    return next((mark for mark in reversed(marks) if mark.t < t), None)


class KnownMarks(NamedTuple):
    """The events of a run, or samples of them."""

    marks: list[Mark]
    num_marks: int
    """All of them, those that are not kept included."""

    @property
    def lack(self) -> str:
        """What a jump from one to the next may pass over; empty where every event is kept."""
        kept = len(self.marks)
        if kept >= self.num_marks:
            return ""
        return f"; older events are thinned out, {kept:,} of {self.num_marks:,} kept"


def marks_of(run_dir: Path, is_stopped: Callable[[], bool]) -> KnownMarks:
    """What happened in a whole recording. Takes as long as reading it does; gives up when stopped."""
    session = Session.live(run_dir)
    try:
        session.poll()
        while not session.caught_up and not is_stopped():
            session.poll()
        snapshot = session.snapshot()
        return KnownMarks(snapshot.marks, snapshot.num_marks)
    finally:
        session.close()


def next_speed(speed: float, direction: int) -> float:
    """The next of the speeds that a person chooses from, faster or slower."""
    if direction > 0:
        return next((faster for faster in SPEEDS if faster > speed), SPEEDS[-1])
    return next((slower for slower in reversed(SPEEDS) if slower < speed), SPEEDS[0])
