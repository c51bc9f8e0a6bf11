"""Filters everything written to the terminal: removes colours, and replaces characters beyond ASCII.

It applies to the whole screen, Textual's own widgets included. Textual's `NoColor` would lose what Textual marks by
its background alone, which becomes reverse video here.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Any

from rich.cells import cell_len
from textual.driver import Driver

from tputui.ui.render.braille import BLANK

_SGR = re.compile(r"\x1b\[([0-9;:]*)m")
_EXTENDED = re.compile(r"(?<![0-9])[345]8(?:;2(?:;[0-9]*){3}|;5;[0-9]*|:[0-9:]*)")
"""A colour by its number or its parts, within the parameters of an SGR sequence."""
_WHITE_GROUND = re.compile(r"(?:^|;)(?:48;2;255;255;255|48;5;231|48;5;15|107)(?:;|$)")
"""Text on white, where there is no colour: the framework marks what is chosen by its ground alone."""


class OutputFilter:
    """What may pass. Changed at any time; holds for the next write."""

    def __init__(self, *, ascii_only: bool = False, colour: bool = True) -> None:
        self.ascii_only = ascii_only
        self.colour = colour

    def passed(self, data: str) -> str:
        """What reaches the terminal of a write."""
        if not self.colour and "\x1b[" in data:
            data = without_colour(data)
        return to_ascii(data) if self.ascii_only else data


def without_colour(data: str) -> str:
    """The same without any sequence that sets a colour. Bold, dim, underline and reverse stay; a white ground becomes
    reverse."""
    return _SGR.sub(lambda found: _attributes(found.group(1)), data)


@functools.lru_cache(maxsize=1 << 12)
def _attributes(parameters: str) -> str:
    if not parameters:
        return "\x1b[m"
    kept = [part for part in _EXTENDED.sub("", parameters).split(";") if part and not _is_colour(part)]
    if _WHITE_GROUND.search(parameters):
        kept.append("7")
    return f"\x1b[{';'.join(kept)}m" if kept else ""


def _is_colour(parameter: str) -> bool:
    code = int(parameter.partition(":")[0] or 0)
    return 30 <= code <= 49 or 58 <= code <= 59 or 90 <= code <= 107


def gated(driver: type[Driver], gate: OutputFilter) -> type[Driver]:
    """The driver, with everything that it writes passed through the gate."""

    class Gated(driver):  # type: ignore[valid-type,misc]
        """Writes what the gate lets through."""

        def write(self, data: str) -> None:
            super().write(gate.passed(data))

        def __init__(self, app: Any, **how: Any) -> None:
            super().__init__(app, **how)

    return Gated


_LAST_ASCII = 0x7F

_UPPER, _LOWER = 0x01 | 0x02 | 0x08 | 0x10, 0x04 | 0x20 | 0x40 | 0x80
"""Dots of the two upper and the two lower rows of a braille cell."""

_SIGNS: dict[str, str] = {
    # Marks of conditions and of events, each of them beside its word; those of events differ from each other.
    "\u2573": "F",
    "\u25cc": "o",
    "\u25cb": "o",
    "\u25cf": "*",
    "\u25b2": "^",
    "\u26a0": "!",
    "\u2714": "+",
    "\u2713": "+",
    "\u25a0": "#",
    "\u2716": "x",
    "\u2717": "x",
    "\u00d7": "x",
    "\u2605": "*",
    "\u2606": "*",
    "\u25c6": "@",
    "\u25c7": "o",
    "\u2022": "*",
    "\u25aa": "s",
    "\u25cd": "o",
    # Pointers and arrows.
    "\u276f": ">",
    "\u276e": "<",
    "\u203a": ">",
    "\u25b6": ">",
    "\u25b8": "r",
    "\u25ba": ">",
    "\u25c0": "<",
    "\u25c2": "<",
    "\u25bc": "v",
    "\u25be": "v",
    "\u25b4": "^",
    "\u25b3": "^",
    "\u25bd": "v",
    "\u2190": "<",
    "\u2192": ">",
    "\u2191": "^",
    "\u2193": "v",
    "\u2195": "|",
    "\u2194": "-",
    "\u2016": "=",
    "\u21b5": "<",
    "\u23ce": "<",
    # Marks of text.
    "\u2026": "~",
    "\u00b7": "-",
    "\u2013": "-",
    "\u2014": "-",
    "\u2212": "-",
    "\u2018": "'",
    "\u2019": "'",
    "\u201c": '"',
    "\u201d": '"',
    "\u00ab": "<",
    "\u00bb": ">",
    "\u00b1": "~",
    "\u2248": "~",
    "\u2264": "<",
    "\u2265": ">",
    "\u2260": "#",
    "\u00b5": "u",
    "\u03bc": "u",
    "\u03c3": "s",
    "\u0394": "d",
    "\u2206": "d",
    "\u221e": "8",
    "\u00f7": "/",
    "\u00a0": " ",
    # Blocks: from the lower edge, from the left, half, shaded.
    **dict(zip("\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588", "_.,-=+*#", strict=True)),
    **dict(zip("\u258f\u258e\u258d\u258c\u258b\u258a\u2589", "||||###", strict=True)),
    "\u2580": '"',
    "\u2590": "|",
    "\u2594": "'",
    "\u2595": "|",
    "\u2591": ".",
    "\u2592": ":",
    "\u2593": "%",
    **dict(zip("\u2596\u2597\u2598\u259d", "..''", strict=True)),
    # These two and the shades above tell sections of an epoch apart.
    "\u259a": "&",
    "\u259e": "/",
    **dict(zip("\u2599\u259b\u259c\u259f", "####", strict=True)),
}

_VERTICAL = frozenset("\u2502\u2503\u2551\u2506\u2507\u250a\u250b\u254e\u254f\u2575\u2577\u2579\u257b")
_HEAVY_RULES = frozenset("\u2501\u2505\u2509\u254d\u2550\u2578\u257a\u257c\u257e")
_LIGHT_RULES = frozenset("\u2500\u2504\u2508\u254c\u2574\u2576")


class _Table(dict[int, str]):
    """Filled as characters turn up: `str.translate` asks for each of them once."""

    def __missing__(self, code: int) -> str:
        shown = self[code] = chr(code) if code <= _LAST_ASCII else stand_in(chr(code))
        return shown


_TABLE = _Table()


def to_ascii(text: str) -> str:
    """The text in ASCII, every character in as many cells as before."""
    return text if text.isascii() else text.translate(_TABLE)


def stand_in(char: str) -> str:
    """What stands for a character beyond ASCII: one of `?` a cell where nothing is like it."""
    if char in _SIGNS:
        return _SIGNS[char]
    code = ord(char)
    if BLANK <= code < BLANK + 256:
        return _dots(code - BLANK)
    if 0x2500 <= code < 0x2580:
        return _frame(char)
    width = cell_len(char)
    plain = "".join(part for part in unicodedata.normalize("NFKD", char) if " " <= part <= "~")
    return plain if plain and len(plain) == width else "?" * width


def _dots(bits: int) -> str:
    """Braille: where in the cell its dots are."""
    upper, lower = bool(bits & _UPPER), bool(bits & _LOWER)
    if upper and lower:
        return ":"
    return "'" if upper else "." if lower else " "


def _frame(char: str) -> str:
    if char in _VERTICAL:
        return "|"
    if char in _HEAVY_RULES:
        return "="
    return "-" if char in _LIGHT_RULES else "+"
