"""The help screen: made from the key map, grouped by task, and searchable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tputui.state.snapshot import Snapshot
from tputui.ui.base.keymap import Key
from tputui.ui.base.palette import grade
from tputui.ui.render.lines import Line, Span, paragraph, width_of, wrap
from tputui.ui.terminal.capabilities import keys_told
from tputui.ui.widgets.bars import NoticeBar
from tputui.ui.widgets.line_input import EditedText, press, spans
from tputui.ui.widgets.overlay import Overlay
from tputui.ui.widgets.panel import Drawing, Panel

_KEY_WIDTH = 12


class Told(NamedTuple):
    """A key, or a group of them where `sentence` is empty."""

    shown: str
    sentence: str
    word: str = ""
    """What the footer calls it, by which it is found too."""
    also: str = ""
    """Other words by which it is found."""


class HelpPart(NamedTuple):
    """What the panel shows."""

    lines: tuple[Told, ...]
    typed: EditedText | None = None
    """What is searched for; None where nothing is."""
    is_typing: bool = False


class HelpPanel(Panel[HelpPart]):
    """Keys with what they do."""

    key = "?"
    name_shown = "help"
    what = "this help"

    @staticmethod
    def pick(snapshot: Snapshot) -> HelpPart:
        """Nothing of a snapshot is help."""
        return HelpPart(())

    def draw(self, part: HelpPart, width: int, height: int) -> Drawing:
        """A line a key, those alone that are searched for."""
        found = matching(part.lines, part.typed.text if part.typed is not None else "")
        rows: list[Line] = []
        for shown, sentence, *_ in found:
            if not sentence:
                rows += [[], [Span(f" {shown}", "title")]] if rows else [[Span(f" {shown}", "title")]]
                continue
            first, *rest = wrap(sentence, max(width - _KEY_WIDTH - 3, 10))
            rows.append([Span(f"  {keys_told(self.app, shown):<{_KEY_WIDTH}}", "accent"), Span(first)])
            rows += [[Span(" " * (_KEY_WIDTH + 2)), Span(piece)] for piece in rest]
        if not found and part.typed is not None:
            rows = paragraph(f"no key does {part.typed.text!r}", width, height)
        return Drawing(rows, head=_search_line(part, found, width), note="/ finds  esc closes")


def _search_line(part: HelpPart, found: Sequence[Told], width: int) -> tuple[Line, ...]:
    if part.typed is None:
        return ()
    count: Line = [Span(f" [{_num_keys(found)}/{_num_keys(part.lines)}] ", "label")]
    room = max(width - 3 - width_of(count), 4)
    typed = spans(part.typed, room) if part.is_typing else [Span(part.typed.text, "strong")]
    return ([Span(" / ", "accent"), *typed, *count],)


def _num_keys(lines: Sequence[Told]) -> int:
    return sum(1 for line in lines if line.sentence)


def matching(lines: Sequence[Told], wanted: str) -> list[Told]:
    """The keys whose name, sentence, word in the footer or group holds every word of
    `wanted`, below the heads of their groups; whole words first, of groups as of keys."""
    groups: list[list[tuple[int, Told]]] = []
    head = Told("", "")
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


def _best_first(graded: tuple[int, Told]) -> int:
    return -graded[0]


class HelpScreen(Overlay):
    """Help over the screen that asked for it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "leave", show=False),
        Binding("slash", "find", show=False),
        Binding("g", "scroll(-1000000)", show=False),
        Binding("G,shift+g", "scroll(1000000)", show=False),
    ]

    def __init__(self, keys: Sequence[Key], panels: Sequence[tuple[str, str]] = ()) -> None:
        """`panels` are their keys, and their names with what they show."""
        super().__init__()
        self._part = HelpPart(help_lines(keys, panels))

    def compose(self) -> ComposeResult:
        """The panel, and where sentences go."""
        yield HelpPanel(id="help")
        yield NoticeBar()

    def on_mount(self) -> None:
        """Fills it."""
        self._show(self._part)

    def take_key(self, event: events.Key) -> bool:
        """While one types, every key is part of what is searched for, or ends it."""
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
        """Begins to search."""
        self._show(self._part._replace(typed=self._part.typed or EditedText.of(""), is_typing=True))

    def action_leave(self) -> None:
        """Ends a search, else the help."""
        if self._part.typed is not None:
            self._show(HelpPart(self._part.lines))
        else:
            self.dismiss(None)

    def _show(self, part: HelpPart) -> None:
        self._part = part
        self.query_one(HelpPanel).show(part)


def help_lines(keys: Sequence[Key], panels: Sequence[tuple[str, str]]) -> tuple[Told, ...]:
    """The keys by group, the panels with what they show among those of the group `panels`."""
    found: list[Told] = []
    for group in dict.fromkeys(key.group for key in keys):
        found.append(Told(group, ""))
        found += [
            Told(key.shown, key.help, key.footer, f"{key.title} {key.also}")
            for key in keys
            if key.group == group and not key.shown.isdigit()
        ]
        if group == "panels":
            found += [Told(*panel) for panel in panels]
    return tuple(found)
