"""A line of text that is being typed: where the cursor stands, and what a key does to it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tputui.ui.render.lines import Line, Span, clean

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
