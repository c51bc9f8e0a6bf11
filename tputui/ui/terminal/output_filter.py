"""The last thing that a write passes on its way to the terminal: colours taken out, glyphs brought to ASCII.

One place for the whole screen, the framework's own widgets included, so that no widget needs to know. Must not know
what is drawn.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from textual.driver import Driver

from tputui.ui.terminal.ascii_fallback import to_ascii

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
