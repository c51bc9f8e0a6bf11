"""The dialog for the tags and the note of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen

from tputui.telemetry import run_labels
from tputui.telemetry.run_labels import NOTE_CHARS_MAX, RunLabels
from tputui.ui.render.lines import Line, Span, clean, crop, fit, wrap
from tputui.ui.terminal.capabilities import key_names
from tputui.ui.widgets.line_input import EditedText, press, spans
from tputui.ui.widgets.line_widget import Drawn

_FIELDS = ("tags", "note")
_NAME_WIDTH = 6
LINES = 8
"""Lines of the dialog without its frame."""


class TagsAndNote(NamedTuple):
    """The result of the dialog."""

    tags: tuple[str, ...]
    note: str


class LabelsForm(Drawn):
    """Two fields, one of which is edited."""

    can_focus = True

    def __init__(self, run: str, labels: RunLabels, known_tags: Sequence[str]) -> None:
        """`known_tags` are the tags of all runs."""
        super().__init__(id="labels")
        self._run = run
        self._known_tags = known_tags
        self._texts = [EditedText.of(" ".join(labels.tags)), EditedText.of(labels.note)]
        self._field = 0

    @property
    def result(self) -> TagsAndNote:
        """The tags and the note. Raises `ValueError` with a sentence."""
        note = self._texts[1].text.strip()
        if len(note) > NOTE_CHARS_MAX:
            raise ValueError(f"the note has {len(note):,} characters; the maximum is {NOTE_CHARS_MAX:,}")
        return TagsAndNote(run_labels.parse_tags(self._texts[0].text), note)

    def paint(self, width: int, height: int) -> list[Line]:
        """The title, the fields, and an error or a hint."""
        lines: list[Line] = [[Span(f"Tags and note of {crop(clean(self._run), width - 18)}", "strong")], []]
        for index, name in enumerate(_FIELDS):
            here = index == self._field
            mark = Span("\u276f " if here else "  ", "accent")
            room = max(width - _NAME_WIDTH - 3, 4)
            shown = self._texts[index]
            text = spans(shown, room) if here else [Span(crop(clean(shown.text), room))]
            lines.append([mark, Span(f"{name:<{_NAME_WIDTH}}", "label"), *text])
        keys = key_names(self.app, "tab next field, enter saves, esc cancels")
        lines += [[], *self._hint(width), []]
        return [*(fit(line, width) for line in lines[: LINES - 1]), [Span(crop(keys, width), "label")]]

    def _hint(self, width: int) -> list[Line]:
        try:
            _ = self.result
        except ValueError as error:
            return [[Span(piece, "warn")] for piece in wrap(clean(str(error)), width, 2)]
        known = " ".join(clean(tag) for tag in self._known_tags)
        return [[Span(crop(f"used: {known}" if known else "tags are words, separated by blanks", width), "dim")]]

    def take_key(self, event: events.Key) -> bool:
        """Change the field, or edit it; the screen handles enter and escape."""
        if event.key in ("tab", "down", "shift+tab", "up"):
            self._field = (self._field + 1) % len(_FIELDS)
        elif event.key in ("enter", "escape"):
            return False
        else:
            edited = press(self._texts[self._field], event.key, event.character)
            if edited is not None:
                self._texts[self._field] = edited
        self.redraw()
        return True

    def on_paste(self, event: events.Paste) -> None:
        """Insert pasted text as one line."""
        event.stop()
        self._texts[self._field] = self._texts[self._field].insert(event.text)
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """Edit the field that is clicked."""
        content = event.get_content_offset(self)
        if content is not None and 2 <= content.y < 2 + len(_FIELDS):
            self._field = content.y - 2
            self.redraw()


class LabelsScreen(ModalScreen[TagsAndNote | None]):
    """Edits the tags and the note of a run; the result is None if the user cancels."""

    CSS_PATH = "../dialogs.tcss"

    def __init__(self, run: str, labels: RunLabels, known_tags: Sequence[str]) -> None:
        super().__init__()
        self._form = LabelsForm(run, labels, known_tags)

    def compose(self) -> ComposeResult:
        """The form."""
        yield self._form

    def on_mount(self) -> None:
        """Edit the tags."""
        self._form.styles.height = LINES + 4
        self._form.focus()

    def take_key(self, event: events.Key) -> bool:
        """Every key edits, saves or cancels."""
        if event.key == "escape":
            self.dismiss(None)
        elif event.key == "enter":
            self._save()
        else:
            # The form has lost the focus, for example to a click beside it.
            self._form.take_key(event)
        return True

    def _save(self) -> None:
        try:
            result = self._form.result
        except ValueError:
            return  # shown below the fields
        self.dismiss(result)
