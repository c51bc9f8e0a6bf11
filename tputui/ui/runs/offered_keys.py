"""Which keys of the run list do something now, and why the others do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tputui.ui.base import keymap
from tputui.ui.runs.edits import EDIT_ACTIONS
from tputui.ui.runs.rows import RunRow
from tputui.ui.widgets.run_requests import REQUEST_ACTIONS

READ_ONLY = "this view is read-only"
_WIDE_FOOTER = EDIT_ACTIONS | {"columns"}
_WIDE_FOOTER_FROM = 110
"""Terminal width from which the footer shows these keys too."""


class OfferedKeys(NamedTuple):
    """The keys for the run under the cursor and the marked ones."""

    row: RunRow | None
    marked: Sequence[RunRow]
    read_only: bool
    can_start: bool

    def in_force(self) -> list[keymap.Key]:
        """The keys of this view: without starting and requests if it is read-only."""
        return [
            key
            for key in keymap.RUNS
            if (key.action != "new" or self.can_start)
            and not (self.read_only and key.action in (*REQUEST_ACTIONS, *EDIT_ACTIONS))
        ]

    def footer(self, width: int) -> list[keymap.Key]:
        """The keys that act now."""
        hidden = _WIDE_FOOTER if width < _WIDE_FOOTER_FROM else frozenset[str]()
        return [key for key in self.in_force() if key.action not in hidden and self.refusal(key) is None]

    def refusal(self, key: keymap.Key) -> str | None:
        """Why a key does nothing now; None if it acts."""
        if key.action == "new" and not self.can_start:
            return READ_ONLY
        if key.action in EDIT_ACTIONS:
            return self.edit_refusal(key.action.removeprefix("edit('").removesuffix("')"))
        if key.action not in REQUEST_ACTIONS:
            return None
        if self.row is None:
            return "no run selected"
        return READ_ONLY if self.read_only else self.row.request_refusal

    def edit_refusal(self, kind: str) -> str | None:
        """Why the run under the cursor, or the marked runs, cannot be changed; None if they can."""
        if self.read_only or self.row is None:
            return READ_ONLY if self.read_only else "no run selected"
        rows = [self.row] if kind in ("pin", "labels") else self.marked or [self.row]
        log = next((each for each in rows if each.is_log), None)
        if log is None:
            return None
        unmark = f"; unmark {log.name}" if log is not self.row else ""
        return f"logs of other programs are never changed or deleted{unmark}"
