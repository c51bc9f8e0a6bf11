"""The mirror of a run: a run directory in the user's cache that has the journals of the hosts, byte for byte.

    $XDG_CACHE_HOME/tputui/mirrors/
      NAME-DIGEST/           a run directory; DIGEST is that of the hosts, the run and what is left out
        link.json            the connections to the hosts, while a process writes here
      .NAME-DIGEST.lock      held by that process

Hosts are untrusted: names are checked, sizes are bounded, links are not followed, and nothing is written outside of
the directory. Deleting a mirror costs only the time to get it again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

import msgspec

from tputui import user_cache
from tputui.remote.address import RunAddress
from tputui.remote.journal_source import PICTURES, marks_of, next_event
from tputui.remote.protocol import (
    HAVE_BYTES_MAX,
    HAVE_MAX,
    Data,
    File,
    Follow,
    Form,
    ProtocolError,
    is_side_file,
    is_writer,
)
from tputui.telemetry.files import free_bytes, read_at, write_all
from tputui.telemetry.journal import LINE_BYTES_MAX, SUFFIX
from tputui.telemetry.requests import Request
from tputui.telemetry.rundir import REQUESTS, SEALED_SUFFIX, write_atomically

LINK_FILE = "link.json"
JOURNALS_MAX = 16_384
SIDE_FILES_MAX = 16_384
MIRROR_BYTES_MAX = 256 << 30
FREE_BYTES_MIN = 256 << 20
"""A disk with less free space is left alone."""
_DIGEST_CHARS = 12
_NAME_CHARS_MAX = 80
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class MirrorFull(Exception):
    """There is no room for more; the message is one sentence."""


def mirror_dir_of(address: RunAddress, environ: Mapping[str, str], *, summary: bool) -> Path:
    """The mirror of a run. Raises `OSError` if there is no home directory."""
    hosts = sorted(map(str, address.hosts))
    key = msgspec.json.encode([hosts, address.runs_dir, address.run, summary])
    digest = hashlib.sha256(key).hexdigest()[:_DIGEST_CHARS]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", address.run.rpartition("/")[2])[:_NAME_CHARS_MAX].strip("._-") or "run"
    return user_cache.folder_of("mirrors", environ) / f"{name}-{digest}"


class MirrorLock:
    """The right to write a mirror, which one process has at a time."""

    def __init__(self, run_dir: Path) -> None:
        """Raises `OSError`."""
        user_cache.create(run_dir.parent)
        path = run_dir.with_name(f".{run_dir.name}.lock")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def acquire(self) -> bool:
        """Takes the lock if no other process has it; returns whether this process has it now."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        os.close(self._fd)


class Mirror:
    """Writes a mirror. Only for the process that has its lock."""

    def __init__(self, run_dir: Path) -> None:
        """Creates the directory if there is none. Raises `OSError`."""
        self.run_dir = run_dir
        self._sizes: dict[str, tuple[Form, int]] = {}
        """Form and size of the copies of journals that were looked at."""
        self._side_files: set[str] = set()
        self._written = 0
        """Bytes written since the free space was checked."""
        run_dir.mkdir(mode=0o700, exist_ok=True)
        (run_dir / REQUESTS).mkdir(mode=0o700, exist_ok=True)
        self._total = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(run_dir))
        self._check_room(0)

    def copy_of(self, writer: str) -> Follow:
        """How much of a journal the mirror has. Raises `OSError`, and `ProtocolError` for an invalid name."""
        if not is_writer(writer):
            raise ProtocolError("a journal has an invalid name")
        if writer not in self._sizes and len(self._sizes) >= JOURNALS_MAX:
            raise ProtocolError(f"the run has more than {JOURNALS_MAX} journals")
        candidates: tuple[tuple[Form, Path], ...] = (
            ("plain", self._plain(writer)),
            ("sealed", self._sealed(writer)),
            ("sealed", self._part(writer)),
        )
        for form, path in candidates:
            if path.is_file() and not path.is_symlink():
                size = _cut_to_lines(path) if form == "plain" else path.stat().st_size
                if size:
                    return self._follow(writer, form, path, size)
        self._sizes[writer] = ("none", 0)
        return Follow(writer=writer, form="none", size=0, head_crc=0, tail_crc=0, next_seq=0, journal_id="")

    def write(self, data: Data) -> None:
        """Writes a part of a journal. Raises `ProtocolError`, `MirrorFull` and `OSError`."""
        if data.writer not in self._sizes:
            raise ProtocolError("a journal was sent that was not wanted")
        form, size = self._sizes[data.writer]
        if data.offset == 0:
            if size:
                self._remove(data.writer)
            form, size = data.form, 0
        if data.form != form or data.offset != size or form == "none":
            raise ProtocolError(f"bytes of {data.writer} do not continue those before them")
        self._check_room(len(data.data))
        is_whole = form == "sealed" and data.end
        path = self._plain(data.writer) if form == "plain" else self._part(data.writer)
        if is_whole and not path.exists() and not data.data:
            return  # The sealed journal was complete.
        if form == "sealed" and data.data and not path.exists() and size:
            self._sealed(data.writer).rename(path)
        if data.data:
            _append(path, data.data)
        self._sizes[data.writer] = (form, size + len(data.data))
        if is_whole:
            path.rename(self._sealed(data.writer))
            self._plain(data.writer).unlink(missing_ok=True)

    def write_file(self, file: File) -> bool:
        """Writes a small file; returns whether it did. Raises `ProtocolError`, `MirrorFull` and `OSError`."""
        if not is_side_file(file.path):
            raise ProtocolError("a file has an invalid name")
        if file.path not in self._side_files and len(self._side_files) >= SIDE_FILES_MAX:
            return False
        self._side_files.add(file.path)
        self._check_room(len(file.content))
        path = self.run_dir / file.path
        if file.path.startswith(f"{REQUESTS}/"):
            if path.exists() or not _is_request(file.content, path.stem):
                return False
        elif "/" in file.path:
            for folder in reversed(path.relative_to(self.run_dir).parents[:-1]):
                if (self.run_dir / folder).is_symlink():
                    raise ProtocolError("a folder of the mirror is a link")
                (self.run_dir / folder).mkdir(mode=0o700, exist_ok=True)
        write_atomically(path, file.content)
        return True

    def side_files(self) -> list[str]:
        """The requests and pictures of the mirror, newest requests first, as many as fit into a message."""
        paths = [path.relative_to(self.run_dir).as_posix() for path in (self.run_dir / PICTURES).rglob("*.png")]
        paths += [f"{REQUESTS}/{entry.name}" for entry in os.scandir(self.run_dir / REQUESTS)]
        names = sorted(filter(is_side_file, paths), reverse=True)[:HAVE_MAX]
        sizes = accumulate(len(name) + 4 for name in names)
        return [name for name, size in zip(names, sizes, strict=True) if size <= HAVE_BYTES_MAX]

    def remove_if_empty(self) -> None:
        """Removes the directory if no host had the run. Raises `OSError`."""
        names = {entry.name for entry in os.scandir(self.run_dir)}
        if not names - {REQUESTS, LINK_FILE} and not any(os.scandir(self.run_dir / REQUESTS)):
            (self.run_dir / LINK_FILE).unlink(missing_ok=True)
            (self.run_dir / REQUESTS).rmdir()
            self.run_dir.rmdir()

    def _follow(self, writer: str, form: Form, path: Path, size: int) -> Follow:
        self._sizes[writer] = (form, size)
        head_crc, tail_crc = marks_of(path, size)
        next_seq, journal_id = next_event(_end_of(path, size)) if form == "plain" else (0, "")
        return Follow(
            writer=writer,
            form=form,
            size=size,
            head_crc=head_crc,
            tail_crc=tail_crc,
            next_seq=next_seq,
            journal_id=journal_id,
        )

    def _remove(self, writer: str) -> None:
        for path in (self._plain(writer), self._sealed(writer), self._part(writer)):
            path.unlink(missing_ok=True)

    def _plain(self, writer: str) -> Path:
        return self.run_dir / f"{writer}{SUFFIX}"

    def _sealed(self, writer: str) -> Path:
        return self.run_dir / f"{writer}{SEALED_SUFFIX}"

    def _part(self, writer: str) -> Path:
        """A sealed journal that is not complete yet, which no viewer reads."""
        return self.run_dir / f".{writer}{SEALED_SUFFIX}.part"

    def _check_room(self, num_bytes: int) -> None:
        self._total += num_bytes
        if self._total > MIRROR_BYTES_MAX:
            raise MirrorFull(f"the mirror of the run has reached {MIRROR_BYTES_MAX >> 30} GiB, the maximum")
        self._written -= num_bytes
        if self._written <= 0:
            self._written = FREE_BYTES_MIN >> 4
            free = free_bytes(self.run_dir)
            if free is not None and free < FREE_BYTES_MIN:
                raise MirrorFull(f"the disk of {self.run_dir.parent} has less than {FREE_BYTES_MIN >> 20} MB left")


def _append(path: Path, data: bytes) -> None:
    fd = os.open(path, _FLAGS | os.O_APPEND, 0o600)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def _end_of(path: Path, size: int) -> bytes:
    return read_at(path, max(0, size - 256), 256)


def _cut_to_lines(path: Path) -> int:
    """Removes an incomplete last line, which a process left that was killed while it wrote; returns the size."""
    size = path.stat().st_size
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        end = os.pread(fd, 1, size - 1) if size else b"\n"
        if end == b"\n":
            return size
        start = max(0, size - LINE_BYTES_MAX - 1)
        size = start + os.pread(fd, size - start, start).rfind(b"\n") + 1
        os.ftruncate(fd, size)
        return size
    finally:
        os.close(fd)


def _is_request(content: bytes, request_id: str) -> bool:
    with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
        return msgspec.json.decode(content, type=Request).id == request_id
    return False
