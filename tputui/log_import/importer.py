"""Reads a log of another program into a run directory, and continues where an earlier process stopped.

The values become events at the times of the log, so that replaying and looking back work on its clock. After every
batch the state is stored: what was read, and where the journal ends. Whoever continues removes what follows that place,
reads the log from its beginning, and writes only values that are not in the journal yet; so the loss, the cores, the
epochs and the pace are derived as if the log had been read in one go. If a file was replaced or is shorter, everything
begins anew. Only one process writes: the caller holds the lock.

The runs of a log directory are read in chunks, each of which may reach further than the others: values wait until all
runs were read up to their time. The order of the values of one tag never changes.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tputui import __version__
from tputui.log_import import place
from tputui.log_import.place import FileMark, ImportState
from tputui.logs.damage_notes import ReportedDamage
from tputui.logs.formats import open_log
from tputui.logs.rows import LoggedValue, LogReader
from tputui.logs.tags import TagRule
from tputui.logs.tensorboard_dir import LogdirReader
from tputui.logs.tfevents import NAME_PART
from tputui.logs.value_events import ValueEvents
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks, rundir
from tputui.telemetry.codec import check_free
from tputui.telemetry.journal import SUFFIX, JournalWriter

SLICE_S = 1.0
"""Least seconds of log time in one slice ..."""
SLICE_SHARE = 1e-3
"""... and this share of the time since the beginning of the log."""
WAITING_MAX = 1_000_000
"""Values that wait, at most; with more, they are returned at a later time than their own."""


class TimeSlices:
    """Values in, slices with one time each out."""

    def __init__(self, latest_t: float) -> None:
        """Times after `latest_t`, in unix seconds, are damage and are replaced by that of the value before."""
        self._latest_t = latest_t
        self._keys: list[float] = []
        """Times of the waiting values, ascending."""
        self._values: list[LoggedValue] = []
        self._start: float | None = None
        self.now = 0.0
        """Time of the last slice, in unix seconds."""

    @property
    def first_t(self) -> float | None:
        """Time of the first waiting value, in unix seconds; None if none waits."""
        return self._keys[0] if self._keys else None

    @property
    def values(self) -> Sequence[LoggedValue]:
        """The values that wait."""
        return self._values

    def add(self, values: Sequence[LoggedValue], default_t: float) -> None:
        """Adds values in the order of their log; `default_t` is the unix time of values without one."""
        if not values:
            return
        times = [value.t for value in values]
        keys = list(itertools.accumulate(self._completed_times(times, default_t), max))
        if not self._keys or keys[0] >= self._keys[-1]:
            self._keys += keys
            self._values += values
            return
        # Stable, so that equal times keep the order in which they were read.
        pairs = sorted(zip([*self._keys, *keys], [*self._values, *values], strict=True), key=lambda pair: pair[0])
        self._keys, self._values = [key for key, _ in pairs], [value for _, value in pairs]

    def take(self, until: float = math.inf) -> Iterator[tuple[float, list[LoggedValue]]]:
        """Time and values of the slices up to the unix time `until`; times never go back."""
        keys, values = self._keys, self._values
        end = len(keys) if until == math.inf else bisect.bisect_right(keys, until)
        end = max(end, len(keys) - WAITING_MAX)
        self._keys, self._values = keys[end:], values[end:]
        place = 0
        while place < end:
            first = max(keys[place], self.now)
            self._start = first if self._start is None else self._start
            length_s = max(SLICE_S, (first - self._start) * SLICE_SHARE)
            following = bisect.bisect_right(keys, first + length_s, place, end)
            self.now = max(self.now, keys[following - 1])
            yield self.now, values[place:following]
            place = following

    def _completed_times(self, times: Sequence[float | None], default_t: float) -> Sequence[float]:
        """The times, with those that are missing or impossible replaced."""
        if all(t is None for t in times):
            return [max(self.now, default_t)] * len(times)
        replaced, before = [], self.now or default_t
        for t in times:
            if t is not None and 0.0 < t <= self._latest_t:
                before = t
            replaced.append(before)
        return replaced


WRITER = "logs-0"
READ_TO_ITS_END = "log read to its end"
INTERRUPTED = "reading was interrupted; opening the log again continues"
FIRST_BATCH_VALUES = 5_000
"""Values of the first batch, so that the first curve appears soon ..."""
BATCH_VALUES = 50_000
"""... and of every other one. After each the reader ends if its viewer has left."""
STATE_INTERVAL_S = 1.0
"""Seconds between two stored states."""
_DAY_S = 86_400.0
_CONFIG_BYTES_MAX = 8 << 20


class Replaced(Exception):
    """The log is not the one that was read before: a file was replaced or truncated, or has fewer values."""


class LogImport:
    """One log that is read into its run directory. Not thread-safe; the caller holds the lock."""

    def __init__(self, log: Path, run_dir: Path) -> None:
        """Raises `UnknownLog`."""
        self._log = log.resolve()
        self._run_dir = run_dir
        self._reader: LogReader = open_log(self._log)
        self._marks = place.mark_files(self._log)
        stored = place.read_state(run_dir)
        self._stored = stored if stored is not None and self._is_usable(stored) else None
        self._journal: JournalWriter | None = None
        self._events = ValueEvents(has_console=False)
        self._slices = TimeSlices(time.time() + _DAY_S)
        self._stored_counts: Counter[str] = Counter()
        """Values by tag that are in the journal and that the reader has not returned yet."""
        self._num_stored = 0
        self._counts: Counter[str] = Counter()
        self._reported = ReportedDamage()
        self._created = 0.0
        self._now = 0.0
        self._state_due = 0.0
        self._config: dict[str, Any] | None = None
        self.was_read = False
        """Whether the log was read to its end once."""

    @property
    def is_complete(self) -> bool:
        """Whether the run directory contains everything, and its end."""
        stored = self._stored
        if stored is None or not stored.ended or place.change_of(stored.files, self._marks) != "none":
            return False
        with contextlib.suppress(OSError):
            return self._journal_path.stat().st_size == stored.journal_bytes
        return False

    def begin(self) -> None:
        """Opens the journal, with the first values in it. Raises `OSError`."""
        stored = self._stored
        if stored is not None:
            try:
                self._journal = JournalWriter.continued(self._journal_path, stored.journal_end)
            except OSError:
                stored = self._stored = None
        if stored is None:
            self._begin_anew()
            return
        self._events = ValueEvents(TagRule(None, stored.loss), has_console=False)
        self._stored_counts = Counter(stored.counts)
        self._num_stored = self._stored_counts.total()
        self._counts, self._reported = Counter(stored.counts), ReportedDamage(stored.warned)
        self._created, self._now = stored.created, stored.newest_t
        self._write([self._head()])
        self._store(at_end=False, ended=False)

    def read(self, is_left: Callable[[], bool]) -> None:
        """Reads to the present end of the log, or until `is_left`. Raises `OSError`, `UnknownLog` and `Replaced`."""
        marks = place.mark_files(self._log)
        if self.was_read and marks == self._marks and place.are_settled(marks):
            return
        if any(_was_replaced(name, mark, marks.get(name)) for name, mark in self._marks.items()):
            raise Replaced
        self._marks = marks
        while not is_left():
            if not self._read_batch(BATCH_VALUES):
                if self._num_stored:
                    raise Replaced
                self._take(math.inf)
                self.was_read = True
                self._store(at_end=True, ended=False)
                return

    def end(self, *, is_whole: bool, reason: str | None = None) -> None:
        """Writes the end event. `is_whole`: the log was read to its end. Raises `OSError`."""
        if is_whole:
            self._write(self._events.events(self._now, final=True))
            self._warn([*self._reader.damage, *filter(None, [self._reader.incomplete])], final=True)
        self._update_config()
        outcome: ev.Outcome = "done" if is_whole else "stopped"
        reason = reason or (READ_TO_ITS_END if is_whole else INTERRUPTED)
        ended = ev.TrainingEnded(t=self._now, outcome=outcome, step=self._events.newest_step, reason=reason)
        self._write([ended])
        self._store(at_end=is_whole, ended=is_whole)

    def close(self) -> None:
        self._reader.close()
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    @property
    def _journal_path(self) -> Path:
        return self._run_dir / f"{WRITER}{SUFFIX}"

    def _is_usable(self, stored: ImportState) -> bool:
        """Whether the log can be continued: what was read of it is still in it, and nothing else is in place of what
        was damaged."""
        change = place.change_of(stored.files, self._marks)
        return (
            stored.log == str(self._log)
            and (change == "none" or (change == "grown" and not stored.is_damaged))
            and len(stored.counts) <= place.TAGS_MAX
            and rundir.manifest_if_readable(self._run_dir) is not None
        )

    def _begin_anew(self) -> None:
        values: list[LoggedValue] = []
        while len(values) < FIRST_BATCH_VALUES and (batch := self._reader.read()):
            values += batch
            self._slices.add(batch, place.newest_change(self._marks))
        self._created = self._now = self._slices.first_t or place.newest_change(self._marks)
        if self._run_dir.is_dir():
            old = self._run_dir.with_name(f".{self._run_dir.name}.old.{os.getpid()}")
            self._run_dir.rename(old)
            shutil.rmtree(old, ignore_errors=True)
        rundir.create(self._run_dir.parent, self._manifest())
        self._journal = JournalWriter(self._journal_path)
        self._write([self._head()])
        self._counts.update(value.tag for value in values)
        self._take(self._ordered_until())
        self._store(at_end=False, ended=False)

    def _manifest(self) -> rundir.Manifest:
        self._config = _sound_config(self._reader.config)
        return rundir.Manifest(
            run=self._run_dir.name,
            created=self._created,
            version=__version__,
            config_path="",
            config=self._config,
            argv=["tputui", "replay", str(self._log)],
            cwd=str(self._log.parent),
        )

    def _update_config(self) -> None:
        """Writes the manifest again if the configuration grew, as after a later `wandb.config.update`."""
        if self._config is not None and self._config == _sound_config(self._reader.config):
            return
        rundir.write_atomically(self._run_dir / rundir.MANIFEST, rundir.encode_manifest(self._manifest()))

    def _read_batch(self, most: int) -> bool:
        """Reads the next values and writes the slices that are complete; returns whether there were any."""
        num_values = 0
        while num_values < most and (values := self._reader.read()):
            num_values += len(values)
            new = self._new(values) if self._num_stored else values
            self._counts.update([value[0] for value in new])
            self._slices.add(new, place.newest_change(self._marks))
        self._take(self._ordered_until())
        if num_values and time.monotonic() >= self._state_due:
            self._store(at_end=False, ended=False)
        return num_values > 0

    def _new(self, values: list[LoggedValue]) -> list[LoggedValue]:
        """The values that are not in the journal; events of the others are derived again and dropped."""
        old, new, stored_counts = [], [], self._stored_counts
        for value in values:
            tag = value.tag
            if stored_counts[tag] > 0:
                stored_counts[tag] -= 1
                old.append(value)
            else:
                new.append(value)
        self._num_stored -= len(old)
        if old:
            self._events.take(str(self._log), old, self._now)
            self._events.events(self._now)
        return new

    def _ordered_until(self) -> float:
        return self._reader.ordered_until if isinstance(self._reader, LogdirReader) else math.inf

    def _take(self, until: float) -> None:
        """Writes the values up to a time as events."""
        events: list[ev.Event] = []
        self._events.take_config(self._reader.config)
        for now, values in self._slices.take(until):
            self._now = max(self._now, now)
            self._events.take(str(self._log), values, self._now)
            events += self._events.events(self._now)
        self._write(events)
        self._warn(self._reader.damage)

    def _warn(self, sentences: list[str], *, final: bool = False) -> None:
        new = self._reported.new(sentences, final=final)
        self._write([ev.WarningRaised(t=self._now, text=sentence) for sentence in new])

    def _write(self, events: list[ev.Event]) -> None:
        assert self._journal is not None
        if events:
            self._journal.append(events)

    def _store(self, *, at_end: bool, ended: bool) -> None:
        """Stores how far the log was read. Values that wait for others are not in the journal, so not in the counts."""
        assert self._journal is not None
        self._state_due = time.monotonic() + STATE_INTERVAL_S
        if self._num_stored and not ended:
            return  # The stored state is that of the journal until all of it was read again.
        end = self._journal.end
        counts = self._counts - Counter(value.tag for value in self._slices.values)
        state = ImportState(
            log=str(self._log),
            files=self._marks,
            counts=dict(counts),
            loss=self._events.loss,
            journal_bytes=end.offset,
            next_seq=end.next_seq,
            journal_id=end.journal_id or "",
            created=self._created,
            newest_t=self._now,
            at_end=at_end,
            ended=ended,
            warned=self._reported.sentences,
            is_damaged=bool(self._reader.damage),
        )
        rundir.write_atomically(self._run_dir / place.STATE_NAME, msgspec.json.encode(state))

    def _head(self) -> ev.JournalOpened:
        process = rundir.this_process()
        return ev.JournalOpened(
            t=self._now,
            format=ev.FORMAT_VERSION,
            writer=WRITER,
            role="logs",
            host=process.host,
            host_id=process.host_id,
            pid=process.pid,
            pid_started=process.pid_started,
            run=self._run_dir.name,
            version=__version__,
            blocks=float_blocks.ENCODING,
        )


def _was_replaced(name: str, old: FileMark, new: FileMark | None) -> bool:
    """Whether a file that is only ever appended to is another one. The other readers notice that themselves."""
    is_log = NAME_PART in name or name.endswith(".wandb")
    return is_log and new is not None and (new.inode != old.inode or new.size < old.size)


def _sound_config(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a log, if it can be part of a manifest; else empty."""
    with contextlib.suppress(ValueError, TypeError, OverflowError, RecursionError):
        check_free(config)
        if len(msgspec.json.encode(config)) <= _CONFIG_BYTES_MAX:
            return dict(config)
    return {}
