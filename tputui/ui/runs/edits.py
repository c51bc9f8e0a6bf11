"""Changes of runs from the list: pin, archive, tags and note, delete. Files are read and written in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen, Screen

from tputui.session import deletion
from tputui.session.deletion import CannotDelete, RunSize
from tputui.telemetry import run_labels
from tputui.telemetry.run_labels import NOTE_CHARS_MAX, InvalidLabels, RunLabels
from tputui.ui.base.preferences import Change, undo_of
from tputui.ui.render.lines import Line, Span, clean, crop, fit, wrap
from tputui.ui.runs.rows import RunRow
from tputui.ui.terminal.themes import key_names
from tputui.ui.widgets.dialogs import Confirm, Notices
from tputui.ui.widgets.line_widget import Drawn, EditedText, press, spans

_FIELDS = ("tags", "note")
_NAME_WIDTH = 6
LINES = 8
"""Lines of the dialog without its frame."""


class LabelsForm(Drawn):
    """Two fields, one of which is edited."""

    can_focus = True

    def __init__(self, run: str, labels: RunLabels, known_tags: Sequence[str]) -> None:
        """`known_tags` are the tags of all runs."""
        super().__init__(id="labels")
        self._run = run
        self._labels = labels
        self._known_tags = known_tags
        self._texts = [EditedText.of(" ".join(labels.tags)), EditedText.of(labels.note)]
        self._field = 0

    @property
    def result(self) -> RunLabels:
        """The labels with the edited tags and note. Raises `ValueError` with a sentence."""
        note = self._texts[1].text.strip()
        if len(note) > NOTE_CHARS_MAX:
            raise ValueError(f"the note has {len(note):,} characters; the maximum is {NOTE_CHARS_MAX:,}")
        return msgspec.structs.replace(self._labels, tags=run_labels.parse_tags(self._texts[0].text), note=note)

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
        used = " ".join(clean(tag) for tag in self._known_tags)
        return [[Span(crop(f"used: {used}" if used else "tags are words, separated by blanks", width), "dim")]]

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


class LabelsScreen(ModalScreen[RunLabels | None]):
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


Edit = Literal["pin", "labels", "archive", "delete"]
EDIT_ACTIONS = frozenset(f"edit({kind!r})" for kind in get_args(Edit))
"""The actions of the key map that change the directory of a run."""
_NAMED_MAX = 3
"""Number of runs that a dialog names."""

_Changes = dict[Path, dict[str, Any]]
"""Values of labels by name, for each run."""
_UNTIL_REPLACED_S = 3_600.0


class RunEdits:
    """Changes runs and reports each change by a notice of the screen."""

    def __init__(self, screen: Screen[Any], notices: Notices, on_changed: Callable[[], object]) -> None:
        """`on_changed` is called after each change."""
        self._screen = screen
        self._notices = notices
        self._on_changed = on_changed
        self._num_cancelled = 0
        """Number of calls of `cancel`."""
        self._is_writing = False
        self._undone: deque[tuple[_Changes, str]] = deque()
        """Changes that were undone while others were written; they are written next."""

    def cancel(self) -> None:
        """Do not ask to delete runs that are still being examined: the next key must not answer a sudden dialog."""
        self._num_cancelled += 1

    def start(self, kind: Edit, row: RunRow, marked: Sequence[RunRow], known_tags: Sequence[str]) -> None:
        """Pin or label `row`, or archive or delete the marked runs, or `row` if none is marked."""
        if kind == "pin":
            self._pin(row)
        elif kind == "labels":
            self._label(row, known_tags)
        elif kind == "archive":
            self._archive(marked or [row])
        else:
            self._ask_delete(marked or [row])

    def _pin(self, row: RunRow) -> None:
        self._set([row], "unpinned" if row.labels.pinned else "pinned", pinned=not row.labels.pinned)

    def _archive(self, rows: Sequence[RunRow]) -> None:
        """Archive runs; if all of them are archived, list them again."""
        is_archived = all(row.labels.archived for row in rows)
        self._set(rows, "unarchived" if is_archived else "archived", archived=not is_archived)

    def _label(self, row: RunRow, known_tags: Sequence[str]) -> None:
        """Edit the tags and the note of a run in a dialog."""

        def save(result: RunLabels | None) -> None:
            if result is not None and result != row.labels:
                self._set([row], "tags and note saved", tags=result.tags, note=result.note)

        if row.labels_problem:
            self._notices.show(f"{row.path.name}: {row.labels_problem}")
            return
        self._screen.app.push_screen(LabelsScreen(row.path.name, row.labels, known_tags), save)

    def _ask_delete(self, rows: Sequence[RunRow]) -> None:
        """Delete runs after a confirmation that names them and their size."""
        paths = [row.path for row in rows]
        self._notices.show(f"delete: checking {_quoted(paths)} ... (any key cancels)", _UNTIL_REPLACED_S)
        self._screen.run_worker(partial(self._examine, paths, self._num_cancelled), thread=True, group="edits")

    def _set(self, rows: Sequence[RunRow], done: str, **values: Any) -> None:
        """Change the labels of runs; undone with the undo key."""
        if self._is_writing:
            return
        before = {row.path: {name: getattr(row.labels, name) for name in values} for row in rows}
        change = undo_of(self._screen.app).push(done, partial(self._undo, before, done))
        self._start_writing(dict.fromkeys(before, values), done, change)

    def _undo(self, before: _Changes, done: str) -> None:
        """Write earlier values, after the change that is being written."""
        if self._is_writing:
            self._undone.append((before, done))
        else:
            self._start_writing(before, f"undone: {done}")

    def _start_writing(self, changes: _Changes, done: str, change: Change | None = None) -> None:
        """Write in a thread, one change at a time. `change` is its entry in the undo stack."""
        self._is_writing = True
        self._screen.run_worker(partial(self._write, changes, done, change), thread=True, group="edits")

    def _write(self, changes: _Changes, done: str, change: Change | None) -> None:
        problems = []
        for path, values in changes.items():
            try:
                run_labels.change(path, **values)
            except (InvalidLabels, ValueError) as error:
                problems.append(f"{path.name}: {error}")
            except OSError as error:
                problems.append(f"{path.name}: labels cannot be written: {error.strerror or error}")
        sentence = problems[0] if problems else f"{_named(list(changes))}: {done}"
        self._screen.call_later(self._written, sentence, change if problems else None)

    def _written(self, sentence: str, failed: Change | None) -> None:
        self._is_writing = False
        if failed is not None:
            undo_of(self._screen.app).discard(failed)
        self._finish(sentence)
        if self._undone:
            before, done = self._undone.popleft()
            self._start_writing(before, f"undone: {done}")

    def _examine(self, paths: Sequence[Path], num_cancelled: int) -> None:
        sizes: dict[Path, RunSize] = {}
        for path in paths:
            try:
                sizes[path] = deletion.examine(path)
            except CannotDelete as error:
                self._screen.call_later(self._notices.show, f"delete: {clean(path.name)} {error}")
                return
        self._screen.call_later(self._confirm, sizes, num_cancelled)

    def _confirm(self, sizes: dict[Path, RunSize], num_cancelled: int) -> None:
        if num_cancelled != self._num_cancelled or not self._screen.is_current:
            self._notices.show("delete: cancelled by another key")
            return
        self._notices.clear()
        paths = list(sizes)
        total = reduce(RunSize.plus, sizes.values())
        object_text = "it" if len(paths) == 1 else f"{len(paths)} runs"

        def delete(confirmed: bool | None) -> None:
            if confirmed:
                self._screen.run_worker(partial(self._delete, paths), thread=True, group="edits")

        dialog = Confirm(
            f"Delete {_quoted(paths)}?", f"delete {object_text}: {total.text}", note="this cannot be undone"
        )
        self._screen.app.push_screen(dialog, delete)

    def _delete(self, paths: Sequence[Path]) -> None:
        sentence = f"deleted {_quoted(paths)}"
        for number, path in enumerate(paths):
            try:
                deletion.delete(path)
            except CannotDelete as error:
                already = f"deleted {number} of {len(paths)} runs; " if number else ""
                sentence = f"delete: {already}{clean(path.name)} {error}"
                break
        self._screen.call_later(self._finish, sentence)

    def _finish(self, sentence: str) -> None:
        self._notices.show(sentence)
        self._on_changed()


def _quoted(paths: Sequence[Path]) -> str:
    return _named(paths, quote='"')


def _named(paths: Sequence[Path], *, quote: str = "") -> str:
    """The names of runs: `a`, `a, b`, `a, b, c and 4 more`; in a sentence in quotes."""
    names = ", ".join(f"{quote}{clean(path.name)}{quote}" for path in paths[:_NAMED_MAX])
    num_hidden = len(paths) - _NAMED_MAX
    return f"{names} and {num_hidden} more" if num_hidden > 0 else names
