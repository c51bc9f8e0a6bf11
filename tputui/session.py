"""A run as it is looked at: journals, reducer and clock, giving one `Snapshot` at a time.

The only path from a run's directory to any view: live, replayed, printed or attached from elsewhere. Reads files and
nothing else; nothing here can reach the run. Whatever is missing or damaged is told in the snapshot, never raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tputui.model.liveness import Verdict, judge
from tputui.model.snapshot import ENDED, DamageRegion, RequestView, Snapshot
from tputui.model.state import RunState
from tputui.model.view import Surroundings, take
from tputui.replay import Player, spans
from tputui.telemetry import control, rundir
from tputui.telemetry.journal import Damage
from tputui.telemetry.merge import Fact, Merge

POLL_BUDGET_S = 0.05


class Session:
    """A run that is looked at. Not for use from two threads at once."""

    def __init__(self, run_dir: Path, now: Callable[[], float], player: Player | None) -> None:
        """Use `live` or `replay`."""
        self.run_dir = run_dir
        self.player = player
        """What steers a replay; None where the run is followed live."""
        self.caught_up = False
        """Whether everything that is written up to this moment was read."""
        self._now = now
        self._merge = Merge(run_dir)
        self._state = RunState()
        self._read_to = float("-inf")
        self._trouble: str | None = None
        self._last_words = {span.writer: span.end for span in player.spans} if player else {}

    @classmethod
    def live(cls, run_dir: Path, clock: Callable[[], float] = time.time) -> Session:
        """Follows a run as it is written. `clock` gives unix time."""
        return cls(run_dir, clock, None)

    @classmethod
    def replay(cls, run_dir: Path, *, speed: float = 1.0, clock: Callable[[], float] = time.monotonic) -> Session:
        """Plays a recorded run from its start. `clock` tells how time passes for the one who watches."""
        player = Player(spans(run_dir), speed, clock)
        return cls(run_dir, lambda: player.position, player)

    def poll(self, budget_s: float = POLL_BUDGET_S) -> list[Fact]:
        """Reads on for about `budget_s` and returns the facts that were taken in."""
        until = float("inf")
        if self.player is not None:
            if self.player.position < self._read_to:
                self._rewind()
            until = self._read_to = float("inf") if self.player.at_end else self.player.position
            if self.player.at_end:
                self._read_to = self.player.end
        try:
            facts, self.caught_up = self._merge.poll(until, budget_s)
            self._trouble = None
        except OSError as error:
            facts, self.caught_up = [], True
            self._trouble = (
                f"the run cannot be read any more: {error.strerror or error}: {error.filename or self.run_dir}"
            )
        for fact in facts:
            self._state.apply(*fact)
        return facts

    def snapshot(self) -> Snapshot:
        """What is true now, or at the moment played."""
        now = self._now()
        manifest, why = _manifest(self.run_dir)
        created = manifest.created if manifest else None
        alive = self._alive(now)
        verdict = judge(self._state, alive, now, created)
        final = self.player.at_end if self.player else verdict.condition in ENDED
        around = Surroundings(
            now=now,
            run=manifest.run if manifest else self.run_dir.absolute().name,
            dir=str(self.run_dir),
            alive=alive,
            created=created,
            config=manifest.config if manifest else None,
            requests=[_request_view(request) for request in self._requests(now)],
            damage=[_region(damage) for damage in self._merge.damage(final=final)],
            warnings=[text for text in (self._trouble, why) if text],
        )
        return take(self._state, around, verdict)

    @property
    def state(self) -> RunState:
        """What the facts so far add up to."""
        return self._state

    @property
    def settled(self) -> bool:
        """Whether nothing more will come: the end record was read or no process is left, or a replay is through."""
        if self.player is not None:
            return self.caught_up and self.player.at_end
        verdict = self._judged()
        if not self.caught_up or verdict.condition not in ENDED:
            return False
        return verdict.exit_code is not None or not any(w.name in verdict.living for w in self._state.supervisors)

    def close(self) -> None:
        """Closes the journals."""
        self._merge.close()

    def _judged(self) -> Verdict:
        now = self._now()
        manifest, _ = _manifest(self.run_dir)
        return judge(self._state, self._alive(now), now, manifest.created if manifest else None)

    def _rewind(self) -> None:
        self._merge.close()
        self._merge = Merge(self.run_dir)
        self._state = RunState()

    def _requests(self, now: float) -> list[control.Request]:
        try:
            requests = control.read_all(self.run_dir)
        except OSError:
            return []
        return [request for request in requests if request.t <= now] if self.player else requests

    def _alive(self, now: float) -> dict[str, bool | None]:
        if self.player is not None:
            return {name: now < self._last_words.get(name, now) for name in self._state.writers}
        return {name: self._process_lives(name) for name in self._state.writers}

    def _process_lives(self, name: str) -> bool | None:
        opened = self._state.writers[name].opened
        if opened is None:
            return None
        return rundir.is_alive(
            rundir.ProcessId(host=opened.host, host_id=opened.host_id, pid=opened.pid, pid_started=opened.pid_started)
        )


def load(run_dir: Path) -> Snapshot:
    """What is true of a run now, after everything that is written was read."""
    session = Session.live(run_dir)
    try:
        session.poll()
        while not session.caught_up:
            session.poll()
        return session.snapshot()
    finally:
        session.close()


def _manifest(run_dir: Path) -> tuple[rundir.Manifest | None, str | None]:
    """The manifest, or why it cannot be read."""
    try:
        return rundir.read_manifest(run_dir), None
    except rundir.RunNotFound as error:
        return None, str(error)


def _request_view(request: control.Request) -> RequestView:
    return RequestView(
        id=request.id,
        kind=request.kind,
        state="requested",
        t=request.t,
        by=request.by,
        seen_phase=None,
        applied_step=None,
        path=None,
        why=None,
    )


def _region(damage: Damage) -> DamageRegion:
    return DamageRegion(
        journal=damage.journal,
        start=damage.start,
        end=damage.end,
        reason=damage.reason,
        lost_records=damage.lost_records,
    )
