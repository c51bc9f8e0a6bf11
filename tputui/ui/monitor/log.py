"""The log panel: the output of training and the messages of tputui, of every process, in order of time.

It follows the end until a line is selected; then nothing moves until it follows again. Selecting a line posts its time,
and `show_moment` selects the line of a time, so that charts and log show the same moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from textual import events, work
from textual.message import Message

from tputui.state.snapshot import LogLine, Snapshot
from tputui.ui.base import host_text, keymap, status_text
from tputui.ui.base.export import Figures, of_lines
from tputui.ui.base.preferences import undo_of, views_of
from tputui.ui.monitor.log_lines import LINES_MAX, Entry, LogRows, LogStore, OlderLines, lanes_of
from tputui.ui.monitor.log_search import FilteredLog, LogQuery, count_text
from tputui.ui.render.lines import Line, Span, clean, paragraph
from tputui.ui.widgets.panel import FRAME, Drawing, RunPanel

SHOWN_AT_ONCE = 1_000
"""Number of lines of a snapshot: if there are fewer, there are no older ones."""
LANES_CYCLED_MAX = 24
"""Maximum number of hosts, processes and cores that a key cycles through; of more one is typed."""
_DIGITS_MAX = 7


class LogPart(NamedTuple):
    """The content of the panel."""

    logs: list[LogLine]
    why_none: str
    has_hosts: bool = False
    """Whether the run has several hosts."""


class LogPanel(RunPanel[LogPart]):
    """The log, newest line last."""

    BINDINGS = keymap.bindings(keymap.LOG)

    key = "7"
    name_shown = "log"
    what = (
        "output of training and messages of tputui, by time; a line printed by N cores is shown once; follows the end "
        "until a line is selected, with the arrows or the mouse"
    )
    follows_end = True

    class LineSelected(Message):
        """A line was selected by the user."""

        def __init__(self, t: float) -> None:
            super().__init__()
            self.t = t
            """Unix time of the line."""

    class TypingChanged(Message):
        """The user started or stopped typing an expression."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._store = LogStore()
        self._query = LogQuery()
        self._filtered = FilteredLog()
        self._wrapped = True
        self._chosen: int | None = None
        """Index of the selected entry."""
        self._entries: list[Entry] = []
        self._num_found = 0
        self._rows: LogRows | None = None
        self.read_older: Callable[[], OlderLines] = lambda: OlderLines([], "no journals")
        """Reads older lines from the journals; set by the screen, and called in a thread."""
        self._older = ""
        """A remark on the lines before the first one, shown above it ..."""
        self._answers = False
        """... and wherever the log is, while it answers the key that asked for them."""
        self._has_older = False
        """Whether older lines were read from the journals."""

    @staticmethod
    def pick(snapshot: Snapshot) -> LogPart:
        """The newest lines."""
        why = "" if snapshot.logs else status_text.nothing_yet(snapshot, "log line", verb="printed")
        return LogPart(snapshot.logs, why, host_text.has_hosts(snapshot))

    def on_mount(self) -> None:
        """Restore the view settings."""
        self._wrapped = views_of(self.app).get("log.wrapped", True)

    def show(self, part: LogPart) -> None:
        """Take newer lines; older lines stay, and the selected line does not move."""
        if part == self._part:
            return
        chosen, num_cut = self._chosen_entry, self._store.num_cut
        self._store.has_hosts = part.has_hosts
        self._store.take(part.logs)
        self._filter()
        if chosen is not None:
            self._chosen = self._find(chosen, self._chosen or 0)
        if self._top is not None and self._store.num_cut > num_cut:
            self._top = max(self._top - (self._store.num_cut - num_cut), 0)
        super().show(part)

    # Drawing.

    def draw(self, part: LogPart, width: int, height: int) -> Drawing:
        """The search line and remarks, then the lines."""
        head = self._head(width)
        if not self._store.lines:
            return Drawing(paragraph(part.why_none, width, height), head=head)
        if not self._entries:
            why = self._query.why_nothing(len(self._store.lines), partly=self._is_partial)
            return Drawing(paragraph(why, width, height), head=head, note=self._note())
        several = len({line.source for line in part.logs}) > 1
        self._rows = LogRows(
            self._entries,
            width,
            wrapped=self._wrapped,
            with_source=several,
            pattern=self._query.filter.pattern,
            chosen=self._chosen,
        )
        return Drawing(self._rows, head=head, note=self._note())

    def _head(self, width: int) -> tuple[Line, ...]:
        count = count_text(self._num_found, len(self._store.lines), partly=self._is_partial)
        lines = self._query.typed_line(width, count)
        if self._older and (self._top == 0 or self._answers):
            lines.append([Span(f" {self._older}", "dim")])
        return tuple(lines)

    def _note(self) -> str:
        note = self._query.note(self._num_found, len(self._store.lines), partly=self._is_partial)
        return " \u00b7 ".join(part for part in (note, "" if self._wrapped else "cut") if part)

    def figures(self) -> Figures:
        """The lines shown, unfolded, as a table."""
        lines = self._store.lines
        shown = [line for line in lines if self._query.filter.accepts(line)]
        part = f"{len(shown):,} of {len(lines):,} lines, as shown" if len(shown) < len(lines) else ""
        return of_lines(shown, part)

    # The selected line.

    @property
    def _chosen_entry(self) -> Entry | None:
        return self._entries[self._chosen] if self._chosen is not None and self._chosen < len(self._entries) else None

    def scroll_rows(self, rows: int) -> None:
        """Select the line so many rows away, down if positive; past the last line follow the end again."""
        if not self._entries or self._rows is None:
            return
        self._answers = False
        if self._chosen is None:
            chosen = len(self._entries) - 1 if rows > -2 else max(len(self._entries) - 1 + rows, 0)
            if rows > 0:
                return
        elif abs(rows) == 1:
            chosen = self._chosen + rows
        else:
            target = min(max(self._rows.first_row(self._chosen) + rows, 0), len(self._rows) - 1)
            chosen = self._rows.entry_at(target) if target < len(self._rows) - 1 else len(self._entries) - 1
        if chosen >= len(self._entries) or (rows > len(self._entries)):
            self.follow()
            return
        if chosen <= 0 and rows < 0:
            self._mention_older()
        self._select(max(chosen, 0))

    def follow(self) -> None:
        """Select no line, and follow the end."""
        self._chosen = None
        super().follow()

    def show_moment(self, t: float) -> None:
        """Select the last line printed by the unix time `t`, and scroll to it, without posting `LineSelected`."""
        before = [index for index, entry in enumerate(self._entries) if entry.line.t <= t]
        if before:
            self._choose(before[-1], centred=True)

    def _select(self, index: int) -> None:
        self._choose(index)
        self.post_message(self.LineSelected(self._entries[index].line.t))

    def _choose(self, index: int, *, centred: bool = False) -> None:
        """Select an entry, and scroll to it: as little as possible, or so that it is in the middle."""
        self._chosen = index
        if self._rows is None:
            return
        room = max(self.size.height - FRAME - len(self._head(self.size.width)), 1)
        first = min(self._rows.first_row(index), max(len(self._rows) - 1, 0))
        last = self._rows.first_row(index + 1) - 1
        top = self._first_row()
        nearest = min(max(top, last - room + 1), first)
        top = first - room // 2 if centred and not top <= first < top + room else nearest
        self._top = min(max(top, 0), self._hidden_rows)
        self.redraw()

    def _find(self, entry: Entry, near: int) -> int | None:
        """The index of an entry now; of the entry before its time if it is gone."""
        if near < len(self._entries) and self._entries[near].line == entry.line:
            return near
        earlier = None
        for index, shown in enumerate(self._entries):
            if shown.line == entry.line:
                return index
            if shown.line.t <= entry.line.t:
                earlier = index
        return earlier

    def on_click(self, event: events.Click) -> None:
        """Select the line that is clicked."""
        row = event.y - 1 - len(self._head(self.size.width))
        if self._rows is None or not self._entries or row < 0 or not self.is_inside(event.x, event.y):
            return
        row += self._first_row()
        if row < len(self._rows):
            self._top = self._first_row()
            self._select(self._rows.entry_at(row))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll without selecting."""
        event.stop()
        event.prevent_default()
        super().scroll_rows(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll without selecting."""
        event.stop()
        event.prevent_default()
        super().scroll_rows(-3)
        if self._top == 0:
            self._mention_older()

    def on_resize(self, _: events.Resize) -> None:
        """Keep the selected line visible."""
        self.call_after_refresh(lambda: self._keep_in_sight(self._chosen_entry))

    # Search and filter.

    @property
    def is_typing(self) -> bool:
        """Whether the user types an expression."""
        return self._query.is_typing

    def take_key(self, event: events.Key) -> bool:
        """Take every key while an expression is typed."""
        if not self._query.is_typing:
            return False
        if event.key == "enter":
            self._query.end()
            self.redraw()
            self.post_message(self.TypingChanged())
        elif event.key == "escape":
            self.action_drop_search()
        else:
            self._change(lambda: self._query.press(event.key, event.character))
        return True

    def on_paste(self, event: events.Paste) -> None:
        """Paste into the expression."""
        if self._query.is_typing:
            event.stop()
            self._change(lambda: self._query.paste(event.text))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Without a search, leave its keys to the screen."""
        if action in ("drop_search", "match"):
            return self._query.is_typing or bool(self._query.expression)
        return True

    def action_search(self) -> None:
        """Start typing an expression, with the one in force."""
        self._change(self._query.begin)
        self.post_message(self.TypingChanged())

    def action_drop_search(self) -> None:
        """Show all lines again; the selected line stays selected."""
        self._change(self._query.drop)
        self.post_message(self.TypingChanged())

    def action_match(self, by: int) -> None:
        """Select the next match, or by -1 the one before, among the lines around it; after the last comes the first."""
        self._change(self._query.show_around)
        number = len(self._entries)
        start = self._chosen if self._chosen is not None else (-1 if by > 0 else number)
        for distance in range(1, number + 1):
            index = (start + by * distance) % number
            if self._query.filter.matches(self._entries[index].line):
                self._choose(index, centred=True)
                self.post_message(self.LineSelected(self._entries[index].line.t))
                return

    def action_next_lane(self) -> None:
        """Show the lines of the next process or core, or of all."""
        lanes = self._lanes()
        if len(lanes) <= LANES_CYCLED_MAX:
            self._change_undoably("lines shown", lambda: self._query.next_lane(lanes))
            return
        # Imported here so that the monitor opens faster.
        from tputui.ui.widgets.dialogs import PromptScreen

        question = "Lines of one host or core, such as host 12; empty: all"
        self.app.push_screen(PromptScreen(question, self._valid_lane, self._query.filter.lane), self._lane_typed)

    def show_lane(self, lane: str) -> None:
        """Show the lines of a host, a process or a core only; an empty one shows all."""
        level = self._query.filter.level
        self._change_undoably("lines shown", lambda: self._query.choose(lane, level))

    def _lanes(self) -> list[str]:
        return lanes_of(self._store.lines, has_hosts=self._store.has_hosts)

    def _valid_lane(self, text: str) -> str:
        """A host, process or core typed by the user; a number alone is a host. Raises `ValueError` with a sentence."""
        name = " ".join(text.split())
        name = f"host {int(name)}" if name.isdecimal() and len(name) < _DIGITS_MAX else name
        if name and name not in self._lanes():
            raise ValueError(f"no line of {clean(name)} among the loaded ones")
        return name

    def _lane_typed(self, lane: str | None) -> None:
        if lane is not None:
            self.show_lane(lane)

    def action_next_level(self) -> None:
        """Show the lines of the next level and above."""
        self._change_undoably("level of lines", self._query.next_level)

    def action_toggle_wrap(self) -> None:
        """Wrap long lines, or cut them."""
        before = self._wrapped
        undo_of(self.app).push("wrapping of lines", lambda: self._wrap(before))
        self._wrap(not before)

    def _wrap(self, wrapped: bool) -> None:
        self._wrapped = wrapped
        views_of(self.app).set("log.wrapped", wrapped)
        self._keep_in_sight(self._chosen_entry)

    def _change_undoably(self, what: str, change: Callable[[], None]) -> None:
        lane, level = self._query.filter.lane, self._query.filter.level
        undo_of(self.app).push(what, lambda: self._change(lambda: self._query.choose(lane, level)))
        self._change(change)

    def _change(self, change: Callable[[], None]) -> None:
        """Change the filter. The selected line stays selected if it is still shown; else the end is followed."""
        chosen, before = self._chosen_entry, self._query.filter
        change()
        if self._query.filter != before:
            self._filter()
            self._chosen = self._find(chosen, 0) if chosen is not None else None
            self._top = self._top if chosen is not None else None
        self._keep_in_sight(self._chosen_entry)

    def _keep_in_sight(self, chosen: Entry | None) -> None:
        self.redraw()
        if chosen is not None and self._chosen is not None:
            self._choose(self._chosen, centred=True)

    def _filter(self) -> None:
        self._entries, self._num_found = self._filtered.entries_of(self._store, self._query.filter)
        self._rows = None

    # Older lines.

    @property
    def _is_partial(self) -> bool:
        """Whether the journals may contain lines that are not searched: a snapshot has only the newest."""
        return len(self._store.lines) >= SHOWN_AT_ONCE and not self._has_older

    def action_older(self) -> None:
        """Load the lines before the first one."""
        self._answers = True
        if len(self._store.lines) < SHOWN_AT_ONCE:
            self._older = "every line is loaded"
        elif len(self._store.lines) >= LINES_MAX:
            self._older = f"limit of {LINES_MAX:,} lines reached; the files have all of them"
        else:
            self._older = "loading earlier lines ..."
            self._load_older()
        self.redraw()

    @work(thread=True, group="older", exclusive=True)
    def _load_older(self) -> None:
        older = self.read_older()
        self.call_later(self.take_older, older.lines, older.where)

    def take_older(self, lines: list[LogLine], where: str) -> None:
        """Insert lines before the first one; `where` names the files with all lines."""
        chosen = self._chosen_entry
        added = self._store.take_older(lines)
        self._has_older = True
        first = clean(where)
        self._older = f"{added:,} earlier lines loaded; {first}" if added else f"no earlier lines; {first}"
        self._filter()
        if chosen is not None:
            self._chosen = self._find(chosen, 0)
        self._keep_in_sight(chosen)

    def _mention_older(self) -> None:
        if not self._older and len(self._store.lines) >= SHOWN_AT_ONCE:
            self._older = "a: load earlier lines"
            self.redraw()
