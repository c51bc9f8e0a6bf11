"""Waits for keys without waking up: Textual's own thread for input wakes ten times a second while no key is pressed."""

from __future__ import annotations

import os
import select
from codecs import getincrementaldecoder

from textual.constants import ESCAPE_DELAY
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver

from tputui.ui.terminal.key_parser import KeyParser

_READ_BYTES = 4096
_ESCAPE_S = ESCAPE_DELAY + 0.01
"""Seconds after input until a sequence that it began is incomplete for certain: then Escape itself was pressed."""
PASTE_S = 3.0
"""Seconds of silence more until a paste whose end has not come is over: all keys would be taken for its text."""


class InputDriver(LinuxDriver):
    """Textual's driver for terminals, with a thread for input that sleeps until there is input or the driver stops."""

    _stop: tuple[int, int] | None = None
    """A pipe whose content ends the wait of the thread: the ends to read and to write."""

    def start_application_mode(self) -> None:
        """Start the thread, among others."""
        self._stop = self._stop or os.pipe()
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def disable_input(self) -> None:
        """End the thread."""
        if self._stop is None:
            return
        os.write(self._stop[1], b"\0")
        super().disable_input()
        os.read(self._stop[0], 1)

    def close(self) -> None:
        """Release the pipe, among others."""
        if self._stop is not None:
            for fd in self._stop:
                os.close(fd)
            self._stop = None
        super().close()

    def run_input_thread(self) -> None:
        """Dispatch input until `disable_input` is called or the input ends."""
        assert self._stop is not None
        stop = self._stop[0]
        parser = KeyParser(self._debug)
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        timeout_s: float | None = None
        while stop not in (ready := select.select([self.fileno, stop], [], [], timeout_s)[0]):
            if self.fileno in ready:
                data = os.read(self.fileno, _READ_BYTES)
                if not data:
                    return
                text = decode(data)
                # The parser takes an empty text for the end of the input.
                messages = parser.feed(text) if text else iter(())
                timeout_s = _ESCAPE_S
            elif timeout_s == _ESCAPE_S:
                messages, timeout_s = parser.tick(), PASTE_S
            else:
                messages, timeout_s = parser.end_paste(), None
            for message in messages:
                self.process_message(message)


def input_driver(driver: type[Driver]) -> type[Driver]:
    """The driver to use for a driver that Textual has chosen: those for terminals and browsers are replaced."""
    if driver.__module__ == "textual.drivers.web_driver":
        # Imported here so that the screen in a terminal opens faster.
        from tputui.ui.terminal.web_input_driver import WebInputDriver

        return WebInputDriver
    return InputDriver if driver is LinuxDriver else driver
