"""The view settings of a user, such as theme, axes and sort order, saved in a small JSON file, and their undo.

A missing value, or one of the wrong type, is replaced by its default; values that only another version understands stay
in the file. Of runs it has only the names of pinned and folded metrics, by the folder of the runs. The application
reads and writes it outside the event loop.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec

from tputui import user_cache
from tputui.telemetry import files

Value = bool | int | float | str | list[str]

ValueT = TypeVar("ValueT", bool, int, float, str, list[str])

MAX_BYTES = 1 << 16
"""Maximum size of the file; a larger one is ignored."""

SAVED = "saved."
"""Prefix of the settings that the user saved under a name: a reset keeps them."""

CHANGES_MAX = 50
"""Maximum number of changes that can be undone."""


def state_path(environ: Mapping[str, str]) -> Path | None:
    """The path of the file by the XDG base directories; None if there is no home directory."""
    state_home = environ.get("XDG_STATE_HOME", "")
    if state_home and Path(state_home).is_absolute():
        return Path(state_home) / "tputui" / "view.json"
    home = environ.get("HOME", "")
    return Path(home) / ".local" / "state" / "tputui" / "view.json" if home else None


class Views:
    """View settings by name, such as `theme` or `loss.log_axis`."""

    def __init__(self, path: Path | None = None) -> None:
        """Without a path settings are not saved."""
        self._path = path
        self._values: dict[str, Any] = {}
        self._changed: dict[str, Any] = {}
        """Changes of this session that are not saved yet; None if a value was removed."""
        self._lock = threading.Lock()
        self.on_change: Callable[[], object] | None = None
        """Called when there is something to save, once until it is saved."""
        self.notice = ""
        """An error of reading or writing the file, to be shown once; empty if there was none."""

    @classmethod
    def opened(cls, path: Path | None) -> Views:
        """Read the file. An invalid file is reported by `notice` and not replaced until a setting changes."""
        views = cls(path)
        views._values, views.notice = _read(path) if path is not None else ({}, "")
        return views

    def get(self, name: str, default: ValueT) -> ValueT:
        """The value of a name, if it has the type of `default`; else `default`."""
        value: Any = self._values.get(name)
        if type(default) is float and type(value) is int:
            # A file may contain 1 for 1.0.
            value = float(value)
        return value if type(value) is type(default) and _is_value(value) else default

    def raw(self, name: str) -> Any:
        """The value of a name whatever its type, as the file had it; None if it has none."""
        return self._values.get(name)

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`, sorted."""
        return sorted(name for name in self._values if name.startswith(prefix))

    def set(self, name: str, value: Any) -> None:
        """Set a value of a type `Value`, or one that `raw` returned; `write` saves it."""
        if self._values.get(name) != value or type(self._values.get(name)) is not type(value):
            self._values[name] = value
            self._change(name, value)

    def remove(self, name: str) -> None:
        """Remove a value; `write` removes it from the file."""
        if self._values.pop(name, None) is not None:
            self._change(name, None)

    def reset(self) -> None:
        """Remove every value, except those that the user saved under a name."""
        for name in list(self._values):
            if not name.startswith(SAVED):
                self._values.pop(name)
                self._change(name, None)

    def _change(self, name: str, value: Any) -> None:
        is_first = not self._changed
        self._changed[name] = value
        if is_first and self.is_changed and self.on_change is not None:
            self.on_change()

    @property
    def is_changed(self) -> bool:
        """Whether there are unsaved changes."""
        return self._path is not None and bool(self._changed)

    def write(self) -> None:
        """Merge the changes into the file, which other sessions may have changed. An error is stored in `notice`."""
        with self._lock:
            changed, self._changed = self._changed, {}
            if self._path is not None and changed:
                self._merge(self._path, changed)

    def _merge(self, path: Path, changed: Mapping[str, Any]) -> None:
        values, _ = _read(path)
        for name, value in changed.items():
            if value is None:
                values.pop(name, None)
            else:
                values[name] = value
        try:
            _write(path, values)
        except OSError as error:
            self.notice = f"view settings not saved: {error.strerror or error}: {path}"


class Change(NamedTuple):
    what: str
    """Name of the change for the user: `theme light`."""
    take_back: Callable[[], None]
    """Restores the previous state; must not push a change itself."""


class Undo:
    """A stack of changes of the view and of the labels of runs. Requests and deletions are never undone."""

    def __init__(self) -> None:
        self._changes: deque[Change] = deque(maxlen=CHANGES_MAX)

    def push(self, what: str, take_back: Callable[[], None], *, joins: bool = False) -> Change:
        """Store a change. With `joins`, a change of the same name as the newest one is undone together with it."""
        if not (joins and self._changes and self._changes[-1].what == what):
            self._changes.append(Change(what, take_back))
        return self._changes[-1]

    def discard(self, change: Change) -> None:
        """Remove a change that failed; does nothing if it was undone."""
        with contextlib.suppress(ValueError):
            self._changes.remove(change)

    def undo(self) -> str | None:
        """Undo the newest change and return its name; None if there is none."""
        if not self._changes:
            return None
        change = self._changes.pop()
        change.take_back()
        return change.what

    def __len__(self) -> int:
        return len(self._changes)


@runtime_checkable
class HasViews(Protocol):
    """An application with view settings."""

    views: Views
    undo: Undo


def views_of(app: object) -> Views:
    """The view settings of the app; empty ones if it has none."""
    return app.views if isinstance(app, HasViews) else Views()


def undo_of(app: object) -> Undo:
    """The undo stack of the app; an empty one if it has none."""
    return app.undo if isinstance(app, HasViews) else Undo()


def _read(path: Path) -> tuple[dict[str, Any], str]:
    """The values of a file, and an error message if it cannot be used."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, f"view settings cannot be read: {error.strerror or error}: {path}"
    try:
        if len(content) > MAX_BYTES:
            raise msgspec.DecodeError("it is too long")
        values: dict[str, Any] = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}, f"view settings ignored: {path} is not valid"
    return values, ""


def _is_value(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(part, str) for part in value)
    return isinstance(value, bool | int | float | str)


def _write(path: Path, values: Mapping[str, Any]) -> None:
    """Write atomically, readable only by the user."""
    user_cache.create_missing(path.parent)
    content = msgspec.json.format(msgspec.json.encode(dict(sorted(values.items()))), indent=2)
    # Not synced: losing view settings in a power cut costs little.
    files.write(path, lambda file: file.write(content + b"\n"), sync=False)
