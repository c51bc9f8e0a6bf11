"""Encodes an event as a line of a journal, and decodes it.

A line is a JSON object that ends with `j`, the id of its journal, `q`, the sequence number, and `c`, the CRC-32 of
every byte before the comma that precedes it. The id is computed from the head of the journal and distinguishes events
of different runs with the same number; format 1 had none. JSON has no NaN, so a float that is not finite is the string
"NaN", "Infinity" or "-Infinity". Unknown fields are ignored and unknown kinds are preserved, so an older reader can
read a newer journal. Lines are untrusted input: `decode` returns a valid `NumberedEvent` or raises `DamagedLine`. Pure.
"""

from __future__ import annotations

import functools
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Union

import msgspec

from tputui.telemetry.events import EVENT_TYPES, INT_MAX, Event, RunStarted, UnknownEvent

_TRAILER = b',"c":"%08x"}\n'
_TRAILER_BYTES = len(_TRAILER % 0)
_SEQUENCE_DIGITS_MAX = 16
"""A line with a longer sequence number is damaged."""
_SEQUENCE_MARK = b',"q":'
_ID_MARK = b',"j":"'
_ID_BYTES = len(_ID_MARK) + 8 + 1
_END = re.compile(rb'(?:,"j":"([0-9a-f]{8})")?,"q":[0-9]{1,16},"c":"[0-9a-f]{8}"}\n?\Z')
_END_BYTES_MAX = 64
DEPTH_MAX = 64
"""Maximum nesting of free values, such as a configuration: the code that walks through them is recursive."""
SHORTEST_LINE = len('{"k":"","t":0') + len(_SEQUENCE_MARK) + 1 + _TRAILER_BYTES - 1
"""Minimum length of a line in bytes, without the newline."""
_encoder = msgspec.json.Encoder()


@functools.cache
def _decoder() -> msgspec.json.Decoder[Event]:
    """The decoder of an event. Made when it is first used, because that takes longer than most imports. Not strict, so
    that "NaN" is accepted for a float."""
    return msgspec.json.Decoder(Union[EVENT_TYPES], strict=False)  # noqa: UP007 - the union is computed


class NumberedEvent(NamedTuple):
    """An event with its number in its journal."""

    seq: int
    event: Event
    journal_id: str = ""
    """Eight hexadecimal digits that all events of a journal share; empty in format 1."""


class Damage(msgspec.Struct, frozen=True):
    """A damaged region of a journal."""

    journal: str
    """File name of the journal."""
    start: int
    """Offset of its first byte."""
    end: int
    """Offset after its last byte; equal to `start` if events are missing between two valid ones."""
    reason: str
    """What is wrong."""
    lost_records: int | None
    """Number of lost events, by the sequence numbers around it; null until the next valid event is read."""


class DamagedLine(ValueError):
    """A line is not what its writer wrote; the message is the reason."""


def encode(event: Event, seq: int, journal_id: str = "") -> bytes:
    """The line of event number `seq` of a journal, including the newline; without an id in format 1."""
    fields = spell_non_finite(msgspec.to_builtins(event))
    if isinstance(event, UnknownEvent):
        fields = {"k": event.kind, "t": fields["t"], **fields["fields"]}
    try:
        encoded = _encoder.encode(fields)
    except UnicodeEncodeError:
        # Escape lone surrogates, as in a file name that is not UTF-8, so that the rest of the event is not lost.
        encoded = _encoder.encode(escape_surrogates(fields))
    mark = b'%s%s"' % (_ID_MARK, journal_id.encode()) if journal_id else b""
    body = b'%s%s,"q":%d' % (encoded[:-1], mark, seq)
    return body + _TRAILER % zlib.crc32(body)


def decode(line: bytes) -> NumberedEvent:
    """Decodes a line, with or without its newline. Raises `DamagedLine`."""
    if not line.endswith(b"\n"):
        line += b"\n"
    body, trailer = line[:-_TRAILER_BYTES], line[-_TRAILER_BYTES:]
    if trailer != _TRAILER % zlib.crc32(body):
        raise DamagedLine("its checksum does not match")
    mark = body.rfind(_SEQUENCE_MARK, -_SEQUENCE_DIGITS_MAX - len(_SEQUENCE_MARK))
    digits = body[mark + len(_SEQUENCE_MARK) :]
    if mark < 0 or not digits.isdigit():
        raise DamagedLine("its checksum matches, but it has no sequence number")
    journal_id, end = "", mark
    if body.startswith(_ID_MARK, mark - _ID_BYTES):
        journal_id, end = body[mark - 9 : mark - 1].decode("latin-1"), mark - _ID_BYTES
    try:
        return NumberedEvent(int(digits), _decode_fields(body[:end] + b"}"), journal_id)
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise DamagedLine(f"its checksum matches, but {_briefly(error)}") from None


def journal_id_of(lines: Iterable[bytes]) -> str | None:
    """The most common journal id of the lines, so that a damaged or foreign line does not matter.

    None if no line has the end of an event.
    """
    counts = Counter(end[1] or b"" for line in lines if (end := _END.search(line[-_END_BYTES_MAX:])))
    return counts.most_common(1)[0][0].decode() if counts else None


def to_json(event: Event) -> dict[str, Any]:
    """The event as plain JSON values including its kind, as in a journal line."""
    fields: dict[str, Any] = spell_non_finite(msgspec.to_builtins(event))
    return fields


def _decode_fields(body: bytes) -> Event:
    try:
        event = _decoder().decode(body)
        if isinstance(event, RunStarted):
            check_free(event.config)
        return event
    except msgspec.ValidationError:
        fields = msgspec.json.decode(body, type=dict[str, Any])
        kind = fields.pop("k", None)
        if not isinstance(kind, str) or kind in _KNOWN_KINDS:
            raise
        check_free(fields)
        return UnknownEvent(t=float(fields.pop("t", math.nan)), kind=kind, fields=fields)


def check_free(value: Any) -> None:
    """Raises `ValueError` if a free JSON value is nested too deep or contains an integer of more than 64 bits."""
    for item in nested(value):
        if isinstance(item, int) and not -INT_MAX <= item <= INT_MAX:
            raise ValueError("an integer has more than 64 bits")


def nested(value: Any) -> Iterator[Any]:
    """A free JSON value and every value inside it. Raises `ValueError` if it is nested too deep."""
    level = [value]
    for _ in range(DEPTH_MAX):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            yield item
        if not below:
            return
        level = below
    raise ValueError(f"values are nested more than {DEPTH_MAX} deep")


def _briefly(error: Exception) -> str:
    """The message of the error, shortened: some quote the whole input."""
    text = str(error)
    return text if len(text) <= _WHY_CHARS_MAX else f"{text[:_WHY_CHARS_MAX]}..."


_WHY_CHARS_MAX = 200
_KNOWN_KINDS = frozenset(kind.__name__ for kind in EVENT_TYPES)


def escape_surrogates(value: Any) -> Any:
    """Escapes lone surrogates, which UTF-8 cannot encode, in nested plain values."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {escape_surrogates(key): escape_surrogates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [escape_surrogates(item) for item in value]
    return value


def spell_non_finite(value: Any) -> Any:
    """Replaces floats that JSON cannot represent by strings, in nested plain values."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: spell_non_finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [spell_non_finite(item) for item in value]
    return value
