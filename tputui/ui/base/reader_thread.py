"""The threads that poll files or processes for a screen, and the one that reads a run.

A `ReaderThread` delivers immutable frames to the screen, at most ten a second. Only this thread touches the session:
the screen requests pause, seek and speed through `ask`. A frame is delivered after the previous one was drawn, so a
slow terminal slows drawing but never reading. Must not import Textual.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from tputui.state.snapshot import ENDED, Snapshot

FRAME_S = 0.1
"""Seconds between frames, independent of the number of events."""

IDLE_S = 1.0
"""Seconds between frames of a run that has ended: its frames differ only in ages, which are shown in whole seconds."""

_BUDGET_S = 0.04
"""Maximum seconds of reading before commands are run again."""

_AWAIT_S = 0.03
"""Seconds that a due frame waits for an event. Frames so synchronise with reports of the same rate, instead of showing
two reports in one frame and none in the next."""

_RETRY_S = 0.01
"""Seconds between polls while a due frame waits for an event."""


class Player(Protocol):
    """Moves through the time of a run, recorded or live."""

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
    """The part of a session that the thread uses."""

    @property
    def caught_up(self) -> bool: ...
    @property
    def player(self) -> Player | None: ...
    def poll(self, budget_s: float) -> object: ...
    def snapshot(self) -> Snapshot: ...
    def newest(self) -> Snapshot: ...
    def close(self) -> None: ...


class PlayerState(NamedTuple):
    """The moment of a run that is shown; times in unix seconds."""

    start: float
    end: float
    position: float
    speed: float
    playing: bool
    live: bool = False
    """Whether the newest moment is followed; always false in a recording."""


class Frame(NamedTuple):
    """One state of a run, as the screen draws it."""

    snapshot: Snapshot
    player: PlayerState | None
    caught_up: bool
    """Whether the snapshot contains all events of the journals."""
    newest: Snapshot
    """The newest state: the same as `snapshot`, unless a live run shows its past."""


class PollingThread(ABC):
    """Calls `poll` until stopped, then `close`. Textual starts and joins it: `run_worker(thread.run, thread=True)`."""

    def __init__(self) -> None:
        self._awake = threading.Event()
        self._stopped = threading.Event()

    @abstractmethod
    def poll(self) -> float | None:
        """Does one round of work; returns the seconds until the next one, None to wait for `wake`."""

    def close(self) -> None:  # noqa: B027 - most threads hold nothing
        """Releases what the thread holds; called in the thread, also after an error."""

    def run(self) -> None:
        """The body of the thread."""
        try:
            while True:
                # In this order: a wake-up during `poll` ends the wait after it, and a stop before it is seen here.
                self._awake.clear()
                if self._stopped.is_set():
                    return
                self._awake.wait(self.poll())
        finally:
            self.close()

    def wake(self) -> None:
        """Ends the current wait; callable from any thread."""
        self._awake.set()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Ends the thread after the current round; callable from any thread."""
        self._stopped.set()
        self._awake.set()


class ReaderThread(PollingThread):
    """Polls a source until stopped, and closes it."""

    def __init__(
        self, source: Source, deliver: Callable[[Frame], object], *, frame_s: float = FRAME_S, idle_s: float = IDLE_S
    ) -> None:
        """`deliver` is called in the thread."""
        super().__init__()
        self._source = source
        self._deliver = deliver
        self._frame_s = frame_s
        self._idle_s = idle_s
        self._commands: deque[Callable[[Player], None]] = deque()
        self._drawn = threading.Event()
        self._drawn.set()
        self._due = 0.0
        """Monotonic time of the next frame."""
        self._is_urgent = False
        """Whether a command waits to be seen, so that the next frame does not wait until it is due."""
        self._has_news = False
        """Whether events were read since the last frame."""

    def poll(self) -> float:
        """Runs commands, reads events, and delivers a frame when one is due."""
        self._is_urgent = self._run_commands() or self._is_urgent
        self._has_news = bool(self._source.poll(_BUDGET_S)) or self._has_news
        now = time.monotonic()
        is_due = self._is_urgent or now >= self._due + (0.0 if self._has_news else _AWAIT_S)
        if is_due and self._drawn.is_set():
            self._deliver_frame(now)
        # An urgent frame waits only for the one before to be drawn.
        remaining = (now if self._is_urgent else self._due) - time.monotonic()
        return max(remaining, _RETRY_S) if self._source.caught_up else 0.0

    def close(self) -> None:
        """Closes the source."""
        self._source.close()

    def ask(self, command: Callable[[Player], None]) -> None:
        """Queues a command for the player, to be run in the thread; without a player it is dropped."""
        self._commands.append(command)
        self.wake()

    def drawn(self) -> None:
        """Allows the next frame: the screen has drawn the newest one."""
        self._drawn.set()

    def _deliver_frame(self, now: float) -> None:
        # Counted from when this frame was due, so that reading times do not add up.
        is_late = not self._due <= now < self._due + self._frame_s
        self._due = now + self._frame_s if is_late else self._due + self._frame_s
        frame = take_frame(self._source)
        if _is_idle(frame) and not self._has_news:
            self._due = now + self._idle_s
        self._is_urgent = self._has_news = False
        self._drawn.clear()
        self._deliver(frame)

    def _run_commands(self) -> bool:
        player, has_run = self._source.player, False
        while self._commands:
            command = self._commands.popleft()
            if player is not None:
                command(player)
                has_run = True
        return has_run


def _is_idle(frame: Frame) -> bool:
    """Whether the next frame differs from this one only in ages, unless a key is pressed."""
    over = frame.caught_up and frame.newest.condition in ENDED
    return over and (frame.player is None or not frame.player.playing)


def take_frame(source: Source) -> Frame:
    """The current state of a source."""
    snapshot, player = source.snapshot(), source.player
    state = None
    if player is not None:
        state = PlayerState(player.start, player.end, player.position, player.speed, player.playing, player.live)
    looks_back = state is not None and not state.live
    return Frame(snapshot, state, source.caught_up, source.newest() if looks_back else snapshot)
