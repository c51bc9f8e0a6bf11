"""Filters everything written to the terminal: removes colours, and replaces characters beyond ASCII.

It applies to the whole screen, including Textual's own widgets. Textual's `NoColor` would lose what Textual marks by
its background alone, which becomes reverse video here.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from textual.driver import Driver

from tputui.ui.render.braille import BLANK

if TYPE_CHECKING:
    from tputui.ui.terminal.picture_output import PictureOutput

_SGR = re.compile(r"\x1b\[([0-9;:]*)m")
_EXTENDED = re.compile(r"(?<![0-9])[345]8(?:;2(?:;[0-9]*){3}|;5;[0-9]*|:[0-9:]*)")
"""An extended colour within the parameters of an SGR sequence."""
_WHITE_GROUND = re.compile(r"(?:^|;)(?:48;2;255;255;255|48;5;231|48;5;15|107)(?:;|$)")
"""A white background, which becomes reverse video: Textual marks the selection only by its background."""


class OutputFilter:
    """The filter settings; changes apply from the next write."""

    def __init__(self, *, ascii_only: bool = False, colour: bool = True, pictures: PictureOutput | None = None) -> None:
        self.ascii_only = ascii_only
        self.colour = colour
        self.pictures = pictures
        """Shows pictures at full resolution; None if the terminal cannot."""

    def apply(self, data: str) -> str:
        """The filtered output."""
        if not self.colour and "\x1b[" in data:
            data = without_colour(data)
        if self.ascii_only:
            data = to_ascii(data)
        return self.pictures.apply(data) if self.pictures is not None else data

    def cleanup(self) -> str:
        """The output that frees what the terminal stores for this application."""
        return self.pictures.cleanup() if self.pictures is not None else ""


def without_colour(data: str) -> str:
    """Remove sequences that set a colour. Bold, dim, underline and reverse stay; a white background becomes reverse."""
    return _SGR.sub(lambda match: _attributes(match.group(1)), data)


@functools.lru_cache(maxsize=1 << 12)
def _attributes(parameters: str) -> str:
    if not parameters:
        return "\x1b[m"
    attributes = [part for part in _EXTENDED.sub("", parameters).split(";") if part and not _is_colour(part)]
    if _WHITE_GROUND.search(parameters):
        attributes.append("7")
    return f"\x1b[{';'.join(attributes)}m" if attributes else ""


def _is_colour(parameter: str) -> bool:
    code = int(parameter.partition(":")[0] or 0)
    return 30 <= code <= 49 or 58 <= code <= 59 or 90 <= code <= 107


def filtered_driver(driver: type[Driver], output_filter: OutputFilter) -> type[Driver]:
    """A subclass of the driver whose output passes through the filter."""

    class FilteredDriver(driver):  # type: ignore[valid-type,misc]
        """Filters all output."""

        def write(self, data: str) -> None:
            super().write(output_filter.apply(data))

        def stop_application_mode(self) -> None:
            # On every way out: at the end, after an exception, and when the process is suspended.
            if freed := output_filter.cleanup():
                super().write(freed)
            super().stop_application_mode()

        def __init__(self, app: Any, **how: Any) -> None:
            super().__init__(app, **how)

    return FilteredDriver


_LAST_ASCII = 0x7F

_UPPER, _LOWER = 0x01 | 0x02 | 0x08 | 0x10, 0x04 | 0x20 | 0x40 | 0x80
"""Dots of the two upper and the two lower rows of a braille cell."""

_SIGNS: dict[str, str] = {
    # Signs of conditions, which are shown beside a word, and of events, which differ from each other.
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
    "\u21bb": "R",
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
    # These two and the shades above distinguish the sections of an epoch.
    "\u259a": "&",
    "\u259e": "/",
    **dict(zip("\u2599\u259b\u259c\u259f", "####", strict=True)),
}

_VERTICAL = frozenset("\u2502\u2503\u2551\u2506\u2507\u250a\u250b\u254e\u254f\u2575\u2577\u2579\u257b")
_HEAVY_RULES = frozenset("\u2501\u2505\u2509\u254d\u2550\u2578\u257a\u257c\u257e")
_LIGHT_RULES = frozenset("\u2500\u2504\u2508\u254c\u2574\u2576")


class _TranslationTable(dict[int, str]):
    """A translation table filled on demand by `str.translate`."""

    def __missing__(self, code: int) -> str:
        shown = self[code] = chr(code) if code <= _LAST_ASCII else stand_in(chr(code))
        return shown


_TABLE = _TranslationTable()


def to_ascii(text: str) -> str:
    """The text in ASCII, with every character as wide as before."""
    return text if text.isascii() else text.translate(_TABLE)


def stand_in(char: str) -> str:
    """The ASCII replacement of a character; one `?` per cell if there is none."""
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
    """The replacement of a braille character by the position of its dots."""
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
