"""`FieldMasker` masks the secrets in the structs of one writer, by the markers in the types of their fields.

Imported only to write: the patterns of secrets take longer to compile than a viewer takes for most of its imports.
"""

from __future__ import annotations

import functools
import types
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from tputui.telemetry import redaction, secrecy
from tputui.telemetry.secrecy import Secrecy

TEXT_CHARS_MAX = 262_144
"""Longer texts of an event, such as a message that prints a whole tensor, are truncated."""
NAMES_MAX = 4_096
"""Most names that are remembered with what is written for them."""

_Item = TypeVar("_Item", bound=msgspec.Struct)
_Mask = Callable[["FieldMasker", Any, msgspec.Struct], Any]
"""Masks a value of a field of a struct; returns the value itself if nothing in it is masked."""


class FieldMasker:
    """Masks the secrets in the structs of one writer, in the order in which they are written. Not thread-safe."""

    def __init__(self, text_chars_max: int | None = None) -> None:
        """Longer texts are truncated."""
        self._text_chars_max = text_chars_max
        self._exact_names: set[str] = set()
        self._masked_names: dict[str, str] = {}
        self._num_of_name: Counter[str] = Counter()
        self._keys = redaction.KeyMasker()

    def masked(self, item: _Item) -> _Item:
        """The struct with its secrets masked; the same one if it has none."""
        changed: dict[str, Any] = {}
        for name, mask in plan(type(item)):
            value = getattr(item, name)
            if (shown := mask(self, value, item)) is not value:
                changed[name] = shown
        return msgspec.structs.replace(item, **changed) if changed else item

    def text(self, text: str) -> str:
        """A text, masked. Truncated first: masking 50 MB takes longer than a process has to exit."""
        most = self._text_chars_max
        if most is not None and len(text) > most:
            text = f"{text[:most]} ... {len(text) - most} characters are left out"
        return redaction.masked_text(text)

    def name(self, name: str) -> str:
        """A name, masked. A number follows if another name was masked to the same text."""
        if name in self._exact_names:
            return name
        shown = self._masked_names.get(name)
        return self._new_name(name) if shown is None else shown

    def are_exact(self, names: Iterable[str]) -> bool:
        """Whether all of the names are known to contain no secret."""
        return self._exact_names.issuperset(names)

    def line(self, line: str) -> str:
        """The next line of the output, masked."""
        return self.text(self._keys.masked_line(line))

    def _new_name(self, name: str) -> str:
        shown = redaction.masked_text(name)
        if shown == name:
            if len(self._exact_names) >= NAMES_MAX:
                self._exact_names.clear()
            self._exact_names.add(name)
        elif len(self._masked_names) < NAMES_MAX:
            self._num_of_name[shown] += 1
            number = self._num_of_name[shown]
            shown = self._masked_names[name] = f"{shown} {number}" if number > 1 else shown
        return shown


@functools.cache
def plan(kind: type[msgspec.Struct]) -> tuple[tuple[str, _Mask], ...]:
    """The fields of a type that may contain secrets, and how they are masked. Raises `TypeError` for a text that is not
    marked."""
    hints = get_type_hints(kind, include_extras=True)
    masks = ((name, _mask_of(hints[name], f"{kind.__name__}.{name}")) for name in kind.__struct_fields__)
    return tuple((name, mask) for name, mask in masks if mask is not None)


_BY_SECRECY: dict[Secrecy, _Mask | None] = {
    Secrecy.TEXT: lambda masker, value, struct: masker.text(value),
    Secrecy.NAME: lambda masker, value, struct: masker.name(value),
    Secrecy.NAMED_VALUE: lambda masker, value, struct: _named_value(masker, value, struct),
    Secrecy.LINE: lambda masker, value, struct: masker.line(value),
    Secrecy.LINES: lambda masker, value, struct: redaction.masked_lines(value),
    Secrecy.COMMAND: lambda masker, value, struct: redaction.masked_argv(value),
    Secrecy.VALUES: lambda masker, value, struct: redaction.masked(value),
    Secrecy.EXACT: None,
}
_INERT = (int, float, bool, type(None))


def _mask_of(hint: Any, where: str) -> _Mask | None:
    """How values of a type are masked; None if they cannot contain a secret. Raises `TypeError`."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marker = next((note for note in inner[1:] if isinstance(note, Secrecy)), None)
        return _mask_of(inner[0], where) if marker is None else _BY_SECRECY[marker]
    if origin in (Union, types.UnionType):
        kinds = [kind for kind in inner if kind is not type(None)]
        masks = [_mask_of(kind, where) for kind in kinds]
        if len(kinds) == 1:
            return _of_optional(masks[0])
        if not any(masks):
            return None
    if origin in (list, tuple) and len(masks := [_mask_of(part, where) for part in inner if part is not ...]) == 1:
        return _of_sequence(origin, masks[0])
    if origin is dict:
        return _of_dict(*(_mask_of(part, where) for part in inner))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _of_struct if plan(hint) else None
    if origin is Literal or hint in _INERT:
        return None
    module = secrecy.__name__
    raise TypeError(f"{where}: mark whether {hint} may contain a secret, by a type of {module} such as Text or Exact")


def _named_value(masker: FieldMasker, value: str, struct: Any) -> Any:
    return redaction.masked(masker.text(value), struct.name)


def _of_struct(masker: FieldMasker, value: Any, struct: msgspec.Struct) -> Any:
    return masker.masked(value)


def _of_optional(mask: _Mask | None) -> _Mask | None:
    return mask and (lambda masker, value, struct: None if value is None else mask(masker, value, struct))


def _of_sequence(kind: type[Any], mask: _Mask | None) -> _Mask | None:
    if mask is None:
        return None

    def masked(masker: FieldMasker, values: Any, struct: msgspec.Struct) -> Any:
        shown = kind(mask(masker, value, struct) for value in values)
        return shown if any(new is not old for new, old in zip(shown, values, strict=True)) else values

    return masked


def _of_dict(of_key: _Mask | None, of_value: _Mask | None) -> _Mask | None:
    if of_key is None and of_value is None:
        return None
    has_names_only = of_value is None and of_key is _BY_SECRECY[Secrecy.NAME]

    def masked(masker: FieldMasker, values: Any, struct: msgspec.Struct) -> Any:
        if has_names_only and masker.are_exact(values):
            return values
        shown = {
            of_key(masker, key, struct) if of_key else key: of_value(masker, value, struct) if of_value else value
            for key, value in values.items()
        }
        return values if shown == values else shown

    return masked
