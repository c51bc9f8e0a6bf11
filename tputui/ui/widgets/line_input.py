"""A line of text input: the edited text with its cursor, and the widget around it."""

from __future__ import annotations

from typing import NamedTuple

from textual import events
from textual.message import Message

from tputui.ui.render.lines import Line, Span, Tone, clean, crop, fit, spread, width_of
from tputui.ui.widgets.line_widget import Drawn


class LineInput(Drawn):
    """A prompt, the text, and a note at the right."""

    can_focus = True

    class Changed(Message):
        """The text changed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Done(Message):
        """Editing ended: accepted by enter, or cancelled by escape."""

        def __init__(self, text: str, *, accepted: bool) -> None:
            super().__init__()
            self.text, self.accepted = text, accepted

    def __init__(self, prompt: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._prompt = prompt
        self._edited = EditedText("", 0)
        self._note: tuple[str, Tone] = ("", "dim")
        self.is_typing = False
        """Whether the user edits the text; otherwise the widget shows the accepted text."""

    @property
    def text(self) -> str:
        return self._edited.text

    def begin(self, text: str, prompt: str | None = None, *, is_selected: bool = False) -> None:
        """Show the widget and start editing a text; a selected one is replaced by what the user types."""
        self.display = self.is_typing = True
        self._prompt = prompt if prompt is not None else self._prompt
        self._edited = EditedText.of(text)._replace(is_selected=is_selected and bool(text))
        self.focus()
        self.redraw()

    def rest(self, text: str, prompt: str | None = None) -> None:
        """End editing. The widget stays visible unless the text is empty, since an active filter must be visible."""
        self.is_typing = False
        self.display = bool(text)
        self._prompt = prompt if prompt is not None else self._prompt
        self._edited = EditedText.of(text)
        self.redraw()

    def allow_focus(self) -> bool:
        """Only while editing, so that a click does not take the focus from the panel."""
        return self.is_typing

    def note(self, text: str, tone: Tone = "dim") -> None:
        """Show a note on the text."""
        self._note = (text, tone)
        self.redraw()

    def note_found(self, num_found: int, num_all: int) -> None:
        """Show how many entries match the text, and the key that shows all."""
        self.note(f"[{num_found}/{num_all}] {'enter accepts, ' if self.is_typing else ''}esc shows all")

    def paint(self, width: int, height: int) -> list[Line]:
        head: Line = [Span(f" {self._prompt} ", "accent")]
        note = fit([Span(f"{self._note[0]} ", self._note[1])], max(width // 2, 10)) if self._note[0] else []
        room = max(width - width_of(head) - width_of(note) - 1, 8)
        body = spans(self._edited, room) if self.is_typing else [Span(crop(clean(self.text), room), "accent")]
        return [spread([*head, *body], note, width)]

    def take_key(self, event: events.Key) -> bool:
        """Edit the text or end editing; the screen handles other keys, and all keys while nothing is edited."""
        if not self.is_typing:
            return False
        if event.key in ("enter", "escape"):
            # The handler of `Done` sets the final text at once, so nothing is redrawn here.
            self.is_typing = False
            self.post_message(self.Done(self.text, accepted=event.key == "enter"))
            return True
        edited = press(self._edited, event.key, event.character)
        if edited is not None:
            self._take(edited)
        return edited is not None

    def on_paste(self, event: events.Paste) -> None:
        """Insert pasted text as one line."""
        if self.is_typing:
            event.stop()
            before = EditedText("", 0) if self._edited.is_selected else self._edited
            self._take(before.insert(event.text))

    def on_focus(self) -> None:
        """Draw the cursor."""
        self.redraw()

    def _take(self, edited: EditedText) -> None:
        changed = edited.text != self._edited.text
        self._edited = edited
        self.redraw()
        if changed:
            self.post_message(self.Changed(edited.text))


CURSOR = "\u258f"
"""Drawn at the insertion point."""


class EditedText(NamedTuple):
    """A text with a cursor in it."""

    text: str
    at: int
    """Number of characters before the cursor."""
    is_selected: bool = False
    """Whether the whole text is selected: typing replaces it, erasing clears it, and moving the cursor keeps it."""

    @classmethod
    def of(cls, text: str) -> EditedText:
        """The text with the cursor at its end."""
        return cls(text, len(text))

    def insert(self, text: str) -> EditedText:
        """With `text` inserted at the cursor, without control characters; line ends become spaces."""
        inert = clean(text.replace("\r\n", " ").replace("\n", " "))
        return EditedText(self.text[: self.at] + inert + self.text[self.at :], self.at + len(inert))

    def move(self, by: int) -> EditedText:
        """With the cursor moved."""
        return EditedText(self.text, min(max(self.at + by, 0), len(self.text)))

    def erase(self, before: int, after: int = 0) -> EditedText:
        """With characters before and after the cursor removed."""
        start, end = max(self.at - before, 0), self.at + after
        return EditedText(self.text[:start] + self.text[end:], start)

    def word_before(self) -> int:
        """Length of the word before the cursor, including spaces after it."""
        head = self.text[: self.at].rstrip(" ")
        return self.at - (head.rfind(" ") + 1)


_ERASING = frozenset({"backspace", "ctrl+h", "delete", "ctrl+d", "ctrl+w", "ctrl+u", "ctrl+k"})


def press(edited: EditedText, key: str, character: str | None) -> EditedText | None:
    """The text after a key press; None if the key does not edit."""
    everything = len(edited.text)
    is_typed = character is not None and character.isprintable()
    if edited.is_selected and (is_typed or key in _ERASING):
        return press(EditedText("", 0), key, character) or EditedText("", 0)
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
    if character is not None and is_typed:
        return edited.insert(character)
    return None


def spans(edited: EditedText, width: int) -> Line:
    """The text with its cursor in at most `width` cells, scrolled so that the cursor is visible."""
    room = max(width - 1, 1)
    start = max(edited.at - room + 1, 0) if len(edited.text) >= room else 0
    before, after = edited.text[start : edited.at], edited.text[edited.at : start + room]
    if edited.is_selected:
        return [Span(clean(before + after), "chosen"), Span(CURSOR, "accent")]
    return [Span(clean(before), "strong"), Span(CURSOR, "accent"), Span(clean(after), "strong")]
