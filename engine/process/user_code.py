"""Restricts where a user's own modules may be imported from while an untrusted run is open.

A run and a file of weights are untrusted input, and they name a task as `module:Class`. If they chose the folder as
well, opening a run would execute its author's code. So the user chooses the folder, and no module inside the run is
imported. Must not import torch.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from tputui.reporting import MANIFEST, RunNotFound, read_manifest


class ImportedUserCode(ImportError):
    """A module is inside the run; the text names its file."""


class ImportGuard(MetaPathFinder):
    """Refuses modules whose files are in certain folders, whichever package leads there."""

    def __init__(self, is_shut: Callable[[str], bool]) -> None:
        """`is_shut` returns whether a folder, an absolute path without links, must not contain code."""
        self._is_shut = is_shut

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """None, so that the finders after this one find the module: another guard may refuse it.

        Raises `ImportedUserCode` if the module is in such a folder.
        """
        spec = PathFinder.find_spec(name, path, target)
        if (
            spec is not None
            and spec.origin is not None
            and self._is_shut(os.path.dirname(os.path.realpath(spec.origin)))
        ):
            raise ImportedUserCode(f"{spec.origin} is inside the run")
        return None


def allow_imports_from(folder: Path, run_dir: Path | None) -> None:
    """Adds `folder` to the end of the import path, so that its modules never hide others.

    No module is imported from `run_dir`, nor from the subfolder of `folder` that contains `run_dir`: a folder without
    `__init__.py` is a package as well, so a run in `folder/copied/runs/x` could name `copied.code:Task`.
    """
    sys.path.append(str(folder))
    if run_dir is not None:
        shut = str(_shut(folder.resolve(), run_dir.resolve()))
        _install(ImportGuard(lambda place: place == shut or place.startswith(os.path.join(shut, ""))))


def allow_imports_from_here() -> None:
    """As `allow_imports_from` for the current directory, with no run of its own: excludes modules inside any run."""
    sys.path.append(os.getcwd())
    _install(ImportGuard(_is_in_run))


def _install(guard: ImportGuard) -> None:
    # Before PathFinder, which stays: package metadata is read through it.
    sys.meta_path.insert(sys.meta_path.index(PathFinder), guard)


@functools.cache
def _is_in_run(folder: str) -> bool:
    """Whether the folder is a run or inside one; an unrelated `run.json` does not make it one."""
    for place in (Path(folder), *Path(folder).parents):
        if (place / MANIFEST).is_file():
            with contextlib.suppress(RunNotFound):
                read_manifest(place)
                return True
    return False


def _shut(folder: Path, run_dir: Path) -> Path:
    """The folder that came with the run, as seen from `folder`."""
    if folder in run_dir.parents:
        return folder / run_dir.relative_to(folder).parts[0]
    return run_dir
