"""The panel with every field of the configuration, one line each, edited in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from textual import events
from textual.message import Message

from tputui import config
from tputui.config.tables import field_docs
from tputui.ui.base.export import Figure, Figures
from tputui.ui.launch.field_values import Field, format_value
from tputui.ui.launch.form import Form
from tputui.ui.render.lines import Line, Span, Tone, cells_of, clean, crop, fit, width_of
from tputui.ui.terminal.capabilities import key_names
from tputui.ui.widgets.line_input import EditedText, press, spans
from tputui.ui.widgets.panel import ListPanel

_MARKS = 4
_NAME_WIDTH = 18
_MIN_NOTE_WIDTH = 12
_MIN_DOC_WIDTH = 26
"""Narrower notes do not show documentation."""
NOT_SET = "not set"
_SCREEN_KEYS = " /?"
"""Characters that do not start a value: they cycle choices, search fields and open the help."""


class FieldsPart(NamedTuple):
    """The input of `FieldsPanel`."""

    form: Form
    keys: tuple[str, ...]
    """The fields to show."""
    problems: Mapping[str, str]
    """Error message by key."""
    version: int
    """Changes whenever the form does, as the form is mutable."""


class FieldsPanel(ListPanel[FieldsPart]):
    """The fields, grouped by table."""

    name_shown = "settings"
    what = "the fields of the configuration"

    class Edited(Message):
        """The text of a field changed."""

    class CursorMoved(Message):
        """The cursor is on another field."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._cursor = ""
        self._edited: EditedText | None = None
        self._before: Mapping[str, str] = {}
        self._row_keys: list[str] = []

    @property
    def cursor(self) -> str:
        """The key of the field under the cursor."""
        return self._cursor

    def show(self, part: FieldsPart) -> None:
        """Updates the panel; the cursor stays on its field."""
        if self._cursor not in part.keys:
            self._cursor = part.keys[0] if part.keys else ""
            self.post_message(self.CursorMoved())
        super().show(part)

    def move(self, by: int) -> None:
        """Moves the cursor by fields, down if positive."""
        if self._part is None or not self._part.keys:
            return
        keys = self._part.keys
        index = keys.index(self._cursor) + by if self._cursor in keys else 0
        self.go(keys[min(max(index, 0), len(keys) - 1)])

    def move_table(self, by: int) -> None:
        """Moves the cursor to the first field of another table."""
        if self._part is None or not self._part.keys:
            return
        firsts: dict[str, str] = {}
        for key in self._part.keys:
            firsts.setdefault(self._part.form.field(key).table, key)
        tables = list(firsts)
        current = tables.index(self._part.form.field(self._cursor).table)
        self.go(firsts[tables[(current + by) % len(tables)]])

    def go(self, key: str) -> None:
        """Moves the cursor to a field and ends editing."""
        self.end_edit(kept=True)
        self._cursor = key
        self.redraw()
        self.post_message(self.CursorMoved())

    @property
    def is_editing(self) -> bool:
        """Whether the user is typing into the field under the cursor."""
        return self._edited is not None

    def begin_edit(self) -> None:
        """Starts editing the field under the cursor, with the text cursor at its end."""
        if self._part is not None and self._cursor:
            self._before = self._part.form.typed()
            self._edited = EditedText.of(self._part.form.text(self._cursor))
            self.redraw()

    def end_edit(self, *, kept: bool) -> None:
        """Ends editing; unless `kept`, restores the text before it."""
        if self._edited is None or self._part is None:
            return
        self._edited = None
        if not kept:
            self._part.form.restore(self._before)
        self.redraw()
        self.post_message(self.Edited())

    def take_key(self, event: events.Key) -> bool:
        """Edits the field under the cursor; returns False for keys that are left to the screen."""
        if self._edited is None:
            return self._begin_typed(event)
        if event.key in ("enter", "escape", "up", "down", "tab", "shift+tab"):
            self.end_edit(kept=event.key != "escape")
            return event.key in ("enter", "escape")
        edited = press(self._edited, event.key, event.character)
        if edited is not None:
            self._type(edited)
        return edited is not None

    def _begin_typed(self, event: events.Key) -> bool:
        """Replaces the value of a field without choices when the user types a character on it."""
        character = event.character
        if character is None or not event.is_printable or character in _SCREEN_KEYS or self._part is None:
            return False
        if not self._cursor or self._part.form.field(self._cursor).choices:
            return False
        self._before = self._part.form.typed()
        self._type(EditedText("", 0).insert(character))
        return True

    def on_paste(self, event: events.Paste) -> None:
        """Inserts pasted text."""
        if self._edited is not None:
            event.stop()
            self._type(self._edited.insert(event.text))

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor to a field; edits the one that is already under it."""
        row = self.row_at(event)
        key = self._row_keys[row] if 0 <= row < len(self._row_keys) else ""
        if key and key == self._cursor:
            self.begin_edit()
        elif key:
            self.go(key)

    def draw_rows(self, part: FieldsPart, width: int, height: int) -> list[Line]:
        """A heading for each table, a line for each field."""
        rows: list[Line] = []
        self._row_keys = []
        table = None
        names = max((cells_of(part.form.field(key).name) for key in part.keys), default=4)
        for key in part.keys:
            field = part.form.field(key)
            if field.table != table:
                rows += [[], _heading(field.table, width)] if rows else [_heading(field.table, width)]
                table = field.table
            self._row_keys += [""] * (len(rows) - len(self._row_keys))
            if key == self._cursor:
                self.cursor_row = len(rows)
            self._row_keys.append(key)
            rows.append(self._field(part, field, min(names, _NAME_WIDTH), width))
        return rows or [[Span(" No field matches. Press esc to show all fields.", "dim")]]

    def figures(self) -> Figures:
        """The displayed fields with value and error."""
        head, part = ("key", "value", "changed", "problem"), self._part
        if part is None:
            return Figures(head, [])
        form = part.form
        rows: list[tuple[Figure, ...]] = [
            (key, form.text(key), form.is_changed(key), part.problems.get(key)) for key in part.keys
        ]
        return Figures(head, rows)

    def _type(self, edited: EditedText) -> None:
        self._edited = edited
        if self._part is not None:
            self._part.form.set(self._cursor, edited.text)
        self.redraw()
        self.post_message(self.Edited())

    def _field(self, part: FieldsPart, field: Field, names: int, width: int) -> Line:
        is_current, error = field.key == self._cursor, part.problems.get(field.key)
        changed = part.form.is_changed(field.key)
        mark = Span("\u2716 ", "bad") if error is not None else Span("\u25cf " if changed else "  ", "accent")
        line: Line = [
            Span("\u276f " if is_current else "  ", "accent"),
            mark,
            Span(crop(clean(field.name), names).ljust(names) + "  ", "strong" if is_current else "label"),
        ]
        room = width - width_of(line)
        values = max(min(24, room // 2), min(room, 12))
        if is_current and self._edited is not None:
            value = spans(self._edited, room if room < values + _MIN_NOTE_WIDTH else values)
        else:
            value = [_value(part.form, field, values, is_invalid=error is not None, changed=changed)]
        if is_current and field.choices and error is None:
            note = _choices(part.form, field, key_names(self.app, "\u2190 \u2192"))
        else:
            note = _note(part.form, field, error, changed=changed, room=room - values - 2)
        gap = " " * max(values - width_of(value), 0) + "  "
        return fit([*line, *value, Span(gap), *note], width)


def _heading(table: str, width: int) -> Line:
    if not table:
        return [Span(" the run", "title")]
    docs = field_docs(config.RunConfig) | field_docs(config.ScriptRun)
    doc = f"  {docs.get(table, '')}" if width >= 50 else ""
    return fit([Span(f" [{table}]", "title"), Span(doc, "dim")], width)


def _value(form: Form, field: Field, width: int, *, is_invalid: bool, changed: bool) -> Span:
    text = clean(form.text(field.key))
    tone: Tone = "bad" if is_invalid else "accent" if changed else "plain" if form.is_given(field.key) else "dim"
    if not text:
        return Span('""' if form.is_given(field.key) and not field.is_optional and not is_invalid else NOT_SET, tone)
    return Span(crop(text, width), tone)


def _note(form: Form, field: Field, error: str | None, *, changed: bool, room: int) -> Line:
    """The text right of a value: the error, else the original value, else the documentation."""
    if error is not None:
        return [Span(clean(error), "bad")]
    if changed:
        was = f"was {clean(format_value(field, form.original(field.key))) or NOT_SET}"
        return [Span(was, "label")] if cells_of(was) <= room else []
    return [Span(field.doc.partition(". ")[0].rstrip("."), "dim")] if room >= _MIN_DOC_WIDTH else []


def _choices(form: Form, field: Field, arrows: str) -> Line:
    line: Line = [Span(f"{arrows} ", "accent")]
    texts: Sequence[str] = [format_value(field, choice) for choice in field.choices]
    for text in texts:
        line.append(Span(f"{text} ", "strong" if text == form.text(field.key) else "dim"))
    return line
