"""Pixels become half blocks, exactly, or characters as dense as they are bright."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tputui.ui.render.image_grid import ENLARGED_PX, RAMP, UPPER_HALF, Pixels, coloured, fitted, grey
from tputui.ui.render.lines import RGB, Span, fit

RED, BLUE, BLACK, WHITE = (255, 0, 0), (0, 0, 255), (0, 0, 0), (255, 255, 255)


def pixels(width: int, *colours: RGB) -> Pixels:
    return Pixels(width, len(colours) // width, bytes(part for colour in colours for part in colour))


def test_upper_pixel_is_foreground_lower_background() -> None:
    lines = coloured(pixels(2, RED, BLUE, BLACK, WHITE))
    assert lines == [[Span(UPPER_HALF, "plain", (RED, BLACK)), Span(UPPER_HALF, "plain", (BLUE, WHITE))]]


def test_equal_neighbours_share_a_span() -> None:
    lines = coloured(pixels(3, RED, RED, BLUE, WHITE, WHITE, WHITE))
    assert lines == [[Span(UPPER_HALF * 2, "plain", (RED, WHITE)), Span(UPPER_HALF, "plain", (BLUE, WHITE))]]


def test_an_odd_last_row_has_no_ground() -> None:
    lines = coloured(pixels(1, RED, BLUE, WHITE))
    assert lines[1] == [Span(UPPER_HALF, "plain", (WHITE, None))]


def test_cut_line_preserves_colours() -> None:
    assert fit(coloured(pixels(3, RED, RED, RED))[0], 2) == [Span(f"{UPPER_HALF}\u2026", "plain", (RED, None))]


def test_without_colour_brightness_is_density() -> None:
    assert grey(pixels(3, BLACK, WHITE, BLACK, BLACK, WHITE, WHITE)) == [[Span(" @=")]]
    assert grey(pixels(1, WHITE)) == [[Span("@")]]
    steps = [(level, level, level) for level in range(0, 256, 26)]
    assert "".join(span.text for span in grey(pixels(10, *steps, *steps))[0]) == RAMP


@pytest.mark.parametrize(
    ("size", "room", "shown"),
    [
        ((96, 96), (18, 40), (18, 18)),
        ((96, 48), (40, 40), (40, 20)),
        ((48, 96), (40, 40), (20, 40)),
        ((8, 8), (100, 100), (32, 32)),
        ((8, 8), (20, 100), (16, 16)),
        ((24, 24), (100, 100), (24, 24)),
        ((64, 64), (200, 200), (64, 64)),
        ((256, 1), (10, 10), (10, 1)),
    ],
)
def test_pictures_keep_their_aspect(size: tuple[int, int], room: tuple[int, int], shown: tuple[int, int]) -> None:
    assert fitted(*size, *room) == shown


@given(st.integers(1, 256), st.integers(1, 256), st.integers(1, 300), st.integers(2, 200))
def test_picture_stays_in_its_area(width: int, height: int, room_width: int, room_height: int) -> None:
    shown = fitted(width, height, room_width, room_height)
    assert 1 <= shown[0] <= room_width
    assert 1 <= shown[1] <= room_height
    assert max(shown) <= max(width, height, ENLARGED_PX)
