"""Changes of runs from the list: pin, archive, tags and note, delete. Files are read and written in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from textual.screen import Screen

from tputui.session import deletion
from tputui.session.deletion import CannotDelete, RunSize
from tputui.telemetry import run_labels
from tputui.telemetry.run_labels import InvalidLabels
from tputui.ui.base.preferences import Change, undo_of
from tputui.ui.render.lines import clean
from tputui.ui.runs.rows import RunRow
from tputui.ui.widgets.dialogs import Confirm, Notices

if TYPE_CHECKING:
    from tputui.ui.runs.labels_dialog import TagsAndNote

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

        def save(result: TagsAndNote | None) -> None:
            if result is not None and result != (row.labels.tags, row.labels.note):
                self._set([row], "tags and note saved", tags=result.tags, note=result.note)

        # Imported here so that the list opens faster.
        from tputui.ui.runs.labels_dialog import LabelsScreen

        if row.labels_problem:
            self._notices.show(f"{row.path.name}: {row.labels_problem}")
            return
        self._screen.app.push_screen(LabelsScreen(row.path.name, row.labels, known_tags), save)

    def _ask_delete(self, rows: Sequence[RunRow]) -> None:
        """Delete runs after a confirmation that names them and their size."""
        paths = [row.path for row in rows]
        self._notices.show(f"delete: checking {_named(paths)} ... (any key cancels)", _UNTIL_REPLACED_S)
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
        what = "it" if len(paths) == 1 else f"{len(paths)} runs"

        def delete(confirmed: bool | None) -> None:
            if confirmed:
                self._screen.run_worker(partial(self._delete, paths), thread=True, group="edits")

        dialog = Confirm(f"Delete {_named(paths)}?", f"delete {what}: {total.text}", note="this cannot be undone")
        self._screen.app.push_screen(dialog, delete)

    def _delete(self, paths: Sequence[Path]) -> None:
        sentence = f"deleted {_named(paths)}"
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


def _named(paths: Sequence[Path]) -> str:
    """The names of runs: `a`, `a, b`, `a, b, c and 4 more`."""
    names = ", ".join(clean(path.name) for path in paths[:_NAMED_MAX])
    rest = len(paths) - _NAMED_MAX
    return f"{names} and {rest} more" if rest > 0 else names
