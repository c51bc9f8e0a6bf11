"""The layouts of a user: the one in use, and those saved under a name, as lines of text in the view settings.

    version 1
    hide xla
    size wide.cores 0.45

The file may be damaged or of a newer version. Such a layout is refused with a sentence, and stays in the file until it
is replaced or deleted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen

from tputui.ui.base.preferences import SAVED, Views
from tputui.ui.monitor.arrangement import DEFAULT, HOSTS, LASTING, PANELS, Layout
from tputui.ui.render.lines import Line, Span, clean, fit
from tputui.ui.widgets.dialogs import PromptScreen
from tputui.ui.widgets.line_widget import Drawn

if TYPE_CHECKING:
    from tputui.ui.monitor.body import Body

VERSION = 1
DEFAULT_NAME = "default"
"""Name of the default layout, which is not in the file."""

LAYOUTS_MAX = 20
"""Maximum number of saved layouts; the file of the view settings has a maximum size."""
NAME_CHARS_MAX = 24

_LINES_MAX = 64
_CURRENT, _CURRENT_NAME, _SAVED = "monitor.layout", "monitor.layout_name", f"{SAVED}layout."


class InvalidLayout(ValueError):
    """A layout of the file cannot be used; the text says why."""


class ChosenLayout(NamedTuple):
    """The layout in use."""

    layout: Layout = DEFAULT
    name: str = DEFAULT_NAME
    """The saved layout that it was, before changes."""


class SavedLayouts:
    """The layouts in the view settings."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def last(self) -> ChosenLayout:
        """The layout of the last session. Raises `InvalidLayout`."""
        stored = self._views.raw(_CURRENT)
        if stored is None:
            return ChosenLayout()
        name = self._views.get(_CURRENT_NAME, DEFAULT_NAME)
        return ChosenLayout(layout_of(stored), name if name in self.names() else DEFAULT_NAME)

    def keep(self, chosen: ChosenLayout) -> None:
        """Use this layout in the next session too."""
        if self._views.raw(_CURRENT) is not None or chosen != ChosenLayout():
            self._views.set(_CURRENT, lines_of(chosen.layout))
            self._views.set(_CURRENT_NAME, chosen.name)

    def names(self) -> list[str]:
        """The names of the saved layouts, including those that cannot be used."""
        return list(filter(_is_name, (name.removeprefix(_SAVED) for name in self._views.names(_SAVED))))

    def get(self, name: str) -> Layout:
        """A layout by its name. Raises `InvalidLayout`."""
        return DEFAULT if name == DEFAULT_NAME else layout_of(self.stored(name))

    def stored(self, name: str) -> Any:
        """A saved layout as the file has it, for `restore`; None if it is not saved."""
        return self._views.raw(_SAVED + name)

    def restore(self, name: str, stored: Any) -> None:
        """Save what `stored` returned; None deletes the layout."""
        if stored is None:
            self._views.remove(_SAVED + name)
        else:
            self._views.set(_SAVED + name, stored)

    def save(self, name: str, layout: Layout) -> None:
        """Save a layout, in place of an earlier one of this name."""
        self._views.set(_SAVED + name, lines_of(layout))

    def valid_name(self, text: str) -> str:
        """A name typed by the user. Raises `ValueError` with a sentence."""
        name = " ".join(text.split())
        if len(name) > NAME_CHARS_MAX:
            raise ValueError(f"the name has {len(name)} characters; the maximum is {NAME_CHARS_MAX}")
        if not _is_name(name):
            raise ValueError(f"{name!r} is the built-in layout; type another name" if name else "type a name")
        names = self.names()
        if name not in names and len(names) >= LAYOUTS_MAX:
            raise ValueError(f"{len(names)} layouts are saved, the maximum; delete one first")
        return name


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_CHARS_MAX and text.isprintable() and text.casefold() != DEFAULT_NAME


def lines_of(layout: Layout) -> list[str]:
    """A layout as lines of text."""
    hidden = [f"hide {name}" for name in PANELS if name in layout.hidden]
    sizes = [f"size {key} {share:g}" for key, share in sorted(layout.sizes.items())]
    return [f"version {VERSION}", *hidden, *sizes]


def layout_of(stored: Any) -> Layout:
    """The layout of lines of text; panels that do not exist are ignored. Raises `InvalidLayout`."""
    if not isinstance(stored, list) or not all(isinstance(line, str) for line in stored) or len(stored) > _LINES_MAX:
        raise InvalidLayout("it is damaged")
    lines: Sequence[str] = stored
    _check_version(lines[0] if lines else "")
    hidden, sizes = set[str](), dict[str, float]()
    for number, line in enumerate(lines[1:], start=2):
        match line.split():
            case ["hide", name]:
                hidden |= {name} & set(PANELS)
            case ["size", key, share] if 0.0 < _number(share) <= 1.0:
                sizes[key] = _number(share)
            case _:
                raise InvalidLayout(f"line {number} is damaged")
    if hidden >= LASTING:
        raise InvalidLayout("it hides every panel")
    return Layout(frozenset(hidden), sizes)


def _check_version(line: str) -> None:
    word, _, version = line.partition(" ")
    if word != "version" or not version.isdecimal():
        raise InvalidLayout("it is damaged")
    if _number(version) != VERSION:
        raise InvalidLayout("a newer version of tputui saved it")


def _number(text: str) -> float:
    """A number; NaN if the text is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


_KEYS = (
    "space  hide or show it, or use the layout",
    "s save as  D delete  backspace default sizes",
    "u undo  esc close",
)
_MOVES = {"up": -1, "k": -1, "shift+tab": -1, "down": 1, "j": 1, "tab": 1}
_FOOT = 1 + len(_KEYS)
"""Lines below the list: a blank one and the keys."""


class _Entry(NamedTuple):
    """A panel or a layout."""

    name: str
    is_panel: bool
    line: Line


class LayoutsList(Drawn):
    """The panels, then the layouts, one of them under the cursor."""

    can_focus = True

    def __init__(self, body: Body) -> None:
        super().__init__(id="layouts")
        self._body = body
        self._cursor = 0
        self._rows: list[int | None] = []
        """The entry of each drawn line below the title."""

    @property
    def lines_needed(self) -> int:
        """Lines of the whole dialog without its frame."""
        return 2 + len(self._entries()) + 2 + _FOOT

    @property
    def layout_name(self) -> str | None:
        """The layout under the cursor; None if it is a panel."""
        entry = self._at_cursor()
        return None if entry.is_panel else entry.name

    def move(self, by: int) -> None:
        """Move the cursor, around the ends."""
        self._cursor = (min(self._cursor, len(self._entries()) - 1) + by) % len(self._entries())
        self.redraw()

    def act(self) -> None:
        """Hide or show the panel under the cursor, or use the layout."""
        entry = self._at_cursor()
        if entry.is_panel:
            self._body.toggle(entry.name)
        else:
            self._body.action_choose_layout(entry.name)
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """The title, the part of the list around the cursor, and the keys."""
        entries = self._entries()
        self._cursor = min(self._cursor, len(entries) - 1)
        lines: list[tuple[Line, int | None]] = []
        for index, entry in enumerate(entries):
            if index and entry.is_panel != entries[index - 1].is_panel:
                lines += [([], None), ([Span("layouts", "title")], None)]
            mark = Span("\u276f " if index == self._cursor else "  ", "accent")
            lines.append(([mark, *entry.line], index))
        foot: list[Line] = [[Span(keys, "label")] for keys in _KEYS]
        room = max(height - 2 - _FOOT, 1)
        at = next(row for row, (_, index) in enumerate(lines) if index == self._cursor)
        first = min(max(at - room // 2, 0), max(len(lines) - room, 0))
        shown = lines[first : first + room]
        self._rows = [index for _, index in shown]
        head: list[Line] = [[Span("Panels and layouts", "strong")], []]
        return [fit(line, width) for line in (*head, *(line for line, _ in shown), [], *foot)]

    def on_click(self, event: events.Click) -> None:
        """Act on the entry that is clicked."""
        content = event.get_content_offset(self)
        row = content.y - 2 if content is not None else -1
        index = self._rows[row] if 0 <= row < len(self._rows) else None
        if index is not None:
            self._cursor = index
            self.act()

    def _at_cursor(self) -> _Entry:
        entries = self._entries()
        return entries[min(self._cursor, len(entries) - 1)]

    def _entries(self) -> list[_Entry]:
        body = self._body
        hidden = body.hidden()
        entries = []
        for panel in body.panels():
            name = panel.id or ""
            if panel.key == "0" or (name == HOSTS and not body.has_hosts):
                continue  # the failure is always shown
            box = "[ ]" if panel in hidden else "[x]"
            line = [Span(f"{panel.key} ", "dim"), Span(f"{box} {panel.name_shown}")]
            entries.append(_Entry(name, True, line))
        names = [DEFAULT_NAME, *body.saved.names()]
        return [*entries, *(_Entry(name, False, self._layout_line(name)) for name in names)]

    def _layout_line(self, name: str) -> Line:
        chosen, title = self._body.chosen, clean(name)
        try:
            layout = self._body.saved.get(name)
        except InvalidLayout as error:
            return [Span(f"( ) {title} "), Span(f"cannot be used: {error}", "warn")]
        if chosen == ChosenLayout(layout, name):
            return [Span(f"(*) {title}", "strong")]
        return [Span(f"( ) {title} "), Span("changed; s saves it" if chosen.name == name else "", "dim")]


class LayoutsScreen(ModalScreen[None]):
    """Hides and shows panels, and saves, chooses and deletes layouts."""

    CSS_PATH = "../dialogs.tcss"

    def __init__(self, body: Body) -> None:
        super().__init__()
        self._body = body
        self._list = LayoutsList(body)

    def compose(self) -> ComposeResult:
        """The list."""
        yield self._list

    def on_mount(self) -> None:
        """Fit the height."""
        self._fit()
        self._list.focus()

    def take_key(self, event: events.Key) -> bool:
        """Every key of the dialog; other keys do nothing."""
        pressed, layouts = event.key, self._list
        if pressed in ("escape", "q", "P", "shift+p"):
            self.dismiss(None)
        elif pressed in _MOVES:
            layouts.move(_MOVES[pressed])
        elif pressed in ("space", "enter"):
            layouts.act()
        elif pressed in "123456789" or pressed in ("W", "shift+w"):
            self._body.toggle(self._panel_name(pressed[-1].upper()))
        elif pressed == "s":
            self._ask_name()
        elif pressed in ("D", "shift+d", "delete"):
            self._delete()
        elif pressed == "backspace":
            self._body.action_reset_sizes()
        elif pressed == "u":
            self._undo()
        else:
            return False
        self._fit()
        return True

    def _panel_name(self, key: str) -> str:
        return next(panel.id or "" for panel in self._body.panels() if panel.key == key)

    def _ask_name(self) -> None:
        """Ask for a name, and save the layout."""
        name = self._body.chosen.name
        text = "" if name == DEFAULT_NAME else name
        self.app.push_screen(PromptScreen("Save the layout as", self._body.saved.valid_name, text), self._save)

    def _save(self, name: str | None) -> None:
        if name is not None:
            self._body.save_layout(name)
            self._fit()

    def _delete(self) -> None:
        name = self._list.layout_name
        if name is None or name == DEFAULT_NAME:
            self._body.notify_user("only saved layouts can be deleted; choose one of them first")
        else:
            self._body.delete_layout(name)

    def _undo(self) -> None:
        self.app.call_later(self._undo_and_draw)

    async def _undo_and_draw(self) -> None:
        await self.app.run_action("app.undo_view")
        self._fit()

    def _fit(self) -> None:
        """Draw the list, in the height that it needs."""
        self._list.styles.height = self._list.lines_needed + 4
        self._list.redraw()
