"""Finds logs of other programs below folders by the names of files, without reading any."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tputui.telemetry import rundir
from tputui.user_config import LogSource

_TENSORBOARD, _WANDB, _TRAINER, _PARQUET = "TensorBoard", "W&B", "Hugging Face", "parquet"
_TRAINER_STATE = "trainer_state.json"
_ENDS = (
    (".wandb", _WANDB),
    (_TRAINER_STATE, _TRAINER),
    (".parquet", _PARQUET),
    (".csv", "CSV"),
    (".tsv", "CSV"),
    (".jsonl", "JSON lines"),
    (".ndjson", "JSON lines"),
)
"""Ends of names with the format of the file."""
FORMATS = (_TENSORBOARD, *dict.fromkeys(form for _, form in _ENDS))
_SPLITS = frozenset({"train", "training", "validation", "valid", "val", "eval", "evaluation", "test"})
"""Names of the folders in one log directory, as Keras writes them."""


class Bounds(NamedTuple):
    """Limits of a search below one folder."""

    entries: int = 20_000
    """Files and folders that are looked at, those nearest to the folder first."""
    depth: int = 6
    """Levels of folders."""
    logs: int = 500
    """Logs that are listed, the newest ones."""
    seconds: float = 3.0


BOUNDS = Bounds()


class FoundLog(NamedTuple):
    """A log, by the names of its files."""

    path: Path
    name: str
    """The path below the searched folder, after the name of a source."""
    form: str
    num_files: int
    num_bytes: int
    newest_t: float
    """Unix time at which the newest file was changed."""


class LogScan(NamedTuple):
    """The logs below some folders."""

    logs: list[FoundLog]
    """Newest first."""
    limits: list[str]
    """A sentence for each folder that was not searched in full."""


class _ScannedFolder:
    """A folder, and what was found in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: list[Path] = []
        self.folders: list[_ScannedFolder] = []

    def of_form(self, form: str) -> list[Path]:
        return [file for file in self.files if form_of(file.name) == form]

    def below(self, form: str) -> list[Path]:
        """The files of a format in the folder and below it."""
        return [*self.of_form(form), *itertools.chain.from_iterable(folder.below(form) for folder in self.folders)]


_Candidate = tuple[Path, str, list[Path]]
"""Path, format and files of a log."""


def form_of(name: str) -> str | None:
    """The format of a file by its name; None if it is not a log."""
    if "tfevents" in name:
        return _TENSORBOARD
    return next((form for end, form in _ENDS if name.endswith(end)), None)


def find_logs(
    sources: Sequence[LogSource], *, bounds: Bounds = BOUNDS, is_stopped: Callable[[], bool] = lambda: False
) -> LogScan:
    """The logs below folders that are not run directories. A source without a name is the directory of the runs.

    What cannot be read is left out. `is_stopped` ends the search early.
    """
    logs_by_file: dict[str, FoundLog] = {}
    limits: list[str] = []
    for source in sources:
        tree, limit = _tree(source.path, bounds, is_stopped)
        candidates = _candidates(tree, of_runs=not source.name)
        logs = [(log, files) for path, form, files in candidates if (log := _log_with_sizes(source, path, form, files))]
        logs.sort(key=lambda pair: pair[0].newest_t, reverse=True)
        if len(logs) > bounds.logs:
            limit = limit or f"only the newest {bounds.logs:,} of {len(logs):,} logs are listed"
        if limit:
            limits.append(f"{source.path}: {limit}")
        for log, files in logs[: bounds.logs]:
            logs_by_file.setdefault(os.path.realpath(files[0]), log)
    return LogScan(sorted(logs_by_file.values(), key=lambda log: log.newest_t, reverse=True), limits)


def _tree(root: Path, bounds: Bounds, is_stopped: Callable[[], bool]) -> tuple[_ScannedFolder, str]:
    """The folders below `root` with the files that are logs, and why some were not searched; empty if all were."""
    tree = _ScannedFolder(root)
    waiting = deque([(tree, 0)])
    num_entries, deadline, limit = 0, time.monotonic() + bounds.seconds, ""
    while waiting and not is_stopped():
        folder, depth = waiting.popleft()
        entries = _entries(folder.path, bounds.entries)
        if rundir.has_run_files(entry.name for entry in entries):
            continue
        for entry in entries:
            num_entries += 1
            if num_entries > bounds.entries:
                return tree, f"only the first {bounds.entries:,} files and folders were searched for logs"
            if time.monotonic() > deadline:
                return tree, f"only what was read within {bounds.seconds:g} s was searched for logs"
            if not _is_folder(entry, follow=depth == 0):
                if form_of(entry.name) is not None:
                    folder.files.append(Path(entry.path))
            elif depth + 1 < bounds.depth:
                folder.folders.append(_ScannedFolder(Path(entry.path)))
            else:
                limit = f"folders more than {bounds.depth} levels deep were not searched for logs"
        if not any(form_of(file.name) == _WANDB for file in folder.files):
            waiting.extend((child, depth + 1) for child in folder.folders)
    return tree, limit


def _entries(folder: Path, most: int) -> list[os.DirEntry[str]]:
    """The files and folders in a folder whose names do not begin with a dot, at most one more than `most`."""
    try:
        with os.scandir(folder) as entries:
            return list(itertools.islice((entry for entry in entries if not entry.name.startswith(".")), most + 1))
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str], *, follow: bool) -> bool:
    """Whether an entry is a folder. Links are followed only directly below the searched folder: they may form loops."""
    try:
        return entry.is_dir(follow_symlinks=follow)
    except OSError:
        return False


def _candidates(folder: _ScannedFolder, *, of_runs: bool = False) -> list[_Candidate]:
    """The logs in a folder: the folder itself if its files are read together, else each file.

    In the directory of the runs (`of_runs`) every file is a log of its own.
    """
    below = [candidate for child in folder.folders for candidate in _candidates(child)]
    if of_runs:
        return [*_single_files(folder, FORMATS), *below]
    if len(folder.of_form(_WANDB)) == 1:
        return [(folder.path, _WANDB, folder.of_form(_WANDB))]
    if folder.of_form(_TENSORBOARD) or _is_split(folder, below):
        return [(folder.path, _TENSORBOARD, folder.below(_TENSORBOARD))]
    checkpoints = {child.path for child in folder.folders if child.path.name.startswith("checkpoint-")}
    states = [*folder.of_form(_TRAINER), *(path for path in folder.below(_TRAINER) if path.parent in checkpoints)]
    if states:
        below = [candidate for candidate in below if candidate[0] not in checkpoints]
    if any(form in (_TENSORBOARD, _WANDB) for _, form, _ in below) or folder.of_form(_WANDB):
        return [*_single_files(folder, (*(form for form in FORMATS if form != _TRAINER),)), *below]
    if states:
        return [(folder.path, _TRAINER, states), *_single_files(folder, FORMATS[3:]), *below]
    if folder.of_form(_PARQUET):
        rest = [candidate for candidate in below if candidate[1] != _PARQUET]
        return [(folder.path, _PARQUET, folder.below(_PARQUET)), *_single_files(folder, FORMATS[4:]), *rest]
    tables = _single_files(folder, FORMATS[4:])
    return [(folder.path, tables[0][1], tables[0][2])] if len(tables) == 1 and not below else [*tables, *below]


def _single_files(folder: _ScannedFolder, forms: Sequence[str]) -> list[_Candidate]:
    return [(file, form, [file]) for form in forms for file in folder.of_form(form)]


def _is_split(folder: _ScannedFolder, below: Sequence[_Candidate]) -> bool:
    """Whether the event files of the folder's children are the splits of one training."""
    parts = [path for path, form, _ in below if form == _TENSORBOARD]
    return bool(parts) and all(path.parent == folder.path and path.name in _SPLITS for path in parts)


def _log_with_sizes(source: LogSource, path: Path, form: str, files: Sequence[Path]) -> FoundLog | None:
    """The log with sizes and times; None if it disappeared."""
    num_files, num_bytes, newest_t = 0, 0, -math.inf
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue
        num_files, num_bytes = num_files + 1, num_bytes + status.st_size
        newest_t = max(newest_t, status.st_mtime)
    below = path.relative_to(source.path)
    name = "/".join(filter(None, (source.name, *below.parts)))
    return FoundLog(path, name, form, num_files, num_bytes, newest_t) if num_files else None
