"""Encodes blocks of per-core float32 values as text for JSON lines.

A block is `z` or `r` followed by base64. `r` contains the little-endian float32 values row by row. `z` contains the
same bytes, regrouped by significance (all first bytes, then all second bytes, ...) and deflated: neighbouring losses
share sign and exponent, so this is about 20 % smaller. Pure, and without numpy, whose import takes longer than opening
a run.
"""

from __future__ import annotations

import binascii
import contextlib
import math
import struct
import sys
import zlib
from array import array
from collections.abc import Sequence

ENCODING = (
    "'r' + base64(values) or 'z' + base64(zlib(values regrouped by byte significance)); "
    "values are little-endian float32, [steps][cores]"
)
"""Description of the encoding, written at the head of every journal."""

FLOAT32_MAX = (2 - 2**-23) * 2.0**127
"""The largest finite float32."""
VALUES_MAX = 1 << 22
"""Maximum number of values of a block, which is that of the reporter's queue. Larger blocks are not decoded."""
_FLOAT_BYTES = 4
_TRIES_MAX = 64
_LEVEL = 1
"""Higher levels of deflate save less than 1 % on losses and take three times as long."""


class BlockError(ValueError):
    """A block does not match the fields of its event."""


def pack(raw: bytes | bytearray | memoryview) -> str:
    """Encodes little-endian float32 bytes as a block, in the shorter of the two forms."""
    packed = zlib.compress(shuffle(raw), _LEVEL)
    form, body = (b"z", packed) if len(packed) < len(raw) else (b"r", raw)
    return (form + binascii.b2a_base64(body, newline=False)).decode("ascii")


def pack_plain(raw: bytes | bytearray | memoryview) -> str:
    """Encodes little-endian float32 bytes without compression, for fast reading of sealed journals."""
    return "r" + binascii.b2a_base64(raw, newline=False).decode("ascii")


def is_beyond_float32(value: float) -> bool:
    """Whether a finite value is infinite as float32."""
    return FLOAT32_MAX < abs(value) < math.inf


def float32(values: Sequence[float]) -> array[float]:
    """The values as float32; finite ones beyond its range become its largest, so that they stay finite."""
    converted = array("f", values)
    if all(map(math.isfinite, converted)):
        return converted
    return array("f", [math.copysign(FLOAT32_MAX, v) if is_beyond_float32(v) else v for v in values])


def little_endian_bytes(values: array[float]) -> bytes:
    """The bytes of float32 values in the order of blocks."""
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return values.tobytes()


def unpack(block: str, num_values: int) -> array[float]:
    """Decodes a block to `num_values` floats. Raises `BlockError`."""
    return _floats(unpack_bytes(block, num_values))


def _floats(raw: bytes) -> array[float]:
    values = array("f", raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def find(block: str, num_values: int, value: float) -> int | None:
    """Index of the first occurrence of a finite float32 value in a block; None without one. Raises `BlockError`.

    Faster than decoding the block: its bytes are searched as they are stored.
    """
    form, raw = stored(block, num_values)
    try:
        wanted = struct.pack("<f", value)
    except OverflowError:
        return None
    place = raw.find(wanted) if form == "r" else _find_grouped(raw, wanted)
    if place is not None and place % _FLOAT_BYTES == 0:
        return place // _FLOAT_BYTES
    if place == -1:
        return None
    # The bytes occur between two values, or are too common to be searched one by one.
    values = _floats(unshuffle(raw) if form == "z" else raw)
    with contextlib.suppress(ValueError):
        return values.index(struct.unpack("<f", wanted)[0])
    return None


def _find_grouped(raw: bytes, wanted: bytes) -> int | None:
    """Offset of a value as if the bytes were not regrouped; -1 if it is not there, None if unknown after some tries."""
    num_values = len(raw) // _FLOAT_BYTES
    groups = [raw[place * num_values : (place + 1) * num_values] for place in range(_FLOAT_BYTES)]
    counts = [group.count(byte) for group, byte in zip(groups, wanted, strict=True)]
    rarest = counts.index(min(counts))
    place = -1
    for _ in range(_TRIES_MAX):
        place = groups[rarest].find(wanted[rarest], place + 1)
        if place < 0:
            return -1
        if all(group[place] == byte for group, byte in zip(groups, wanted, strict=True)):
            return place * _FLOAT_BYTES
    return None


def unpack_bytes(block: str, num_values: int) -> bytes:
    """Decodes a block to little-endian float32 bytes. Raises `BlockError`."""
    form, raw = stored(block, num_values)
    return unshuffle(raw) if form == "z" else raw


def stored(
    block: str,
    num_values: int,
    width: int = _FLOAT_BYTES,
    *,
    forms: tuple[str, ...] = ("r", "z"),
    least: int = 0,
    most: int = VALUES_MAX,
) -> tuple[str, bytes]:
    """The form of a block of `least` to `most` values of `width` bytes, and its bytes in the order of that form; all
    forms but "r" are compressed. Raises `BlockError`."""
    if not least <= num_values <= most:
        raise BlockError(f"it claims {num_values} values; {least} to {most} are allowed")
    expected = num_values * width
    form = block[:1]
    if form not in forms:
        raise BlockError(f"unknown form {form!r}")
    try:
        raw = binascii.a2b_base64(block[1:])
        if form != "r":
            raw = zlib.decompressobj().decompress(raw, expected + 1)
    except (ValueError, zlib.error) as error:
        raise BlockError(str(error)) from None
    if len(raw) != expected:
        raise BlockError(f"{len(raw)} bytes where {expected} were expected")
    return form, raw


def shuffle(raw: bytes | bytearray | memoryview, width: int = _FLOAT_BYTES) -> bytes:
    """Regroups the bytes of values that are `width` bytes wide: all first bytes, then all second bytes, and so on."""
    view = bytes(raw)
    return b"".join(view[byte::width] for byte in range(width))


def unshuffle(grouped: bytes, width: int = _FLOAT_BYTES) -> bytes:
    if len(grouped) % width:
        raise BlockError("not a whole number of values")
    raw = bytearray(len(grouped))
    size = len(grouped) // width
    for byte in range(width):
        raw[byte::width] = grouped[byte * size : (byte + 1) * size]
    return bytes(raw)


def summarise(values: Sequence[float]) -> tuple[float, float, float, int]:
    """Mean, minimum and maximum of the finite values (NaN if there is none), and the number of other values."""
    if values and all(map(math.isfinite, values)):
        return mean(values), min(values), max(values), 0
    finite = [value for value in values if math.isfinite(value)]
    bad = len(values) - len(finite)
    if not finite:
        return math.nan, math.nan, math.nan, bad
    return mean(finite), min(finite), max(finite), bad


def mean(values: Sequence[float]) -> float:
    """The mean: infinite if all infinite values have one sign, NaN if they have both or one is NaN."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        # Each may be a float, and their sum none.
        half = math.fsum(value / (2 * len(values)) for value in values)
        return min(max(2 * half, min(values)), max(values))
    except ValueError:
        return math.nan
