"""One thread that reads a run and hands immutable frames to the screen, at most ten a second.

Only this thread touches the session: the screen asks for pause, seek and speed through `ask`. A frame is handed over
when the one before was drawn, so a slow terminal slows drawing and never reading. Must not know Textual.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from tputui.state.snapshot import ENDED, Snapshot

FRAME_S = 0.1
"""Seconds between frames: ten a second, whatever the number of facts."""

IDLE_S = 1.0
"""Seconds between frames of a run that has ended, whose frames differ in ages alone: those are of whole seconds."""

_BUDGET_S = 0.04
"""Longest reading between two looks at what the screen asks for."""

_AWAIT_S = 0.03
"""How long a frame that is due waits for a fact. So frames fall in with reports that come as often, and none tells two
of them while the one before told none."""

_LOOK_S = 0.01
"""Pause between two looks for a fact that is waited for."""


class Player(Protocol):
    """What moves through the time of a run, recorded or going on."""

    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def position(self) -> float: ...
    @property
    def speed(self) -> float: ...
    @property
    def playing(self) -> bool: ...
    @property
    def live(self) -> bool: ...
    def play(self) -> None: ...
    def pause(self) -> None: ...
    def seek(self, t: float) -> None: ...
    def follow(self) -> None: ...
    def set_speed(self, speed: float) -> None: ...


class Source(Protocol):
    """What the screen needs of a session."""

    @property
    def caught_up(self) -> bool: ...
    @property
    def player(self) -> Player | None: ...
    def poll(self, budget_s: float) -> object: ...
    def snapshot(self) -> Snapshot: ...
    def newest(self) -> Snapshot: ...
    def close(self) -> None: ...


class PlayerState(NamedTuple):
    """Which moment of a run is shown; times in unix seconds."""

    start: float
    end: float
    position: float
    speed: float
    playing: bool
    live: bool = False
    """Whether now is followed; never so in a recording."""


class Frame(NamedTuple):
    """What the screen draws."""

    snapshot: Snapshot
    player: PlayerState | None
    caught_up: bool
    """Whether everything that the journals hold is in the snapshot."""
    newest: Snapshot
    """What is true now. The same as `snapshot`, unless a run that is followed shows its past."""


class ReaderThread:
    """Reads a source until stopped, and closes it."""

    def __init__(
        self, source: Source, deliver: Callable[[Frame], object], *, frame_s: float = FRAME_S, idle_s: float = IDLE_S
    ) -> None:
        self._source = source
        self._deliver = deliver
        self._frame_s = frame_s
        self._idle_s = idle_s
        self._asked: deque[Callable[[Player], None]] = deque()
        self._awake = threading.Event()
        self._drawn = threading.Event()
        self._drawn.set()
        self._stopped = threading.Event()

    def run(self) -> None:
        """The body of the thread."""
        try:
            due, urgent, fresh = 0.0, False, False
            while not self._stopped.is_set():
                urgent = self._obey() or urgent
                fresh = bool(self._source.poll(_BUDGET_S)) or fresh
                now = time.monotonic()
                if (urgent or now >= due + (0.0 if fresh else _AWAIT_S)) and self._drawn.is_set():
                    # By when this one was due, so that the time that reading takes adds up to nothing.
                    due = due + self._frame_s if due <= now < due + self._frame_s else now + self._frame_s
                    frame = take_frame(self._source)
                    if _is_idle(frame) and not fresh:
                        due = now + self._idle_s
                    urgent = fresh = False
                    self._drawn.clear()
                    self._deliver(frame)
                # What was asked for waits for the frame before to be drawn, and no longer.
                self._rest(now if urgent else due)
        finally:
            self._source.close()

    def ask(self, command: Callable[[Player], None]) -> None:
        """Has the thread do something with the player; without a player nothing happens."""
        self._asked.append(command)
        self._awake.set()

    def drawn(self) -> None:
        """The screen has drawn the newest frame."""
        self._drawn.set()

    @property
    def is_stopped(self) -> bool:
        """Whether the thread is to end."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Ends the thread soon."""
        self._stopped.set()
        self._awake.set()

    def _obey(self) -> bool:
        self._awake.clear()
        player, obeyed = self._source.player, False
        while self._asked:
            command = self._asked.popleft()
            if player is not None:
                command(player)
                obeyed = True
        return obeyed

    def _rest(self, due: float) -> None:
        """Waits for the next frame, unless there is more to read at once."""
        left = due - time.monotonic()
        if self._source.caught_up:
            self._awake.wait(max(left, _LOOK_S))


def _is_idle(frame: Frame) -> bool:
    """Whether the next frame differs from this one in ages alone, as far as no key is pressed."""
    over = frame.caught_up and frame.newest.condition in ENDED
    return over and (frame.player is None or not frame.player.playing)


def take_frame(source: Source) -> Frame:
    """The state of a source now."""
    snapshot, player = source.snapshot(), source.player
    state = None
    if player is not None:
        state = PlayerState(player.start, player.end, player.position, player.speed, player.playing, player.live)
    looks_back = state is not None and not state.live
    return Frame(snapshot, state, source.caught_up, source.newest() if looks_back else snapshot)
