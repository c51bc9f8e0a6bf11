"""A run's directory: names, manifest, liveness, listing.

    RUN/
      run.json             what was asked for: configuration, command, time; written before anything starts
      ROLE-HOST.jsonl      a journal a writing process: supervisor-0, worker-0, ...
      rank-N.jsonl         the same of a further training process: its heartbeat and what broke in it
      worker-HOST.log      what the training process printed, byte for byte
      requests/ID.json     what a person asked of the run
      places/              what the journals add up to, so that a long run opens at once
      checkpoints/         step-N.pt, last.pt, best.pt

The directory is its owner's alone (0700). Must not read journals.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import shutil
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tputui.telemetry import redaction
from tputui.telemetry.codec import check_free
from tputui.telemetry.events import JournalOpened
from tputui.telemetry.journal import SUFFIX
from tputui.telemetry.safe_open import read_small

MANIFEST = "run.json"
REQUESTS = "requests"
CHECKPOINTS = "checkpoints"
CACHE_DIR = "places"
MANIFEST_BYTES_MAX = 16 << 20
"""A longer file is no manifest."""
SEALED_SUFFIX = SUFFIX + ".zst"
RUNS_DIR_VARIABLE = "TPUTUI_RUNS"
DEFAULT_RUNS_DIR = "runs"
RUN_DIR_VARIABLE = "TPUTUI_RUN_DIR"
"""Directory of the run that a process belongs to, told to the callbacks in it."""

_CHECKSUM = b',\n  "checksum": "%08x"\n}'
"""How a manifest ends: with the CRC-32 of every byte before this."""
_CHECKED_END = re.compile(rb',\n  "checksum": "([0-9a-f]{8})"\n}\s*\Z')
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class RunNotFound(Exception):
    """No such run; the text says where it was looked for and what to do."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, written once before anything starts."""

    run: str
    """Name of the run."""
    created: float
    """Unix time in seconds."""
    version: str
    """Version of tputui that made it."""
    config_path: str
    """Configuration file, as it was named."""
    config: dict[str, Any]
    """The whole configuration, defaults filled in."""
    argv: list[str]
    """The command as it was typed."""
    cwd: str
    """Directory it was typed in; a user's own modules are looked for there."""
    resume_from: str | None = None
    """Checkpoint file to go on from."""

    @property
    def resume_path(self) -> Path | None:
        """Where that file lies; a relative name starts in `cwd`."""
        return Path(self.cwd, self.resume_from) if self.resume_from else None


class ProcessId(msgspec.Struct, frozen=True, kw_only=True):
    """A process, told apart from a later one with the same number."""

    host: str
    host_id: str
    pid: int
    pid_started: int


def runs_dir(flag: str | None, environment: dict[str, str] | os._Environ[str]) -> Path:
    """Where runs live: `--runs-dir`, else `$TPUTUI_RUNS`, else `./runs`."""
    return Path(flag or environment.get(RUNS_DIR_VARIABLE) or DEFAULT_RUNS_DIR)


def create(parent: Path, manifest: Manifest) -> Path:
    """Makes a new run directory named after `manifest.run`, whole or not at all. Secrets in it are masked.

    Raises `FileExistsError` where the name is taken, any other `OSError` where nothing can be made there, and
    `UnicodeEncodeError` where a path in the manifest is not UTF-8.
    """
    manifest = msgspec.structs.replace(
        manifest, config=redaction.masked(manifest.config), argv=redaction.masked_argv(manifest.argv)
    )
    content = encode_manifest(manifest)
    run_dir = parent / manifest.run
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        # Not that the name is taken: another name would not help.
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(parent)) from None
    staging = parent / f".{manifest.run}.{os.getpid()}"
    try:
        staging.mkdir(mode=0o700)
        for name in (REQUESTS, CHECKPOINTS):
            (staging / name).mkdir(mode=0o700)
        write_atomically(staging / MANIFEST, content)
        if run_dir.exists():
            raise FileExistsError(run_dir)
        staging.rename(run_dir)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        # Another process was faster: a directory cannot be renamed onto one that is not empty.
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(run_dir) from None
        raise
    return run_dir


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as it is written: JSON whose last field is a checksum of all before it."""
    body = msgspec.json.format(msgspec.json.encode(manifest)).removesuffix(b"\n}")
    return body + _CHECKSUM % zlib.crc32(body)


def held(run_dir: Path) -> Path:
    """A path to a run's directory that stays valid in this process if the directory is renamed or moved.

    Goes through a descriptor that is never closed: for a process that belongs to the run as long as it lives. Raises
    `OSError`.
    """
    path = Path(f"/proc/self/fd/{os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)}")
    return path if path.is_dir() else run_dir


def read_manifest(run_dir: Path) -> Manifest:
    """What was asked for. Raises `RunNotFound` where the directory holds no readable manifest."""
    try:
        content = read_small(run_dir / MANIFEST, MANIFEST_BYTES_MAX)
        _check_sum(content)
        manifest = msgspec.json.decode(content, type=Manifest)
        check_free(manifest.config)
        return manifest
    except FileNotFoundError:
        raise RunNotFound(f"{run_dir}: not a run: there is no {MANIFEST} in it") from None
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise RunNotFound(f"{run_dir / MANIFEST}: cannot be read: {why}") from None


def manifest_if_readable(run_dir: Path) -> Manifest | None:
    """What was asked for; None if the directory holds no readable manifest."""
    try:
        return read_manifest(run_dir)
    except RunNotFound:
        return None


def _check_sum(content: bytes) -> None:
    """Raises `ValueError` where a manifest is not what was written. Older versions wrote no checksum."""
    end = _CHECKED_END.search(content)
    if end is not None:
        if int(end[1], 16) != zlib.crc32(content[: end.start()]):
            raise ValueError("its checksum does not match")
    elif msgspec.json.decode(content, type=dict[str, msgspec.Raw]).keys() - set(Manifest.__struct_fields__):
        raise ValueError("it has fields of no version that writes no checksum")


def is_name(text: str) -> bool:
    """Whether a run may be called so: letters, digits, dots, dashes, underscores; no path."""
    return _NAME.fullmatch(text) is not None


def find(name: str, parent: Path) -> Path:
    """The directory of the run called `name` in `parent`, or at the path `name`. Raises `RunNotFound`."""
    for candidate in ([parent / name] if is_name(name) else []) + [Path(name)]:
        if candidate.is_dir() and is_run(candidate):
            return candidate
    raise RunNotFound(f"{name}: no such run in {parent}; `tputui runs` lists those there are")


def why_shut(run_dir: Path) -> str | None:
    """Why this user may not look into a directory, and what to do; None where they may."""
    if os.access(run_dir, os.R_OK | os.X_OK, effective_ids=True):
        return None
    try:
        owner = run_dir.stat().st_uid
    except OSError as error:
        return f"out of reach: {error.strerror}"
    if owner == os.geteuid():
        return "yours, but its permissions shut you out; chmod u+rwx opens it"
    return "another user's; ask them for a copy of its directory"


def is_run(path: Path) -> bool:
    """Whether the directory looks like a run, damaged or not."""
    return (path / MANIFEST).is_file() or any(journal_paths(path))


def listing(parent: Path) -> list[Path]:
    """Directories of the runs in `parent`, newest first by name, which begins with the time of the start.

    A directory of another user, which cannot be looked into, is among them.
    """
    if not parent.is_dir():
        return []
    found = [path for path in parent.iterdir() if not path.name.startswith(".") and _may_be_run(path)]
    return sorted(found, key=lambda path: path.name, reverse=True)


def _may_be_run(path: Path) -> bool:
    try:
        return path.is_dir() and is_run(path)
    except PermissionError:
        return True


def journal_paths(run_dir: Path) -> Iterator[tuple[str, Path]]:
    """Writer name and file of every journal, the plain one where there is a sealed one too."""
    found: dict[str, Path] = {}
    with os.scandir(run_dir) as entries:
        for entry in entries:
            for suffix in (SUFFIX, SEALED_SUFFIX):
                if entry.name.endswith(suffix):
                    writer = entry.name.removesuffix(suffix)
                    if suffix == SUFFIX or writer not in found:
                        found[writer] = Path(entry.path)
    yield from sorted(found.items())


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a small file so that a reader sees all of it or none of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


def this_process() -> ProcessId:
    """The identity of the calling process."""
    pid = os.getpid()
    return ProcessId(host=socket.gethostname(), host_id=host_id(), pid=pid, pid_started=start_ticks(pid))


def clear_half_written(run_dir: Path) -> None:
    """Removes what writers of checkpoints that are gone left of files that never were whole."""
    for path in (run_dir / CHECKPOINTS).glob(".*.tmp"):
        with contextlib.suppress(OSError):
            path.unlink()


def process_of(head: JournalOpened) -> ProcessId:
    """The process that writes a journal with this head."""
    return ProcessId(host=head.host, host_id=head.host_id, pid=head.pid, pid_started=head.pid_started)


@functools.cache
def host_id() -> str:
    """Identity of the booted host and its process namespace; the host's name where the system does not tell.

    Kept, since it stays what it is while a process lives, and a viewer asks ten times a second for each writer.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def start_ticks(pid: int) -> int:
    """Start time of a process in clock ticks since boot; 0 where there is none or the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    state, *fields = stat.rpartition(")")[2].split()
    return 0 if state in "ZX" else int(fields[18])


def is_alive(process: ProcessId) -> bool | None:
    """Whether the process lives; None where this host cannot know, since the process is another host's."""
    if process.host_id != host_id():
        return None
    if process.pid_started:
        return start_ticks(process.pid) == process.pid_started
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
