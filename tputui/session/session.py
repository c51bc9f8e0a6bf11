"""A view of one run: journals, reducer and clock, which give one `Snapshot` at a time.

The only path from a run directory to any view: live, replayed, printed or attached. It only reads files and cannot
affect the run. Missing and damaged data are reported in the snapshot, never raised.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from tputui import formatting as fmt
from tputui.cache.cache_file import StateCache
from tputui.remote.link import NO_LINKS, LinkReader, Links
from tputui.session import truncation
from tputui.session.journal_reader import CachedStates, JournalReader
from tputui.session.player import JournalSpan, Player, Present, Reach, reach_of, spans
from tputui.session.run_directory import RunDirectory
from tputui.session.truncation import JournalFile
from tputui.state.liveness import Liveness, assess
from tputui.state.reducer import RunState
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import RequestView, RunDetails, Snapshot
from tputui.state.snapshot_builder import ViewerContext, at_later_moment, build_snapshot
from tputui.telemetry import requests, rundir
from tputui.telemetry.codec import Damage
from tputui.telemetry.events import is_time
from tputui.telemetry.files import FULL_BYTES, free_bytes
from tputui.telemetry.merge import JournalEvent, Merge
from tputui.telemetry.run_clock import RunClock

POLL_BUDGET_S = 0.05
OLD_LOG_S = 86_400.0
"""Seconds without a value after which the present of an imported log is its newest value."""
WATCH_S = 5.0
"""Seconds that a run of another host, if it looks lost, is watched for new events before it counts as settled."""

FULL_DISK_S = 600.0
"""Seconds after the newest event in which a full disk may be the reason that a run looks lost."""


class Session:
    """An opened run. Not thread-safe.

    A recorded run has one reader, which reads up to the moment of the player. A followed run has one reader that always
    reads to the newest event, and a second one while a past moment is shown, so that the present stays up to date.
    """

    def __init__(
        self, run_dir: Path, clock: Callable[[], float], recorded: list[JournalSpan] | None, speed: float
    ) -> None:
        """Use `live` or `replay`."""
        self._directory = RunDirectory(run_dir)
        self._clock = clock
        self._recorded = recorded is not None
        self._reach = reach_of(recorded) if recorded is not None else None
        """Time range of a recording."""
        self._last_words = {span.writer: span.end for span in recorded or ()}
        self._manifest: rundir.Manifest | None = None
        self._link_reader = LinkReader(run_dir)
        self._links = NO_LINKS
        """The connections to the hosts, if the run is a mirror."""
        self._cached = CachedStates(on_disk=StateCache(self._directory.files))
        self._reader = JournalReader(self._directory.files, self._cached)
        self._back: JournalReader | None = None
        """Reader of the past moment that is shown; None while the present is shown."""
        self._present = Present(clock)
        self._moved = False
        """Whether an event arrived while the run was watched."""
        self._unseen = False
        """Whether some processes are on another host, so that only events show whether they are alive."""
        self._watched_since = time.monotonic()
        self._over = False
        """Whether the followed run had ended when it was last checked."""
        self._built: tuple[object, Snapshot] | None = None
        """The newest snapshot of a followed run, and everything it was built from except the time."""
        self.player = Player(self._reach_now, clock, speed=speed, follows=not self._recorded)
        """Controls the moment that is shown."""

    @classmethod
    def live(cls, run_dir: Path, clock: Callable[[], float] = time.time) -> Session:
        """Follows a run as it is written. `clock` gives unix time."""
        return cls(run_dir, clock, None, 1.0)

    @classmethod
    def replay(cls, run_dir: Path, *, speed: float = 1.0, clock: Callable[[], float] = time.monotonic) -> Session:
        """Plays a recorded run from its start. `clock` is the time of the viewer, in seconds.

        Raises `ValueError` if the speed is not positive.
        """
        return cls(run_dir, clock, spans(run_dir), speed)

    @property
    def run_dir(self) -> Path:
        """The directory of the run, also after it was renamed or moved."""
        return self._directory.path

    @property
    def caught_up(self) -> bool:
        """Whether everything written up to the shown moment was read."""
        return self._shown.caught_up

    def forget_past(self) -> None:
        """Keeps no earlier states, which only a look back needs."""
        self._cached.in_memory = False

    def disable_cache(self) -> None:
        """Makes `poll` return every event from now on, instead of skipping those that states on disk contain."""
        self._cached.on_disk = None

    def poll(self, budget_s: float = POLL_BUDGET_S) -> list[JournalEvent]:
        """Reads on for about `budget_s` and returns the events that were applied, at the shown moment."""
        if self._recorded:
            return self._play(self._reader, budget_s)
        self.player.catch_up()
        if self.player.live:
            self._end_look_back()
            return self._follow(budget_s)
        self._follow(budget_s / 2)
        self._liveness_now()
        if self._back is None:
            self._back = JournalReader(self._directory.files, self._cached)
        return self._play(self._back, budget_s / 2)

    def fingerprint(self) -> object:
        """A value that changes with the files of the run (manifest, requests, the directory), its newest event, and the
        condition of a followed run.

        While the past is shown, `poll` does not return the events of the present.
        """
        files = [_modified(path) for path in (self._directory.files, self._directory.files / rundir.REQUESTS)]
        liveness = None if self._recorded else self._liveness_now()[1]
        full = self._full_disk(liveness) if liveness is not None else None
        return [*files, self._reader.state.newest_t, liveness, full]

    def update_clock_skew(self) -> None:
        """Measures the clock of another host by events that just arrived: they were written after the last ones
        were."""
        newest_t = self._reader.state.newest_t
        if newest_t is not None:
            self._present.measure_skew(newest_t)
            self._moved = True

    def read_all(self) -> None:
        """Reads until caught up, at least once."""
        self.poll()
        while not self.caught_up:
            self.poll()

    def snapshot(self, *, may_defer: bool = False) -> Snapshot:
        """The snapshot of the shown moment; while the run is still being read, of what was read so far.

        With `may_defer` it may leave work on older steps to the next snapshots; then it `is_behind`.
        """
        return self._snapshot_of(self._shown, may_defer=may_defer)

    def newest(self, *, may_defer: bool = False) -> Snapshot:
        """The present snapshot of a followed run, also while its past is shown; otherwise the same as `snapshot`."""
        return self._snapshot_of(self._reader, may_defer=may_defer)

    def _snapshot_of(self, reader: JournalReader, *, may_defer: bool) -> Snapshot:
        follows = reader is self._reader and not self._recorded
        now, liveness = self._liveness_now() if follows else self._liveness_at_moment(reader)
        manifest = self._read_manifest()
        final = liveness.condition in ENDED if follows else self._is_through()
        full = self._full_disk(liveness) if follows else None
        if full is not None and liveness.condition in ("stalled", "lost"):
            liveness = liveness._replace(reason=full)
        lost_link = self._links.trouble(self._clock()) if follows else None
        gone = f"the run's directory {self.run_dir} is gone" if self._directory.is_gone else None
        unread = reader.trouble and reader.trouble.replace(str(self._directory.files), str(self.run_dir))
        context = ViewerContext(
            now=now,
            run=manifest.run if manifest else self.run_dir.absolute().name,
            dir=str(self.run_dir),
            created=manifest.created if manifest else None,
            config=manifest.config if manifest else None,
            details=_details(manifest) if manifest else RunDetails(),
            requests=[_request_view(r) for r in self._requests() if follows or r.t <= now],
            damage=self._damage(reader, final),
            troubles=[text for text in (gone, unread, full, lost_link) if text],
        )
        if not follows:
            return build_snapshot(reader.state, context, liveness, may_defer=may_defer)
        state = reader.state
        read = {name: process.last_seq for name, process in state.processes.items()}
        built_from = (state, read, liveness, msgspec.structs.replace(context, now=0.0))
        if self._built is not None and self._built[0] == built_from and not self._built[1].is_behind:
            snapshot = at_later_moment(self._built[1], state, liveness, now)
        else:
            snapshot = build_snapshot(state, context, liveness, may_defer=may_defer)
            self._built = (built_from, snapshot)
        return _with_links(snapshot, self._links, self._clock())

    @property
    def settled(self) -> bool:
        """Whether no more events will come: the run ended or has no process left, or the replay is at its end."""
        if self._recorded:
            return self._is_through()
        if not self._reader.opened:
            return False
        _, liveness = self._liveness_now()
        if liveness.condition not in ENDED:
            return False
        if liveness.condition == "lost" and self._unseen and not self._moved:
            return time.monotonic() - self._watched_since >= WATCH_S
        supervisors = self._reader.state.supervisors
        return liveness.exit_code is not None or not any(w.name in liveness.living for w in supervisors)

    def full_disk(self) -> str | None:
        """A sentence if the disk of a followed run that has not ended is full."""
        return None if self._recorded else self._full_disk(self._liveness_now()[1])

    def lost_hosts(self) -> str | None:
        """A sentence if hosts of a followed mirror were lost, or could not be connected to."""
        return None if self._recorded else self._links.lost

    def unfinished_elsewhere(self) -> list[str]:
        """Names of the processes on other hosts that wrote recently and have not reported their end."""
        _, liveness = self._liveness_now()
        return [name for name in self.without_end_elsewhere() if name in liveness.living]

    def without_end_elsewhere(self) -> list[str]:
        """Names of the processes on other hosts that have not reported their end, however long ago they wrote."""
        return [
            process.name
            for process in self._reader.state.processes.values()
            if self._process_lives(process.name) is None
            and process.run_ended is None
            and process.training_ended is None
        ]

    def training_processes(self) -> list[tuple[str, int]]:
        """Name and process id of the living training processes; ranks in one process are listed once."""
        names: dict[int, str] = {}
        for process in (*self._reader.state.workers, *self._reader.state.ranks):
            if process.opened and process.training_ended is None and self._process_lives(process.name) is not False:
                names.setdefault(process.opened.pid, process.name)
        return [(name, pid) for pid, name in names.items()]

    def close(self) -> None:
        self._end_look_back()
        self._reader.close()
        self._directory.close()

    @property
    def _shown(self) -> JournalReader:
        return self._back or self._reader

    def _full_disk(self, liveness: Liveness) -> str | None:
        newest_t = self._reader.state.newest_t
        silent_s = self._present.now() - newest_t if newest_t is not None else math.inf
        return _full_disk(self.run_dir, liveness, silent_s)

    def _follow(self, budget_s: float) -> list[JournalEvent]:
        opened = self._reader.opened
        read_events = self._reader.read(math.inf, budget_s)
        if self._reader.caught_up:
            if read_events and opened:
                self.update_clock_skew()
            self._present.note_caught_up()
        return read_events

    def _now(self) -> float:
        """Now in the time of the run: its host's clock may differ from this one's, or may have been set back."""
        if self._unseen or self._links.heard is not None:
            return self._present.elsewhere(self._links.heard)
        state = self._reader.state
        if state.is_imported and state.newest_t is not None and self._clock() - state.newest_t > OLD_LOG_S:
            return state.newest_t  # The log ended long ago, however recently it was opened.
        # A process that has written nothing since the clock was set back does not know of that yet.
        running = [
            process
            for process in state.processes.values()
            if process.training_ended is None and process.run_ended is None
        ]
        return self._present.now() + min((process.set_back_s for process in running), default=0.0)

    def _play(self, reader: JournalReader, budget_s: float) -> list[JournalEvent]:
        moment = self.player.position
        return reader.read(moment, budget_s, whole=moment >= self.player.end)

    def _end_look_back(self) -> None:
        if self._back is not None:
            self._back.close()
            self._back = None

    def _reach_now(self) -> Reach:
        """The time range that can be shown."""
        if self._reach is not None:
            return self._reach
        now, state = self._now(), self._reader.state
        first, newest = state.first_t, state.newest_t
        start = first if first is not None else now
        if self._over and newest is not None:
            return Reach(start, newest)
        return Reach(start, max(start, now), growing=True)

    def _damage(self, reader: JournalReader, final: bool) -> list[Damage]:
        """Damaged and missing data; `final`: nothing more will be written."""
        # Until everything was read, a line is incomplete because the rest of it was not read yet.
        final = final and reader.caught_up
        if self._directory.is_gone:
            return reader.damage(final=final)
        manifest = self._read_manifest()
        regions = [*manifest_damage(self._directory.files, reader.state, manifest), *reader.damage(final=final)]
        if not final:
            return regions
        files = _journal_files(self._directory.files)
        if files is None:
            return regions
        regions += truncation.misplaced(reader.state, files, manifest.run if manifest else None)
        return regions + truncation.missing(reader.state, files, regions, over=final)

    def _is_through(self) -> bool:
        """Whether the shown moment is the end, and everything before it was read."""
        return self._shown.caught_up and self._shown.moment >= self.player.end

    def _liveness_at_moment(self, reader: JournalReader) -> tuple[float, Liveness]:
        """The moment up to which a reader has read, and the liveness of the run then."""
        if not reader.caught_up and reader.state.processes:
            return _half_read(reader.state, reader.moment)
        return reader.moment, assess(reader.state, self._alive_at_moment(reader), reader.moment)

    def _liveness_now(self) -> tuple[float, Liveness]:
        """The present time, and the liveness of a followed run."""
        state = self._reader.state
        self._links = self._link_reader.read() or NO_LINKS
        self._present.ahead_s = self._links.clock_offset_s
        if (not self._reader.opened or not self._links.synced) and state.processes:
            return _half_read(state, self._clock())
        manifest = self._read_manifest()
        alive = {name: self._process_lives(name) for name in state.processes}
        self._unseen = None in alive.values()
        self._present.set_s = self._clock_set_s()
        now = self._now()
        liveness = assess(state, alive, now, manifest.created if manifest else None, self._known_until())
        self._over = liveness.condition in ENDED
        return now, liveness

    def _known_until(self) -> dict[str, float]:
        """Time of the run after which nothing can be known of a process, for those whose hosts are not heard."""
        of_host = self._links.known_until
        return {
            name: self._present.elsewhere(of_host[process.opened.host_index])
            for name, process in (self._reader.state.processes.items() if of_host else ())
            if process.opened is not None and process.opened.host_index in of_host
        }

    def _clock_set_s(self) -> float:
        """Seconds by which the clock of this host was set forward since a process of the run began here."""
        here = rundir.host_id()
        opened = [process.opened for process in self._reader.state.processes.values() if process.opened]
        heads = [head for head in opened if head.boot_t and is_time(head.boot_t) and head.host_id == here]
        first = min(heads, key=lambda head: head.host_index, default=None)
        return RunClock(first.boot_t).set_s if first is not None else 0.0

    def _alive_at_moment(self, reader: JournalReader) -> dict[str, bool | None]:
        """By writer: whether it has events after the moment of a reader, or else is alive now."""
        if self._recorded:
            return {name: reader.moment < self._last_words.get(name, reader.moment) for name in reader.state.processes}
        alive: dict[str, bool | None] = {}
        for name in reader.state.processes:
            followed = self._reader.state.processes.get(name)
            newest_t = followed.newest_t if followed is not None and self._reader.opened else math.inf
            alive[name] = (newest_t is not None and reader.moment < newest_t) or self._process_lives(name)
        return alive

    def _process_lives(self, name: str) -> bool | None:
        followed = self._reader.state.processes.get(name)
        opened = followed.opened if followed is not None else None
        if opened is None or opened.host_id != rundir.host_id():
            return None
        return rundir.is_alive(rundir.process_of(opened))

    def _requests(self) -> list[requests.Request]:
        try:
            return requests.read_all(self._directory.files)
        except OSError:
            return []

    def _read_manifest(self) -> rundir.Manifest | None:
        """The manifest; None if it cannot be read, which the damage reports."""
        if self._manifest is None:
            self._manifest = rundir.manifest_if_readable(self._directory.files)
        return self._manifest


def _modified(path: Path) -> int | None:
    """Time at which a file was modified; None if there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _half_read(state: RunState, now: float) -> tuple[float, Liveness]:
    """The time and liveness to use while the run is being read: by the present time, it would look lost until the end
    is read."""
    times = [process.newest_t for process in state.processes.values() if process.newest_t is not None]
    now = min(times, default=now)
    return now, assess(state, dict.fromkeys(state.processes, True), now)


def manifest_damage(run_dir: Path, state: RunState, manifest: rundir.Manifest | None = None) -> list[Damage]:
    """Damage of the run's manifest: why it cannot be read, or how it contradicts the run.

    `manifest`: the manifest, if it was read before.
    """
    lost: int | None = 0
    try:
        asked = manifest or rundir.read_manifest(run_dir)
        key = [process.run_started for process in state.supervisors]
        why = state.memoized("manifest", key, lambda: truncation.contradicted(state, asked.config))
    except rundir.RunNotFound as error:
        why, lost = str(error).partition(": ")[2], None
    if not why:
        return []
    path = run_dir / rundir.MANIFEST
    return [Damage(rundir.MANIFEST, 0, path.stat().st_size if path.is_file() else 0, why, lost)]


def _journal_files(run_dir: Path) -> dict[str, JournalFile] | None:
    """The journals of a run directory, by process; None if it cannot be listed."""
    try:
        return {name: JournalFile(path.name, path.stat().st_size) for name, path in rundir.journal_paths(run_dir)}
    except OSError:
        return None


def load(run_dir: Path, clock: Callable[[], float] = time.time) -> Snapshot:
    """The present snapshot of a run, after reading everything."""
    session = Session.live(run_dir, clock)
    session.forget_past()
    try:
        session.read_all()
        return session.snapshot()
    finally:
        session.close()


def load_at(run_dir: Path, t: float) -> Snapshot:
    """The snapshot of a run at a unix time, without anything that came later."""
    with contextlib.closing(Session.replay(run_dir)) as session:
        session.player.pause()
        session.player.seek(t)
        session.read_all()
        return session.snapshot()


def extent(run_dir: Path) -> Reach:
    """The recorded time range of a run, in unix time. Reads only the ends of its journals."""
    return reach_of(spans(run_dir))


def read_events(run_dir: Path) -> Iterator[JournalEvent]:
    """Every event of a run, in order for each process. Raises `OSError`.

    They are not reduced, which takes several times as long as reading them.
    """
    merge, returned = Merge(run_dir), dict[str, int]()
    try:
        while True:
            events, caught_up = merge.poll()
            # A journal begins again with its first event if its clock was measured meanwhile.
            merge.take_restarted()
            fresh = [event for event in events if event.seq > returned.get(event.writer, -1)]
            returned |= {event.writer: event.seq for event in fresh}
            yield from fresh
            if caught_up and not fresh:
                return
    finally:
        merge.close()


def _details(manifest: rundir.Manifest) -> RunDetails:
    """Where a run comes from, by its manifest."""
    return RunDetails(
        argv=manifest.argv,
        cwd=manifest.cwd or None,
        config_path=manifest.config_path or None,
        host=manifest.host,
        versions=manifest.versions or {"tputui": manifest.version},
        git=manifest.git,
        resumed_from=manifest.resume_from,
    )


def _request_view(request: requests.Request) -> RequestView:
    """A request as it was made, without the answers of the run."""
    return RequestView(id=request.id, kind=request.kind, state="requested", t=request.t, by=request.by)


def _full_disk(run_dir: Path, liveness: Liveness, silent_s: float) -> str | None:
    """A sentence if the disk of a run that has not ended is full. `silent_s`: seconds since its newest event."""
    if liveness.condition in ENDED and not (liveness.condition == "lost" and silent_s < FULL_DISK_S):
        return None
    free = free_bytes(run_dir)
    return fmt.full_disk(run_dir.resolve(), free) if free is not None and free < FULL_BYTES else None


def _with_links(snapshot: Snapshot, links: Links, clock_t: float) -> Snapshot:
    if not links.hosts or not snapshot.hosts:
        return snapshot
    link_states = {index: link.words(clock_t) for link in links.hosts for index in link.indexes}
    hosts = [msgspec.structs.replace(host, link=link_states.get(host.index)) for host in snapshot.hosts]
    return msgspec.structs.replace(snapshot, hosts=hosts)
