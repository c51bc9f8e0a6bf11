"""Finds the log files of a command: those that its processes have open for writing, and those that appear beside them.

Reads `/proc`, and lists directories within limits. A file that is opened and closed between two looks is in the list of
a process that is observed from inside; of others it is found by its name in the working directory, or in a directory in
which the command writes, or in one that its command line names, unless another program may have written it.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import socket
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tputui.logs.formats import is_log, is_other, opened_logs_name
from tputui.supervise.training_processes import NewProcesses, environment_of, read_proc
from tputui.telemetry.files import read_at
from tputui.telemetry.rank_environment import RankInfo, rank_info
from tputui.telemetry.rundir import MANIFEST, RUN_DIR_VARIABLE, host_id

PROCESSES_MAX = 256
FILES_MAX = 1_000
"""Open files of a process that are looked at."""
KNOWN_MAX = 4_096
RANKS_MAX = 4_096
DIRECTORIES_MAX = 256
ENTRIES_MAX = 2_000
"""Directory entries per scan; in a larger tree some logs are found only while they are open."""
DEPTH_MAX = 5
NAMED_MAX = 64
"""Paths on the command lines of the processes of a command that are searched for logs."""
WORDS_MAX = 1_000
PATH_CHARS_MAX = 4_096
TREE_INTERVAL_S = 1.0
"""Seconds between two lists of processes, which take long on large hosts, and between two scans of directories."""
UNKNOWN_BYTES_MAX = 64 << 20
"""A larger file is read only if its name is that of a log."""
EARLY_SEARCHES = 120
"""Searches at the start, four times as often: in the first half minute, logs are created and the first values printed,
which wait for a search."""
_SKIPPED = frozenset({"node_modules", "site-packages", "__pycache__", "checkpoints"})
_PROC_BYTES_MAX = 1 << 18
LIST_BYTES_MAX = 1 << 20
"""Bytes of the list of opened logs that are read at once."""
WAITS_MAX = 50
"""Looks at a file that was listed and does not exist yet."""
_PID_DIGITS_MAX = 9
_WRITABLE = os.O_WRONLY | os.O_RDWR


class LogFinder:
    """Looks for log files of a command. Not thread-safe."""

    def __init__(
        self, pid: int, run_dir: Path, cwd: Path, patterns: Sequence[str], since: float, command: Sequence[str] = ()
    ) -> None:
        """`patterns` are paths with wildcards, relative to `cwd`; `since` is the unix time at which the command
        started, and `command` is its command line."""
        self._pid = pid
        self._cwd = cwd
        own_dir = self._own = os.path.realpath(run_dir)
        runs = os.path.dirname(own_dir)
        is_inside = os.path.realpath(cwd).startswith((f"{runs}{os.sep}", f"{own_dir}{os.sep}")) or os.path.samefile(
            cwd, runs
        )
        self._excluded = {own_dir} if is_inside else {own_dir, runs}
        self._patterns = [os.path.join(cwd, pattern) for pattern in patterns]
        self._since = since
        self._versions: dict[str, tuple[int, int]] = {}
        """The files that were found, as they were then."""
        self._unrecognised: dict[str, bool] = {}
        """Files that are found again once they have changed, and whether the user named them."""
        self._open: dict[tuple[int, str], str] = {}
        """What open descriptors are, by process and number: those that were looked at before."""
        self._processes = [pid]
        self._ranks: dict[int, RankInfo] = {}
        """What the environment of a process says about its rank."""
        self._new = NewProcesses()
        self.num_ranks = 1
        """Number of ranks of the command, by the environment of its processes."""
        self._directories: dict[str, None] = {}
        """Directories in which the command has files open for writing."""
        self._named: dict[str, None] = {}
        """Paths on the command lines of its processes, which may become directories."""
        self._name(_paths_in(command, str(cwd)))
        self._others: set[str] = set()
        """Files that appeared but may be of another program."""
        self.notes: list[str] = []
        """Sentences about files that are not read."""
        self._opened_inside = _OpenedInside(Path(own_dir, opened_logs_name(host_id())))
        self._tree_due = 0.0
        self.num_searches = 0
        """Times that all places were searched, not only the files that are open."""

    def find(self, *, final: bool = False) -> Iterator[tuple[Path, bool]]:
        """Files found since the last call, each once, and whether the user named it. `final`: look everywhere again."""
        now = time.monotonic()
        is_due = final or now >= self._tree_due
        if is_due:
            is_new = self.num_searches < EARLY_SEARCHES
            self._tree_due = now + (TREE_INTERVAL_S / 4 if is_new else TREE_INTERVAL_S)
            self.num_searches += 1
            self._processes = self._tree()
            self._count_ranks()
            for pattern in self._patterns:
                for path in itertools.islice(glob.iglob(pattern, recursive=True), ENTRIES_MAX):
                    if self._is_new(path):
                        yield Path(path), True
        yield from self._changed()
        for path in itertools.chain(self._opened_inside.read(), self._opened()):
            if self._is_new(path):
                yield Path(path), False
        if is_due:
            for path in self._appeared():
                is_candidate = path not in self._versions and path not in self._others
                if is_candidate and self._is_of_command(path) and self._is_new(path):
                    yield Path(path), False

    def find_changed(self, path: Path, *, is_chosen: bool) -> None:
        """Lets a file be found again once it has changed, because it could not be recognised yet."""
        self._unrecognised[str(path)] = is_chosen

    def _changed(self) -> Iterator[tuple[Path, bool]]:
        for path, is_chosen in list(self._unrecognised.items()):
            with contextlib.suppress(OSError):
                version = _version(os.stat(path))
                if version != self._versions.get(path):
                    self._versions[path] = version
                    del self._unrecognised[path]
                    yield Path(path), is_chosen

    def _is_new(self, path: str) -> bool:
        if path in self._versions or len(self._versions) >= KNOWN_MAX or self._is_excluded(path):
            return False
        with contextlib.suppress(OSError):
            status = os.stat(path)
            if stat.S_ISREG(status.st_mode):
                self._versions[path] = _version(status)
                return True
        return False

    def _is_excluded(self, path: str) -> bool:
        real = os.path.realpath(path)
        return any(real.startswith(f"{folder}{os.sep}") for folder in self._excluded)

    def _tree(self) -> list[int]:
        import psutil

        try:
            children = psutil.Process(self._pid).children(recursive=True)
        except psutil.Error:
            return [self._pid]
        return [self._pid, *(child.pid for child in children[:PROCESSES_MAX])]

    def _count_ranks(self) -> None:
        """Looks at new processes. What the command itself was started with numbers the whole command."""
        new = self._new.to_read(self._processes, self._ranks)
        for pid in self._processes:
            if pid in new and len(self._ranks) < KNOWN_MAX:
                with contextlib.suppress(OSError):
                    # That of a process which has ended is empty.
                    if (environ := environment_of(pid)) or self._new.is_first_look(pid):
                        self._ranks[pid] = rank_info(environ)
                    self._name(_named_paths(pid))
        own_rank = self._ranks.get(self._pid, RankInfo())
        sizes = (info.world_size for info in self._ranks.values() if info != own_rank and info.world_size)
        self.num_ranks = min(max(sizes, default=1), RANKS_MAX)

    def _name(self, paths: Iterator[str]) -> None:
        """Takes paths on a command line of the command."""
        cwd = str(self._cwd)
        new = (path for path in paths if not (_is_general(path, cwd) or _is_inside(path, cwd)))
        self._named |= dict.fromkeys(itertools.islice(new, NAMED_MAX - len(self._named)))

    def _opened(self) -> Iterator[str]:
        """Files that a process has open for writing, and that may be logs."""
        still_open: dict[tuple[int, str], str] = {}
        for pid in self._processes:
            with contextlib.suppress(OSError):
                for number in itertools.islice(os.listdir(f"/proc/{pid}/fd"), FILES_MAX):
                    with contextlib.suppress(OSError):
                        target = os.readlink(f"/proc/{pid}/fd/{number}")
                        still_open[pid, number] = target
                        if self._open.get((pid, number)) != target and self._is_written(pid, number, target):
                            yield target
        self._open = still_open

    def _is_of_command(self, path: str) -> bool:
        """Whether a file that appeared can only be of this command."""
        if writer_in_name(path) in self._ranks:
            return True
        why = other_writer(path, str(self._cwd), {*self._processes, os.getpid()}, self._own)
        if why is None:
            return True
        if len(self._others) < KNOWN_MAX:
            self._others.add(path)
            if why:
                self.notes.append(f"{path} is not read: {why}; name it in script.logs if this command writes it")
        return False

    def _is_written(self, pid: int, number: str, target: str) -> bool:
        if (
            not target.startswith("/")
            or target.startswith(("/dev/", "/proc/", "/sys/"))
            or target.endswith(" (deleted)")
        ):
            return False
        with open(f"/proc/{pid}/fdinfo/{number}", "rb") as file:
            flags = next(
                (line.split()[1] for line in file.read(4_096).splitlines() if line.startswith(b"flags:")), b"0"
            )
        if not int(flags, 8) & _WRITABLE or self._is_excluded(target):
            return False
        if len(self._directories) < DIRECTORIES_MAX:
            self._directories[os.path.dirname(target)] = None
        return may_be_log(target)

    def _appeared(self) -> Iterator[str]:
        """Files with the name of a log that were written since the command started."""
        left = ENTRIES_MAX
        # Taken from the end. Those that the command line names come last, since they may be large sets of data.
        folders: list[tuple[str, int]] = [(folder, 0) for folder in self._named]
        folders += [(folder, DEPTH_MAX) for folder in self._directories]
        folders.append((str(self._cwd), 0))
        seen: set[str] = set()
        while folders and left > 0:
            folder, depth = folders.pop()
            if folder in seen:
                continue
            seen.add(folder)
            if os.path.exists(os.path.join(folder, MANIFEST)):
                # Another run of tputui.
                continue
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in itertools.islice(entries, left):
                    left -= 1
                    with contextlib.suppress(OSError):
                        if entry.is_dir(follow_symlinks=False):
                            if depth < DEPTH_MAX and not entry.name.startswith(".") and entry.name not in _SKIPPED:
                                folders.append((entry.path, depth + 1))
                        elif is_log(entry.name) and entry.stat(follow_symlinks=False).st_mtime >= self._since:
                            yield entry.path


class _OpenedInside:
    """The list of the logs that processes of the command have opened for writing, as their observers keep it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._waiting: dict[str, int] = {}
        """Files that were about to be opened, and how often they did not exist yet."""

    def read(self) -> list[str]:
        """Files that were listed since the last call, each once it exists."""
        with contextlib.suppress(OSError):
            if os.stat(self._path).st_size > self._offset:
                self._read_list()
        existing = [path for path in self._waiting if os.path.exists(path)]
        self._waiting = {
            path: tries + 1 for path, tries in self._waiting.items() if path not in existing and tries < WAITS_MAX
        }
        return existing

    def _read_list(self) -> None:
        content = read_at(self._path, self._offset, LIST_BYTES_MAX)
        self._offset += len(content)
        *paths, self._rest = (self._rest + content).split(b"\0")
        self._rest = self._rest[-LIST_BYTES_MAX:]
        new = (os.fsdecode(path) for path in paths[: KNOWN_MAX - len(self._waiting)] if path.startswith(b"/"))
        self._waiting.update(dict.fromkeys(new, 0))


def _version(status: os.stat_result) -> tuple[int, int]:
    """Differs between two looks at a file that was written in between."""
    return status.st_size, status.st_mtime_ns


def other_writer(path: str, cwd: str, own_pids: set[int], run_dir: str) -> str | None:
    """Why a file may be of another program than the processes `own_pids` and those of the run `run_dir`; empty if it is
    certainly another's, None if it is not."""
    user, reason, writer = os.getuid(), None, writer_in_name(path)
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        if pid in own_pids:
            continue
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid != user or _runs_for(pid, run_dir):
                continue
            if pid == writer and _is_training(pid):
                return ""
            if any(os.readlink(entry.path) == path for entry in itertools.islice(_descriptors(pid), FILES_MAX)):
                return ""
            if reason is None and _is_training(pid):
                reason = _possible_writer(pid, path, cwd)
    return reason


def _possible_writer(pid: int, path: str, cwd: str) -> str | None:
    """Why another training process may write a file; None if nothing shows that it does."""
    others = os.readlink(f"/proc/{pid}/cwd")
    if others == cwd or (_is_inside(path, others) and not _is_inside(cwd, others)):
        return f"process {pid} works in the same directory"
    if any(_is_inside(path, named) and not _is_general(named, cwd) for named in _named_paths(pid)):
        return f"the command line of process {pid} names the same directory"
    return None


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def _named_paths(pid: int) -> Iterator[str]:
    """Paths that the command line of a process may name."""
    argv = read_proc(pid, "cmdline", _PROC_BYTES_MAX).split(b"\0")
    return _paths_in(map(os.fsdecode, argv), os.readlink(f"/proc/{pid}/cwd"))


def _paths_in(arguments: Iterable[str], cwd: str) -> Iterator[str]:
    """The words behind the program, and what follows `=` in them, as paths."""
    for argument in itertools.islice(arguments, 1, WORDS_MAX):
        text = argument.partition("=")[2] or argument
        if text and not text.startswith("-") and len(text) <= PATH_CHARS_MAX:
            yield os.path.normpath(os.path.join(cwd, text))


def _is_general(path: str, cwd: str) -> bool:
    """Whether a directory is the home or temporary directory of all programs, or contains the working directory."""
    general = (cwd, os.path.expanduser("~"), tempfile.gettempdir())
    return path.count(os.sep) < 2 or path in general or _is_inside(cwd, path)


def writer_in_name(path: str) -> int | None:
    """The process that wrote a TensorBoard event file on this host, as its name says; None if it does not."""
    _, mark, rest = os.path.basename(path).partition("tfevents.")
    written, _, rest = rest.partition(".")
    host = f"{socket.gethostname()}."
    pid = rest.removeprefix(host).partition(".")[0] if mark and written.isdecimal() and rest.startswith(host) else ""
    return int(pid) if pid.isascii() and pid.isdecimal() and len(pid) <= _PID_DIGITS_MAX else None


def _descriptors(pid: int) -> Iterator[os.DirEntry[str]]:
    with os.scandir(f"/proc/{pid}/fd") as entries:
        yield from entries


def _runs_for(pid: int, run_dir: str) -> bool:
    """Whether a process belongs to a run, as its environment shows."""
    wanted = f"{RUN_DIR_VARIABLE}={run_dir}".encode()
    return wanted in read_proc(pid, "environ", _PROC_BYTES_MAX).split(b"\0")


def _is_training(pid: int) -> bool:
    """Whether a process may be a training: a Python interpreter that runs neither tputui nor TensorBoard."""
    argv = read_proc(pid, "cmdline", _PROC_BYTES_MAX).split(b"\0")
    is_python = os.path.basename(argv[0]).startswith((b"python", b"torchrun", b"accelerate"))
    is_viewer = any(b"tputui" in word for word in argv[:4]) or os.path.basename(b"".join(argv[1:2])) == b"tensorboard"
    return is_python and not is_viewer


def may_be_log(path: str) -> bool:
    """Whether a file is worth opening, by its name and size."""
    name = os.path.basename(path)
    if is_log(name):
        return True
    if is_other(name):
        return False
    with contextlib.suppress(OSError):
        return os.stat(path).st_size <= UNKNOWN_BYTES_MAX
    return False


def shown_path(path: Path, cwd: Path) -> str:
    """A path relative to the working directory if it is inside, else as it is."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(cwd))
    return str(path)
