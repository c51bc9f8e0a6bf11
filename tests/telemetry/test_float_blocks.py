"""Blocks of float32 values as text."""

from __future__ import annotations

import math
import struct

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
    mean, least, greatest, bad = float_blocks.summarise([math.nan, -math.inf])
    assert bad == 2
    assert all(map(math.isnan, (mean, least, greatest)))
