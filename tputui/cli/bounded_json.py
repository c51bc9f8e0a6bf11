"""A JSON object cut to a number of bytes, for readers that take only so much, and a sentence about what is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_NAMED_MAX = 12
_NAME_CHARS_MAX = 60
_HALVED_BYTES_MIN = 64
"""A part of this size or less is kept or left out as a whole."""


class NoSection(ValueError):
    """A name that no part of an object has; the text is one sentence for the user."""


class Part(NamedTuple):
    """The part of an object that a reader asked for."""

    sections: Sequence[str] | None = None
    """Names of parts, such as `xla` or `plan.batch`; without any, all."""
    entries: int | None = None
    """Number of entries of each list in them, counted from the end; None for all."""
    skip: int = 0
    """Entries that are left out before these are counted."""
    first: bool = False
    """Counts from the beginning of the lists instead."""

    def of(self, fields: dict[str, Any]) -> dict[str, Any]:
        """That part of an object. Raises `NoSection`."""
        found = {name: _section(fields, name) for name in self.sections} if self.sections else fields
        return {name: self._slice(part) if isinstance(part, list) else part for name, part in found.items()}

    def _slice(self, part: list[Any]) -> list[Any]:
        skip, entries = max(self.skip, 0), len(part) if self.entries is None else max(self.entries, 0)
        end = len(part) - skip
        return part[skip : skip + entries] if self.first else part[max(end - entries, 0) : max(end, 0)]


def _section(fields: dict[str, Any], name: str) -> Any:
    part: Any = fields
    for key in name.split("."):
        if not isinstance(part, dict) or key not in part:
            known = f"; there are {', '.join(part)}" if isinstance(part, dict) else ""
            raise NoSection(f"no section {name}{known}")
        part = part[key]
    return part


def encoded(value: Any) -> str:
    """The value as JSON in ASCII, without spaces that only people need."""
    return json.dumps(value, separators=(",", ":"))


def bounded(fields: dict[str, Any], size_bytes: int, how_to_ask: str, *, first: bool = False) -> str:
    """The object as JSON of at most `size_bytes`, of which there must be thousands.

    The largest lists, texts and objects in it are halved until it fits. A list keeps its last entries, with `first` its
    first ones. `left_out` then says what was cut, and `how_to_ask` for less.
    """
    cut: dict[str, tuple[int, int]] = {}
    text = encoded(fields)
    while len(text) > size_bytes:
        fields = _halved(fields, "", cut, first)
        kept = f"cut to {size_bytes // 1000} kB, lists to their {'first' if first else 'last'} entries: {_places(cut)}"
        text = encoded({"left_out": f"{kept}; {how_to_ask}", **fields})
    return text


def _places(cut: Mapping[str, tuple[int, int]]) -> str:
    places = [f"{path[-_NAME_CHARS_MAX:]} ({kept:,} of {total:,} kept)" for path, (kept, total) in cut.items()]
    return ", ".join(places[:_NAMED_MAX]) + (f" and {len(places) - _NAMED_MAX} more" if places[_NAMED_MAX:] else "")


def _halved(value: Any, path: str, cut: dict[str, tuple[int, int]], first: bool) -> Any:
    """The value with its largest part halved; notes in `cut` how much is kept of what was there."""
    if isinstance(value, dict):
        name, part = max(value.items(), key=lambda item: len(encoded(item[1])))
        # An object of many small values is halved itself.
        if _can_be_halved(part) and len(encoded(part)) * 4 > len(encoded(value)):
            return {**value, name: _halved(part, f"{path}.{name}" if path else name, cut, first)}
        kept: Any = dict(list(value.items())[: len(value) // 2])
    elif isinstance(value, list) and len(value) == 1 and _can_be_halved(value[0]):
        return [_halved(value[0], f"{path}[0]", cut, first)]
    else:
        half = len(value) // 2
        kept = value[:half] if first or isinstance(value, str) else value[len(value) - half :]
    cut[path] = (len(kept), cut.get(path, (0, len(value)))[1])
    return kept


def _can_be_halved(part: Any) -> bool:
    return isinstance(part, dict | list | str) and len(encoded(part)) > _HALVED_BYTES_MIN
