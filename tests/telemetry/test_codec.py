"""Encoding and decoding of events: lossless, and all damage is detected."""

from __future__ import annotations

import json
import math
import zlib
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import recorded
from tputui.telemetry import events as ev
from tputui.telemetry.codec import DamagedLine, decode, encode

FLOATS = st.floats(allow_nan=True, allow_infinity=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT, st.lists, max_leaves=4)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value that a field of this type may take."""
    origin, args = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return events_of(hint)
    if hint is float:
        return FLOATS
    if hint is int:
        return st.integers(0, 2**53)
    if hint is bool:
        return st.booleans()
    if hint is str:
        return TEXT
    if hint is type(None):
        return st.none()
    if hint is Any:
        return JSON
    if origin is list:
        return st.lists(values_of(args[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(TEXT, values_of(args[1]), max_size=3)
    if str(origin) == "typing.Literal":
        return st.sampled_from(args)
    return st.one_of(*map(values_of, args))


def events_of(kind: type) -> st.SearchStrategy[Any]:
    """Any event of a type."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: values_of(hints[name]) for name in kind.__struct_fields__})  # type: ignore[attr-defined]


ANY_EVENT = st.one_of(*map(events_of, ev.EVENT_TYPES))


def same(left: object, right: object) -> bool:
    """Equality under which NaN equals NaN."""
    return repr(left) == repr(right)


@given(ANY_EVENT, st.integers(0, 2**53))
def test_every_event_round_trips(event: ev.Event, seq: int) -> None:
    numbered = decode(encode(event, seq))
    assert numbered.seq == seq
    assert same(numbered.event, event)


@given(ANY_EVENT, st.data())
def test_every_changed_byte_is_detected(event: ev.Event, data: st.DataObject) -> None:
    line = bytearray(encode(event, 7))
    offset = data.draw(st.integers(0, len(line) - 2))
    line[offset] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedLine):
        decode(bytes(line))


def test_line_is_json_that_any_script_can_verify() -> None:
    event = recorded.steps_recorded(1.0, 1, [[1.0, 2.0], [3.0, 5.0]])
    line = encode(event, 3)
    fields = json.loads(line)
    assert (fields["k"], fields["q"], fields["mean"], fields["max"]) == ("StepsRecorded", 3, 2.75, 5.0)
    assert fields["c"] == f"{zlib.crc32(line[: line.rindex(b',')]):08x}"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_loss_round_trips(value: float) -> None:
    reading = ev.MeterReading(val=value, avg=value, sum=value, count=8)
    event = ev.MetersReported(t=1.0, epoch=1, step=1, split="train", meters={"loss": reading}, reduced="mean")
    json.loads(encode(event, 0), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert same(decode(encode(event, 0)).event, event)


def test_unknown_kind_is_preserved() -> None:
    unknown = ev.UnknownEvent(t=2.0, kind="GradientsClipped", fields={"norm": 4.5, "cores": [1, 2]})
    assert decode(encode(unknown, 5)).event == unknown


def test_unknown_field_is_ignored() -> None:
    body = b'{"k":"LogWritten","t":1.0,"line":"hello","colour":"red","q":0'
    assert decode(body + b',"c":"%08x"}' % zlib.crc32(body)).event == ev.LogWritten(t=1.0, line="hello")


def test_intact_line_without_a_field_is_damage() -> None:
    body = b'{"k":"LogWritten","t":1.0,"q":0'
    with pytest.raises(DamagedLine, match="line"):
        decode(body + b',"c":"%08x"}' % zlib.crc32(body))


def test_head_of_an_older_version_is_the_first_generation_of_the_first_host() -> None:
    fields = json.loads(encode(recorded.opened(1.0, "worker"), 0))
    body = json.dumps({name: fields[name] for name in fields if name not in ("host_index", "generation", "q", "c")})
    line = f'{body[:-1]},"q":0'.encode()
    event = decode(line + b',"c":"%08x"}\n' % zlib.crc32(line)).event
    assert isinstance(event, ev.JournalOpened)
    assert (event.host_index, event.generation) == (0, 0)
