"""A field of a configuration: what it takes, told by its JSON schema, and text as its value and back. Pure."""

from __future__ import annotations

import math
import operator
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Schema = Mapping[str, Any]

_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (operator.ge, "{} or more"),
    "exclusiveMinimum": (operator.gt, "more than {}"),
    "maximum": (operator.le, "{} or less"),
    "exclusiveMaximum": (operator.lt, "less than {}"),
}
"""How each bound of a schema is kept, and told."""


class Wrong(Exception):
    """A text that is no value of the field; the words say what is wrong and what would do."""


class Field(NamedTuple):
    """A field."""

    key: str
    """In full: `optim.lr`."""
    schema: Schema
    doc: str
    required: bool = False
    known: bool = True
    """Whether somebody told what it takes; without, any value passes and an empty text leaves it out."""

    @property
    def table(self) -> str:
        """Name of its table; empty at the top of the file."""
        return self.key.rpartition(".")[0]

    @property
    def name(self) -> str:
        """Its name in the table."""
        return self.key.rpartition(".")[2]

    @property
    def default(self) -> Any:
        """Its value where the file says nothing; None also where it has none."""
        return self.schema.get("default")

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values there are, where they are few."""
        found: list[Any] = []
        for each in _alternatives(self.schema):
            if "enum" in each:
                found += each["enum"]
            elif each.get("type") == "boolean":
                found += (False, True)
            elif each.get("type") != "null":
                return ()
        return tuple(found)

    @property
    def is_optional(self) -> bool:
        """Whether it may have no value."""
        return any(each.get("type") == "null" for each in _alternatives(self.schema))


def read(field: Field, text: str) -> Any:
    """The value that a text says; None is no value. Raises `Wrong`."""
    stripped = text.strip()
    if not stripped:
        return _nothing(field)
    for value in _candidates(stripped):
        whys: list[str] = []
        for each in _alternatives(field.schema):
            if _is_of_type(each, value):
                fitting = float(value) if each.get("type") == "number" else value
                why = _why_not(each, fitting)
                if not why:
                    return fitting
                whys.append(why)
        if whys:
            raise Wrong(f"{stripped}: {whys[0]}")
    raise Wrong(f"{stripped} is not {takes(field.schema)}")


def shown(field: Field, value: Any) -> str:
    """The text of a value, which `read` brings back; none is empty."""
    if value is None:
        return ""
    if isinstance(value, str):
        try:
            if value == value.strip() and value.isprintable() and read(field, value) == value and value:
                return value
        except Wrong:
            pass
        return "" if not value and not field.is_optional and field.known else inline(value)
    return inline(value)


def takes(schema: Schema) -> str:
    """What a field takes, in words: `a whole number from 1 to 1,024`."""
    words = [_kind(each) for each in _alternatives(schema) if each.get("type") != "null"]
    said = ", or ".join(dict.fromkeys(words)) or "any value"
    return said + (", or nothing" if any(each.get("type") == "null" for each in _alternatives(schema)) else "")


def _alternatives(schema: Schema) -> Sequence[Schema]:
    found: Sequence[Schema] = schema.get("anyOf", (schema,))
    return found


def _nothing(field: Field) -> Any:
    if field.is_optional or not field.known:
        return None
    if any(each.get("type") == "string" for each in _alternatives(field.schema)) and not field.required:
        return ""
    raise Wrong(f"a value is missing: write {takes(field.schema)}")


def _candidates(text: str) -> list[Any]:
    """What a text may mean: a TOML value, a number as people write it, or the text itself."""
    found: list[Any] = []
    try:
        found.append(tomllib.loads(f"value = {text}")["value"])
    except (tomllib.TOMLDecodeError, RecursionError):
        for number in (int, float):
            try:
                found.append(number(text))
                break
            except ValueError:
                continue
    quoted = bool(found) and isinstance(found[0], str)
    return found if quoted else [*found, text]


def _is_of_type(schema: Schema, value: Any) -> bool:
    kind = schema.get("type")
    if "enum" in schema:
        return any(value == choice and type(value) is type(choice) for choice in schema["enum"])
    if kind in ("integer", "number"):
        return not isinstance(value, bool) and isinstance(value, int if kind == "integer" else int | float)
    types = {"boolean": bool, "string": str, "array": list, "object": dict, "null": type(None)}
    return kind is None or isinstance(value, types.get(kind, object))


def _why_not(schema: Schema, value: Any) -> str:
    """Why a value of the right type cannot be used; empty where it can."""
    if isinstance(value, list):
        return _why_no_list(schema, value)
    if isinstance(value, dict):
        return _why_no_table(schema, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if not math.isfinite(value):
        return "it must be a finite number"
    for name, (holds, words) in _BOUNDS.items():
        if name in schema and not holds(value, schema[name]):
            return f"it must be {words.format(f'{schema[name]:,}')}"
    return ""


def _why_no_list(schema: Schema, value: list[Any]) -> str:
    least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    if not least <= len(value) <= most:
        return f"it must have {least} values" if least == most else f"it must have {least:,} values or more"
    each = schema.get("prefixItems") or [schema.get("items") or {}] * len(value)
    return _first_why(zip(each, value, strict=False))


def _why_no_table(schema: Schema, value: dict[str, Any]) -> str:
    inner = schema.get("additionalProperties")
    return _first_why(((inner if isinstance(inner, Mapping) else {}), each) for each in value.values())


def _first_why(pairs: Any) -> str:
    for schema, value in pairs:
        if not any(_is_of_type(each, value) for each in _alternatives(schema)):
            return f"{inline(value)} in it is not {takes(schema)}"
        why = _why_not(schema, value)
        if why:
            return f"{inline(value)} in it: {why}"
    return ""


def _kind(schema: Schema) -> str:
    if "enum" in schema:
        return f"one of {', '.join(_choice(each) for each in schema['enum'])}"
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return ("a whole number" if kind == "integer" else "a number") + _range(schema)
    if kind == "array":
        if "prefixItems" in schema:
            return f"a list of {len(schema['prefixItems'])}: {inline([0] * len(schema['prefixItems']))}"
        return f"a list: [...], each {_kind(schema.get('items') or {})}"
    words = {"boolean": "true or false", "string": "a text", "object": "a table: { key = value }"}
    return words.get(str(kind), "any value")


def _choice(value: Any) -> str:
    """A choice as it is to be typed."""
    return value if isinstance(value, str) and not value.isdigit() else inline(value)


def _range(schema: Schema) -> str:
    low = next((f" from {schema[key]:,}" for key in ("minimum",) if key in schema), "")
    low = low or (f" more than {schema['exclusiveMinimum']:,}" if "exclusiveMinimum" in schema else "")
    high = f" to {schema['maximum']:,}" if "maximum" in schema else ""
    high = high or (f" less than {schema['exclusiveMaximum']:,}" if "exclusiveMaximum" in schema else "")
    joined = " and" if low and high and not high.startswith(" to") else ""
    return low + joined + high


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
