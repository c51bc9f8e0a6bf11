"""Columns of float32 as text: how a block of per-core values stands in a JSON line.

A block is `z` or `r` followed by base64. `r` is the little-endian float32 values as they are, row by row. `z` is
the same bytes, regrouped by significance (all first bytes, then all second bytes, ...) and deflated: neighbouring
losses share sign and exponent, so this is about a fifth smaller. Pure, and free of numpy, which takes longer to
import than a whole run takes to open.
"""

from __future__ import annotations

import binascii
import math
import sys
import zlib
from array import array
from collections.abc import Sequence

ENCODING = (
    "'r' + base64(values) or 'z' + base64(zlib(values regrouped by byte significance)); "
    "values are little-endian float32, [steps][cores]"
)
"""Said once at the head of every journal."""

VALUES_MAX = 1 << 22
"""Most values of a block: the reporter's queue holds no more. A block that is said to hold more is not decoded."""
_FLOAT_BYTES = 4
_LEVEL = 1
"""Higher levels of deflate gain under 1 % on losses and cost three times the time."""


class BlockError(ValueError):
    """A block does not hold what its record says."""


def pack(raw: bytes | bytearray | memoryview) -> str:
    """Encodes little-endian float32 bytes as a block, in the shorter of the two forms."""
    packed = zlib.compress(shuffle(raw), _LEVEL)
    form, body = (b"z", packed) if len(packed) < len(raw) else (b"r", raw)
    return (form + binascii.b2a_base64(body, newline=False)).decode("ascii")


def pack_plain(raw: bytes | bytearray | memoryview) -> str:
    """Encodes little-endian float32 bytes as they are: for readers of sealed journals, where time counts."""
    return "r" + binascii.b2a_base64(raw, newline=False).decode("ascii")


def unpack(block: str, num_values: int) -> array[float]:
    """Decodes a block to `num_values` floats. Raises `BlockError`."""
    raw = unpack_bytes(block, num_values)
    values = array("f", raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def unpack_bytes(block: str, num_values: int) -> bytes:
    """Decodes a block to little-endian float32 bytes. Raises `BlockError`."""
    if not 0 <= num_values <= VALUES_MAX:
        raise BlockError(f"{num_values} values are said to be in it, and no block holds more than {VALUES_MAX}")
    expected = num_values * _FLOAT_BYTES
    try:
        raw = binascii.a2b_base64(block[1:].encode("ascii"))
        if block[:1] == "z":
            inflater = zlib.decompressobj()
            raw = unshuffle(inflater.decompress(raw, expected + 1))
        elif block[:1] != "r":
            raise BlockError(f"unknown form {block[:1]!r}")
    except (UnicodeEncodeError, binascii.Error, zlib.error) as error:
        raise BlockError(str(error)) from None
    if len(raw) != expected:
        raise BlockError(f"{len(raw)} bytes where {expected} were expected")
    return raw


def shuffle(raw: bytes | bytearray | memoryview) -> bytes:
    """Regroups float32 bytes: all first bytes, then all second bytes, and so on."""
    view = bytes(raw)
    return b"".join(view[place::_FLOAT_BYTES] for place in range(_FLOAT_BYTES))


def unshuffle(grouped: bytes) -> bytes:
    """Undoes `shuffle`."""
    if len(grouped) % _FLOAT_BYTES:
        raise BlockError("not a whole number of values")
    raw = bytearray(len(grouped))
    quarter = len(grouped) // _FLOAT_BYTES
    for place in range(_FLOAT_BYTES):
        raw[place::_FLOAT_BYTES] = grouped[place * quarter : (place + 1) * quarter]
    return bytes(raw)


def summarise(values: Sequence[float]) -> tuple[float, float, float, int]:
    """Mean, min and max of the finite values, and how many are not finite.

    Where no value is finite the three are NaN.
    """
    total = math.fsum(values) if all(map(math.isfinite, values)) else math.nan
    if math.isfinite(total):
        return total / len(values), min(values), max(values), 0
    finite = [value for value in values if math.isfinite(value)]
    bad = len(values) - len(finite)
    if not finite:
        return math.nan, math.nan, math.nan, bad
    return math.fsum(finite) / len(finite), min(finite), max(finite), bad
