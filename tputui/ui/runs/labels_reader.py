"""Reads the labels of runs, again only if their file changed. Does not import Textual."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tputui.telemetry import run_labels
from tputui.telemetry.run_labels import NO_LABELS, RunLabels


class ReadLabels(NamedTuple):
    """The labels of a run, and the state of the file when they were read."""

    labels: RunLabels
    problem: str
    """Why they cannot be read."""
    file: tuple[int, int, int]
    """Inode, size and modification time."""


def labels_of(run_dir: Path, known: ReadLabels | None) -> ReadLabels | None:
    """The labels of a run, read again if their file changed; None without such a file."""
    try:
        status = (run_dir / run_labels.LABELS).lstat()
    except OSError:
        return None
    file = (status.st_ino, status.st_size, status.st_mtime_ns)
    if known is not None and known.file == file:
        return known
    try:
        return ReadLabels(run_labels.read(run_dir), "", file)
    except run_labels.InvalidLabels as error:
        return ReadLabels(NO_LABELS, str(error), file)
