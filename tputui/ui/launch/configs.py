"""Configurations that a new run can begin with: files below the current directory, and those of earlier runs.

Reads files, and is called from threads only. A file is offered where it says a task; one that says it and cannot be
read as TOML is offered with the reason.
"""

from __future__ import annotations

import itertools
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tputui.telemetry import rundir

SAMPLES = "sample_configs"
MOST_DIRECTORIES = 2_000
MOST_FILES = 500
DEEPEST = 5
MOST_BYTES = 1 << 20
"""A larger file is no configuration."""
_SAYS_A_TASK = re.compile(r"^\s*task\s*=", re.M)
_LAST_CHECKPOINT = Path(rundir.CHECKPOINTS) / "last.pt"


class ConfigOffer(NamedTuple):
    """A configuration."""

    kind: Literal["file", "run", "blank"]
    path: Path
    """The file, or the directory of the run."""
    tables: Mapping[str, Any]
    said: str
    """What its first comment says, or how the run is."""
    why_not: str = ""
    """Why it cannot be used; empty where it can."""
    can_resume: bool = False
    """Whether the run has a checkpoint to go on from."""
    source: str = ""
    """What the configuration is called: the file, for a run the one that it was started with."""

    @property
    def task(self) -> str:
        """The task; empty where it says none."""
        return str(self.tables.get("task", ""))

    @property
    def name(self) -> str:
        """What it is called in a list."""
        return self.path.name if self.kind == "run" else str(self.path)


BLANK = ConfigOffer(
    "blank",
    Path("a new configuration"),
    {"task": "digits", "epochs": 5, "data": {"batch_per_core": 8}},
    "the shortest one there is; every other field has its default",
    source="new.toml",
)
"""What there always is."""


def files(start: Path) -> list[ConfigOffer]:
    """The configurations below a directory: `sample_configs` first, then by path."""
    found = []
    for path in _toml_files(start):
        offer = _read(path, path.relative_to(start))
        if offer is not None:
            found.append(offer)
        if len(found) == MOST_FILES:
            break
    return sorted(found, key=lambda offer: (offer.path.parts[0] != SAMPLES, len(offer.path.parts), str(offer.path)))


def runs(run_dirs: Iterable[tuple[Path, str]]) -> Iterator[ConfigOffer]:
    """The configurations of earlier runs, each with a word on how it is; those without one are left out."""
    for run_dir, said in run_dirs:
        try:
            manifest = rundir.read_manifest(run_dir)
            can_resume = (run_dir / _LAST_CHECKPOINT).is_file()
        except (rundir.RunNotFound, OSError):
            continue
        yield ConfigOffer("run", run_dir, manifest.config, said, can_resume=can_resume, source=manifest.config_path)


def _toml_files(start: Path) -> Iterator[Path]:
    """TOML files, those of hidden folders, environments and runs left out."""
    for directory, folders, names in itertools.islice(os.walk(start), MOST_DIRECTORIES):
        here = Path(directory)
        too_deep = len(here.relative_to(start).parts) >= DEEPEST
        folders[:] = [] if too_deep else sorted(name for name in folders if not _is_passed_over(here / name))
        yield from (here / name for name in sorted(names) if name.endswith(".toml"))


def _is_passed_over(folder: Path) -> bool:
    if folder.name.startswith((".", "__")) or folder.name in ("node_modules", "site-packages"):
        return True
    return any(os.access(folder / name, os.F_OK) for name in ("pyvenv.cfg", rundir.MANIFEST))


def _read(path: Path, shown: Path) -> ConfigOffer | None:
    """A file as an offer; None where it is no configuration of ours."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
    if not _SAYS_A_TASK.search(text):
        return None
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return ConfigOffer("file", shown, {}, "", why_not=f"not valid TOML: {error}", source=str(shown))
    if not isinstance(tables.get("task"), str):
        return None
    return ConfigOffer("file", shown, tables, _first_comment(text), source=str(shown))


def _first_comment(text: str) -> str:
    for line in text.splitlines():
        if line.startswith("#"):
            return line.lstrip("# ").strip()
        if line.strip():
            break
    return ""
