"""Finds the configurations a new run can start from: TOML files below a directory, and those of earlier runs.

Reads files, so the screens call it from threads. A TOML file counts if it sets `task` or has a table `[script]`;
invalid TOML is listed with the error.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tputui.config import is_script, recorded_name
from tputui.home_paths import expanded
from tputui.telemetry import rundir

SAMPLES = "sample_configs"
DEMO = Path(SAMPLES) / "digits.toml"
DATA_SET_SCHEME = "set:"
"""Begins a path in a fetched data set: `set:NAME/FILE`."""
MAX_DIRECTORIES = 2_000
MAX_FILES = 500
MAX_DEPTH = 5
MAX_BYTES = 1 << 20
"""Larger files are ignored."""
_MAY_BE_CONFIG = re.compile(r"^\s*(?:task\s*=|\[\s*script\b|script\s*[.=])", re.M)
_LAST_CHECKPOINT = Path(rundir.CHECKPOINTS) / "last.pt"


class ConfigChoice(NamedTuple):
    """A configuration that the user can choose."""

    kind: Literal["file", "run", "blank"]
    path: Path
    """The file, or the directory of the run."""
    tables: Mapping[str, Any]
    summary: str
    """The first comment of the file, or the state of the run."""
    error: str | None = None
    """Why the configuration cannot be used."""
    can_resume: bool = False
    """Whether the run has a checkpoint."""
    source: str = ""
    """The configuration file; for a run the one it was started with."""

    @property
    def data_source(self) -> str | None:
        """The path of the data; None if the configuration names none."""
        data = self.tables.get("data")
        source = data.get("source") if isinstance(data, Mapping) else None
        return source if isinstance(source, str) else None

    @property
    def data_set(self) -> str | None:
        """The data set that must be fetched before it can be used; None if the data is from elsewhere."""
        source = self.data_source
        if source is None or not source.startswith(DATA_SET_SCHEME):
            return None
        return source.removeprefix(DATA_SET_SCHEME).partition("/")[0]

    @property
    def task(self) -> str:
        """The task, or the name of the script that is run; empty if unknown."""
        return str(self.tables.get("task", "")) or recorded_name(self.tables)

    @property
    def is_script(self) -> bool:
        """Whether it runs a command of the user instead of the engine."""
        return is_script(self.tables)

    @property
    def name(self) -> str:
        """The label in the list."""
        return self.path.name if self.kind == "run" else str(self.path)


class DataReadiness(NamedTuple):
    """Whether the data of a configuration is present."""

    label: Literal["", "ready", "needs data fetch", "data not found"]
    """Empty if that is not known."""
    command: str
    """The command that gets the data; empty if none is needed."""


BLANK = ConfigChoice(
    "blank",
    Path("Blank configuration"),
    {"task": "digits", "epochs": 5, "data": {"batch_per_core": 8}},
    "defaults",
    source="new.toml",
)


def files(start: Path) -> list[ConfigChoice]:
    """The configuration files below a directory, `sample_configs` first."""
    choices = []
    for path in _toml_files(start):
        choice = _read(path, path.relative_to(start))
        if choice is not None:
            choices.append(choice)
        if len(choices) == MAX_FILES:
            break
    return sorted(choices, key=_position)


def _position(choice: ConfigChoice) -> tuple[bool, bool, int, str]:
    """Samples first, and of them those that need no data set."""
    parts = choice.path.parts
    return parts[0] != SAMPLES, choice.data_set is not None, len(parts), str(choice.path)


def demo(start: Path) -> ConfigChoice:
    """The digits sample below a directory, else the blank configuration, which has the same task."""
    choice = _read(start / DEMO, DEMO)
    return choice if choice is not None and choice.error is None else BLANK


def readiness(choice: ConfigChoice, data_sets: Mapping[str, bool], start: Path) -> DataReadiness:
    """Whether the data of a configuration is present. Relative paths are below `start`."""
    if choice.error is not None or choice.is_script:
        return DataReadiness("", "")
    name, source = choice.data_set, choice.data_source
    if name is not None:
        if name not in data_sets:
            return DataReadiness("", "")
        command = f"tputui data fetch {name}"
        return DataReadiness("ready", "") if data_sets[name] else DataReadiness("needs data fetch", command)
    if source is not None:
        with contextlib.suppress(FileNotFoundError):
            if (start / expanded(source)).exists():
                return DataReadiness("ready", "")
        return DataReadiness("data not found", "")
    # The data of a task of one's own is not known.
    return DataReadiness("" if ":" in choice.task else "ready", "")


def runs(run_dirs: Iterable[tuple[Path, str]]) -> Iterator[ConfigChoice]:
    """The configurations of earlier runs, given with their states; unreadable ones are skipped."""
    for run_dir, summary in run_dirs:
        try:
            manifest = rundir.read_manifest(run_dir)
            can_resume = (run_dir / _LAST_CHECKPOINT).is_file()
        except (rundir.RunNotFound, OSError):
            continue
        tables = without_commands(manifest.config)
        yield ConfigChoice("run", run_dir, tables, summary, can_resume=can_resume, source=manifest.config_path)


def without_commands(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """The recorded configuration of a run without alert targets that are commands: run directories are untrusted
    input, and starting a run again must not execute what somebody else wrote there."""
    alerts = tables.get("alerts")
    targets = alerts.get("targets") if isinstance(alerts, Mapping) else None
    if not isinstance(alerts, Mapping) or not isinstance(targets, list | tuple):
        return tables
    kept = [target for target in targets if not str(target).strip().startswith("command:")]
    return {**tables, "alerts": {**alerts, "targets": kept}}


def _toml_files(start: Path) -> Iterator[Path]:
    """TOML files, except in hidden folders, virtual environments, run directories and tests."""
    for directory, folders, names in itertools.islice(os.walk(start), MAX_DIRECTORIES):
        folder = Path(directory)
        too_deep = len(folder.relative_to(start).parts) >= MAX_DEPTH
        folders[:] = [] if too_deep else sorted(name for name in folders if not _is_skipped(folder / name))
        yield from (folder / name for name in sorted(names) if name.endswith(".toml"))


def _is_skipped(folder: Path) -> bool:
    if folder.name.startswith((".", "__")) or folder.name in ("node_modules", "site-packages", "tests"):
        return True
    return any(os.access(folder / name, os.F_OK) for name in ("pyvenv.cfg", rundir.MANIFEST))


def _read(path: Path, shown: Path) -> ConfigChoice | None:
    """The choice for a file; None if the file is not a configuration."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
    if not _MAY_BE_CONFIG.search(text):
        return None
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return ConfigChoice("file", shown, {}, "", error=f"not valid TOML: {error}", source=str(shown))
    if not isinstance(tables.get("task"), str) and not recorded_name(tables):
        return None
    return ConfigChoice("file", shown, tables, _first_comment(text), source=str(shown))


def _first_comment(text: str) -> str:
    for line in text.splitlines():
        if line.startswith("#"):
            return line.lstrip("# ").strip()
        if line.strip():
            break
    return ""
