"""The configuration file of the user, which names folders with logs of other programs.

    # ~/.config/tputui/config.toml
    [[sources]]
    path = "~/experiments"
    name = "laptop"          # optional; else the last part of the path

The file may be missing or damaged: everything that can be used is used, and each problem is one sentence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tputui.home_paths import expanded
from tputui.telemetry.files import read_small

CONFIG_VARIABLE = "TPUTUI_CONFIG"
"""Environment variable with the path of the file."""
BYTES_MAX = 1 << 16
SOURCES_MAX = 50
NAME_CHARS_MAX = 40
_SOURCE_KEYS = ("path", "name")


class LogSource(NamedTuple):
    """A folder with logs of other programs."""

    path: Path
    name: str
    """The first part of the names of its logs; empty for the directory of the runs."""


class UserConfig(NamedTuple):
    """What the file contains."""

    sources: tuple[LogSource, ...] = ()
    problems: tuple[str, ...] = ()
    """A sentence for each part that cannot be used, with file and key."""


def user_config_path(environ: Mapping[str, str]) -> Path | None:
    """The path of the file: `$TPUTUI_CONFIG`, else by the XDG base directories; None without a home directory."""
    if named := environ.get(CONFIG_VARIABLE):
        return Path(named)
    config_home = environ.get("XDG_CONFIG_HOME", "")
    if config_home and Path(config_home).is_absolute():
        return Path(config_home) / "tputui" / "config.toml"
    home = environ.get("HOME", "")
    return Path(home) / ".config" / "tputui" / "config.toml" if home else None


def read_user_config(path: Path | None) -> UserConfig:
    """Reads the file; never raises. A missing file is empty, unless `$TPUTUI_CONFIG` names it."""
    if path is None:
        return UserConfig()
    try:
        text = read_small(path, BYTES_MAX)
    except FileNotFoundError:
        is_named = os.environ.get(CONFIG_VARIABLE) == str(path)
        return UserConfig((), (f"{path}: no such file; ${CONFIG_VARIABLE} names it",) if is_named else ())
    except OSError as error:
        return UserConfig((), (f"{path}: cannot be read: {error.strerror or error}",))
    # Imported here so that the list opens faster for users without the file.
    import tomllib

    try:
        tables = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error) or "it is nested too deeply"
        return UserConfig((), (f"{path}: not valid TOML: {why}",))
    problems = [f"{path}: {key}: unknown key; the only key is [[sources]]" for key in tables if key != "sources"]
    sources = _sources(path, tables.get("sources", []), problems)
    return UserConfig(tuple(sources), tuple(problems))


def _sources(path: Path, tables: Any, problems: list[str]) -> list[LogSource]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        problems.append(f'{path}: sources: expected tables; write [[sources]] and below it path = "FOLDER"')
        return []
    if len(tables) > SOURCES_MAX:
        problems.append(f"{path}: sources: {len(tables)} tables; only the first {SOURCES_MAX} are used")
    sources: list[LogSource] = []
    for number, table in enumerate(tables[:SOURCES_MAX], 1):
        where = f"{path}: sources[{number}]"
        problems += [
            f"{where}.{key}: unknown key; the keys are path and name" for key in table if key not in _SOURCE_KEYS
        ]
        source = _source(path.parent, table, where, problems)
        if source is not None:
            sources.append(source)
    return sources


def _source(base: Path, table: Mapping[str, Any], where: str, problems: list[str]) -> LogSource | None:
    """A source; None if it has no path. A folder that does not exist now may exist later."""
    text, name = table.get("path"), table.get("name", "")
    if not isinstance(text, str) or not text or "\0" in text:
        problem = "missing; name a folder" if text is None else "expected the path of a folder"
        problems.append(f"{where}.path: {problem}")
        return None
    if not isinstance(name, str) or not name.isprintable() or len(name) > NAME_CHARS_MAX:
        problems.append(f"{where}.name: expected at most {NAME_CHARS_MAX} printable characters")
        name = ""
    try:
        folder = Path(os.path.normpath(base.absolute() / expanded(text)))
    except FileNotFoundError as error:
        problems.append(f"{where}.path: {error}")
        return None
    if not os.path.isdir(folder):
        problem = "not a folder; name the folder that contains the log" if os.path.lexists(folder) else "no such folder"
        problems.append(f"{where}.path: {folder}: {problem}")
    return LogSource(folder, name or folder.name or str(folder))
