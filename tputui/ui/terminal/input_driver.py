"""Waits for keys without waking up: Textual's own thread for input wakes ten times a second while no key is pressed."""

from __future__ import annotations

import os
import select
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, XTermParser
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver
from textual.keys import Keys
from textual.message import Message

_CELLS_MAX = 1_000_000
"""Cells of the largest terminal: a reported size beyond it is no size, and drawing it would take minutes."""


class KeyParser(XTermParser):
    """Textual's parser, which ignores sequences that it would raise for, and sizes that no terminal has."""

    def feed(self, data: str) -> Iterator[Message]:
        """The messages of a part of the input; never raises."""
        yield from self._valid(super().feed(data))

    def tick(self) -> Iterator[Message]:
        """The messages that silence brings about: Escape was pressed by itself."""
        yield from self._valid(super().tick())

    def end_paste(self) -> Iterator[Message]:
        """The text of a paste whose end never came, after which keys are keys again."""
        yield from self.feed(BRACKETED_PASTE_END)

    def _valid(self, messages: Iterable[Message]) -> Iterator[Message]:
        screen = (self.mouse_pixels, self.terminal_size, self.terminal_pixel_size)
        try:
            for message in messages:
                if not isinstance(message, events.Resize) or _is_size(message):
                    screen = (self.mouse_pixels, self.terminal_size, self.terminal_pixel_size)
                    yield message
                else:
                    self.mouse_pixels, self.terminal_size, self.terminal_pixel_size = screen
        except Exception:
            # The generator inside has ended: a new one goes on with the input that follows.
            super().__init__()

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        try:
            keys = list(super()._sequence_to_key_events(sequence, alt))
        except (ValueError, OverflowError):
            return [events.Key(Keys.Ignore, sequence)]
        return [key if _is_writable(key.character) else events.Key(Keys.Ignore, sequence) for key in keys]


def _is_size(message: events.Resize) -> bool:
    return min(message.size) > 0 and message.size.area <= _CELLS_MAX


def _is_writable(character: str | None) -> bool:
    """Whether a character can be written to a terminal, where a text field shows it; a surrogate cannot."""
    return character is None or not any("\ud800" <= part <= "\udfff" for part in character)


READ_BYTES = 4096
ESCAPE_S = ESCAPE_DELAY + 0.01
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
                data = os.read(self.fileno, READ_BYTES)
                if not data:
                    return
                text = decode(data)
                # The parser takes an empty text for the end of the input.
                messages = parser.feed(text) if text else iter(())
                timeout_s = ESCAPE_S
            elif timeout_s == ESCAPE_S:
                messages, timeout_s = parser.tick(), PASTE_S
            else:
                messages, timeout_s = parser.end_paste(), None
            for message in messages:
                self.process_message(message)
