"""Writes a repaired copy of a run directory: all readable events of the journals, and every other file unchanged.

Events keep their bytes and sequence numbers, so gaps in the copy show what was lost. The original directory is never
written to, and no file is overwritten.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.merge import open_tail, records_of
from tputui.telemetry.rundir import MANIFEST, Manifest
from tputui.telemetry.safe_open import data_extents, open_plain, read_small

_COPY_BYTES = 1 << 20
REPORT = "repair.json"
"""File in the copy that tells what was damaged."""


class NothingReadable(Exception):
    """Neither a record nor the manifest can be read, so there is nothing that a copy could be of."""


class RepairedRun(NamedTuple):
    """What stands in the copy."""

    num_records: int
    num_journals: int
    manifest: str
    """`kept`, `rebuilt` or `missing`."""
    left_out: list[str]
    """Files that are not in the copy, each with the reason; relative to the run directory."""


class RebuiltManifest:
    """What the journals told on the way that a manifest is rebuilt from."""

    def __init__(self) -> None:
        self.started: ev.RunStarted | None = None
        self.opened: ev.JournalOpened | None = None

    def take(self, event: ev.Event) -> None:
        """Looks at a record."""
        if isinstance(event, ev.RunStarted) and self.started is None:
            self.started = event
        elif isinstance(event, ev.JournalOpened) and self.opened is None:
            self.opened = event


def repair_run(run_dir: Path, target: Path, report: bytes) -> RepairedRun:
    """Makes the sound copy `target` of a run, whole or not at all, with `report` in it.

    Raises `NothingReadable`, `FileExistsError` where `target` stands already, and any other `OSError` where nothing
    can be made there.
    """
    staging = target.with_name(f".{target.name}.{os.getpid()}")
    staging.mkdir(mode=0o700)
    try:
        repaired = _fill(run_dir, staging)
        if not repaired.num_records and repaired.manifest == "missing":
            raise NothingReadable
        _write(staging / REPORT, report)
        if target.exists() or target.is_symlink():
            raise FileExistsError(target)
        staging.rename(target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return repaired


def _fill(run_dir: Path, into: Path) -> RepairedRun:
    for name in (rundir.REQUESTS, rundir.CHECKPOINTS):
        (into / name).mkdir(mode=0o700)
    found, num_records, num_journals, left_out = RebuiltManifest(), 0, 0, list[str]()
    journals = {path.name: path for _, path in rundir.journal_paths(run_dir)}
    for name, path in journals.items():
        copied, why = _copy_journal(path, into / name, found)
        num_records += copied
        num_journals += copied > 0
        if why:
            left_out.append(f"{name}: {why}")
    left_out += _copy_others(run_dir, into, {MANIFEST, REPORT, *journals})
    return RepairedRun(num_records, num_journals, _copy_manifest(run_dir, into, found), left_out)


def _copy_journal(path: Path, target: Path, found: RebuiltManifest) -> tuple[int, str]:
    """Copies what can be read; returns how many records that is, and why it is not all of the file."""
    count, why = 0, ""
    with _created(target) as fd:
        try:
            with contextlib.closing(open_tail(path, lambda content: _write_all(fd, content))) as tail:
                for record in records_of(tail):
                    found.take(record.event)
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


def _copy_manifest(run_dir: Path, into: Path, found: RebuiltManifest) -> str:
    """The manifest as it is, or as the journals tell it."""
    with contextlib.suppress(rundir.RunNotFound):
        rundir.read_manifest(run_dir)
        _write(into / MANIFEST, read_small(run_dir / MANIFEST, rundir.MANIFEST_BYTES_MAX))
        return "kept"
    if found.started is None:
        return "missing"
    rebuilt = Manifest(
        run=found.started.run,
        # A time that is none cannot be written as one.
        created=found.started.t if math.isfinite(found.started.t) else 0.0,
        version=found.opened.version if found.opened else "",
        config_path="",
        config=found.started.config,
        argv=found.started.argv,
        cwd="",
        resume_from=found.started.resumed_from,
    )
    _write(into / MANIFEST, rundir.encode_manifest(rebuilt))
    return "rebuilt"


def _copy_others(run_dir: Path, into: Path, done: set[str]) -> list[str]:
    """Copies every other plain file, or links it; returns what is none, or cannot be read, with the reason."""
    left_out: list[str] = []
    for path in _walk(run_dir):
        place = path.relative_to(run_dir)
        if place.parts[0] == rundir.CACHE_DIR:
            continue  # they tell of journals that the copy does not have
        if str(place) in done or (path.name.startswith(".") and path.name.endswith(".tmp")):
            continue
        target = into / place
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) and _stays_inside(path, run_dir):
            target.symlink_to(os.readlink(path))
        elif stat.S_ISREG(mode):
            try:
                _link_or_copy(path, target, link=place.parts[0] == rundir.CHECKPOINTS)
            except PermissionError:
                left_out.append(f"{place}: it cannot be read")
        elif not stat.S_ISDIR(mode):
            left_out.append(f"{place}: it is not a plain file of the run")
    return left_out


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder, followlinks=False):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        yield from (Path(parent, name) for name in sorted([*files, *links]))


def _stays_inside(link: Path, run_dir: Path) -> bool:
    """Whether a link of the run leads to a file of it, and will in a copy."""
    leads_to = Path(os.readlink(link))
    try:
        return not leads_to.is_absolute() and (link.parent / leads_to).resolve().is_relative_to(run_dir.resolve())
    except (OSError, RuntimeError):
        return False  # it leads in a circle


def _link_or_copy(path: Path, target: Path, *, link: bool) -> None:
    """A copy of a file, or with `link` a further name of it, where the disk has links and the file is not another's.

    Only what is never written in place may be linked: checkpoints are.
    """
    if link:
        with contextlib.suppress(OSError):
            os.link(path, target, follow_symlinks=False)
            return
    source = open_plain(path)
    try:
        with _created(target) as fd:
            # Holes stay holes: a file of a terabyte may take no room at all.
            for start, end in data_extents(source):
                os.lseek(fd, start, os.SEEK_SET)
                while start < end and (chunk := os.pread(source, min(_COPY_BYTES, end - start), start)):
                    _write_all(fd, chunk)
                    start += len(chunk)
            os.ftruncate(fd, max(os.fstat(source).st_size, os.fstat(fd).st_size))
            os.fsync(fd)
    finally:
        os.close(source)


def _write(path: Path, content: bytes) -> None:
    with _created(path) as fd:
        _write_all(fd, content)
        os.fsync(fd)


@contextlib.contextmanager
def _created(path: Path) -> Iterator[int]:
    """A new file of the owner alone, open for writing; an error of the disk names it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
    finally:
        os.close(fd)


def _write_all(fd: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]
