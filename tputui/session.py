"""A run as it is looked at: journals, reducer and clock, giving one `Snapshot` at a time.

The only path from a run's directory to any view: live, replayed, printed or attached from elsewhere. Reads files and
nothing else; nothing here can reach the run. Whatever is missing or damaged is told in the snapshot, never raised.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from tputui import completeness
from tputui.completeness import JournalFile
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

    def __init__(self, run_dir: Path, clock: Callable[[], float], player: Player | None) -> None:
        """Use `live` or `replay`."""
        self.run_dir = run_dir
        self.player = player
        """What steers a replay; None where the run is followed live."""
        self.caught_up = False
        """Whether everything that is written up to this moment was read."""
        self._clock = clock
        self._merge = Merge(run_dir)
        self._state = RunState()
        self._manifest: rundir.Manifest | None = None
        self._opened = False
        """Whether everything was read once since the start or the last rewind."""
        self._moment = player.start if player else -math.inf
        """The moment of a replay up to which the last poll read."""
        self._trouble: str | None = None
        self._last_words = {span.writer: span.end for span in player.spans} if player else {}

    @classmethod
    def live(cls, run_dir: Path, clock: Callable[[], float] = time.time) -> Session:
        """Follows a run as it is written. `clock` gives unix time."""
        return cls(run_dir, clock, None)

    @classmethod
    def replay(cls, run_dir: Path, *, speed: float = 1.0, clock: Callable[[], float] = time.monotonic) -> Session:
        """Plays a recorded run from its start. `clock` tells how time passes for the one who watches.

        Raises `ValueError` on a speed that is not more than 0.
        """
        return cls(run_dir, clock, Player(spans(run_dir), speed, clock))

    def poll(self, budget_s: float = POLL_BUDGET_S) -> list[Fact]:
        """Reads on for about `budget_s` and returns the facts that were taken in."""
        until = math.inf
        if self.player is not None:
            moment = self.player.position
            if moment < self._moment:
                self._rewind()
            self._moment = moment
            # The last fact of a journal need not be its newest; at the end nothing may be held back.
            until = math.inf if moment >= self.player.end else moment
        fresh = [fact for fact in self._read(until, budget_s) if self._is_new(fact)]
        self._opened = self._opened or self.caught_up
        for fact in fresh:
            self._state.apply(*fact)
        return fresh

    def snapshot(self) -> Snapshot:
        """What is true now, or at the moment played; of a run that is still being read in, as far as it was read."""
        now, verdict = self._judge()
        manifest, why = self._read_manifest()
        final = self._is_through() if self.player else verdict.condition in ENDED
        gone = None if self.run_dir.is_dir() else f"the run's directory {self.run_dir} is gone"
        around = Surroundings(
            now=now,
            run=manifest.run if manifest else self.run_dir.absolute().name,
            dir=str(self.run_dir),
            created=manifest.created if manifest else None,
            config=manifest.config if manifest else None,
            requests=[_request_view(request) for request in self._requests(now)],
            damage=[_region(damage) for damage in self._damage(final)],
            warnings=[text for text in (gone, self._trouble, None if gone else why) if text],
        )
        return take(self._state, around, verdict)

    @property
    def settled(self) -> bool:
        """Whether nothing more will come: the end record was read or no process is left, or a replay is through."""
        if self.player is not None:
            return self._is_through()
        if not self._opened:
            return False
        _, verdict = self._judge()
        if verdict.condition not in ENDED:
            return False
        return verdict.exit_code is not None or not any(w.name in verdict.living for w in self._state.supervisors)

    def close(self) -> None:
        """Closes the journals."""
        self._merge.close()

    def _read(self, until: float, budget_s: float) -> list[Fact]:
        try:
            facts, self.caught_up = self._merge.poll(until, budget_s)
        except FileNotFoundError:
            # The directory went away. What was read stays, and files that are open are read on at the next poll.
            self.caught_up = True
            return []
        except OSError as error:
            # Records that were read and not handed over are lost with this reader; a new one brings them again, and
            # those that were taken in already change nothing.
            self._trouble = f"the run cannot be read: {error.strerror or error}: {error.filename or self.run_dir}"
            self._merge.close()
            self._merge = Merge(self.run_dir)
            self.caught_up = True
            return []
        self._trouble = None
        return facts

    def _damage(self, final: bool) -> list[Damage]:
        """What of the run cannot be read, or is not there; `final` says that no more will be written."""
        if not self.run_dir.is_dir():
            return self._merge.damage(final=final)
        manifest, _ = self._read_manifest()
        regions = [*([] if manifest else manifest_damage(self.run_dir)), *self._merge.damage(final=final)]
        if not (final and self.caught_up):
            return regions
        files = _journal_files(self.run_dir)
        if files is None:
            return regions
        return regions + completeness.missing(self._state, files, regions, over=final)

    def _is_new(self, fact: Fact) -> bool:
        writer = self._state.writers.get(fact.writer)
        return writer is None or fact.seq > writer.last_seq

    def _is_through(self) -> bool:
        return self.player is not None and self.caught_up and self._moment >= self.player.end

    def _judge(self) -> tuple[float, Verdict]:
        """The moment that is looked at, and what is told of the run's life then."""
        reading = not (self.caught_up if self.player else self._opened)
        if reading and self._state.writers:
            # Judged as of now, a run that is half read would be told lost until its end record comes.
            times = [writer.newest_t for writer in self._state.writers.values() if writer.newest_t is not None]
            now = min(times, default=self._now())
            return now, judge(self._state, dict.fromkeys(self._state.writers, True), now)
        now = self._now()
        manifest, _ = self._read_manifest()
        created = manifest.created if manifest and self.player is None else None
        return now, judge(self._state, self._alive(now), now, created)

    def _now(self) -> float:
        return self._moment if self.player is not None else self._clock()

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

    def _rewind(self) -> None:
        self._merge.close()
        self._merge = Merge(self.run_dir)
        self._state = RunState()
        self._opened = self.caught_up = False

    def _requests(self, now: float) -> list[control.Request]:
        try:
            requests = control.read_all(self.run_dir)
        except OSError:
            return []
        return [request for request in requests if request.t <= now] if self.player else requests

    def _read_manifest(self) -> tuple[rundir.Manifest | None, str | None]:
        """The manifest, or why it cannot be read."""
        if self._manifest is None:
            try:
                self._manifest = rundir.read_manifest(self.run_dir)
            except rundir.RunNotFound as error:
                return None, str(error)
        return self._manifest, None


def manifest_damage(run_dir: Path) -> list[Damage]:
    """Why the run's manifest cannot be read, as a region of its file; nothing where it can."""
    try:
        rundir.read_manifest(run_dir)
    except rundir.RunNotFound as error:
        path = run_dir / rundir.MANIFEST
        size = path.stat().st_size if path.is_file() else 0
        return [Damage(rundir.MANIFEST, 0, size, str(error).partition(": ")[2], None)]
    return []


def _journal_files(run_dir: Path) -> dict[str, JournalFile] | None:
    """The journals that stand in a run's directory, by writer; None where they cannot be looked at."""
    try:
        return {name: JournalFile(path.name, path.stat().st_size) for name, path in rundir.journal_paths(run_dir)}
    except OSError:
        return None


def load(run_dir: Path, clock: Callable[[], float] = time.time) -> Snapshot:
    """What is true of a run now, after everything that is written was read."""
    session = Session.live(run_dir, clock)
    try:
        session.poll()
        while not session.caught_up:
            session.poll()
        return session.snapshot()
    finally:
        session.close()


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
