"""TensorBoard log directories: event files in folders, one run per folder.

`SummaryWriter.add_hparams` writes hyperparameters and final metrics into a folder of its own below that of the run.
They belong to the run: its configuration, and metrics that it has not logged by itself.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tputui.logs.damage_notes import DamageNotes
from tputui.logs.growing import files_under
from tputui.logs.rows import LoggedValue, LogReader
from tputui.logs.tfevents import NAME_PART, EventFileReader

TAGS_MAX = 65_536
"""Tags that are remembered for each run."""
_SESSION = re.compile(r"\d{9,11}\.\d{1,9}")
"""Name of the folder that `add_hparams` creates: unix time."""


def event_files(root: Path) -> Iterator[Path]:
    """The event files under a folder, in the order in which TensorBoard reads them."""
    return files_under(root, lambda name: NAME_PART in name)


def event_file(path: Path) -> EventFileReader:
    """The reader of a single event file. Raises `OSError`."""
    reader = EventFileReader(path)
    reader.find_starts()
    return reader


class _EventFolder:
    """The event files of one run, read one after the other."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.tags: set[str] = set()
        self.files: list[EventFileReader] = []
        self.newest_t = 0.0
        """Newest time of a value, in unix seconds; 0 before the first."""

    def purge(self) -> None:
        """Leaves out what was written again into later files, as TensorBoard does."""
        first = math.inf
        for file in reversed(self.files):
            if first < file.purged_from:
                file.note_start(first)
            file.purged_from = first
            first = min([first, *(start.step for start in file.starts)])

    @property
    def is_read(self) -> bool:
        """Whether everything that was written so far was read."""
        return all(file.is_read for file in self.files)

    @property
    def has_session(self) -> bool:
        return any(file.has_session for file in self.files)

    @property
    def config(self) -> dict[str, Any]:
        return {name: value for file in self.files for name, value in file.config.items()}

    def read(self) -> list[LoggedValue] | None:
        """The values of one chunk of the first file with new bytes, without prefix; None if no file has any."""
        for file in list(self.files):
            try:
                values = file.read_chunk()
            except FileNotFoundError:
                self.files.remove(file)  # `rm` of an old run must not end the others
                continue
            if values is not None:
                if values:
                    self.newest_t = max(self.newest_t, values[-1].t or 0.0)
                    if len(self.tags) < TAGS_MAX:
                        self.tags.update({value[0] for value in values})
                return values
        return None


class LogdirReader(LogReader):
    """Reads all event files under a folder, also those that are created later.

    If the folder contains several runs, the tags of each are prefixed with the path of its folder. The run that
    was read up to the earliest time is read next.
    """

    form = "TensorBoard log directory"

    def __init__(self, root: Path) -> None:
        self._root = root
        self._notes = DamageNotes()
        self._seen_paths: set[Path] = set()
        self._folders: dict[Path, _EventFolder] = {}
        paths = list(event_files(root))
        homes = {path.parent for path in paths}
        homes -= {home for home in homes if home.parent in homes and _SESSION.fullmatch(home.name)}
        self._unprefixed = homes.pop() if len(homes) == 1 else root
        """The only run, or the folder itself; runs that appear later do not change its tags."""
        self._add(paths)

    @property
    def damage(self) -> list[str]:
        lost = [file.lost for file in self._files() if file.lost]
        return [*self._notes.sentences, *lost]

    @property
    def incomplete(self) -> str:
        return next((sentence for file in self._files() if (sentence := file.incomplete)), "")

    @property
    def ordered_until(self) -> float:
        """Unix time before which every run was read; infinite if everything was read that is written so far."""
        if len(self._folders) == 1:
            return math.inf
        return min((folder.newest_t for folder in self._folders.values() if not folder.is_read), default=math.inf)

    @property
    def config(self) -> dict[str, Any]:
        """Hyperparameters that were logged with `add_hparams`; of several runs, by the prefix of their tags."""
        config: dict[str, Any] = {}
        for home, folder in self._folders.items():
            run = self._run_of(home, folder)
            prefix = f"{run.prefix}/" if run.prefix and len(self._folders) > 1 else ""
            config.update({f"{prefix}{name}": value for name, value in folder.config.items()})
        return config

    def _run_of(self, home: Path, folder: _EventFolder) -> _EventFolder:
        """The run to which a folder belongs: with a session of hyperparameters, that of the folder above, unless it has
        several."""
        run = self._folders.get(home.parent) if folder.has_session else None
        beside = (other for path, other in self._folders.items() if path.parent == home.parent and other is not folder)
        if run is None or any(other.has_session or not other.tags for other in beside):
            return folder
        return run

    def _named(self, home: Path, folder: _EventFolder, values: list[LoggedValue]) -> list[LoggedValue]:
        """The values with the prefix of their run; without final metrics that the run has logged itself."""
        run = self._run_of(home, folder)
        if run is not folder:
            values = [value for value in values if value.tag not in run.tags]
        return [value._replace(tag=f"{run.prefix}/{value.tag}") for value in values] if run.prefix else values

    def _files(self) -> Iterator[EventFileReader]:
        return (file for folder in self._folders.values() for file in folder.files)

    def _add(self, paths: list[Path]) -> bool:
        new = [path for path in paths if path not in self._seen_paths]
        changed: dict[Path, _EventFolder] = {}
        for path in new:
            self._seen_paths.add(path)
            home = path.parent
            if home not in self._folders:
                prefix = "" if home == self._unprefixed else home.relative_to(self._root).as_posix()
                self._folders[home] = _EventFolder("" if prefix == "." else prefix)
            changed[home] = folder = self._folders[home]
            folder.files.append(file := EventFileReader(path, notes=self._notes))
            with contextlib.suppress(OSError):
                file.find_starts()
        for folder in changed.values():
            folder.purge()
        return bool(new)

    def read(self) -> list[LoggedValue]:
        """Values of the next records of one run. Raises `OSError`."""
        while True:
            for home, folder in sorted(self._folders.items(), key=lambda item: item[1].newest_t):
                while (values := folder.read()) is not None:
                    if named := self._named(home, folder, values):
                        return named
            if not self._add(list(event_files(self._root))):
                return []
