"""Home: the list of runs. Enter opens one: live while it trains, as it ended once it is over.

Reading happens in a thread of its own; what a key asks for is done with what is known at that moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen

from tputui.session.session import Session
from tputui.telemetry.events import RequestKind
from tputui.ui.base import keymap
from tputui.ui.base.preferences import undo_of, views_of
from tputui.ui.help import HelpScreen
from tputui.ui.launch.service import LaunchService
from tputui.ui.monitor.screen import MonitorResult, MonitorScreen
from tputui.ui.render.lines import Line, Span, clean
from tputui.ui.runs.filter import RunFilter, parse_filter
from tputui.ui.runs.preview import PreviewPart, RunPreview
from tputui.ui.runs.reader import Listing, RunsReader
from tputui.ui.runs.rows import RunRow, SortOrder, parse_sort_order, sort_rows
from tputui.ui.runs.table import RunsHead, RunsTable, counts_text, empty_text, how_in_words, reason_line
from tputui.ui.widgets.bars import KeyBar
from tputui.ui.widgets.line_input import LineInput
from tputui.ui.widgets.notices import Notices
from tputui.ui.widgets.run_requests import REQUEST_ACTIONS, RunRequests

if TYPE_CHECKING:
    from tputui.ui.launch.form import Picked

LEAST_COMPARED, MOST_COMPARED = 2, 8
KEPT_ORDER = "runs.order"
"""Name under which the user's order is kept."""
PREVIEW_FROM = 30
"""Lines of the terminal from which there is a preview."""


class RunsScreen(Screen[MonitorResult]):
    """Every run of a directory."""

    BINDINGS = keymap.bindings(keymap.RUNS)
    CSS_PATH = "../runs.tcss"

    class Read(Message):
        """What the reading thread knows now."""

        def __init__(self, listing: Listing) -> None:
            super().__init__()
            self.listing = listing

    def __init__(
        self,
        runs_dir: Path,
        *,
        desk: LaunchService | None = None,
        start: Path | None = None,
        read_only: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`desk` starts runs, and without one none is; configurations are looked for below `start`, the current
        directory where it is None. `clock` gives unix time."""
        super().__init__()
        self._runs_dir = runs_dir
        self._desk = desk
        self._start = start or Path.cwd()
        self._read_only = read_only
        self._clock = clock
        self._reader = RunsReader(runs_dir, lambda listing: self.post_message(self.Read(listing)), clock)
        self._listing: Listing | None = None
        self._filter = RunFilter()
        self._sifted_by = ""
        """The filter that is in force where none is being typed."""
        self._order = SortOrder()
        self._marked: frozenset[Path] = frozenset()
        self._notice = ""
        self.notices = Notices(self, self._put_notice)
        self._requests = RunRequests(
            self,
            self.notices,
            self._refusal,
            written="requested; open the run to see the result",
            names_run=True,
            on_written=self._reader.wake,
        )

    def compose(self) -> ComposeResult:
        """Head, table, preview, keys."""
        yield RunsHead(self._runs_dir)
        yield LineInput("/", id="filter")
        yield RunsTable(id="runs")
        yield RunPreview(id="preview")
        yield KeyBar(self.keys_in_force(), id="keys")

    def on_mount(self) -> None:
        """Starts to read."""
        self._order = parse_sort_order(views_of(self.app).get(KEPT_ORDER, self._order.text))
        self.query_one(LineInput).rest("")
        self.query_one(RunsTable).focus()
        self._show()
        self.run_worker(self._reader.run, thread=True, group="runs")

    def on_unmount(self) -> None:
        """Stops reading."""
        self._reader.stop()

    def on_resize(self, event: events.Resize) -> None:
        """Makes room for the preview where there is some."""
        height = event.size.height
        preview = self.query_one(RunPreview)
        preview.display = height >= PREVIEW_FROM
        preview.styles.height = min(max(height * 2 // 5, 12), 24)

    def on_runs_screen_read(self, message: Read) -> None:
        """Shows what was read."""
        message.stop()
        self._listing = message.listing
        self._marked &= message.listing.rows.keys()
        self._show()

    def _show(self) -> None:
        """Draws what is known, filtered and in order."""
        now = self._clock()
        known = self._known()
        kept = [row for row in known if self._filter.keeps(row)]
        rows = sort_rows(kept, self._order, now)
        empty = empty_text(self._runs_dir, self._listing, self._filter, may_start=self._may_start)
        self.query_one(RunsTable).show(rows, self._order, self._marked, now, empty)
        if self._filter.text:
            self._note_filter(known, len(kept))
        self._show_chosen()

    def _show_chosen(self) -> None:
        """Draws what is said of the run under the cursor, and of all."""
        row = self.query_one(RunsTable).row
        self.query_one(RunPreview).show(PreviewPart(row))
        self.query_one(KeyBar).show(self._footer_keys())
        self.query_one(RunsHead).show(counts_text(self._listing, len(self._marked), self._order), self._said(row))

    def _said(self, row: RunRow | None) -> Line:
        """A notice, else why the chosen run is as it is. A filter has a line of its own, that no notice takes."""
        if self._notice:
            return [Span(self._notice, "info")]
        return reason_line(row)

    def _known(self) -> list[RunRow]:
        return list(self._listing.rows.values()) if self._listing is not None else []

    @property
    def _may_start(self) -> bool:
        return self._desk is not None and not self._read_only

    # Moving, filter, order, marks.

    def action_move(self, by: int) -> None:
        """Moves the cursor."""
        self.query_one(RunsTable).move(by)

    def action_page(self, pages: int) -> None:
        """Moves it by nearly a screen."""
        table = self.query_one(RunsTable)
        table.move(pages * max(table.size.height - 2, 1))

    def on_runs_table_moved(self) -> None:
        """Says something else of another run."""
        self._show_chosen()

    def action_filter(self) -> None:
        """Opens the filter."""
        self.query_one(LineInput).begin(self._filter.text)
        self._show()

    def take_key(self, event: events.Key) -> bool:
        """Hands keys to the filter while it is in sight, whatever has the focus."""
        return self.query_one(LineInput).take_key(event)

    def on_line_input_changed(self, message: LineInput.Changed) -> None:
        """Filters as one types."""
        self._filter = parse_filter(message.text)
        self._show()

    def on_line_input_done(self, message: LineInput.Done) -> None:
        """Leaves the filter in force with enter, shows all with escape."""
        self._sift(message.text if message.kept else "")
        self.query_one(RunsTable).focus()

    def _sift(self, text: str) -> None:
        """Shows the runs that meet a filter."""
        before = self._sifted_by
        if text != before:
            undo_of(self.app).push("filter of the runs", lambda: self._sift_by(before))
        self._sift_by(text)

    def _sift_by(self, text: str) -> None:
        self._filter, self._sifted_by = parse_filter(text), text
        self.query_one(LineInput).rest(text)
        self._show()

    def _note_filter(self, known: list[RunRow], num_kept: int) -> None:
        edit = self.query_one(LineInput)
        if self._filter.problem:
            edit.note(self._filter.problem, "warn")
        else:
            edit.note_found(num_kept, len(known))

    def action_mark(self) -> None:
        """Marks the chosen run, or takes its mark away; the cursor goes on."""
        row = self.query_one(RunsTable).row
        if row is not None:
            self._marked ^= {row.path}
            self._show()
            self.action_move(1)

    def action_compare(self) -> None:
        """Lays the marked runs side by side; the one under the cursor is what the others stand beside."""
        table = self.query_one(RunsTable)
        paths = [row.path for row in table.rows if row.path in self._marked]
        if not LEAST_COMPARED <= len(paths) <= MOST_COMPARED:
            self.notices.show(
                f"compare: {len(paths)} run{' is' if len(paths) == 1 else 's are'} marked in sight; "
                f"space marks {LEAST_COMPARED} to {MOST_COMPARED}"
            )
            return
        # The list stands sooner without it.
        from tputui.ui.compare.screen import CompareScreen

        base = paths.index(table.chosen) if table.chosen in paths else 0
        self.app.push_screen(CompareScreen(paths, base=base, read_only=self._read_only), self._come_back)

    def action_next_order(self) -> None:
        """Orders by the next column."""
        self._put_in(self._order.next())

    def action_reverse(self) -> None:
        """Turns the order round."""
        self._put_in(self._order.reversed())

    def _put_in(self, order: SortOrder) -> None:
        """Puts the runs in an order, which is kept. A filter is not: it would hide runs from who has forgotten it."""
        before = self._order
        undo_of(self.app).push("order of the runs", lambda: self._keep_order(before))
        self._keep_order(order)

    def _keep_order(self, order: SortOrder) -> None:
        self._order = order
        views_of(self.app).set(KEPT_ORDER, order.text)
        self._show()

    def action_reload(self) -> None:
        """Reads everything again."""
        self._reader.reload()
        self.notices.show("every run is read again")

    def action_back(self) -> None:
        """Shows all runs again; where they all are shown nothing is left by it, as this is the first screen."""
        if self._filter.text:
            self._sift("")
        else:
            self.notices.show("all runs are shown; q quits")

    # Opening.

    def action_open(self) -> None:
        """Opens the chosen run."""
        row = self.query_one(RunsTable).row
        if row is None:
            return
        if row.state == "unreadable":
            self.notices.show(f"{row.path.name}: {row.why}")
        else:
            self._open(row)

    def on_runs_table_opened(self) -> None:
        """Opens the chosen run."""
        self.action_open()

    def _open(self, row: RunRow) -> None:
        # An ended run opens as it ended; from there the view looks back, or plays it from its start.
        session = Session.live(row.path, self._clock)
        self.app.push_screen(MonitorScreen(session, row.path, read_only=self._read_only), self._come_back)

    def _come_back(self, _: object) -> None:
        """Looks at once what became of the runs meanwhile."""
        self._reader.wake()

    def keys_in_force(self) -> Sequence[keymap.Key]:
        """The keys that may do something; those that start or ask not in a view that may not."""
        return [
            key
            for key in keymap.RUNS
            if (key.action != "new" or self._may_start) and not (self._read_only and key.action in REQUEST_ACTIONS)
        ]

    def _footer_keys(self) -> Sequence[keymap.Key]:
        """Those that do something to the run under the cursor; the keys of typing while the filter is typed."""
        if self.query_one(LineInput).is_typing:
            return keymap.TYPING
        return [key for key in self.keys_in_force() if not self._why_unfit(key)]

    def keys_offered(self) -> list[tuple[keymap.Key, str]]:
        """For the palette: also the keys that do nothing now, each with why."""
        return [(key, self._why_unfit(key)) for key in keymap.RUNS]

    def _why_unfit(self, key: keymap.Key) -> str:
        run_dir = self._chosen_dir()
        if key.action == "new" and not self._may_start:
            return "this view is read-only"
        if key.action not in REQUEST_ACTIONS:
            return ""
        return (self._refusal(run_dir, REQUEST_ACTIONS[key.action]) or "") if run_dir is not None else "there is no run"

    def panels_told(self) -> Sequence[tuple[str, str]]:
        """No panel is selected here."""
        return ()

    # Starting a run.

    def action_new(self) -> None:
        """Asks which configuration a new run begins with."""
        if self._desk is None or self._read_only:
            self.notices.show("new run: this view is read-only")
            return
        # The list opens sooner without this import.
        from tputui.ui.launch.picker import PickScreen

        rows = sort_rows(self._known(), SortOrder(), self._clock())
        runs = [(row.path, how_in_words(row)) for row in rows if row.state != "unreadable"]
        self.app.push_screen(PickScreen(self._start, runs), self._edit_config)

    def _edit_config(self, picked: Picked | None) -> None:
        """Opens the launcher with a configuration; the way back leads to the configurations."""
        from tputui.ui.launch.screen import LauncherScreen

        if picked is None or self._desk is None:
            return

        def launched(run_dir: Path | None) -> None:
            if run_dir is not None:
                self._started(run_dir)
            else:
                self.action_new()

        taken = {row.path.name for row in self._known()}
        self.app.push_screen(LauncherScreen(self._desk, picked, self._start, taken), launched)

    def _started(self, run_dir: Path) -> None:
        """Opens a run that was started, at once."""
        self.query_one(RunsTable).choose(run_dir)
        self._reader.wake()
        self.app.push_screen(MonitorScreen(Session.live(run_dir), run_dir), self._come_back)

    # Requests to a run.

    def action_checkpoint(self) -> None:
        """Request a checkpoint of the chosen run."""
        if (run_dir := self._chosen_dir()) is not None:
            self._requests.submit(run_dir, "checkpoint")

    def action_stop(self) -> None:
        """Ask how to stop the chosen run, then request it."""
        if (run_dir := self._chosen_dir()) is not None:
            self._requests.confirm_stop(run_dir)

    def _chosen_dir(self) -> Path | None:
        row = self.query_one(RunsTable).row
        return row.path if row is not None else None

    def _refusal(self, run_dir: Path, kind: RequestKind) -> str | None:
        if self._read_only:
            return "this view is read-only"
        row = self._listing.rows.get(run_dir) if self._listing is not None else None
        if row is None:
            return "it is gone"
        if row.state == "unreadable":
            return row.why
        return f"the run has ended ({row.state})" if row.ended else None

    def _put_notice(self, sentence: str) -> None:
        self._notice = clean(sentence)
        self._show_chosen()

    def action_help(self) -> None:
        """Shows the keys."""
        self.app.push_screen(HelpScreen(self.keys_in_force()))

    def action_leave(self) -> None:
        """Leaves; the runs go on."""
        self.dismiss(MonitorResult("quit", None))
