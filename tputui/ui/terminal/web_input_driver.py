"""Waits for keys in a browser without waking up, as `input_driver` does in a terminal."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from typing import Any

from textual.drivers import web_driver
from textual.drivers._input_reader import InputReader
from textual.drivers.web_driver import WebDriver

from tputui.ui.terminal.input_driver import ESCAPE_S, READ_BYTES, KeyParser


class WaitingReader(InputReader):
    """Textual's reader of standard input, which sleeps until there is input or it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self._stop = os.pipe()

    def close(self) -> None:
        """End the iteration, from any thread."""
        super().close()
        os.write(self._stop[1], b"\0")

    def __iter__(self) -> Iterator[bytes]:
        """The input; nothing once after it, so that an Escape is known by the silence that follows."""
        timeout_s: float | None = None
        while not self._exit_event.is_set():
            ready = select.select([self._fileno, self._stop[0]], [], [], timeout_s)[0]
            data = os.read(self._fileno, READ_BYTES) if self._fileno in ready else b""
            if self._fileno in ready and not data:
                return
            yield data
            timeout_s = ESCAPE_S if ready else None


class WebInputDriver(WebDriver):
    """Textual's driver for browsers, whose thread for input sleeps until there is input."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._input_reader = WaitingReader()
        web_driver.XTermParser = KeyParser  # type: ignore[attr-defined]
