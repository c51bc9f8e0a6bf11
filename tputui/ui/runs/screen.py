"""The run list, the first screen: open, filter, sort, compare, start and stop runs.

A thread reads the runs, and one finds logs of other programs; keys act on the newest rows that they have sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen

from tputui.session.session import Session
from tputui.telemetry.events import RequestKind
from tputui.ui.base import keymap
from tputui.ui.base.preferences import undo_of, views_of
from tputui.ui.help import HelpScreen
from tputui.ui.launch.checker import LaunchService
from tputui.ui.monitor.screen import MonitorResult
from tputui.ui.render.lines import Line, Span, clean
from tputui.ui.runs.edits import EDIT_ACTIONS, Edit, RunEdits
from tputui.ui.runs.filter import RunFilter, parse_filter
from tputui.ui.runs.opener import NewRun, RunOpener
from tputui.ui.runs.preview import PreviewPart, RunPreview
from tputui.ui.runs.remote_rows import RemoteRuns, readers_of
from tputui.ui.runs.rows import Listing, RunRow
from tputui.ui.runs.sort_order import SortOrder, parse_sort_order, sort_rows
from tputui.ui.runs.table import (
    ColumnsInput,
    RunsHeader,
    RunsTable,
    counts_text,
    empty_keys,
    empty_text,
    known_keys,
    parse_columns,
    reason_line,
    unknown,
)
from tputui.ui.widgets.dialogs import REQUEST_ACTIONS, Notices, RequestSender
from tputui.ui.widgets.line_widget import LineInput
from tputui.ui.widgets.player_bar import KeyBar

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
        log = next((row for row in rows if row.is_log), None)
        if log is None:
            return None
        unmark = f"; unmark {log.name}" if log is not self.row else ""
        return f"logs of other programs are never changed or deleted{unmark}"


ORDER_KEY = "runs.order"
"""Name of the sort order in the preferences."""
COLUMNS_KEY = "runs.columns"
"""Name of the chosen columns in the preferences."""
PREVIEW_MIN_HEIGHT = 30
"""Terminals with fewer lines have no preview."""
_LOG_NOTICE_S = 20.0
"""Seconds for which a problem with logs is shown, which may be a long sentence."""


class RunsScreen(Screen[MonitorResult]):
    """The runs of a directory."""

    BINDINGS = keymap.bindings(keymap.RUNS)
    CSS_PATH = "../runs.tcss"

    def __init__(
        self,
        runs_dir: Path,
        *,
        service: LaunchService | None = None,
        config_dir: Path | None = None,
        user_config: Path | None = None,
        read_only: bool = False,
        remote: RemoteRuns | None = None,
        replay: Callable[[Path], Session] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`remote` names the runs if they are on another machine; `runs_dir` is only shown then. `service` starts runs
        of configurations below `config_dir` (default: the current directory). `user_config` is the user's
        configuration file, which names folders with logs. `replay` opens a recording at its start; without it, a run
        that is over opens at its end."""
        super().__init__()
        self._runs_dir = runs_dir
        directory = config_dir or Path.cwd()
        self._new_run = NewRun(self, service, directory, self._known, self._started) if service is not None else None
        # Runs of another machine are changed and steered after they were opened.
        self._read_only = read_only or remote is not None
        self._clock = clock
        self._readers = readers_of(runs_dir, remote, user_config, partial(self.call_later, self._take_listing), clock)
        self._listing: Listing | None = None
        self._shown_notices: frozenset[str] = frozenset()
        """Notices of listings that were shown once."""
        self._filter = RunFilter()
        self._applied_filter = ""
        """Text of the filter that was applied last, without edits that are still being typed."""
        self._order = SortOrder()
        self._columns = ""
        """Text of the chosen columns."""
        self._shows_archived = False
        self._marked: frozenset[Path] = frozenset()
        self._notice = ""
        self.notices = Notices(self, self._put_notice)
        self._requests = RequestSender(
            self,
            self.notices,
            self._refusal,
            written="requested; open the run to see the result",
            names_run=True,
            on_written=self._readers.wake,
        )
        self._edits = RunEdits(self, self.notices, self._readers.wake)
        self._opener = RunOpener(self, self.notices, self._reread, clock, read_only=read_only, replay=replay)

    def compose(self) -> ComposeResult:
        """Header, filter, table, preview, keys."""
        yield RunsHeader(self._runs_dir)
        yield LineInput("/", id="filter")
        yield ColumnsInput(lambda: known_keys(self._known()), id="columns")
        yield RunsTable(id="runs")
        yield RunPreview(id="preview")
        yield KeyBar(OfferedKeys(None, (), self._read_only, self._can_start).in_force(), id="keys")

    def on_mount(self) -> None:
        """Applies the stored columns and sort order and starts the reading thread."""
        views = views_of(self.app)
        self._columns = views.get(COLUMNS_KEY, "")
        choice = parse_columns(self._columns)
        self._order = parse_sort_order(views.get(ORDER_KEY, self._order.text), choice.shown)
        self.query_one(RunsTable).choose_columns(choice)
        self._filter_line.rest("")
        self.query_one(ColumnsInput).rest("")
        self.query_one(RunsTable).focus()
        self._show()
        for read in self._readers.threads:
            self.run_worker(read, thread=True, group="runs")

    def on_unmount(self) -> None:
        """Stops the threads."""
        self._readers.stop()
        self._opener.close()

    def on_resize(self, event: events.Resize) -> None:
        """Shows the preview if there is room."""
        height = event.size.height
        preview = self.query_one(RunPreview)
        preview.display = height >= PREVIEW_MIN_HEIGHT
        preview.styles.height = min(max(height * 2 // 5, 12), 24)
        self.query_one(KeyBar).show(self._footer_keys())

    def _take_listing(self, listing: Listing) -> None:
        """Shows the newest rows."""
        self._listing = listing
        self._marked &= listing.rows.keys()
        self._show()
        new = [notice for notice in listing.notices if notice not in self._shown_notices]
        self._shown_notices = frozenset(listing.notices)
        if new:
            more = f" ({len(new) - 1} more: `tputui runs`)" if len(new) > 1 else ""
            self.notices.show(new[0] + more, _LOG_NOTICE_S)

    def _show(self) -> None:
        """Draws the filtered and sorted rows."""
        now = self._clock()
        listed = [row for row in self._known() if self._shows_archived or not row.labels.archived]
        matching = [row for row in listed if self._filter.matches(row)]
        rows = sort_rows(matching, self._order, now)
        hidden = len(self._known()) - len(listed)
        empty = empty_text(self._runs_dir, self._listing, self._filter, may_start=self._can_start, num_hidden=hidden)
        self.query_one(RunsTable).show(rows, self._order, self._marked, now, empty)
        if self._filter.text:
            self._show_filter_note(len(matching), len(listed))
        self._show_current()

    def _show_current(self) -> None:
        """Draws everything that depends on the run under the cursor."""
        row = self.query_one(RunsTable).row
        self.query_one(RunPreview).show(PreviewPart(row))
        self.query_one(KeyBar).show(self._footer_keys())
        sentence: Line = [Span(self._notice, "info")] if self._notice else reason_line(row)
        num_archived = 0 if self._shows_archived else sum(row.labels.archived for row in self._known())
        counts = counts_text(self._listing, len(self._marked), self._order, num_archived)
        self.query_one(RunsHeader).show(counts, sentence)

    def _known(self) -> list[RunRow]:
        return list(self._listing.rows.values()) if self._listing is not None else []

    @property
    def _can_start(self) -> bool:
        return self._new_run is not None and not self._read_only

    # Cursor, filter, sort order, marks.

    def action_move(self, by: int) -> None:
        """Moves the cursor by rows."""
        self.query_one(RunsTable).move(by)

    def action_page(self, pages: int) -> None:
        """Moves the cursor by pages."""
        table = self.query_one(RunsTable)
        table.move(pages * max(table.size.height - 2, 1))

    def on_runs_table_cursor_moved(self) -> None:
        """Updates header, preview and keys for the new run."""
        self._show_current()

    def action_filter(self) -> None:
        """Opens the filter line."""
        self._filter_line.note("")
        self._filter_line.begin(self._filter.text)
        self._show()

    @property
    def _filter_line(self) -> LineInput:
        return self.query_one("#filter", LineInput)

    def take_key(self, event: events.Key) -> bool:
        """Passes keys to the line in which the user types, whatever has the focus."""
        self._edits.cancel()
        self._opener.cancel(event.key)
        self.query_one(RunsTable).hold_cursor()
        return any(line.take_key(event) for line in self.query(LineInput) if line.is_typing)

    def on_line_input_changed(self, message: LineInput.Changed) -> None:
        """Filters while the user types."""
        self._filter = parse_filter(message.text)
        self._show()

    def on_line_input_done(self, message: LineInput.Done) -> None:
        """Applies the filter on enter, clears it on escape."""
        self._apply_filter(message.text if message.accepted else "")
        self.query_one(RunsTable).focus()

    def _apply_filter(self, text: str) -> None:
        """Applies a filter; can be undone."""
        before = self._applied_filter
        if text != before:
            undo_of(self.app).push("filter", lambda: self._set_filter(before))
        self._set_filter(text)

    def _set_filter(self, text: str) -> None:
        self._filter, self._applied_filter = parse_filter(text), text
        self._filter_line.rest(text)
        self._show()

    def _show_filter_note(self, num_matching: int, num_runs: int) -> None:
        line = self._filter_line
        if self._filter.error is not None:
            line.note(self._filter.error, "warn")
        else:
            line.note_found(num_matching, num_runs)

    def action_mark(self) -> None:
        """Marks or unmarks the run under the cursor and moves to the next one."""
        row = self.query_one(RunsTable).row
        if row is not None:
            self._marked ^= {row.path}
            self._show()
            self.action_move(1)

    def action_compare(self) -> None:
        """Compares the marked runs; the one under the cursor, if marked, is the base."""
        marked, chosen = self._marked_rows, self.query_one(RunsTable).chosen
        self._opener.compare(marked, next((i for i, row in enumerate(marked) if row.path == chosen), 0))

    def action_next_order(self) -> None:
        """Sorts by the next column."""
        self._sort_by(self._order.next(parse_columns(self._columns).shown))

    def action_reverse(self) -> None:
        """Reverses the sort order."""
        self._sort_by(self._order.reversed())

    def _sort_by(self, order: SortOrder) -> None:
        before = self._order
        undo_of(self.app).push("sort order", lambda: self._set_order(before))
        self._set_order(order)

    def _set_order(self, order: SortOrder) -> None:
        """Sorts the rows and stores the order. The filter is not stored: a forgotten one would hide runs."""
        self._order = order
        views_of(self.app).set(ORDER_KEY, order.text)
        self._show()

    # Columns.

    def action_columns(self) -> None:
        """Opens the line in which the columns are chosen."""
        line = self.query_one(ColumnsInput)
        line.begin(f"{self._columns} " if self._columns else "")
        line.show_candidates()
        self._show()

    def on_columns_input_changed(self, message: ColumnsInput.Changed) -> None:
        """Shows the columns while the user types."""
        line = self.query_one(ColumnsInput)
        line.show_candidates()
        self.query_one(RunsTable).choose_columns(parse_columns(line.known_words(message.text)))

    def on_columns_input_done(self, message: ColumnsInput.Done) -> None:
        """Stores the columns on enter, restores the earlier ones on escape."""
        text, before = " ".join(message.text.split()), self._columns
        if message.accepted and text != before:
            undo_of(self.app).push("columns", lambda: self._set_columns(before))
        self._set_columns(text if message.accepted else before)
        if lacking := unknown(parse_columns(self._columns), self._known()):
            self.notices.show(f"no run has a key called {', '.join(lacking)}")
        elif hidden := self.query_one(RunsTable).without_room:
            self.notices.show(f"no room for {', '.join(hidden)}; -KEY hides a column")
        self.query_one(RunsTable).focus()

    def _set_columns(self, text: str) -> None:
        if text != self._columns:
            self._columns = text
            views_of(self.app).set(COLUMNS_KEY, text)
        self.query_one(ColumnsInput).rest("")
        self.query_one(RunsTable).choose_columns(parse_columns(text))
        self._show()

    # Pins, tags, notes, archived and deleted runs.

    def action_edit(self, kind: Edit) -> None:
        """Pins or labels the run under the cursor; archives or deletes the marked runs, else that one."""
        table = self.query_one(RunsTable)
        if reason := self._offered.edit_refusal(kind):
            self.notices.show(f"{kind}: {reason}")
        elif table.row is not None:
            tags = sorted({tag for row in self._known() for tag in row.labels.tags})
            self._edits.start(kind, table.row, self._marked_rows, tags)

    @property
    def _marked_rows(self) -> list[RunRow]:
        """The visible marked runs and logs."""
        return [row for row in self.query_one(RunsTable).rows if row.path in self._marked]

    def action_show_archived(self) -> None:
        """Shows archived runs too, or hides them again."""
        self._shows_archived = not self._shows_archived
        self._show()
        num_archived = sum(row.labels.archived for row in self._known())
        shown = "shown" if self._shows_archived else "hidden"
        self.notices.show(f"archived runs are {shown} ({num_archived})")

    def action_reload(self) -> None:
        """Reads every run again."""
        self._shown_notices = frozenset()
        self._readers.reload()
        self.notices.show("reading every run again")

    def action_back(self) -> None:
        """Clears the filter. Does not leave, as this is the first screen."""
        if self._filter.text:
            self._apply_filter("")
        else:
            self.notices.show("all runs are shown; q quits")

    # Opening a run.

    def action_open(self) -> None:
        """Opens the run under the cursor; if there are no runs yet, the launcher with the digits demo."""
        row = self.query_one(RunsTable).row
        if row is None:
            if self._new_run is not None and self._can_start and self._listing is not None and not self._known():
                self._new_run.edit_demo(self._clock())
            return
        self._opener.open(row)

    def on_runs_table_run_opened(self) -> None:
        """Opens the run that was clicked."""
        self.action_open()

    def _reread(self) -> None:
        """Reads the runs at once after another screen is closed."""
        self._readers.wake()

    @property
    def _offered(self) -> OfferedKeys:
        return OfferedKeys(self.query_one(RunsTable).row, self._marked_rows, self._read_only, self._can_start)

    def keys_in_force(self) -> Sequence[keymap.Key]:
        """The keys of this view: without starting and requests if it is read-only."""
        return self._offered.in_force()

    def _footer_keys(self) -> Sequence[keymap.Key]:
        """The keys that act on the run under the cursor, or those of the filter line while the user types there."""
        if any(line.is_typing for line in self.query(LineInput)):
            return keymap.TYPING
        if self._listing is not None and not self._known():
            return empty_keys(self.keys_in_force(), may_start=self._can_start)
        return self._offered.footer(self.size.width)

    def keys_offered(self) -> list[tuple[keymap.Key, str]]:
        """Every key for the palette, each with the reason why it does nothing now, else with an empty string."""
        offered = self._offered
        return [(key, offered.refusal(key) or "") for key in keymap.RUNS]

    def panel_descriptions(self) -> Sequence[tuple[str, str]]:
        """Nothing: this screen has no numbered panels."""
        return ()

    # Starting a run.

    def action_new(self) -> None:
        """Opens the list of configurations for a new run."""
        if self._new_run is None or self._read_only:
            self.notices.show(f"new run: {READ_ONLY}")
        else:
            self._new_run.choose(self._clock())

    def _started(self, run_dir: Path) -> None:
        """Opens a run that was just started."""
        self.query_one(RunsTable).choose(run_dir)
        self._readers.wake()
        self._opener.open(RunRow(run_dir, "reading"))

    # Requests to a run.

    def action_checkpoint(self) -> None:
        """Requests a checkpoint of the run under the cursor."""
        if (run_dir := self._current_dir()) is not None:
            self._requests.submit(run_dir, "checkpoint")

    def action_stop(self) -> None:
        """Asks how to stop the run under the cursor, then requests it."""
        if (run_dir := self._current_dir()) is not None:
            self._requests.confirm_stop(run_dir)

    def _current_dir(self) -> Path | None:
        row = self.query_one(RunsTable).row
        return row.path if row is not None else None

    def _refusal(self, run_dir: Path, kind: RequestKind) -> str | None:
        if self._read_only:
            return READ_ONLY
        row = self._listing.rows.get(run_dir) if self._listing is not None else None
        return "the run directory is gone" if row is None else row.request_refusal

    def _put_notice(self, sentence: str) -> None:
        self._notice = clean(sentence)
        self._show_current()

    def action_help(self) -> None:
        """Shows the keys of this screen."""
        self.app.push_screen(HelpScreen(self.keys_in_force()))

    def action_leave(self) -> None:
        """Leaves the program; the runs go on."""
        self.dismiss(MonitorResult("quit", None))
