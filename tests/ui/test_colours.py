"""Terminals with a palette of 256 colours, as ssh and tmux show them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import Color as RichColor
from rich.color_triplet import ColorTriplet
from textual.color import Color
from textual.theme import Theme

from tputui.ui.terminal.themes import COLOUR_BLIND, DARK, LIGHT, nearest

GREYS = range(232, 256)


def colour_of(number: int) -> ColorTriplet:
    return RichColor.from_ansi(number).get_truecolor()


def shown(colour: str | None) -> ColorTriplet:
    """What a terminal shows of a colour."""
    assert colour is not None
    return colour_of(nearest(ColorTriplet(*Color.parse(colour).rgb)))


@given(st.integers(16, 255))
def test_a_colour_of_the_palette_stays(number: int) -> None:
    assert colour_of(nearest(colour_of(number))) == colour_of(number)


@given(st.tuples(*[st.integers(0, 255)] * 3))
def test_no_channel_moves_further_than_the_palette_is_coarse(colour: tuple[int, int, int]) -> None:
    found = colour_of(nearest(ColorTriplet(*colour)))
    assert all(abs(a - b) <= 95 for a, b in zip(colour, found, strict=True))


@pytest.mark.parametrize("theme", [DARK, COLOUR_BLIND], ids=lambda theme: theme.name)
def test_dark_grounds_and_text_are_greys(theme: Theme) -> None:
    for colour in (theme.background, theme.surface, theme.panel, theme.foreground):
        assert nearest(ColorTriplet(*Color.parse(colour).rgb)) in GREYS, colour
    grounds = [shown(colour).red for colour in (theme.background, theme.surface, theme.panel)]
    assert grounds == sorted(set(grounds))


def test_light_grounds_are_light() -> None:
    assert min(shown(LIGHT.background)) > 230
    assert max(shown(LIGHT.foreground)) < 50
