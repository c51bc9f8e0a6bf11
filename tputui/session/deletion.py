"""Deletes a run: only a directory that certainly is a run, and never while the run is alive."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from pathlib import Path
from threading import Event
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.session import session
from tputui.state.run_condition import ENDED
from tputui.telemetry import rundir
from tputui.telemetry.merge import writers_of

_SPARSE_FROM_BYTES = 1 << 20
_POLL_S = 0.2


class CannotDelete(Exception):
    """The run was not deleted; the message is the reason, to be shown after the name of the run."""


class RunSize(NamedTuple):
    num_files: int
    num_bytes: int

    def plus(self, other: RunSize) -> RunSize:
        return RunSize(self.num_files + other.num_files, self.num_bytes + other.num_bytes)

    @property
    def text(self) -> str:
        """`12 files, 3.4 MiB`."""
        return f"{fmt.counted(self.num_files, 'file')}, {fmt.size(self.num_bytes)}"


def examine(run_dir: Path) -> RunSize:
    """The size of a run that can be deleted. Raises `CannotDelete`.

    Reads the whole run, and watches a run of another host that looks lost for some seconds.
    """
    try:
        _check_directory(run_dir)
        size = _size(run_dir)
        _check_over(run_dir)
        _check_processes(run_dir)
    except OSError as error:
        raise CannotDelete(f"cannot be read: {error.strerror or error}") from None
    return size


def delete(run_dir: Path) -> None:
    """Deletes the directory of a run that `examine` accepted.

    Checks and watches the processes again: some may have started while the user was asked. Symbolic links are deleted,
    not followed. Raises `CannotDelete`.
    """
    # Renamed first: a directory that is deleted only in part must not be listed as a run.
    doomed = run_dir.with_name(f".{run_dir.name}.deleted.{os.getpid()}")
    try:
        _check_directory(run_dir)
        _check_over(run_dir)
        _check_processes(run_dir)
        run_dir.rename(doomed)
    except OSError as error:
        raise CannotDelete(f"cannot be deleted: {error.strerror or error}") from None
    try:
        shutil.rmtree(doomed)
    except OSError as error:
        raise CannotDelete(f"deleted in part: {error.strerror or error}; the rest is in {doomed}") from None


def _check_directory(run_dir: Path) -> None:
    """Raises `CannotDelete` unless the directory itself is a run: any folder with a `.jsonl` file looks like one."""
    if run_dir.is_symlink():
        raise CannotDelete("is a symbolic link to another directory; remove the link with rm")
    if not run_dir.is_dir():
        raise CannotDelete("is no longer there")
    if reason := rundir.why_shut(run_dir):
        raise CannotDelete(f"cannot be read: {reason}")
    if Path.cwd().is_relative_to(run_dir.resolve()):
        raise CannotDelete("contains the current directory")
    if rundir.manifest_if_readable(run_dir) is None and not any(writers_of(run_dir).values()):
        raise CannotDelete(f"may not be a run: it has no readable {rundir.MANIFEST} or journal; delete it by hand")


def _size(run_dir: Path) -> RunSize:
    """The size of all files. Raises `CannotDelete` if the directory contains another run or file system."""
    device, num_files, num_bytes = run_dir.stat().st_dev, 0, 0
    for parent, folders, files in os.walk(run_dir, onerror=_raise, followlinks=False):
        for name in folders:
            folder = Path(parent, name)
            if folder.is_symlink():
                num_files += 1
            elif folder.stat().st_dev != device:
                raise CannotDelete(f"contains a mounted file system: {folder}")
            elif (folder / rundir.MANIFEST).exists() or any(writers_of(folder).values()):
                raise CannotDelete(f"contains another run: {folder}")
        for name in files:
            status = Path(parent, name).lstat()
            num_files += 1
            num_bytes += _num_bytes(status) if stat.S_ISREG(status.st_mode) else 0
    return RunSize(num_files, num_bytes)


def _num_bytes(status: os.stat_result) -> int:
    """The size of a file; of a large one the space that it takes, because it may have holes."""
    return min(status.st_size, status.st_blocks * 512) if status.st_size > _SPARSE_FROM_BYTES else status.st_size


def _check_over(run_dir: Path) -> None:
    """Raises `CannotDelete` if the run goes on. Processes of other hosts are watched for new events."""
    with contextlib.closing(session.Session.live(run_dir)) as source:
        source.read_all()
        writing = _watch_other_hosts(source)
        condition, unfinished = source.snapshot().condition, sorted({*source.unfinished_elsewhere(), *writing})
    if condition not in ENDED:
        raise CannotDelete(f"is still {condition}; stop it first")
    if unfinished:
        raise CannotDelete(f"has processes on other hosts that may still run: {', '.join(unfinished[:3])}")


def _watch_other_hosts(source: session.Session) -> set[str]:
    """Names of the processes of other hosts that write, though they look gone because their clock is behind.

    Polls for some seconds if there are processes that look gone.
    """
    pause, began = Event(), time.monotonic()
    is_open, writing = bool(source.without_end_elsewhere()), set[str]()
    while source.snapshot().condition in ENDED and not writing and not source.unfinished_elsewhere():
        watched_s = time.monotonic() - began
        # A run settles only after it was watched; one that never settles is not watched forever.
        must_watch = watched_s < session.WATCH_S if is_open else not source.settled
        if not must_watch or watched_s > 2 * session.WATCH_S:
            break
        pause.wait(_POLL_S)
        writing = {event.writer for event in source.poll()} & {*source.without_end_elsewhere()}
    return writing


def _check_processes(run_dir: Path) -> None:
    """Raises `CannotDelete` if a process of the run is alive on this host."""
    heads = writers_of(run_dir)
    if not any(name.startswith("supervisor-") for name in heads):
        return  # reported by a script, which may go on after the training
    for name, process in heads.items():
        if process is not None and rundir.is_alive(process) is True:
            raise CannotDelete(f"has a process that has not exited yet: {name}, pid {process.pid}")


def _raise(error: OSError) -> None:
    raise error
