"""The layouts of a user: the one in use, and those saved under a name, as lines of text in the view settings.

    version 1
    hide xla
    size wide.cores 0.45

The file may be damaged or of a newer version. Such a layout is refused with a sentence, and stays in the file until it
is replaced or deleted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tputui.ui.base.preferences import SAVED, Views
from tputui.ui.monitor.arrangement import DEFAULT, LASTING, PANELS, Layout

VERSION = 1
DEFAULT_NAME = "default"
"""Name of the default layout, which is not in the file."""

LAYOUTS_MAX = 20
"""Maximum number of saved layouts; the file of the view settings has a maximum size."""
NAME_CHARS_MAX = 24

_LINES_MAX = 64
_CURRENT, _CURRENT_NAME, _SAVED = "monitor.layout", "monitor.layout_name", f"{SAVED}layout."


class InvalidLayout(ValueError):
    """A layout of the file cannot be used; the text says why."""


class Chosen(NamedTuple):
    """The layout in use."""

    layout: Layout = DEFAULT
    name: str = DEFAULT_NAME
    """The saved layout that it was, before changes."""


class SavedLayouts:
    """The layouts in the view settings."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def last(self) -> Chosen:
        """The layout of the last session. Raises `InvalidLayout`."""
        stored = self._views.raw(_CURRENT)
        if stored is None:
            return Chosen()
        name = self._views.get(_CURRENT_NAME, DEFAULT_NAME)
        return Chosen(layout_of(stored), name if name in self.names() else DEFAULT_NAME)

    def keep(self, chosen: Chosen) -> None:
        """Use this layout in the next session too."""
        if self._views.raw(_CURRENT) is not None or chosen != Chosen():
            self._views.set(_CURRENT, lines_of(chosen.layout))
            self._views.set(_CURRENT_NAME, chosen.name)

    def names(self) -> list[str]:
        """The names of the saved layouts, including those that cannot be used."""
        return list(filter(_is_name, (name.removeprefix(_SAVED) for name in self._views.names(_SAVED))))

    def get(self, name: str) -> Layout:
        """A layout by its name. Raises `InvalidLayout`."""
        return DEFAULT if name == DEFAULT_NAME else layout_of(self.stored(name))

    def stored(self, name: str) -> Any:
        """A saved layout as the file has it, for `restore`; None if it is not saved."""
        return self._views.raw(_SAVED + name)

    def restore(self, name: str, stored: Any) -> None:
        """Save what `stored` returned; None deletes the layout."""
        if stored is None:
            self._views.remove(_SAVED + name)
        else:
            self._views.set(_SAVED + name, stored)

    def save(self, name: str, layout: Layout) -> None:
        """Save a layout, in place of an earlier one of this name."""
        self._views.set(_SAVED + name, lines_of(layout))

    def valid_name(self, text: str) -> str:
        """A name typed by the user. Raises `ValueError` with a sentence."""
        name = " ".join(text.split())
        if len(name) > NAME_CHARS_MAX:
            raise ValueError(f"the name has {len(name)} characters; the maximum is {NAME_CHARS_MAX}")
        if not _is_name(name):
            raise ValueError(f"{name!r} is the built-in layout; type another name" if name else "type a name")
        names = self.names()
        if name not in names and len(names) >= LAYOUTS_MAX:
            raise ValueError(f"{len(names)} layouts are saved, the maximum; delete one first")
        return name


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_CHARS_MAX and text.isprintable() and text.casefold() != DEFAULT_NAME


def lines_of(layout: Layout) -> list[str]:
    """A layout as lines of text."""
    hidden = [f"hide {name}" for name in PANELS if name in layout.hidden]
    sizes = [f"size {key} {share:g}" for key, share in sorted(layout.sizes.items())]
    return [f"version {VERSION}", *hidden, *sizes]


def layout_of(stored: Any) -> Layout:
    """The layout of lines of text; panels that do not exist are ignored. Raises `InvalidLayout`."""
    if not isinstance(stored, list) or not all(isinstance(line, str) for line in stored) or len(stored) > _LINES_MAX:
        raise InvalidLayout("it is damaged")
    lines: Sequence[str] = stored
    _check_version(lines[0] if lines else "")
    hidden, sizes = set[str](), dict[str, float]()
    for number, line in enumerate(lines[1:], start=2):
        match line.split():
            case ["hide", name]:
                hidden |= {name} & set(PANELS)
            case ["size", key, share] if 0.0 < _number(share) <= 1.0:
                sizes[key] = _number(share)
            case _:
                raise InvalidLayout(f"line {number} is damaged")
    if hidden >= LASTING:
        raise InvalidLayout("it hides every panel")
    return Layout(frozenset(hidden), sizes)


def _check_version(line: str) -> None:
    word, _, version = line.partition(" ")
    if word != "version" or not version.isdecimal():
        raise InvalidLayout("it is damaged")
    if _number(version) != VERSION:
        raise InvalidLayout("a newer version of tputui saved it")


def _number(text: str) -> float:
    """A number; NaN if the text is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
