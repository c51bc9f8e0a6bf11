"""The fields of a configuration: their types as JSON schemas, parsing and formatting of values, and TOML output."""

from __future__ import annotations

import math
import operator
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Schema = Mapping[str, Any]

_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (operator.ge, "{} or more"),
    "exclusiveMinimum": (operator.gt, "more than {}"),
    "maximum": (operator.le, "{} or less"),
    "exclusiveMaximum": (operator.lt, "less than {}"),
}
"""The test and the wording of each bound of a schema."""


class FieldError(ValueError):
    """The text is not a valid value of the field; the message says which values are."""


class Field(NamedTuple):
    """One key of the configuration."""

    key: str
    """Dotted key, such as `optim.lr`."""
    schema: Schema
    doc: str
    required: bool = False
    known: bool = True
    """Whether its type is known. If not, any value is valid and an empty text removes the key."""

    @property
    def table(self) -> str:
        """Name of its table; empty at the top level."""
        return self.key.rpartition(".")[0]

    @property
    def name(self) -> str:
        """Its key within the table."""
        return self.key.rpartition(".")[2]

    @property
    def default(self) -> Any:
        """Its value if the file does not set it; None also if it has no default."""
        return self.schema.get("default")

    @property
    def choices(self) -> tuple[Any, ...]:
        """The valid values of an enumeration or a boolean; empty for other types."""
        choices: list[Any] = []
        for alternative in _alternatives(self.schema):
            if "enum" in alternative:
                choices += alternative["enum"]
            elif alternative.get("type") == "boolean":
                choices += (False, True)
            elif alternative.get("type") != "null":
                return ()
        return tuple(choices)

    @property
    def is_optional(self) -> bool:
        """Whether None is valid."""
        return any(alternative.get("type") == "null" for alternative in _alternatives(self.schema))


def parse_value(field: Field, text: str) -> Any:
    """The value of a text; an empty text can be None. Raises `FieldError`."""
    stripped = text.strip()
    if not stripped:
        return _empty_value(field)
    for value in _candidates(stripped):
        reasons: list[str] = []
        for alternative in _alternatives(field.schema):
            if _is_of_type(alternative, value):
                converted = float(value) if alternative.get("type") == "number" else value
                reason = _refusal(alternative, converted)
                if reason is None:
                    return converted
                reasons.append(reason)
        if reasons:
            raise FieldError(f"{stripped}: {reasons[0]}")
    raise FieldError(f"{stripped} is not {type_name(field.schema)}")


def format_value(field: Field, value: Any) -> str:
    """The text that `parse_value` turns into this value; empty for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        try:
            if value == value.strip() and value.isprintable() and parse_value(field, value) == value and value:
                return value
        except FieldError:
            pass
        return "" if not value and not field.is_optional and field.known else inline(value)
    return inline(value)


def type_name(schema: Schema) -> str:
    """The type of a value in words: `a whole number from 1 to 1,024`."""
    names = [_kind(alternative) for alternative in _alternatives(schema) if alternative.get("type") != "null"]
    return ", or ".join(dict.fromkeys(names)) or "any value"


def describe_type(schema: Schema) -> str:
    """The type as a line of its own: `Whole number from 0, optional`."""
    text = type_name(schema).removeprefix("a ")
    optional = any(alternative.get("type") == "null" for alternative in _alternatives(schema))
    return text[:1].upper() + text[1:] + (", optional" if optional else "")


def _alternatives(schema: Schema) -> Sequence[Schema]:
    alternatives: Sequence[Schema] = schema.get("anyOf", (schema,))
    return alternatives


def _empty_value(field: Field) -> Any:
    if field.is_optional or not field.known:
        return None
    if any(alternative.get("type") == "string" for alternative in _alternatives(field.schema)) and not field.required:
        return ""
    raise FieldError(f"missing value: enter {type_name(field.schema)}")


def _candidates(text: str) -> list[Any]:
    """The possible readings of a text: a TOML value, a number that is not valid TOML, or the text itself."""
    candidates: list[Any] = []
    try:
        candidates.append(tomllib.loads(f"value = {text}")["value"])
    except (tomllib.TOMLDecodeError, RecursionError):
        for number in (int, float):
            try:
                candidates.append(number(text))
                break
            except ValueError:
                continue
    is_quoted = bool(candidates) and isinstance(candidates[0], str)
    return candidates if is_quoted else [*candidates, text]


def _is_of_type(schema: Schema, value: Any) -> bool:
    kind = schema.get("type")
    if "enum" in schema:
        return any(value == choice and type(value) is type(choice) for choice in schema["enum"])
    if kind in ("integer", "number"):
        return not isinstance(value, bool) and isinstance(value, int if kind == "integer" else int | float)
    types = {"boolean": bool, "string": str, "array": list, "object": dict, "null": type(None)}
    return kind is None or isinstance(value, types.get(kind, object))


def _refusal(schema: Schema, value: Any) -> str | None:
    """Why a value of the right type is invalid."""
    if isinstance(value, list):
        return _list_refusal(schema, value)
    if isinstance(value, dict):
        return _table_refusal(schema, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value):
        return "it must be a finite number"
    for name, (holds, requirement) in _BOUNDS.items():
        if name in schema and not holds(value, schema[name]):
            return f"it must be {requirement.format(f'{schema[name]:,}')}"
    return None


def _list_refusal(schema: Schema, value: list[Any]) -> str | None:
    least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    if not least <= len(value) <= most:
        return f"it must have {least} values" if least == most else f"it must have at least {least:,} values"
    schemas = schema.get("prefixItems") or [schema.get("items") or {}] * len(value)
    return _first_refusal(zip(schemas, value, strict=False))


def _table_refusal(schema: Schema, value: dict[str, Any]) -> str | None:
    inner = schema.get("additionalProperties")
    return _first_refusal(((inner if isinstance(inner, Mapping) else {}), item) for item in value.values())


def _first_refusal(pairs: Iterable[tuple[Schema, Any]]) -> str | None:
    for schema, value in pairs:
        if not any(_is_of_type(alternative, value) for alternative in _alternatives(schema)):
            return f"{inline(value)} in it is not {type_name(schema)}"
        reason = _refusal(schema, value)
        if reason is not None:
            return f"{inline(value)} in it: {reason}"
    return None


def _kind(schema: Schema) -> str:
    if "enum" in schema:
        return f"one of {', '.join(_choice(choice) for choice in schema['enum'])}"
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return ("a whole number" if kind == "integer" else "a number") + _range(schema)
    if kind == "array":
        if "prefixItems" in schema:
            return f"a list of {len(schema['prefixItems'])}: {inline([0] * len(schema['prefixItems']))}"
        return f"a list: [...], each {_kind(schema.get('items') or {})}"
    names = {"boolean": "true or false", "string": "text", "object": "a table: { key = value }"}
    return names.get(str(kind), "any value")


def _choice(value: Any) -> str:
    """A choice as the user types it."""
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
    """A TOML file: top-level values first, then each table. None values are skipped."""
    lines = [f"# {_printable(line)}".rstrip() for line in comment]
    lines += [f"{_key(key)} = {inline(value)}" for key, value in tables.items() if not _is_none_or_table(value)]
    for name, table in tables.items():
        if isinstance(table, Mapping):
            values = [f"{_key(key)} = {inline(value)}" for key, value in table.items() if value is not None]
            lines += ["", f"[{_key(name)}]", *values] if values else []
    return "\n".join(lines) + "\n"


def inline(value: Any) -> str:
    """A value as TOML on one line. Raises `TypeError` for None and other values without a TOML form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_key(key)} = {inline(item)}" for key, item in value.items() if item is not None)
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(inline(item) for item in value)}]"
    raise TypeError(f"TOML cannot express {value!r}")


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
