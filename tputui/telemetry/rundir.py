"""A run's directory: names, manifest, liveness, listing.

    RUN/
      run.json             manifest: configuration, command, time; written before any process starts
      ROLE-HOST.jsonl      one journal per process: supervisor-0, worker-0, ...
      rank-N.jsonl         journal of an additional training process: its heartbeats and failures
      logs-HOST.jsonl      journal about a command of the user: heartbeats, and values read from its output
      worker-HOST.log      output of the training process, byte for byte
      requests/ID.json     requests of users
      places/              cached reducer states, so that a long run opens at once
      checkpoints/         step-N.pt, last.pt, best.pt

The directory is accessible only by its owner (0700). Must not read journals.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import shutil
import socket
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tputui.telemetry import files
from tputui.telemetry.codec import check_free
from tputui.telemetry.events import JournalOpened
from tputui.telemetry.files import read_small
from tputui.telemetry.journal import SUFFIX
from tputui.telemetry.origin import Provenance
from tputui.telemetry.secrecy import CommandLine, Exact, Text, Values

MANIFEST = "run.json"
REQUESTS = "requests"
CHECKPOINTS = "checkpoints"
CACHE_DIR = "places"
MANIFEST_BYTES_MAX = 16 << 20
"""Maximum size of a manifest file."""
SEALED_SUFFIX = SUFFIX + ".zst"
RUNS_DIR_VARIABLE = "TPUTUI_RUNS"
DEFAULT_RUNS_DIR = "runs"
RUN_DIR_VARIABLE = "TPUTUI_RUN_DIR"
"""Environment variable with the directory of the run, for callbacks in the training process."""

_CHECKSUM = b',\n  "checksum": "%08x"\n}'
"""End of a manifest: the CRC-32 of every byte before it."""
_CHECKED_END = re.compile(rb',\n  "checksum": "([0-9a-f]{8})"\n}\s*\Z')
_JOURNAL = re.compile(r"(?:supervisor|worker|rank|logs|observer)-\d+\.jsonl(?:\.zst)?")
"""Names of journals; folders with other JSON lines are logs of other programs."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_PROGRAM_CHARS_MAX = 64
"""Part of a program's name that is in the name of a run."""


class RunNotFound(Exception):
    """There is no such run; the message contains the searched directory and what to do."""


class Manifest(Provenance, frozen=True, kw_only=True):
    """The configuration and command of a run, written once before any process starts."""

    run: Exact
    created: float
    """Unix time in seconds."""
    version: Exact
    """Version of tputui that created the run."""
    config_path: Text
    """Configuration file, as given on the command line; or a command of the user, with its secrets masked."""
    config: Values
    """The whole configuration, including defaults."""
    argv: CommandLine
    """The command line of the user."""
    cwd: Exact
    """Working directory of the command; the user's modules are imported from there."""
    resume_from: Exact | None = None
    """Checkpoint file to resume from."""

    def with_provenance(self, provenance: Provenance) -> Manifest:
        """A copy that records where the run comes from."""
        return msgspec.structs.replace(self, **msgspec.structs.asdict(provenance))

    @property
    def resume_path(self) -> Path | None:
        """Path of that file; a relative one is relative to `cwd`."""
        return Path(self.cwd, self.resume_from) if self.resume_from else None


class ProcessId(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies a process, even if its pid is reused later."""

    host: str
    host_id: str
    pid: int
    pid_started: int


def runs_dir(flag: str | None, environment: dict[str, str] | os._Environ[str]) -> Path:
    """The directory of all runs: `--runs-dir`, else `$TPUTUI_RUNS`, else `./runs`."""
    return Path(flag or environment.get(RUNS_DIR_VARIABLE) or DEFAULT_RUNS_DIR)


def create(parent: Path, manifest: Manifest) -> Path:
    """Creates the directory of a run, named `manifest.run`, completely or not at all.

    Raises `FileExistsError` if the name is taken, other `OSError`s if nothing can be created there, and
    `UnicodeEncodeError` if a path in the manifest is not UTF-8.
    """
    content = encode_manifest(manifest)
    run_dir = parent / manifest.run
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        # Not `FileExistsError`: another name would not help.
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
        # Another process created it first: a directory cannot be renamed to a non-empty one.
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(run_dir) from None
        raise
    return run_dir


def default_name(program: str, created: float) -> str:
    """The name of a run of a task or program that was not given one: `20261127-091500-digits`."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", program)[:_PROGRAM_CHARS_MAX] or "run"
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(created))}-{cleaned}"


def create_numbered(parent: Path, manifest: Manifest) -> Path:
    """Creates a run; if its name is taken, with the next free number appended."""
    base, number = manifest.run, 1
    while True:
        try:
            return create(parent, manifest)
        except FileExistsError:
            number += 1
            manifest = msgspec.structs.replace(manifest, run=f"{base}-{number}")


def encode_manifest(manifest: Manifest) -> bytes:
    """Encodes a manifest as JSON, with its secrets masked; the last field is a checksum of everything before it."""
    from tputui.telemetry.masking import FieldMasker  # By writers alone, as in `journal`.

    body = msgspec.json.format(msgspec.json.encode(FieldMasker().masked(manifest))).removesuffix(b"\n}")
    return body + _CHECKSUM % zlib.crc32(body)


def held(run_dir: Path) -> Path:
    """A path to a run's directory that stays valid in this process if the directory is renamed or moved.

    Uses a file descriptor that is never closed, so it is meant for processes of the run itself. Raises `OSError`.
    """
    path = Path(f"/proc/self/fd/{os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)}")
    return path if path.is_dir() else run_dir


def read_manifest(run_dir: Path) -> Manifest:
    """The manifest of a run. Raises `RunNotFound` if the directory contains no readable one."""
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
    """The manifest of a run; None if the directory contains no readable one."""
    try:
        return read_manifest(run_dir)
    except RunNotFound:
        return None


def _check_sum(content: bytes) -> None:
    """Raises `ValueError` if a manifest was changed. Older versions wrote no checksum."""
    end = _CHECKED_END.search(content)
    if end is not None:
        if int(end[1], 16) != zlib.crc32(content[: end.start()]):
            raise ValueError("its checksum does not match")
    elif msgspec.json.decode(content, type=dict[str, msgspec.Raw]).keys() - set(Manifest.__struct_fields__):
        raise ValueError("it has no checksum, but fields of a version that writes one")


def is_name(text: str) -> bool:
    """Whether a name is valid for a run: letters, digits, dots, dashes and underscores, no path."""
    return _NAME.fullmatch(text) is not None


def find(name: str, parent: Path) -> Path:
    """The directory of the run `name` in `parent`, or of the run at the path `name`. Raises `RunNotFound`."""
    if not name.strip():
        # As a path, an empty text is the current directory.
        raise RunNotFound("RUN is empty; `tputui runs` lists the runs")
    for candidate in ([parent / name] if is_name(name) else []) + [Path(name)]:
        if candidate.is_dir() and is_run(candidate):
            return candidate
    raise RunNotFound(f"{name}: no such run in {parent}; `tputui runs` lists those there are")


def why_shut(run_dir: Path) -> str | None:
    """Why the user cannot read a directory, and what to do; None if it can be read."""
    if os.access(run_dir, os.R_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
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
    return (path / MANIFEST).is_file() or has_run_files(writer + SUFFIX for writer, _ in journal_paths(path))


def has_run_files(names: Iterable[str]) -> bool:
    """Whether files with these names make their directory look like a run."""
    return any(name == MANIFEST or _JOURNAL.fullmatch(name) for name in names)


def listing(parent: Path) -> list[Path]:
    """Directories of the runs in `parent`, newest first by name, which begins with the start time.

    Includes directories of other users that cannot be read.
    """
    if not parent.is_dir():
        return []
    run_dirs = [path for path in parent.iterdir() if not path.name.startswith(".") and _may_be_run(path)]
    return sorted(run_dirs, key=lambda path: path.name, reverse=True)


def _may_be_run(path: Path) -> bool:
    try:
        return path.is_dir() and is_run(path)
    except PermissionError:
        return True


def journal_paths(run_dir: Path) -> Iterator[tuple[str, Path]]:
    """Writer name and path of every journal; the plain one if there is a sealed one as well."""
    paths: dict[str, Path] = {}
    with os.scandir(run_dir) as entries:
        for entry in entries:
            for suffix in (SUFFIX, SEALED_SUFFIX):
                if entry.name.endswith(suffix):
                    writer = entry.name.removesuffix(suffix)
                    if suffix == SUFFIX or writer not in paths:
                        paths[writer] = Path(entry.path)
    yield from sorted(paths.items())


def write_atomically(path: Path, content: bytes) -> None:
    files.write(path, lambda file: file.write(content))


def this_process() -> ProcessId:
    """The identity of the calling process."""
    return process_with(os.getpid())


def process_with(pid: int) -> ProcessId:
    """The identity of a process on this host."""
    return ProcessId(host=socket.gethostname(), host_id=host_id(), pid=pid, pid_started=start_ticks(pid))


def clear_half_written(run_dir: Path) -> None:
    """Removes incomplete checkpoint files of processes that have exited."""
    for path in (run_dir / CHECKPOINTS).glob(".*.tmp"):
        with contextlib.suppress(OSError):
            path.unlink()


def process_of(head: JournalOpened) -> ProcessId:
    """The process that writes the journal with this head."""
    return ProcessId(host=head.host, host_id=head.host_id, pid=head.pid, pid_started=head.pid_started)


@functools.cache
def host_id() -> str:
    """Identity of the booted host and its process namespace; the host name if the system provides none.

    Cached, because it is constant and viewers need it ten times a second for each process.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def start_ticks(pid: int) -> int:
    """Start time of a process in clock ticks since boot; 0 if there is no such process or it is unknown."""
    try:
        # Viewers call this for each process in every frame: the plain calls take a fifth of `Path.read_text`.
        opened = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            stat = os.read(opened, 4096)
        finally:
            os.close(opened)
    except OSError:
        return 0
    state, *fields = stat.rpartition(b")")[2].split()
    return 0 if state in b"ZX" else int(fields[18])


def is_alive(process: ProcessId) -> bool | None:
    """Whether the process is alive; None if it is on another host, so that this host cannot know."""
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
