"""A line of text input: the edited text with its cursor, and the widget around it."""

from __future__ import annotations

from typing import NamedTuple

from textual import events
from textual.message import Message

from tputui.ui.render.lines import Line, Span, Tone, clean, crop, fit, spread, width_of
from tputui.ui.widgets.line_widget import Drawn


class LineInput(Drawn):
    """A prompt, the text, and a word on it at the right."""

    can_focus = True

    class Changed(Message):
        """The text is another one."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Done(Message):
        """Typing is over; `kept` tells enter from escape."""

        def __init__(self, text: str, *, kept: bool) -> None:
            super().__init__()
            self.text, self.kept = text, kept

    def __init__(self, prompt: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._prompt = prompt
        self._edited = EditedText("", 0)
        self._note: tuple[str, Tone] = ("", "dim")
        self.is_typing = False
        """Whether keys are typed into it; else it tells what was kept."""

    @property
    def text(self) -> str:
        """What stands there."""
        return self._edited.text

    def begin(self, text: str, prompt: str | None = None) -> None:
        """Comes into sight with a text to be changed, and takes the keys."""
        self.display = self.is_typing = True
        self._prompt = prompt if prompt is not None else self._prompt
        self._edited = EditedText.of(text)
        self.focus()
        self.redraw()

    def rest(self, text: str, prompt: str | None = None) -> None:
        """Takes no keys, and stays in sight as long as a text is in force: what hides rows must be seen itself."""
        self.is_typing = False
        self.display = bool(text)
        self._prompt = prompt if prompt is not None else self._prompt
        self._edited = EditedText.of(text)
        self.redraw()

    def allow_focus(self) -> bool:
        """Nothing is typed where it rests, so a click must not have the panel lose the keys."""
        return self.is_typing

    def note(self, text: str, tone: Tone = "dim") -> None:
        """Says something of the text."""
        self._note = (text, tone)
        self.redraw()

    def note_found(self, num_found: int, num_all: int) -> None:
        """Says how many of all the text leaves in sight, and how to see the others again."""
        self.note(f"[{num_found}/{num_all}] {'enter keeps, ' if self.is_typing else ''}esc shows all")

    def paint(self, width: int, height: int) -> list[Line]:
        """One line."""
        head: Line = [Span(f" {self._prompt} ", "accent")]
        said = fit([Span(f"{self._note[0]} ", self._note[1])], max(width // 2, 10)) if self._note[0] else []
        room = max(width - width_of(head) - width_of(said) - 1, 8)
        body = spans(self._edited, room) if self.is_typing else [Span(crop(clean(self.text), room), "accent")]
        return [spread([*head, *body], said, width)]

    def take_key(self, event: events.Key) -> bool:
        """Types, or ends typing; other keys, and all once nobody types, are left to the screen."""
        if not self.is_typing:
            return False
        if event.key in ("enter", "escape"):
            # Who hears of it says at once what stays; until then nothing moves.
            self.is_typing = False
            self.post_message(self.Done(self.text, kept=event.key == "enter"))
            return True
        edited = press(self._edited, event.key, event.character)
        if edited is not None:
            self._take(edited)
        return edited is not None

    def on_paste(self, event: events.Paste) -> None:
        """Takes a pasted text, as one line."""
        if self.is_typing:
            event.stop()
            self._take(self._edited.insert(event.text))

    def on_focus(self) -> None:
        """Shows the cursor."""
        self.redraw()

    def _take(self, edited: EditedText) -> None:
        changed = edited.text != self._edited.text
        self._edited = edited
        self.redraw()
        if changed:
            self.post_message(self.Changed(edited.text))


CURSOR = "\u258f"
"""Stands before the character that the next one comes before."""


class EditedText(NamedTuple):
    """A text with a cursor in it."""

    text: str
    at: int
    """Characters before the cursor."""

    @classmethod
    def of(cls, text: str) -> EditedText:
        """The text with the cursor at its end."""
        return cls(text, len(text))

    def insert(self, text: str) -> EditedText:
        """With `text` at the cursor; control characters and line ends of a paste are taken out."""
        inert = clean(text.replace("\r\n", " ").replace("\n", " "))
        return EditedText(self.text[: self.at] + inert + self.text[self.at :], self.at + len(inert))

    def move(self, by: int) -> EditedText:
        """With the cursor moved."""
        return EditedText(self.text, min(max(self.at + by, 0), len(self.text)))

    def erase(self, before: int, after: int = 0) -> EditedText:
        """Without so many characters before and after the cursor."""
        start, end = max(self.at - before, 0), self.at + after
        return EditedText(self.text[:start] + self.text[end:], start)

    def word_before(self) -> int:
        """How many characters the word before the cursor has, spaces after it included."""
        head = self.text[: self.at].rstrip(" ")
        return self.at - (head.rfind(" ") + 1)


def press(edited: EditedText, key: str, character: str | None) -> EditedText | None:
    """What the text is after a key; None where the key is none of an editor's."""
    everything = len(edited.text)
    moves = {
        "left": -1,
        "right": 1,
        "home": -everything,
        "ctrl+a": -everything,
        "end": everything,
        "ctrl+e": everything,
    }
    if key in moves:
        return edited.move(moves[key])
    if key in ("backspace", "ctrl+h"):
        return edited.erase(1)
    if key in ("delete", "ctrl+d"):
        return edited.erase(0, 1)
    if key == "ctrl+w":
        return edited.erase(edited.word_before())
    if key == "ctrl+u":
        return edited.erase(edited.at)
    if key == "ctrl+k":
        return edited.erase(0, everything)
    if character is not None and character.isprintable():
        return edited.insert(character)
    return None


def spans(edited: EditedText, width: int) -> Line:
    """The text with its cursor in at most `width` cells, scrolled so that the cursor is in sight."""
    room = max(width - 1, 1)
    start = max(edited.at - room + 1, 0) if len(edited.text) >= room else 0
    before, after = edited.text[start : edited.at], edited.text[edited.at : start + room]
    return [Span(clean(before), "strong"), Span(CURSOR, "accent"), Span(clean(after), "strong")]
