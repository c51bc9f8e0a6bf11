"""Finds logs of other programs in a directory by the names of files, without reading any."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tputui.telemetry import rundir

ENTRIES_MAX = 10_000
"""Entries of the directory that are looked at."""
FOLDERS_MAX = 100
"""Folders under one entry that are looked at."""
_FORMS = (
    ("tfevents", "TensorBoard"),
    (".wandb", "W&B"),
    ("trainer_state.json", "Hugging Face"),
    (".parquet", "parquet"),
    (".csv", "CSV"),
    (".tsv", "CSV"),
    (".jsonl", "JSON lines"),
    (".ndjson", "JSON lines"),
)
"""Ends of names, or for event files a part, with the format; the first that occurs in a folder is its format."""


class FoundLog(NamedTuple):
    """A log, by the names of its files."""

    path: Path
    form: str
    num_files: int
    num_bytes: int
    newest_t: float
    """Unix time at which the newest file was changed."""


def foreign_logs(parent: Path) -> list[FoundLog]:
    """The logs in a directory that are not runs, newest first. What cannot be read is left out."""
    try:
        with os.scandir(parent) as entries:
            paths = [Path(entry.path) for entry, _ in zip(entries, range(ENTRIES_MAX), strict=False)]
    except OSError:
        return []
    found = [log for path in paths if not path.name.startswith(".") and (log := _log_at(path)) is not None]
    return sorted(found, key=lambda log: log.newest_t, reverse=True)


def _log_at(path: Path) -> FoundLog | None:
    try:
        if path.is_dir():
            return None if rundir.is_run(path) else _log_of(path, _files_under(path))
        return _log_of(path, [path])
    except OSError:
        return None


def _files_under(folder: Path) -> list[Path]:
    """The files of a folder and its first subfolders."""
    found: list[Path] = []
    for number, (place, _, names) in enumerate(os.walk(folder)):
        found += [Path(place, name) for name in names]
        if number >= FOLDERS_MAX or len(found) >= ENTRIES_MAX:
            break
    return found


def _log_of(path: Path, files: list[Path]) -> FoundLog | None:
    for mark, form in _FORMS:
        of_form = [file for file in files if (mark in file.name if mark == "tfevents" else file.name.endswith(mark))]
        if of_form:
            status = [file.stat() for file in of_form]
            newest_t = max(each.st_mtime for each in status)
            return FoundLog(path, form, len(of_form), sum(each.st_size for each in status), newest_t)
    return None
