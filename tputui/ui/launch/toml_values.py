"""Values as TOML, which the standard library reads and does not write. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}


def document(tables: Mapping[str, Any], comment: Sequence[str] = ()) -> str:
    """A file: what is no table first, then each table; None is left out."""
    lines = [f"# {_printable(line)}".rstrip() for line in comment]
    lines += [f"{_key(key)} = {inline(value)}" for key, value in tables.items() if not _is_none_or_table(value)]
    for name, table in tables.items():
        if isinstance(table, Mapping):
            values = [f"{_key(key)} = {inline(value)}" for key, value in table.items() if value is not None]
            lines += ["", f"[{_key(name)}]", *values] if values else []
    return "\n".join(lines) + "\n"


def inline(value: Any) -> str:
    """A value on one line. Raises `TypeError` for what TOML has no value for, None among them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_key(key)} = {inline(each)}" for key, each in value.items() if each is not None)
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(inline(each) for each in value)}]"
    raise TypeError(f"TOML has no value for {value!r}")


def _is_none_or_table(value: Any) -> bool:
    return value is None or isinstance(value, Mapping)


def _float(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(character) or _escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable())
