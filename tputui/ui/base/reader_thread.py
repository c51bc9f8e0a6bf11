"""The threads that poll files or processes for a screen, and the one that reads a run.

A `ReaderThread` delivers immutable frames to the screen, at most ten a second. Without news there is a frame only when
a displayed age changes. Only this thread touches the session: the screen requests pause, seek and speed through `ask`.
A frame is delivered after the previous one was drawn, so a slow terminal slows drawing but never reading. Must not
import Textual.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tputui.state.run_condition import ENDED

if TYPE_CHECKING:
    from tputui.diagnosis.diagnose import RecentVerdicts
    from tputui.diagnosis.verdict import Verdict
    from tputui.state.snapshot import Snapshot

FRAME_S = 0.1
"""Seconds between frames, independent of the number of events."""

_WORK_SHARE = 0.5
"""Maximum share of a processor for making frames: those of hundreds of hosts are further apart than `FRAME_S`."""
_READING_SHARE = 0.2
"""The same until everything was read, so that snapshots of what was read so far delay it little."""

AGE_S = 1.0
"""Seconds between frames that differ only in ages, which are shown in whole seconds; also between two checks for
changes other than events. Of a run that has ended, or without events for a minute, they are twice as rare."""

LONG_AGE_S = 60.0
"""The same where every age is shown in minutes or not at all: an ended run, a live one without events for a minute, a
recording that stands still."""

MIDDLE_AGE_S = 5.0
"""The same for ages from this one up to a minute, which are therefore shown in steps of it."""

_BUDGET_S = 0.04
"""Maximum seconds of reading before commands are run again."""

_AWAIT_S = 0.03
"""Seconds that a due frame waits for an event. Frames so synchronise with reports of the same rate, instead of showing
two reports in one frame and none in the next."""

_RETRY_S = 0.01
"""Seconds between polls while a due frame waits for an event."""

_POLLS_S = ((1.5, 0.05), (4.0, 0.1), (10.0, 0.25), (30.0, 0.5), (math.inf, 1.0))
"""Seconds since the newest event, and seconds between polls up to there."""


class PlayerControls(Protocol):
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
    @property
    def follows(self) -> bool: ...
    def play(self) -> None: ...
    def pause(self) -> None: ...
    def seek(self, t: float) -> None: ...
    def follow(self) -> None: ...
    def set_speed(self, speed: float) -> None: ...


class SessionSource(Protocol):
    """The part of a session that the thread uses."""

    @property
    def caught_up(self) -> bool: ...
    @property
    def player(self) -> PlayerControls | None: ...
    def poll(self, budget_s: float) -> object: ...
    def fingerprint(self) -> object: ...
    def snapshot(self, *, may_defer: bool = False) -> Snapshot: ...
    def newest(self, *, may_defer: bool = False) -> Snapshot: ...
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
    verdicts: tuple[Verdict, ...] = ()
    """What slows the run down at the moment of `snapshot`, worst first; at most a second old."""


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
        self,
        source: SessionSource,
        deliver: Callable[[Frame], object],
        *,
        frame_s: float = FRAME_S,
        age_s: float = AGE_S,
        long_age_s: float = LONG_AGE_S,
    ) -> None:
        """`deliver` is called in the thread."""
        # Imported here, since the first frame of the program needs other parts of this module.
        from tputui.diagnosis.diagnose import RecentVerdicts

        super().__init__()
        self._source = source
        self._deliver = deliver
        self._frame_s = frame_s
        self._age_s = age_s
        self._long_age_s = long_age_s
        self._commands: deque[Callable[[PlayerControls], None]] = deque()
        self._drawn = threading.Event()
        self._drawn.set()
        self._due = 0.0
        """Monotonic time of the next frame with news."""
        self._ages_due = 0.0
        """Monotonic time of the next frame without news."""
        self._is_urgent = False
        """Whether a command waits to be seen, so that the next frame does not wait until it is due."""
        self._has_news = False
        """Whether something changed since the last frame."""
        self._news_at = -math.inf
        """Monotonic time of the newest event."""
        self._recent = RecentVerdicts()
        self._must_refresh = False
        """Whether `refresh` was called since the last poll."""
        self._fingerprint: object = None
        self._checked_at = -math.inf
        """Monotonic time of the last comparison of the fingerprint."""
        self._is_over = False
        """Whether the last frame showed a run that has ended, so that it is polled rarely."""
        self._showed_news = False
        """Whether the last frame showed something new, so that more is expected when the next one is due."""
        self._moves = False
        """Whether the last frame showed a player that moves through the past."""

    def poll(self) -> float:
        """Runs commands, reads events, and delivers a frame when one is due."""
        if self._must_refresh:
            self._must_refresh, self._is_urgent = False, True
        self._is_urgent = self._run_commands() or self._is_urgent
        events = bool(self._source.poll(_BUDGET_S))
        now = time.monotonic()
        if events:
            self._news_at = now
        self._has_news = self._has_news or events or not self._source.caught_up or self._has_changed(now)
        if self._is_due(now) and self._drawn.is_set():
            self._deliver_frame(now)
        return self._wait_s(time.monotonic()) if self._source.caught_up else 0.0

    def _has_changed(self, now: float) -> bool:
        """Whether something other than events changed, checked every second or two."""
        is_calm = self._is_over or now - self._news_at > self._long_age_s
        if now < self._checked_at + (2 * self._age_s if is_calm else self._age_s):
            return False
        self._checked_at = now
        before, self._fingerprint = self._fingerprint, self._source.fingerprint()
        return before != self._fingerprint

    def _is_due(self, now: float) -> bool:
        if self._is_urgent or now >= self._ages_due:
            return True
        if self._moves:
            return now >= self._due + (0.0 if self._has_news else _AWAIT_S)
        return self._has_news and now >= self._due

    def _wait_s(self, now: float) -> float:
        """Seconds until the next poll."""
        if self._is_urgent:
            # An urgent frame waits only for the one before to be drawn.
            return _RETRY_S
        if self._has_news or (self._showed_news and now < self._due):
            return max(self._due - now, _RETRY_S)
        if self._is_over:
            wait_s = 2 * self._age_s
        elif self._moves or (self._showed_news and now < self._due + _AWAIT_S):
            wait_s = _RETRY_S
        else:
            wait_s = next(poll_s for silent_s, poll_s in _POLLS_S if now - self._news_at <= silent_s)
        return max(min(wait_s, self._ages_due - now), _RETRY_S)

    def close(self) -> None:
        """Closes the source."""
        self._source.close()

    def ask(self, command: Callable[[PlayerControls], None]) -> None:
        """Queues a command for the player, to be run in the thread; without a player it is dropped."""
        self._commands.append(command)
        self.wake()

    def refresh(self) -> None:
        """Delivers a frame at once, also without news; callable from any thread."""
        self._must_refresh = True
        self.wake()

    def drawn(self) -> None:
        """Allows the next frame: the screen has drawn the newest one."""
        self._drawn.set()

    def _deliver_frame(self, now: float) -> None:
        # Counted from when this frame was due, so that reading times do not add up.
        is_late = not self._due <= now < self._due + self._frame_s
        self._due = now + self._frame_s if is_late else self._due + self._frame_s
        began = time.thread_time()
        frame = take_frame(self._source, self._recent)
        share = _WORK_SHARE if frame.caught_up else _READING_SHARE
        self._due = max(self._due, now + (time.thread_time() - began) / share)
        self._ages_due = now + self._until_age_changes(frame)
        self._is_over = frame.caught_up and frame.newest.condition in ENDED
        self._moves = frame.player is not None and frame.player.playing and not frame.player.live
        self._showed_news = self._has_news
        self._is_urgent, self._has_news = False, frame.snapshot.is_behind or frame.newest.is_behind
        self._drawn.clear()
        self._deliver(frame)

    def _until_age_changes(self, frame: Frame) -> float:
        """Seconds until a displayed age changes."""
        newest, player = frame.newest, self._source.player
        if player is not None and not player.follows:
            return self._long_age_s
        since = newest.ended if newest.ended is not None else newest.newest_fact
        if since is None:
            return self._long_age_s if newest.condition in ENDED else self._age_s
        # Ages of a minute and more are shown in whole minutes, see `formatting.age`. A change of the condition of a
        # live run is part of the fingerprint.
        ages_s = [newest.now - since]
        if newest.condition not in ENDED and newest.requests:
            ages_s.append(newest.now - newest.requests[-1].t)
        if min(ages_s) < MIDDLE_AGE_S:
            return self._age_s
        if min(ages_s) < 60:
            return MIDDLE_AGE_S - ages_s[0] % MIDDLE_AGE_S
        return min(self._long_age_s, 60 - ages_s[0] % 60)

    def _run_commands(self) -> bool:
        player, has_run = self._source.player, False
        while self._commands:
            command = self._commands.popleft()
            if player is not None:
                command(player)
                has_run = True
        return has_run


def take_frame(source: SessionSource, recent: RecentVerdicts) -> Frame:
    """The current state of a source."""
    snapshot, player = source.snapshot(may_defer=True), source.player
    state = None
    if player is not None:
        state = PlayerState(player.start, player.end, player.position, player.speed, player.playing, player.live)
    looks_back = player is not None and player.follows and not player.live
    newest = source.newest(may_defer=True) if looks_back else snapshot
    return Frame(snapshot, state, source.caught_up, newest, recent.of(snapshot))
