"""The help screen: made from the key map, grouped by task, and searchable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tputui.ui.base.keymap import Key
from tputui.ui.base.palette import grade
from tputui.ui.render.lines import Line, Span, paragraph, width_of, wrap
from tputui.ui.terminal.themes import key_names
from tputui.ui.widgets.line_widget import EditedText, press, spans
from tputui.ui.widgets.panel import Drawing, Overlay, Panel
from tputui.ui.widgets.player_bar import NoticeBar

_KEY_WIDTH = 12


class HelpLine(NamedTuple):
    """A key, or the title of a group if `sentence` is empty."""

    shown: str
    sentence: str
    word: str = ""
    """Its word in the footer, searched too."""
    also: str = ""
    """Other words that find it."""


class HelpPart(NamedTuple):
    """The content of the panel."""

    lines: tuple[HelpLine, ...]
    typed: EditedText | None = None
    """The search text; None without a search."""
    is_typing: bool = False


class HelpPanel(Panel[HelpPart]):
    """Lists the keys and their actions."""

    key = "?"
    name_shown = "help"
    what = "this help"

    def draw(self, part: HelpPart, width: int, height: int) -> Drawing:
        """A line for each key that matches the search."""
        matches = matching(part.lines, part.typed.text if part.typed is not None else "")
        rows: list[Line] = []
        for shown, sentence, *_ in matches:
            if not sentence:
                rows += [[], [Span(f" {shown}", "title")]] if rows else [[Span(f" {shown}", "title")]]
                continue
            first, *continued = wrap(sentence, max(width - _KEY_WIDTH - 3, 10))
            rows.append([Span(f"  {key_names(self.app, shown):<{_KEY_WIDTH}}", "accent"), Span(first)])
            rows += [[Span(" " * (_KEY_WIDTH + 2)), Span(piece)] for piece in continued]
        if not matches and part.typed is not None:
            rows = paragraph(f"no match for {part.typed.text!r}", width, height)
        return Drawing(rows, head=_search_line(part, matches, width), note="/ search  esc close")


def _search_line(part: HelpPart, matches: Sequence[HelpLine], width: int) -> tuple[Line, ...]:
    if part.typed is None:
        return ()
    count: Line = [Span(f" [{_num_keys(matches)}/{_num_keys(part.lines)}] ", "label")]
    room = max(width - 3 - width_of(count), 4)
    typed = spans(part.typed, room) if part.is_typing else [Span(part.typed.text, "strong")]
    return ([Span(" / ", "accent"), *typed, *count],)


def _num_keys(lines: Sequence[HelpLine]) -> int:
    return sum(1 for line in lines if line.sentence)


def matching(lines: Sequence[HelpLine], wanted: str) -> list[HelpLine]:
    """The keys that match every word of `wanted`, below the titles of their groups. Groups and keys with whole-word
    matches come first."""
    groups: list[list[tuple[int, HelpLine]]] = []
    head = HelpLine("", "")
    for line in lines:
        if not line.sentence:
            head = line
            groups.append([(0, head)])
            continue
        points = grade(wanted, line.word, line.also, f"{head.shown} {line.shown} {line.sentence}")
        if points:
            groups[-1].append((points, line))
    hits = [[group[0], *sorted(group[1:], key=_best_first)] for group in groups if len(group) > 1]
    hits.sort(key=lambda group: _best_first(group[1]))
    return [line for group in hits for _, line in group]


def _best_first(graded: tuple[int, HelpLine]) -> int:
    return -graded[0]


class HelpScreen(Overlay):
    """Shows the help over the screen that opened it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "leave", show=False),
        Binding("slash", "find", show=False),
        Binding("g", "scroll(-1000000)", show=False),
        Binding("G,shift+g", "scroll(1000000)", show=False),
    ]

    def __init__(self, keys: Sequence[Key], panels: Sequence[tuple[str, str]] = ()) -> None:
        """`panels` are pairs of a key and a description."""
        super().__init__()
        self._part = HelpPart(help_lines(keys, panels))

    def compose(self) -> ComposeResult:
        """The panel and the notice bar."""
        yield HelpPanel(id="help")
        yield NoticeBar()

    def on_mount(self) -> None:
        """Show the content."""
        self._show(self._part)

    def take_key(self, event: events.Key) -> bool:
        """While the user types a search, every key edits or ends it."""
        part = self._part
        if not part.is_typing or part.typed is None:
            return False
        if event.key == "enter":
            self._show(part._replace(is_typing=False))
        elif event.key == "escape":
            self._show(HelpPart(part.lines))
        else:
            edited = press(part.typed, event.key, event.character)
            if edited is not None:
                self._show(part._replace(typed=edited))
        return True

    def action_find(self) -> None:
        """Start a search."""
        self._show(self._part._replace(typed=self._part.typed or EditedText.of(""), is_typing=True))

    def action_leave(self) -> None:
        """End the search, else close the help."""
        if self._part.typed is not None:
            self._show(HelpPart(self._part.lines))
        else:
            self.dismiss(None)

    def _show(self, part: HelpPart) -> None:
        self._part = part
        self.query_one(HelpPanel).show(part)


def help_lines(keys: Sequence[Key], panels: Sequence[tuple[str, str]]) -> tuple[HelpLine, ...]:
    """The keys by group; the group `panels` includes the descriptions of the panels."""
    lines: list[HelpLine] = []
    for group in dict.fromkeys(key.group for key in keys):
        lines.append(HelpLine(group, ""))
        lines += [
            HelpLine(key.shown, key.help, key.footer, f"{key.title} {key.also}")
            for key in keys
            if key.group == group and not key.shown.isdigit()
        ]
        if group == "panels":
            lines += [HelpLine(*panel) for panel in panels]
    return tuple(lines)
