"""`ProgressLine`: what a command does, in one line on stderr."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time

from tputui import formatting as fmt
from tputui.cli.console import narrate
from tputui.formatting import inert


class ProgressLine:
    """One line on stderr that says what happens: rewritten in a terminal, else printed when it changes."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown = ""
        self._began = time.monotonic()

    def show(self, text: str, newest: str | None = None) -> None:
        """Shows what happens; in a terminal, where the line can be rewritten, `newest` in its place."""
        if not self._is_terminal:
            if text != self._shown:
                narrate(text)
                self._shown = text
            return
        seconds = fmt.duration(time.monotonic() - self._began)
        columns = shutil.get_terminal_size().columns
        self.rewrite(f"{newest or text} ({seconds})"[: max(columns - 1, 1)])

    def rewrite(self, line: str = "") -> None:
        """Puts a text in place of the line in a terminal; without one, removes the line."""
        if self._is_terminal and line != self._shown:
            with contextlib.suppress(OSError):
                sys.stderr.write(f"\r\x1b[K{inert(line)}")
                sys.stderr.flush()
            self._shown = line
