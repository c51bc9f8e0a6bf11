"""A framed panel that scrolls and can fill the screen; panels of a run, and panels of rows with a cursor."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import ModalScreen
from textual.widget import Widget

from tputui.state.snapshot import Snapshot
from tputui.ui.base import keymap
from tputui.ui.render.lines import Line, Span, TextTable, Tone, fit, width_of
from tputui.ui.widgets.dialogs import Notices
from tputui.ui.widgets.line_widget import Drawn, plain_text
from tputui.ui.widgets.player_bar import NoticeBar

PartT = TypeVar("PartT")

COPIED_ROWS_MAX = 20_000
"""Maximum number of rows exported as text; a list of pictures may be very long."""

FRAME = 2
"""Cells of the frame in width and in height."""


class Drawing(NamedTuple):
    """The content of a panel: `head` is fixed, `rows` scroll."""

    rows: Sequence[Line]
    head: tuple[Line, ...] = ()
    note: str = ""
    """Shown at the right of the upper frame."""
    along: Sequence[TextTable] = ()
    """Parts without room for a row are omitted."""

    def fitted(self, room: int) -> tuple[Drawing, int]:
        """The drawing with the parts that fit, and the number of rows that each part can show."""
        # At least one row is shown rather than all of the head.
        head = self.head[: room - 1] if self.rows else self.head
        along = self.along[: max((room - len(head) - 1) // 2, 0)]
        return self._replace(head=head, along=along), max(room - len(head) - len(along), 0) // (1 + len(along))

    def lines(self, top: int, shown: int, room: int) -> list[Line]:
        """The visible lines: heads, and rows from `top` on. Blank lines separate parts if there is room."""
        lines = [*self.head, *self.rows[top : top + shown]]
        num_rows = min(shown, max(len(self.rows) - top, 0))
        spare = room - len(self.head) - len(self.along) - (1 + len(self.along)) * num_rows
        for part in self.along:
            lines += [*([[]] if spare >= len(self.along) else []), part.head, *part.rows[top : top + shown]]
        return lines


class Panel(Drawn, Generic[PartT]):
    """Draws one immutable part of what a screen knows."""

    can_focus = True
    key: ClassVar[str]
    """The key that selects the panel."""
    name_shown: ClassVar[str]
    """Name of the panel."""
    what: ClassVar[str]
    """One sentence for the help."""
    follows_end: ClassVar[bool] = False
    """Whether the panel follows the newest row, which is the last one."""

    @property
    def title(self) -> str:
        """Title in the frame."""
        return self.name_shown

    class Selected(Message):
        """The panel has the focus now."""

        def __init__(self, panel: Panel[Any]) -> None:
            super().__init__()
            self._panel = panel

        @property
        def control(self) -> Panel[Any]:
            """The panel."""
            return self._panel

    class FullScreenToggled(Message):
        """The user asked for full screen, or to leave it."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._part: PartT | None = None
        self._top: int | None = None
        """First visible row; None is the default position: the end if the panel follows it, else the start."""
        self._hidden_rows = 0
        self._is_stale = False
        """Whether the part changed while the panel was hidden."""
        self._lit = ""
        """The edge of the frame that is highlighted because the mouse can drag it; empty if none."""
        self._framed: tuple[object, list[tuple[Line, Line]]] = (None, [])
        """The newest frame, and the lines inside it, each also with the sides of the frame."""

    @abstractmethod
    def draw(self, part: PartT, width: int, height: int) -> Drawing:
        """The content for `width` by `height` cells."""

    def show(self, part: PartT) -> None:
        """Show a newer part; redraw if it differs. A hidden panel is drawn once it is shown again."""
        if part != self._part:
            self._part = part
            self._is_stale = not self.display
            if self.display:
                self.redraw()

    def on_show(self) -> None:
        """Draw what changed while the panel was hidden."""
        if self._is_stale:
            self._is_stale = False
            self.redraw()

    def light(self, edge: str) -> None:
        """Highlight an edge of the frame: `left`, `right`, `top` or `bottom`; an empty one highlights none."""
        if edge != self._lit:
            self._lit = edge
            self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """The frame with the visible part of the drawing."""
        inner, room = width - FRAME, height - FRAME
        if inner < 1 or room < 1:
            return [fit([Span(self.name_shown, "title")], width)]
        drawing = Drawing([]) if self._part is None else self.draw(self._part, inner, room)
        drawing, shown = drawing.fitted(room)
        self._hidden_rows = max(len(drawing.rows) - shown, 0)
        top = self._first_row()
        body = drawing.lines(top, shown, room)
        left, right = Span("\u2502", self._frame_tone("left")), Span("\u2502", self._frame_tone("right"))
        body = [*body[:room], *([[]] * (room - len(body)))]
        before = self._framed[1][:room] if self._framed[0] == (inner, left, right) else []
        # Most rows are as they were: to compare them costs less than to measure them.
        framed = [
            old if old is not None and old[0] == line else (line, _between(left, line, right, inner))
            for line, old in itertools.zip_longest(body, before)
        ]
        self._framed = ((inner, left, right), framed)
        rows = [row for _, row in framed]
        return [self._upper_frame(drawing.note, width), *rows, self._lower_frame(top, shown, len(drawing.rows), width)]

    def as_text(self) -> str:
        """The panel's name and every row of the drawing, including hidden ones, without the frame."""
        inner, room = self.size.width - FRAME, self.size.height - FRAME
        if self._part is None or inner < 1 or room < 1:
            return self.name_shown
        drawing = self.draw(self._part, inner, room)
        more = [line for part in drawing.along for line in (part.head, *part.rows)]
        rows = [fit(row, inner) for row in (*drawing.head, *drawing.rows[:COPIED_ROWS_MAX], *more)]
        return plain_text([[Span(" \u00b7 ".join(text for text in (self.title, drawing.note) if text))], *rows])

    def scroll_rows(self, rows: int) -> None:
        """Scroll by a number of rows, down if positive."""
        top = min(max(self._first_row() + rows, 0), self._hidden_rows)
        at_home = top == (self._hidden_rows if self.follows_end else 0)
        self._top = None if at_home else top
        self.redraw()

    def page(self, pages: int) -> None:
        """Scroll by nearly the height of the panel."""
        self.scroll_rows(pages * max(self.size.height - FRAME - 2, 1))

    def follow(self) -> None:
        """Return to the default position: the end if the panel follows it, else the start."""
        self._top = None
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """A double click on the title or inside the frame toggles full screen."""
        if event.chain == 2 and (event.y == 0 or self.is_inside(event.x, event.y)):
            self.post_message(self.FullScreenToggled())

    def is_inside(self, x: int, y: int) -> bool:
        """Whether a cell of the widget is inside its frame."""
        return 0 < x < self.size.width - 1 and 0 < y < self.size.height - 1

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll by the wheel."""
        event.stop()
        self.scroll_rows(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll by the wheel."""
        event.stop()
        self.scroll_rows(-3)

    def on_focus(self) -> None:
        """Highlight the frame, and post `Selected`, because a selected panel must be visible."""
        # Textual sets `has_focus` after this handler.
        self.call_next(self.redraw)
        self.post_message(self.Selected(self))

    def on_blur(self) -> None:
        """Draw the frame without the highlight."""
        self.call_next(self.redraw)

    def _first_row(self) -> int:
        home = self._hidden_rows if self.follows_end else 0
        return home if self._top is None else min(self._top, self._hidden_rows)

    def _frame_tone(self, edge: str) -> Tone:
        if edge == self._lit:
            return "info"
        return "accent" if self.has_focus else "dim"

    def _upper_frame(self, note: str, width: int) -> Line:
        tone = self._frame_tone("top")
        title: Line = [
            Span("\u256d\u2500", tone),
            Span(f" {self.key} " if self.key else " ", "dim"),
            Span(f"{self.title} ", "strong" if self.has_focus else "title"),
        ]
        room = width - width_of(title) - 4
        end: Line = [Span(f" {note} ", "dim"), Span("\u2500\u256e", tone)] if note and room > len(note) else []
        end = end or [Span("\u256e", tone)]
        rule = "\u2500" * (width - width_of(title) - width_of(end))
        return fit([*title, Span(rule, tone), *end], width)

    def _lower_frame(self, top: int, room: int, total: int, width: int) -> Line:
        tone = self._frame_tone("bottom")
        if not self._hidden_rows:
            return [Span("\u2570" + "\u2500" * (width - 2) + "\u256f", tone)]
        place = f" {top + 1}-{min(top + room, total)} of {total} "
        if self.follows_end:
            place += "following " if self._top is None else "G: end "
        rule = "\u2500" * max(width - 3 - len(place), 0)
        return fit([Span("\u2570" + rule, tone), Span(place, "dim"), Span("\u2500\u256f", tone)], width)


def _between(left: Span, line: Line, right: Span, inner: int) -> Line:
    """A line in the `inner` cells between the sides of a frame."""
    gap = inner - width_of(line)
    if gap < 0:
        line = fit(line, inner)
        gap = inner - width_of(line)
    return [left, *line, Span(" " * gap), right]


class RunPanel(Panel[PartT]):
    """A panel that shows one part of a run."""

    @staticmethod
    @abstractmethod
    def pick(snapshot: Snapshot) -> PartT:
        """The part of a snapshot that the panel shows."""


class ListPanel(Panel[PartT]):
    """A list of rows with a cursor. Subclasses move the cursor and set `cursor_row` when they draw."""

    key = ""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.cursor_row = 0
        """Index of the row with the cursor in the last drawing."""
        self._first = 0

    @abstractmethod
    def draw_rows(self, part: PartT, width: int, height: int) -> list[Line]:
        """All rows; must set `cursor_row`."""

    def draw(self, part: PartT, width: int, height: int) -> Drawing:
        """The rows."""
        return Drawing(self.draw_rows(part, width, height))

    @abstractmethod
    def move(self, by: int) -> None:
        """Move the cursor, down if positive."""

    def row_at(self, event: events.Click) -> int:
        """Index of the clicked row; negative above the first one."""
        return self._first_row() + event.y - 1

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Move the cursor by the wheel."""
        event.stop()
        self.move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Move the cursor by the wheel."""
        event.stop()
        self.move(-3)

    @property
    def page_rows(self) -> int:
        """Number of rows per page."""
        return max(self.size.height - FRAME - 2, 1)

    def _first_row(self) -> int:
        room = max(self.size.height - FRAME, 1)
        # Show one row of context beyond the cursor if there is one.
        least, most = self.cursor_row - room + 2, max(self.cursor_row - 1, 0)
        self._first = max(min(max(self._first, least), most, self._hidden_rows), 0)
        return self._first


PanelT = TypeVar("PanelT", bound=Panel[Any])


class Box(NamedTuple):
    """A rectangle of terminal cells."""

    x: int
    y: int
    width: int
    height: int


class Panels(Widget, Generic[PanelT]):
    """Contains every panel of a screen. Subclasses define `boxes`, and call `place` when it changes."""

    # Textual renders every visible widget for every frame; what the panels leave free is blank.
    BLANK = True

    def __init__(self, panels: Mapping[str, PanelT], selected: str, *, id: str | None = None) -> None:
        """`panels` by name, in the order of their keys."""
        super().__init__(id=id)
        self._panels = dict(panels)
        self.selected = selected
        self.maximised = False
        self._placed: tuple[dict[str, Box], bool] = ({}, False)

    @abstractmethod
    def boxes(self, width: int, height: int) -> dict[str, Box]:
        """The boxes of the visible panels, in cells."""

    def names(self) -> Sequence[str]:
        """The panels that can be selected, in the order of their keys."""
        return list(self._panels)

    def compose(self) -> ComposeResult:
        """The panels."""
        yield from self._panels.values()

    @property
    def panel(self) -> PanelT:
        """The selected panel."""
        return self._panels[self.selected]

    def panels(self) -> Iterable[PanelT]:
        """Every panel."""
        return self._panels.values()

    def select(self, name: str) -> None:
        """Show a panel and focus it; does nothing if it cannot be selected."""
        if name not in self.names():
            return
        self.selected = name
        self.place()
        self.screen.set_focus(self._panels[name])

    def descriptions(self) -> list[tuple[str, str]]:
        """The key of each panel, and its name with what it shows."""
        return [(panel.key, f"{panel.name_shown}: {panel.what}") for panel in self.panels()]

    def action_select(self, key: int | str) -> None:
        """Select the panel of a key; the selected one again fills the screen."""
        name = next(name for name, panel in self._panels.items() if panel.key == str(key))
        if self.selected == name:
            self.maximise(not self.maximised)
        else:
            self.select(name)

    def action_cycle(self, by: int) -> None:
        """Select a neighbour of the selected panel."""
        names = self.names()
        self.select(names[(names.index(self.selected) + by) % len(names)])

    def action_maximise(self) -> None:
        """Show the selected panel in full screen, or all of them again."""
        self.maximise(not self.maximised)

    def action_scroll(self, rows: int) -> None:
        """Scroll the selected panel."""
        self.panel.scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        """Scroll the selected panel by pages."""
        self.panel.page(pages)

    def action_follow(self) -> None:
        """Let the selected panel follow the newest rows again."""
        self.panel.follow()

    def maximise(self, maximised: bool) -> None:
        """Set whether the selected panel fills the widget."""
        self.maximised = maximised
        self.place()

    def on_resize(self, _: events.Resize) -> None:
        self.place()

    def on_panel_selected(self, event: Panel.Selected) -> None:
        """Remember the panel that has the focus."""
        event.stop()
        # The message may be late: another panel may have been selected since.
        if event.control.id is not None and event.control is self.screen.focused:
            self.selected = event.control.id

    def place(self) -> None:
        """Lay out the panels for the current size."""
        width, height = self.size
        boxes = self.boxes(width, height)
        if (boxes, self.maximised) == self._placed:
            return
        self._placed = (boxes, self.maximised)
        for name, panel in self._panels.items():
            box = boxes.get(name)
            panel.display = box is not None
            panel.set_class(self.maximised, "-maximised")
            if box is not None:
                panel.styles.offset = (box.x, box.y)
                panel.styles.width, panel.styles.height = box.width, box.height
                if panel.size == (box.width, box.height):
                    # It is as large as in full screen, where it shows more.
                    panel.redraw()


class Overlay(ModalScreen[None]):
    """Shows one panel. Subclasses define the panel and the keys that close it."""

    # Absolute: Textual resolves a relative path against the file of the subclass.
    CSS_PATH = Path(__file__).parent / "../dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("home", "scroll(-1000000)", show=False),
        Binding("end", "scroll(1000000)", show=False),
        *keymap.bindings(keymap.COMMON),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.notices = Notices(self, lambda sentence: self.query_one(NoticeBar).show_notice(sentence))

    @property
    def _shown_panel(self) -> Panel[Any]:
        panel: Panel[Any] = self.query_one(Panel)  # type: ignore[type-abstract]
        return panel

    def action_scroll(self, rows: int) -> None:
        """Scroll the panel."""
        self._shown_panel.scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        """Scroll the panel by pages."""
        self._shown_panel.page(pages)


class RunOverlay(Overlay):
    """Shows a panel of a run. The screen below calls `show` with every snapshot."""

    def __init__(self, panel: RunPanel[Any], snapshot: Snapshot | None) -> None:
        super().__init__()
        self._panel = panel
        self._first = snapshot

    def compose(self) -> ComposeResult:
        """The panel and the notices."""
        yield self._panel
        yield NoticeBar()

    def on_mount(self) -> None:
        """Show the first snapshot."""
        if self._first is not None:
            self.show(self._first)

    def show(self, snapshot: Snapshot) -> None:
        """Show a newer snapshot."""
        self._panel.show(self._panel.pick(snapshot))
