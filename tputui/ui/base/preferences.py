"""How a user likes to look: theme, axes, sorting and such, kept between sessions in one small file of their own.

A value that is not there, or not of the type that is asked for, is the default. Nothing of a run is kept here. The file
is read and written outside of the event loop, by whoever owns the loop.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from tputui.ui.base.undo import Undo

Value = bool | int | float | str | list[str]

ValueT = TypeVar("ValueT", bool, int, float, str, list[str])

MAX_BYTES = 1 << 16
"""A larger file is not one of ours."""


def state_path(environ: Mapping[str, str]) -> Path | None:
    """The file of this user, by the XDG base directories; None where there is no home."""
    told = environ.get("XDG_STATE_HOME", "")
    if told and Path(told).is_absolute():
        return Path(told) / "tputui" / "view.json"
    home = environ.get("HOME", "")
    return Path(home) / ".local" / "state" / "tputui" / "view.json" if home else None


class Views:
    """The values by name, such as `theme` or `loss.log_axis`."""

    def __init__(self, path: Path | None = None) -> None:
        """Without a path nothing is read or written."""
        self._path = path
        self._values: dict[str, Value] = {}
        self._changed: dict[str, Value | None] = {}
        """What this session changed and has not written; None was removed."""
        self._lock = threading.Lock()
        self.notice = ""
        """What is to be told once of reading or writing the file; empty where all is well."""

    @classmethod
    def opened(cls, path: Path | None) -> Views:
        """Reads the file; a bad one is left as it is until something changes, and told."""
        views = cls(path)
        views._values, views.notice = _read(path) if path is not None else ({}, "")
        return views

    def get(self, name: str, default: ValueT) -> ValueT:
        """The value of a name, if it has the type of `default`; else `default`."""
        value: Any = self._values.get(name)
        if type(default) is float and type(value) is int:
            # A file may say 1 where 1.0 is meant.
            value = float(value)
        return value if type(value) is type(default) else default

    def set(self, name: str, value: Value) -> None:
        """Gives a name a value; `write` keeps it."""
        if self._values.get(name) != value or type(self._values.get(name)) is not type(value):
            self._values[name] = value
            self._changed[name] = value

    def reset(self) -> None:
        """Forgets every value."""
        self._changed = dict.fromkeys(self._values, None)
        self._values = {}

    @property
    def is_changed(self) -> bool:
        """Whether there is something to write."""
        return self._path is not None and bool(self._changed)

    def write(self) -> None:
        """Writes what changed, over what others wrote meanwhile; where it cannot be written, `notice` says so."""
        with self._lock:
            changed, self._changed = self._changed, {}
            if self._path is not None and changed:
                self._merge(self._path, changed)

    def _merge(self, path: Path, changed: Mapping[str, Value | None]) -> None:
        values, _ = _read(path)
        for name, value in changed.items():
            if value is None:
                values.pop(name, None)
            else:
                values[name] = value
        try:
            _write(path, values)
        except OSError as error:
            self.notice = f"the view is not kept: {error.strerror or error}: {path}"


@runtime_checkable
class HasViews(Protocol):
    """The application, as screens and widgets see it for their view."""

    views: Views
    undo: Undo


def views_of(app: object) -> Views:
    """The values of the app; of an app that keeps none, new ones."""
    return app.views if isinstance(app, HasViews) else Views()


def undo_of(app: object) -> Undo:
    """The changes of the app that can be undone."""
    return app.undo if isinstance(app, HasViews) else Undo()


def _read(path: Path) -> tuple[dict[str, Value], str]:
    """The values of a file, and why it cannot be used if so."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, f"the view as you left it cannot be read: {error.strerror or error}: {path}"
    try:
        if len(content) > MAX_BYTES:
            raise msgspec.DecodeError("it is too long")
        found: dict[str, Any] = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}, f"the view as you left it is ignored: {path} does not hold what it should"
    return {name: value for name, value in found.items() if _is_value(value)}, ""


def _is_value(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(part, str) for part in value)
    return isinstance(value, bool | int | float | str)


def _write(path: Path, values: Mapping[str, Value]) -> None:
    """Writes whole or not at all, for the user's eyes alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = msgspec.json.format(msgspec.json.encode(dict(sorted(values.items()))), indent=2)
    fd, name = tempfile.mkstemp(prefix=".view-", dir=path.parent)  # made with mode 0600
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content + b"\n")
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
