"""Every glyph has an ASCII replacement of its width, and the output filter removes all colours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import tputui
from tputui.ui.charts.events_line import SIGNS, sign_of
from tputui.ui.monitor.epochs import SECTION_GLYPHS
from tputui.ui.terminal.output_filter import OutputFilter, stand_in, to_ascii, without_colour

SOURCES = Path(tputui.__file__).parent
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})")


def drawn_glyphs() -> set[str]:
    """Every character beyond ASCII that our own sources spell out."""
    found = {
        chr(int(code, 16))
        for folder in ("ui", "model")
        for path in (SOURCES / folder).rglob("*.py")
        if path.name not in ("glyphs.py", "lines.py")
        for code in _ESCAPED.findall(path.read_text())
    }
    return {char for char in found if ord(char) > 0x7F and char.isprintable()}


def test_every_drawn_glyph_has_an_ascii_fallback() -> None:
    glyphs = drawn_glyphs()
    assert len(glyphs) > 20
    assert {glyph for glyph in glyphs if "?" in stand_in(glyph)} == set()


def test_event_signs_have_distinct_ascii_characters() -> None:
    marks = [*(sign.mark for sign in SIGNS.values()), sign_of("of a newer writer").mark]
    shown = [to_ascii(mark) for mark in marks]
    assert len(set(shown)) == len(shown), dict(zip(marks, shown, strict=True))


def test_epoch_sections_differ_in_ascii() -> None:
    shown = [to_ascii(glyph) for glyph, _ in SECTION_GLYPHS.values()]
    assert len(set(shown)) == len(shown)


@given(st.text())
def test_ascii_preserves_widths(text: str) -> None:
    shown = to_ascii(text)
    assert shown.isascii()
    for char in text:
        if char.isprintable():
            assert cell_len(to_ascii(char)) == cell_len(char)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\u256d\u2500 7 log \u2500\u256e\u2502 \u2501\u2578\u2500", "+- 7 log -+| ==-"),
        ("\u2801\u2880\u28ff\u2800\u2836", "'.: :"),
        ("caf\u00e9 \u4f60\u597d \U0001f389 \u2192 x\u0301", "cafe ???? ?? > x"),
        ("\x1b[1mbold\x1b[0m \u2714 done\u2026", "\x1b[1mbold\x1b[0m + done~"),
    ],
)
def test_ascii_fallbacks(text: str, shown: str) -> None:
    assert to_ascii(text) == shown


def test_a_bar_of_blocks_rises() -> None:
    assert to_ascii("\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588") == "_.,-=+*#"


@pytest.mark.parametrize(
    ("data", "left"),
    [
        ("\x1b[38;2;1;2;3;48;2;4;5;6mx\x1b[0m", "x\x1b[0m"),
        ("\x1b[1;38;5;22mx", "\x1b[1mx"),
        ("\x1b[2;31;44mx\x1b[39;49m", "\x1b[2mx"),
        ("\x1b[7mx\x1b[m\x1b[0;1;4m", "\x1b[7mx\x1b[m\x1b[0;1;4m"),
        ("\x1b[38:2::1:2:3mx", "x"),
        ("\x1b[1;30;48;5;231mx", "\x1b[1;7mx"),
        ("\x1b[97;101mx\x1b[2J\x1b[3;30H", "x\x1b[2J\x1b[3;30H"),
        ("\x1b[58;5;3;4mx", "\x1b[4mx"),
        ("\x1b[1;38;2;0;0;0;48;2;255;255;255mx", "\x1b[1;7mx"),
    ],
)
def test_only_colours_are_removed(data: str, left: str) -> None:
    assert without_colour(data) == left


@given(st.lists(st.integers(0, 120), max_size=8))
def test_partial_escape_sequence_sets_no_colour(codes: list[int]) -> None:
    left = without_colour(f"\x1b[{';'.join(map(str, codes))}m")
    kept = [int(code or 0) for found in re.findall(r"\x1b\[([0-9;]*)m", left) for code in found.split(";")]
    assert not [code for code in kept if 30 <= code <= 49 or 90 <= code <= 107]


def test_filter_without_restrictions_changes_nothing() -> None:
    data = "\x1b[38;2;1;2;3m\u2714"
    assert OutputFilter().apply(data) is data
    assert OutputFilter(ascii_only=True, colour=False).apply(data) == "+"
