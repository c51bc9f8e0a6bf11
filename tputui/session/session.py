"""A run as it is looked at: journals, reducer and clock, giving one `Snapshot` at a time.

The only path from a run's directory to any view: live, replayed, printed or attached from elsewhere. Reads files and
nothing else; nothing here can reach the run. Whatever is missing or damaged is told in the snapshot, never raised.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tputui.cache.state_cache import StateCache
from tputui.session import truncation
from tputui.session.journal_reader import CachedStates, JournalReader
from tputui.session.player import JournalSpan, Player, Reach, reach_of, spans
from tputui.session.truncation import JournalFile
from tputui.state.liveness import Liveness, assess
from tputui.state.reducer import RunState
from tputui.state.snapshot import ENDED, DamageRegion, RequestView, Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import requests, rundir
from tputui.telemetry.journal import Damage
from tputui.telemetry.merge import JournalEvent

POLL_BUDGET_S = 0.05
SKEW_S = 5.0
"""By so much the clock of another host may differ before it is made up for: a heartbeat is on its way for a second."""
WATCH_S = 5.0
"""A run of another host that looks lost by this host's clock is watched for so long, whether it still moves, before it
counts as settled."""


class Session:
    """A run that is looked at. Not for use from two threads at once.

    A recorded run has one track, read up to the moment that its player plays. A run that is followed has one that is
    read to the newest fact always, and while a person looks back a second one, read up to that moment; so nothing has
    to be made up for on the way back to now.
    """

    def __init__(
        self, run_dir: Path, clock: Callable[[], float], recorded: list[JournalSpan] | None, speed: float
    ) -> None:
        """Use `live` or `replay`."""
        self.run_dir = run_dir
        self._clock = clock
        self._recorded = recorded is not None
        self._reach = reach_of(recorded) if recorded is not None else None
        """From when to when a recording goes."""
        self._last_words = {span.writer: span.end for span in recorded or ()}
        self._manifest: rundir.Manifest | None = None
        self._places = CachedStates(shelf=StateCache(run_dir))
        self._track = JournalReader(run_dir, self._places)
        self._back: JournalReader | None = None
        """What is looked back at."""
        self._skew_s = 0.0
        """How far the clock of another host is ahead of this one, seen when a fact arrived."""
        self._caught_up_t = clock()
        """When the journals were last read to their end, by this host's clock."""
        self._moved = False
        """Whether a fact arrived while the run was watched."""
        self._unseen = False
        """Whether processes of it are another host's, so that only facts tell whether they live."""
        self._watched_since = time.monotonic()
        self._over = False
        """Whether a run that is followed was told to have ended when that was last asked."""
        self.player = Player(self._reach_now, clock, speed=speed, follows=not self._recorded)
        """What steers the moment that is looked at."""

    @classmethod
    def live(cls, run_dir: Path, clock: Callable[[], float] = time.time) -> Session:
        """Follows a run as it is written. `clock` gives unix time."""
        return cls(run_dir, clock, None, 1.0)

    @classmethod
    def replay(cls, run_dir: Path, *, speed: float = 1.0, clock: Callable[[], float] = time.monotonic) -> Session:
        """Plays a recorded run from its start. `clock` tells how time passes for the one who watches.

        Raises `ValueError` on a speed that is not more than 0.
        """
        return cls(run_dir, clock, spans(run_dir), speed)

    @property
    def caught_up(self) -> bool:
        """Whether everything that is written up to the moment that is looked at was read."""
        return self._shown.caught_up

    def disable_cache(self) -> None:
        """Has `poll` return every fact that is read from now on: nothing is passed over that a place on disk knows."""
        self._places.shelf = None

    def poll(self, budget_s: float = POLL_BUDGET_S) -> list[JournalEvent]:
        """Reads on for about `budget_s` and returns the facts that were taken in, at the moment that is looked at."""
        if self._recorded:
            return self._play(self._track, budget_s)
        self.player.catch_up()
        if self.player.live:
            self._end_look_back()
            return self._follow(budget_s)
        self._follow(budget_s / 2)
        self._judge_now()
        if self._back is None:
            self._back = JournalReader(self.run_dir, self._places)
        return self._play(self._back, budget_s / 2)

    def update_clock_skew(self) -> None:
        """Measures the clock of another host by facts that just arrived: they were written after the last ones were."""
        newest_t = self._track.state.newest_t
        if newest_t is not None:
            ahead_s = newest_t - self._clock()
            behind_s = self._caught_up_t - newest_t
            skew_s = ahead_s if ahead_s > 0 else -max(behind_s, 0.0)
            self._skew_s, self._moved = skew_s if abs(skew_s) > SKEW_S else 0.0, True

    def read_all(self) -> None:
        """Reads on until it is caught up, at least once. Keeps no fact, of which a long run has millions."""
        self.poll()
        while not self.caught_up:
            self.poll()

    def snapshot(self) -> Snapshot:
        """What is true now, or at the moment looked at; of a run that is still being read in, as far as it was read."""
        return self._snapshot_of(self._shown)

    def newest(self) -> Snapshot:
        """What is true now of a run that is followed, also while its past is shown; else the same as `snapshot`."""
        return self._snapshot_of(self._track)

    def _snapshot_of(self, track: JournalReader) -> Snapshot:
        follows = track is self._track and not self._recorded
        now, verdict = self._judge_now() if follows else self._judge_moment(track)
        manifest = self._read_manifest()
        final = verdict.condition in ENDED if follows else self._is_through()
        gone = None if self.run_dir.is_dir() else f"the run's directory {self.run_dir} is gone"
        around = ViewerContext(
            now=now,
            run=manifest.run if manifest else self.run_dir.absolute().name,
            dir=str(self.run_dir),
            created=manifest.created if manifest else None,
            config=manifest.config if manifest else None,
            requests=[_request_view(r) for r in self._requests() if follows or r.t <= now],
            damage=[_region(damage) for damage in self._damage(track, final)],
            troubles=[text for text in (gone, track.trouble) if text],
        )
        return build_snapshot(track.state, around, verdict)

    @property
    def settled(self) -> bool:
        """Whether nothing more will come: the end record was read or no process is left, or a replay is through."""
        if self._recorded:
            return self._is_through()
        if not self._track.opened:
            return False
        _, verdict = self._judge_now()
        if verdict.condition not in ENDED:
            return False
        if verdict.condition == "lost" and self._unseen and not self._moved:
            return time.monotonic() - self._watched_since >= WATCH_S
        supervisors = self._track.state.supervisors
        return verdict.exit_code is not None or not any(w.name in verdict.living for w in supervisors)

    def training_processes(self) -> list[tuple[str, int]]:
        """Name and process id of the training processes that live; several ranks in one process are told once."""
        found: dict[int, str] = {}
        for writer in (*self._track.state.workers, *self._track.state.ranks):
            if writer.opened and writer.training_ended is None and self._process_lives(writer.name) is not False:
                found.setdefault(writer.opened.pid, writer.name)
        return [(name, pid) for pid, name in found.items()]

    def close(self) -> None:
        """Closes the journals."""
        self._end_look_back()
        self._track.close()

    @property
    def _shown(self) -> JournalReader:
        """The track of the moment that is looked at."""
        return self._back or self._track

    def _follow(self, budget_s: float) -> list[JournalEvent]:
        opened = self._track.opened
        read_events = self._track.read(math.inf, budget_s)
        if self._track.caught_up:
            if read_events and opened:
                self.update_clock_skew()
            self._caught_up_t = self._clock()
        return read_events

    def _now(self) -> float:
        """Now in the time of the run: its host's clock may differ from this one's, or may have been set back."""
        if self._unseen:
            return self._clock() + self._skew_s
        # Of writers that have not spoken since the clock was set back, the silence is not known yet.
        going_on = [w for w in self._track.state.processes.values() if w.training_ended is None and w.run_ended is None]
        return self._clock() + min((writer.set_back_s for writer in going_on), default=0.0)

    def _play(self, track: JournalReader, budget_s: float) -> list[JournalEvent]:
        moment = self.player.position
        return track.read(moment, budget_s, whole=moment >= self.player.end)

    def _end_look_back(self) -> None:
        if self._back is not None:
            self._back.close()
            self._back = None

    def _reach_now(self) -> Reach:
        """From when to when the run can be looked at."""
        if self._reach is not None:
            return self._reach
        now, state = self._now(), self._track.state
        first, newest = state.first_t, state.newest_t
        start = first if first is not None else now
        if self._over and newest is not None:
            return Reach(start, newest)
        return Reach(start, max(start, now), growing=True)

    def _damage(self, track: JournalReader, final: bool) -> list[Damage]:
        """What of the run cannot be read, or is not there; `final` says that no more will be written."""
        if not self.run_dir.is_dir():
            return track.damage(final=final)
        manifest = self._read_manifest()
        regions = [*manifest_damage(self.run_dir, track.state, manifest), *track.damage(final=final)]
        if not (final and track.caught_up):
            return regions
        files = _journal_files(self.run_dir)
        if files is None:
            return regions
        regions += truncation.misplaced(track.state, files, manifest.run if manifest else None)
        return regions + truncation.missing(track.state, files, regions, over=final)

    def _is_through(self) -> bool:
        """Whether the moment that is looked at is the end, and all before it was read."""
        return self._shown.caught_up and self._shown.moment >= self.player.end

    def _judge_moment(self, track: JournalReader) -> tuple[float, Liveness]:
        """The moment up to which a track is read, and what is reported of the run's life then."""
        if not track.caught_up and track.state.processes:
            return _half_read(track.state, track.moment)
        return track.moment, assess(track.state, self._alive_at(track), track.moment)

    def _judge_now(self) -> tuple[float, Liveness]:
        """The same of a run that is followed, now."""
        state = self._track.state
        if not self._track.opened and state.processes:
            return _half_read(state, self._clock())
        manifest = self._read_manifest()
        alive = {name: self._process_lives(name) for name in state.processes}
        self._unseen = None in alive.values()
        now = self._now()
        verdict = assess(state, alive, now, manifest.created if manifest else None)
        self._over = verdict.condition in ENDED
        return now, verdict

    def _alive_at(self, track: JournalReader) -> dict[str, bool | None]:
        """By writer: whether it had more to say after the moment of a track, or else lives now."""
        if self._recorded:
            return {name: track.moment < self._last_words.get(name, track.moment) for name in track.state.processes}
        found: dict[str, bool | None] = {}
        for name in track.state.processes:
            followed = self._track.state.processes.get(name)
            newest_t = followed.newest_t if followed is not None and self._track.opened else math.inf
            found[name] = (newest_t is not None and track.moment < newest_t) or self._process_lives(name)
        return found

    def _process_lives(self, name: str) -> bool | None:
        followed = self._track.state.processes.get(name)
        opened = followed.opened if followed is not None else None
        return None if opened is None else rundir.is_alive(rundir.process_of(opened))

    def _requests(self) -> list[requests.Request]:
        try:
            return requests.read_all(self.run_dir)
        except OSError:
            return []

    def _read_manifest(self) -> rundir.Manifest | None:
        """The manifest; of one that cannot be read the damage tells why."""
        if self._manifest is None:
            self._manifest = rundir.manifest_if_readable(self.run_dir)
        return self._manifest


def _half_read(state: RunState, now: float) -> tuple[float, Liveness]:
    """What is told of a run as far as it was read; judged as of now it would be told lost until its end is read."""
    times = [writer.newest_t for writer in state.processes.values() if writer.newest_t is not None]
    now = min(times, default=now)
    return now, assess(state, dict.fromkeys(state.processes, True), now)


def manifest_damage(run_dir: Path, state: RunState, manifest: rundir.Manifest | None = None) -> list[Damage]:
    """Why the run's manifest cannot be read, or what it says that the run did not record, as a region of its file.

    `manifest` is what was read of it before.
    """
    lost: int | None = 0
    try:
        asked = manifest or rundir.read_manifest(run_dir)
        key = [id(writer.run_started) for writer in state.supervisors]
        why = state.memoized("manifest", key, lambda: truncation.contradicted(state, asked.config))
    except rundir.RunNotFound as error:
        why, lost = str(error).partition(": ")[2], None
    if not why:
        return []
    path = run_dir / rundir.MANIFEST
    return [Damage(rundir.MANIFEST, 0, path.stat().st_size if path.is_file() else 0, why, lost)]


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
        session.read_all()
        return session.snapshot()
    finally:
        session.close()


def load_at(run_dir: Path, t: float) -> Snapshot:
    """What was true of a run at a moment, in unix time: nothing that came later is in it."""
    session = Session.replay(run_dir)
    try:
        session.player.pause()
        session.player.seek(t)
        session.read_all()
        return session.snapshot()
    finally:
        session.close()


def extent(run_dir: Path) -> Reach:
    """From when to when a run is recorded, in unix time. Reads the ends of its journals alone."""
    return reach_of(spans(run_dir))


def read_events(run_dir: Path) -> Iterator[JournalEvent]:
    """Every fact of a run that is written, those of each process in their order."""
    session = Session.live(run_dir)
    session.disable_cache()
    try:
        while True:
            fresh = session.poll()
            yield from fresh
            if session.caught_up and not fresh:
                return
    finally:
        session.close()


def _request_view(request: requests.Request) -> RequestView:
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
