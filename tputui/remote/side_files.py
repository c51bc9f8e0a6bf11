"""The small files of a run that views read beside the journals: manifest, labels, code, layers, requests, pictures."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from tputui.remote.protocol import SIDE_FILE_BYTES_MAX, File, is_side_file
from tputui.telemetry.rundir import MANIFEST, REQUESTS
from tputui.telemetry.safe_open import read_small

LOOK_S = 1.0
"""Seconds between two looks at the files."""
FOLDER_LOOK_S = 10.0
"""Seconds after which a folder is listed although its modification time is the same."""
TOP_FILES = (MANIFEST, "labels.json", "model.json", "code.json")
PICTURES = "pictures"
PICTURE_BYTES_MAX = 2 << 20
PICTURES_BYTES_MAX = 32 << 20
"""Bytes of pictures that a viewer gets over one connection, newest epochs first."""
FILES_MAX = 4_096
"""Files of a folder, in its order, that are looked at."""
ROUND_BYTES = 256 << 10


class SideFiles:
    """Finds files that are new or changed."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._sent: dict[str, tuple[int, int, int]] = {}
        """Files that the viewer has: inode, size and modification time."""
        self._folders: dict[str, tuple[int, float]] = {}
        """When each folder was modified as it was listed, and when that was."""
        self._pending: list[str] = []
        self._looked_at = -LOOK_S
        self._pictures_left = PICTURES_BYTES_MAX

    @property
    def is_busy(self) -> bool:
        """Whether more files are to be sent."""
        return bool(self._pending)

    def skip(self, path: str) -> None:
        """Does not send a file that the viewer wrote."""
        self._sent[path] = (0, 0, 0)

    def read(self) -> list[File]:
        """Files that are new or changed, about `ROUND_BYTES` of them."""
        now = time.monotonic()
        if not self._pending and now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._pending = [path for path in self._paths(now) if self._is_changed(path)]
        files: list[File] = []
        size = 0
        while self._pending and size < ROUND_BYTES:
            file = self._file(self._pending.pop(0))
            if file is not None:
                files.append(file)
                size += len(file.content)
        return files

    def _paths(self, now: float) -> Iterator[str]:
        yield from TOP_FILES
        yield from self._listed(REQUESTS, now)
        if self._pictures_left <= 0 or not self._has_changed(PICTURES, now):
            return
        for folder in sorted(self._names(PICTURES), reverse=True):
            if folder.startswith("rank-"):
                for below in sorted(self._names(f"{PICTURES}/{folder}"), reverse=True):
                    yield from self._listed(f"{PICTURES}/{folder}/{below}", now)
            else:
                yield from self._listed(f"{PICTURES}/{folder}", now)

    def _listed(self, folder: str, now: float) -> Iterator[str]:
        if self._has_changed(folder, now):
            yield from (f"{folder}/{name}" for name in sorted(self._names(folder)))

    def _names(self, folder: str) -> list[str]:
        try:
            with os.scandir(self._run_dir / folder) as entries:
                return [entry.name for entry, _ in zip(entries, range(FILES_MAX), strict=False)]
        except OSError:
            return []

    def _has_changed(self, folder: str, now: float) -> bool:
        try:
            modified = (self._run_dir / folder).stat().st_mtime_ns
        except OSError:
            return False
        seen, listed = self._folders.get(folder, (0, 0.0))
        if modified == seen and now - listed < FOLDER_LOOK_S:
            return False
        self._folders[folder] = (modified, now)
        return True

    def _is_changed(self, path: str) -> bool:
        if not is_side_file(path):
            return False
        is_fixed = "/" in path
        if is_fixed and path in self._sent:
            return False
        try:
            status = (self._run_dir / path).stat()
        except OSError:
            return False
        mark = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._sent.get(path) == mark:
            return False
        self._sent[path] = mark
        return True

    def _file(self, path: str) -> File | None:
        is_picture = path.startswith(PICTURES)
        limit = min(PICTURE_BYTES_MAX, self._pictures_left) if is_picture else SIDE_FILE_BYTES_MAX
        try:
            content = read_small(self._run_dir / path, limit)
        except OSError:
            return None
        if is_picture:
            self._pictures_left -= len(content)
        return File(path=path, content=content)
