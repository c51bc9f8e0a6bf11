"""Writes a repaired copy of a run directory: all readable events of the journals, and every other file unchanged.

Events keep their bytes and sequence numbers, so gaps in the copy show what was lost. The original directory is never
written to, and no file is overwritten.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.files import becoming, data_extents, read_small, reading, write_all
from tputui.telemetry.merge import events_of, open_tail
from tputui.telemetry.rundir import MANIFEST, Manifest

_COPY_BYTES = 1 << 20
REPORT = "repair.json"
"""File in the copy that lists the damage."""


class NothingReadable(Exception):
    """Neither an event nor the manifest can be read, so there is nothing to copy."""


class RepairedRun(NamedTuple):
    num_events: int
    num_journals: int
    manifest: str
    """`kept`, `rebuilt` or `missing`."""
    left_out: list[str]
    """Files that are not in the copy, each with the reason; relative to the run directory."""


class ManifestEvents:
    """The events from which a missing manifest is rebuilt."""

    def __init__(self) -> None:
        self.started: ev.RunStarted | None = None
        self.opened: ev.JournalOpened | None = None

    def take(self, event: ev.Event) -> None:
        """Stores the event if it is the first one of its kind."""
        if isinstance(event, ev.RunStarted) and self.started is None:
            self.started = event
        elif isinstance(event, ev.JournalOpened) and self.opened is None:
            self.opened = event

    def add(self, later: ManifestEvents) -> None:
        self.started, self.opened = self.started or later.started, self.opened or later.opened


def _why_foreign(path: Path, opened: ev.JournalOpened | None, manifest: Manifest | None) -> str | None:
    """Why a journal is not that of its file name, or of another run; None if it is in its place."""
    if opened is None:
        return None
    if opened.writer != (named := path.name.partition(".")[0]):
        return f"it is the journal of {opened.writer}, not of {named}"
    if manifest is not None and opened.run not in ("", manifest.run):
        return f"it is a journal of the run {opened.run}"
    return None


def repair_run(run_dir: Path, target: Path, report: bytes) -> RepairedRun:
    """Writes a repaired copy of a run to `target`, completely or not at all, together with `report`.

    Raises `NothingReadable`, `FileExistsError` if `target` exists, and other `OSError`s if it cannot be written.
    """
    with becoming(target, replace=False) as staging:
        staging.mkdir(mode=0o700)
        repaired = _fill(run_dir, staging)
        if not repaired.num_events and repaired.manifest == "missing":
            raise NothingReadable
        _write(staging / REPORT, report)
    return repaired


def _fill(run_dir: Path, into: Path) -> RepairedRun:
    for name in (rundir.REQUESTS, rundir.CHECKPOINTS):
        (into / name).mkdir(mode=0o700)
    manifest_events, num_events, num_journals, left_out = ManifestEvents(), 0, 0, list[str]()
    journals = {path.name: path for _, path in rundir.journal_paths(run_dir)}
    manifest = rundir.manifest_if_readable(run_dir)
    for name, path in journals.items():
        copied, why = _copy_journal(path, into / name, events := ManifestEvents())
        if copied and (foreign := _why_foreign(path, events.opened, manifest)) is not None:
            # In the copy it would be damage again.
            (into / name).unlink()
            left_out.append(f"{name}: {foreign}")
            continue
        manifest_events.add(events)
        num_events += copied
        num_journals += copied > 0
        if why:
            left_out.append(f"{name}: {why}")
    left_out += _copy_others(run_dir, into, {MANIFEST, REPORT, *journals})
    return RepairedRun(num_events, num_journals, _copy_manifest(run_dir, into, manifest_events), left_out)


def _copy_journal(path: Path, target: Path, manifest_events: ManifestEvents) -> tuple[int, str]:
    """Copies all readable events; returns their number, and why nothing more could be read ("" if all was read)."""
    count, why = 0, ""
    with _created(target) as fd:
        try:
            with contextlib.closing(open_tail(path, lambda content: write_all(fd, content))) as tail:
                for numbered in events_of(tail):
                    manifest_events.take(numbered.event)
                    count += 1
        except OSError as error:
            if error.filename is not None and Path(error.filename) == target:
                raise
            why = f"it cannot be read: {error.strerror}"
        os.fsync(fd)
    if not count:
        target.unlink()
        why = why or "no event of it can be read"
    return count, why


def _copy_manifest(run_dir: Path, into: Path, manifest_events: ManifestEvents) -> str:
    """Copies the manifest, or rebuilds it from the journals; returns `kept`, `rebuilt` or `missing`."""
    with contextlib.suppress(rundir.RunNotFound):
        rundir.read_manifest(run_dir)
        _write(into / MANIFEST, read_small(run_dir / MANIFEST, rundir.MANIFEST_BYTES_MAX))
        return "kept"
    if manifest_events.started is None:
        return "missing"
    rebuilt = Manifest(
        run=manifest_events.started.run,
        # JSON cannot represent a time that is not finite.
        created=manifest_events.started.t if math.isfinite(manifest_events.started.t) else 0.0,
        version=manifest_events.opened.version if manifest_events.opened else "",
        config_path="",
        config=manifest_events.started.config,
        argv=manifest_events.started.argv,
        cwd="",
        resume_from=manifest_events.started.resumed_from,
    )
    _write(into / MANIFEST, rundir.encode_manifest(rebuilt))
    return "rebuilt"


def _copy_others(run_dir: Path, into: Path, done: set[str]) -> list[str]:
    """Copies or links every other regular file; returns the files that were left out, with the reason."""
    left_out: list[str] = []
    for path in _walk(run_dir):
        relative = path.relative_to(run_dir)
        if relative.parts[0] == rundir.CACHE_DIR:
            continue  # the cached states belong to the original journals
        if str(relative) in done or (path.name.startswith(".") and path.name.endswith(".tmp")):
            continue
        target = into / relative
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) and _stays_inside(path, run_dir):
            target.symlink_to(os.readlink(path))
        elif stat.S_ISREG(mode):
            try:
                _link_or_copy(path, target, link=relative.parts[0] == rundir.CHECKPOINTS)
            except PermissionError:
                left_out.append(f"{relative}: it cannot be read")
        elif not stat.S_ISDIR(mode):
            left_out.append(f"{relative}: it is not a regular file of the run")
    return left_out


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder, followlinks=False):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        yield from (Path(parent, name) for name in sorted([*files, *links]))


def _stays_inside(link: Path, run_dir: Path) -> bool:
    """Whether a symbolic link points to a file of the run, and so will in a copy."""
    leads_to = Path(os.readlink(link))
    try:
        return not leads_to.is_absolute() and (link.parent / leads_to).resolve().is_relative_to(run_dir.resolve())
    except (OSError, RuntimeError):
        return False  # the link is circular


def _link_or_copy(path: Path, target: Path, *, link: bool) -> None:
    """Copies a file; with `link`, makes a hard link if the file system and the owner of the file allow it.

    Only files that are never written in place may be linked, such as checkpoints.
    """
    if link:
        with contextlib.suppress(OSError):
            os.link(path, target, follow_symlinks=False)
            return
    with reading(path) as source, _created(target) as fd:
        # Preserve holes: a file of a terabyte may take no space on disk.
        for start, end in data_extents(source):
            os.lseek(fd, start, os.SEEK_SET)
            while start < end and (chunk := os.pread(source, min(_COPY_BYTES, end - start), start)):
                write_all(fd, chunk)
                start += len(chunk)
        os.ftruncate(fd, max(os.fstat(source).st_size, os.fstat(fd).st_size))
        os.fsync(fd)


def _write(path: Path, content: bytes) -> None:
    with _created(path) as fd:
        write_all(fd, content)
        os.fsync(fd)


@contextlib.contextmanager
def _created(path: Path) -> Iterator[int]:
    """A new file, readable only by its owner and open for writing. An `OSError` inside the block names the file."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
    finally:
        os.close(fd)
