"""Blocks of float32 values as text."""

from __future__ import annotations

import math
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tputui.telemetry import float_blocks

FLOATS = st.lists(st.floats(width=32), max_size=300)


@given(FLOATS)
def test_values_round_trip_bit_for_bit(values: list[float]) -> None:
    raw = struct.pack(f"<{len(values)}f", *values)
    assert float_blocks.unpack_bytes(float_blocks.pack(raw), len(values)) == raw
    assert float_blocks.unpack_bytes(float_blocks.pack_plain(raw), len(values)) == raw


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
FEW = st.sampled_from([0.0, -0.0, 1.0, 1.0000001192092896, 2.0, 256.0])


@given(st.lists(FINITE, min_size=1, max_size=300) | st.lists(FEW, min_size=1, max_size=300), st.data())
def test_find_returns_the_first_occurrence(values: list[float], data: st.DataObject) -> None:
    packed = [struct.pack("<f", value) for value in values]
    wanted = data.draw(st.sampled_from(values) | FINITE | FEW)
    expected = packed.index(struct.pack("<f", wanted)) if struct.pack("<f", wanted) in packed else None
    for block in (float_blocks.pack(b"".join(packed)), float_blocks.pack_plain(b"".join(packed))):
        found = float_blocks.find(block, len(values), wanted)
        assert found == expected or (found is not None and values[found] == wanted == 0.0)
    assert float_blocks.find(block, len(values), 1e300) is None


def test_find_in_bytes_that_repeat() -> None:
    values = [float(1 << 20 | row) for row in range(2_000)]
    raw = struct.pack("<2000f", *values)
    for block in (float_blocks.pack(raw), float_blocks.pack_plain(raw)):
        assert [float_blocks.find(block, 2_000, values[row]) for row in (0, 1_777, 1_999)] == [0, 1_777, 1_999]


@given(FLOATS, st.integers(1, 50))
def test_block_of_wrong_size_is_rejected(values: list[float], more: int) -> None:
    block = float_blocks.pack(struct.pack(f"<{len(values)}f", *values))
    with pytest.raises(float_blocks.BlockError):
        float_blocks.unpack(block, len(values) + more)


@given(st.text(max_size=40))
def test_garbage_is_rejected_with_a_message(block: str) -> None:
    with pytest.raises(float_blocks.BlockError):
        float_blocks.unpack("z" + block, 10_000)


def test_similar_losses_are_smaller_than_base64() -> None:
    values = [2.3 * math.exp(-step / 100) + 0.1 for step in range(800)]
    assert len(float_blocks.pack(struct.pack("<800f", *values))) < 4 * 800 * 4 / 3


def test_summary_covers_finite_values_and_counts_others() -> None:
    assert float_blocks.summarise([1.0, math.nan, 3.0, math.inf]) == (2.0, 1.0, 3.0, 2)
    most = sys.float_info.max
    assert float_blocks.summarise([most] * 3) == (most, most, most, 0)
    assert float_blocks.summarise([most, most, math.nan]) == (most, most, most, 1)
    mean, least, greatest, bad = float_blocks.summarise([math.nan, -math.inf])
    assert bad == 2
    assert all(map(math.isnan, (mean, least, greatest)))
