"""Parses the input of a terminal as Textual does, and goes on after sequences that no terminal sends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, XTermParser
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
    return character is None or not any("\ud800" <= each <= "\udfff" for each in character)
