"""Where an imported log is stored, and what was read of it: one run directory per log in the user's cache.

    $XDG_CACHE_HOME/tputui/imports/
      NAME-DIGEST/           a run directory; DIGEST is that of the log's path
        logs-0.jsonl         the values of the log, as events at the times of the log
        import.json          how far the log was read, and what identifies its files
      .NAME-DIGEST.lock      held by the process that writes there

Deleting any of it costs only the time to read the log again.

The process belongs to the viewer: it ends when `close` is called, and when the viewer's process ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from tputui import __version__, user_cache
from tputui.child_process import ChildProcess
from tputui.logs.growing import SETTLED_S
from tputui.logs.rows import UnknownLog
from tputui.supervise import spawn
from tputui.telemetry import rundir
from tputui.telemetry.files import read_at, read_small
from tputui.telemetry.journal import Bookmark

STATE_NAME = "import.json"
STATE_BYTES_MAX = 64 << 20
TAGS_MAX = 10_000
"""A log with more tags is read from its beginning every time."""
FORM = 3
"""Version of the stored state; another one is read anew."""
_NAME_CHARS_MAX = 80
_DIGEST_CHARS = 12
_HEAD_BYTES = 4_096
_CLOCK_S = 1e-3
"""Times of files that differ less are the same: they are rounded differently."""

Change = Literal["none", "grown", "replaced"]


class FileMark(msgspec.Struct, frozen=True):
    """What identifies a file, and shows whether it was changed."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    head_bytes: int
    head_crc: int
    """CRC-32 of the first `head_bytes` bytes."""


class ImportState(msgspec.Struct, kw_only=True):
    """How far a log was read into its run directory."""

    form: int = FORM
    version: str = __version__
    """Version of tputui that read it; another one may read more."""
    log: str
    """The log, as an absolute path."""
    files: dict[str, FileMark]
    """The files of the log when it was read last, by path."""
    counts: dict[str, int]
    """Number of values in the journal by tag."""
    loss: str | None
    """Name of the metric that is the training loss; None if none is."""
    journal_bytes: int
    next_seq: int
    journal_id: str
    created: float
    newest_t: float
    """Unix times of the first and of the newest event."""
    at_end: bool
    """Whether the log had been read to its end."""
    ended: bool
    """Whether the journal has an end event."""
    warned: list[str] = []
    """Damage that was reported."""
    is_damaged: bool = False
    """Whether something in the files could not be read, which may be whole later."""

    @property
    def journal_end(self) -> Bookmark:
        """The position after the events that belong to this state."""
        return Bookmark("", self.journal_bytes, self.next_seq, journal_id=self.journal_id or None)


def run_dir_of(log: Path, environ: Mapping[str, str]) -> Path:
    """The run directory of a log. Raises `OSError` if there is no home directory."""
    resolved = log.resolve()
    digest = hashlib.sha256(os.fsencode(resolved)).hexdigest()[:_DIGEST_CHARS]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", resolved.name)[:_NAME_CHARS_MAX].strip("._-") or "log"
    return user_cache.folder_of("imports", environ) / f"{name}-{digest}"


class Imported(NamedTuple):
    """A log that was read into a run directory."""

    run_dir: Path
    newest_t: float
    """Unix time at which the newest of its files had been changed when they were read."""

    def is_behind(self, newest_t: float) -> bool:
        """Whether files of the log were changed since then, by the time of the newest change."""
        return newest_t > self.newest_t + _CLOCK_S


def imported(log: Path, environ: Mapping[str, str]) -> Imported | None:
    """The run directory of a log; None if the log was not read yet, by another version, or where others can write."""
    try:
        run_dir = run_dir_of(log, environ)
    except OSError:
        return None
    state = read_state(run_dir) if user_cache.is_private(run_dir.parent) else None
    if state is None or rundir.manifest_if_readable(run_dir) is None:
        return None
    return Imported(run_dir, newest_change(state.files))


def lock_path(run_dir: Path) -> Path:
    """The file that the writing process locks."""
    return run_dir.with_name(f".{run_dir.name}.lock")


def mark_files(log: Path) -> dict[str, FileMark]:
    """The files of a log as they are now. Raises `UnknownLog`. A file that disappears meanwhile is left out."""
    # Imported here so that viewers of runs start faster.
    from tputui.logs.formats import files_of

    marks = {}
    for path in files_of(log):
        try:
            marks[str(path)] = _mark(path)
        except OSError:
            continue
    return marks


def change_of(old: Mapping[str, FileMark], new: Mapping[str, FileMark]) -> Change:
    if old == new:
        return "none"
    continues = all(name in new and _continues(name, mark, new[name]) for name, mark in old.items())
    return "grown" if continues else "replaced"


def read_state(run_dir: Path) -> ImportState | None:
    """The stored state; None if there is none that can be used."""
    try:
        content = read_small(run_dir / STATE_NAME, STATE_BYTES_MAX)
        state = msgspec.json.decode(content, type=ImportState)
    except (OSError, ValueError, RecursionError):
        return None
    return state if (state.form, state.version) == (FORM, __version__) else None


def newest_change(marks: Mapping[str, FileMark]) -> float:
    """Unix time at which the newest of the files was changed."""
    return max((mark.mtime_ns for mark in marks.values()), default=0) / 1e9


def are_settled(marks: Mapping[str, FileMark]) -> bool:
    """Whether a later change of the files will change their marks; times of files are coarse."""
    return time.time() - max((mark.ctime_ns for mark in marks.values()), default=0) / 1e9 > SETTLED_S


def _mark(path: Path) -> FileMark:
    status = path.stat()
    head = read_at(path, 0, min(_HEAD_BYTES, status.st_size))
    return FileMark(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, len(head), zlib.crc32(head))


def _continues(name: str, old: FileMark, new: FileMark) -> bool:
    """Whether a file is the same with more bytes at its end."""
    if old == new:
        return True
    if name.endswith((".parquet", ".json")) or old.inode != new.inode or new.size < old.size:
        return False  # these are always written as a whole
    try:
        return zlib.crc32(read_at(Path(name), 0, old.head_bytes)) == old.head_crc
    except OSError:
        return False


FOLLOW = "--follow"
CLOSE_S = 20.0
"""Seconds that the process has to end. It checks after each batch, which takes up to a second of processor time, and
many times that on a busy machine."""
LINE_BYTES_MAX = 1 << 20


class OpenedLog(ChildProcess):
    """A log that is being read into a run directory, or was."""

    def __init__(self, log: Path, *, follow: bool = False, cancelled: threading.Event | None = None) -> None:
        """Waits until the first values are in the run directory. With `follow` reading goes on until `close`.

        Raises `UnknownLog`, whose message is a sentence for the user, also if the log or the cache cannot be used, and
        `Cancelled` if `cancelled` is set while it waits.
        """
        self._log = log
        argv, env = [*([FOLLOW] if follow else []), str(log)], spawn.environment(os.environ)
        super().__init__("tputui.log_import", argv, env, cancelled, line_bytes_max=LINE_BYTES_MAX, close_s=CLOSE_S)

    def run_dir_in(self, line: bytes | None) -> Path:
        """Raises `UnknownLog`."""
        try:
            reply = json.loads(line or b"")
        except ValueError:
            why = self.last_words() or "the process that reads it ended"
            raise UnknownLog(f"{self._log}: cannot be imported: {why}") from None
        if "error" in reply:
            raise UnknownLog(str(reply["error"]))
        return Path(reply["run_dir"])
