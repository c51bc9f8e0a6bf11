"""The base class of our widgets: its lines are spans, and only changed lines are repainted.

At ten frames a second this costs a fraction of a table widget, and untrusted text stays inert. Textual requests all
lines of every visible widget when one line changes, so the strip of a line is cached.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.css.styles import RenderStyles, RulesMap
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.filter import LineFilter
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tputui.ui.render.lines import Colours, Line, Span, Tone, clean, crop, fit, safe, spread, width_of

_STYLES_MAX = 1 << 12
"""Styles stored per widget; pictures have thousands."""
_BLANK = Span("")
_tone_rules: WeakKeyDictionary[Stylesheet, tuple[object, dict[tuple[str, bool], RulesMap]]] = WeakKeyDictionary()
"""For each style sheet, its parsed rules and what they give each tone, by name and whether the theme is dark."""


class _LineStrip(Strip):
    """The strip of a line. Textual divides every strip at its end, and a plain one then stores itself in its cache:
    a cycle per repainted line, which only the garbage collector removes, in pauses of several frames of a large run."""

    __slots__ = ()

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        length = self.cell_length
        cuts = [cut for cut in cuts if cut <= length]
        return [self] if cuts == [length] else super().divide(cuts)


class Drawn(Widget):
    """A widget that draws lines of spans. Subclasses implement `paint`; `redraw` repaints the lines that changed."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._painted: list[Line] = []
        """The lines as `paint` returned them."""
        self._lines: list[Line] = []
        """The same, made safe and cut to the width."""
        self._strips: list[Strip] = []
        """The rendered lines by row; those after the last one were not rendered yet."""
        self._stale: set[int] = set()
        """Rows that were drawn since they were rendered."""
        self._tones: dict[Tone, Style] = {}
        """Styles of the style sheet by tone."""
        self._filters: Sequence[LineFilter] = ()
        """The filters that were applied to the strips and styles."""
        self._filtered_styles: dict[Tone | Colours, Style] = {}
        """Styles with the filters applied, by tone or colours."""

    # Textual's metaclass is not `ABCMeta`: mypy checks that subclasses define abstract methods, Python does not.
    @abstractmethod
    def paint(self, width: int, height: int) -> list[Line]:
        """The lines of the widget, at most `height`, each at most `width` cells."""

    def as_text(self) -> str:
        """The drawn lines without colours, for the clipboard and for files."""
        return plain_text(self._lines)

    def redraw(self) -> None:
        """Draw again and repaint the lines that changed."""
        width, height = self.size
        if not width or not height:
            return
        before, self._painted = self._painted, self.paint(width, height)[:height]
        rows = max(len(before), len(self._painted))
        changed = [row for row in range(rows) if before[row : row + 1] != self._painted[row : row + 1]]
        del self._lines[len(self._painted) :]
        for row in changed:
            self._lines[row : row + 1] = [fit(safe(line), width) for line in self._painted[row : row + 1]]
        if changed:
            self._stale.update(changed)
            self._repaint(changed, width)

    def _repaint(self, rows: Sequence[int], width: int) -> None:
        """Repaint rows, in ascending order."""
        # One region for neighbouring rows: Textual handles every region several times.
        starts = [row for row in rows if row - 1 not in rows]
        ends = [row + 1 for row in rows if row + 1 not in rows]
        regions = [Region(0, start, width, end - start) for start, end in zip(starts, ends, strict=True)]
        screen = self.screen if self.is_mounted else None
        if screen is not None and getattr(screen, "is_drawing", False) and self.display and not self.styles.gutter:
            # What `refresh` does, without two messages per widget and without dropping what does not depend on lines.
            self._repaint_regions.update(regions)
            screen._dirty_widgets.add(self)
        else:
            self.refresh(*regions)

    def on_resize(self, _: events.Resize) -> None:
        """Draw everything for the new size."""
        self._painted, self._lines = [], []
        self._strips.clear()
        self.redraw()
        self.refresh()

    def notify_style_update(self) -> None:
        """Drop cached styles, and repaint if a used tone changed."""
        super().notify_style_update()
        self._tones.clear()
        self._filtered_styles.clear()
        self._strips.clear()
        before = self._component_styles.copy()
        self._component_styles.clear()
        if any(self._load_style(name) != styles for name, styles in before.items()):
            self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The strips of the lines in a region; Textual's own method if the widget has a border or padding."""
        if self.styles.gutter:
            return super().render_lines(crop)
        filters = self.get_line_filters()
        if filters != self._filters:
            self._filters = filters
            self._filtered_styles.clear()
            self._strips.clear()
        width, num_rendered = self.outer_size.width, len(self._strips)
        if num_rendered < crop.bottom:
            self._stale.update(range(num_rendered, crop.bottom))
            self._strips += [Strip([])] * (crop.bottom - num_rendered)
        for y in self._stale:
            if y < len(self._strips):
                self._strips[y] = self._strip_of(y, width, self._filtered_style)
        self._stale.clear()
        strips = self._strips[crop.y : crop.bottom]
        if crop.column_span == (0, width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    def render_line(self, y: int) -> Strip:
        """The strip of a line, to which Textual applies the filters."""
        return self._strip_of(y, self.size.width, self._style_of)

    def _strip_of(self, y: int, width: int, style_of: Callable[[Span], Style]) -> Strip:
        line = self._lines[y] if y < len(self._lines) else []
        segments = [Segment(span.text, style_of(span)) for span in line]
        width_drawn = width_of(line)
        if width_drawn > width:
            # The widget became narrower, and is drawn anew after this.
            return Strip(segments, width_drawn).crop(0, width)
        if width_drawn < width:
            segments.append(Segment(" " * (width - width_drawn), style_of(_BLANK)))
        return _LineStrip(segments, width)

    def _style_of(self, span: Span) -> Style:
        return painted(span.colours) if span.colours else self._style(span.tone)

    def _filtered_style(self, span: Span) -> Style:
        """The style of a span with the filters applied: they change styles only, and there are few of them."""
        look = span.colours or span.tone
        style = self._filtered_styles.get(look)
        if style is None:
            if len(self._filtered_styles) >= _STYLES_MAX:
                self._filtered_styles.clear()
            segments = [Segment(" ", self._style_of(span))]
            for line_filter in self._filters:
                segments = line_filter.apply(segments, self.background_colors[1])
            style = self._filtered_styles[look] = segments[0].style or Style.null()
        return style

    def _style(self, tone: Tone) -> Style:
        style = self._tones.get(tone)
        if style is None:
            name = f"tone--{tone}"
            if name not in self._component_styles:
                self._load_style(name)
            style = self._tones[tone] = self.get_component_rich_style(name)
        return style

    def _load_style(self, name: str) -> RenderStyles:
        """Load the style of a component class, as Textual does for all of `COMPONENT_CLASSES`.

        Done when a tone is first drawn: loading every tone of every panel would take longer than drawing them, and
        happens three times before the first chart is shown. The rules of a tone are the same in every widget, so the
        style sheet is searched once.
        """
        component = DOMNode(classes=name)
        component._attach(self)
        rules, key = _rules_of_tones(self.app.stylesheet), (name, self.app.current_theme.dark)
        if key in rules:
            component.styles.base.merge_rules(rules[key])
        else:
            self.app.stylesheet.apply(component, animate=False)
            rules[key] = component.styles.base.get_rules()
        self._component_styles[name] = component.styles
        return component.styles


def _rules_of_tones(sheet: Stylesheet) -> dict[tuple[str, bool], RulesMap]:
    """Rules that were found before; none if the style sheet was parsed again since, as for another theme."""
    parsed, rules = _tone_rules.get(sheet, (None, {}))
    if parsed is not sheet.rules:
        rules = {}
        _tone_rules[sheet] = (sheet.rules, rules)
    return rules


def plain_text(lines: Sequence[Line]) -> str:
    """Lines as text, without trailing spaces."""
    return "\n".join("".join(span.text for span in line).rstrip() for line in lines)


@functools.lru_cache(maxsize=1 << 14)
def painted(colours: Colours) -> Style:
    """The style of a piece of a picture; the terminal driver reduces its colours to those available."""
    text, ground = colours
    return Style(color=Color.from_rgb(*text), bgcolor=Color.from_rgb(*ground) if ground is not None else None)


class LineInput(Drawn):
    """A prompt, the text, and a note at the right."""

    can_focus = True

    class Changed(Message):
        """The text changed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Done(Message):
        """Editing ended: accepted by enter, or cancelled by escape."""

        def __init__(self, text: str, *, accepted: bool) -> None:
            super().__init__()
            self.text, self.accepted = text, accepted

    def __init__(self, prompt: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._prompt = prompt
        self._edited = EditedText("", 0)
        self._note: tuple[str, Tone] = ("", "dim")
        self.is_typing = False
        """Whether the user edits the text; otherwise the widget shows the accepted text."""

    @property
    def text(self) -> str:
        return self._edited.text

    def begin(self, text: str, prompt: str | None = None, *, is_selected: bool = False) -> None:
        """Show the widget and start editing a text; a selected one is replaced by what the user types."""
        self.display = self.is_typing = True
        self._prompt = prompt if prompt is not None else self._prompt
        self._edited = EditedText.of(text)._replace(is_selected=is_selected and bool(text))
        self.focus()
        self.redraw()

    def rest(self, text: str, prompt: str | None = None) -> None:
        """End editing. The widget stays visible unless the text is empty, since an active filter must be visible."""
        self.is_typing = False
        self.display = bool(text)
        self._prompt = prompt if prompt is not None else self._prompt
        self._edited = EditedText.of(text)
        self.redraw()

    def allow_focus(self) -> bool:
        """Only while editing, so that a click does not take the focus from the panel."""
        return self.is_typing

    def note(self, text: str, tone: Tone = "dim") -> None:
        """Show a note on the text."""
        self._note = (text, tone)
        self.redraw()

    def note_found(self, num_found: int, num_all: int) -> None:
        """Show how many entries match the text, and the key that shows all."""
        self.note(f"[{num_found}/{num_all}] {'enter accepts, ' if self.is_typing else ''}esc shows all")

    def paint(self, width: int, height: int) -> list[Line]:
        head: Line = [Span(f" {self._prompt} ", "accent")]
        note = fit([Span(f"{self._note[0]} ", self._note[1])], max(width // 2, 10)) if self._note[0] else []
        room = max(width - width_of(head) - width_of(note) - 1, 8)
        body = spans(self._edited, room) if self.is_typing else [Span(crop(clean(self.text), room), "accent")]
        return [spread([*head, *body], note, width)]

    def take_key(self, event: events.Key) -> bool:
        """Edit the text or end editing; the screen handles other keys, and all keys while nothing is edited."""
        if not self.is_typing:
            return False
        if event.key in ("enter", "escape"):
            # The handler of `Done` sets the final text at once, so nothing is redrawn here.
            self.is_typing = False
            self.post_message(self.Done(self.text, accepted=event.key == "enter"))
            return True
        edited = press(self._edited, event.key, event.character)
        if edited is not None:
            self._take(edited)
        return edited is not None

    def on_paste(self, event: events.Paste) -> None:
        """Insert pasted text as one line."""
        if self.is_typing:
            event.stop()
            before = EditedText("", 0) if self._edited.is_selected else self._edited
            self._take(before.insert(event.text))

    def on_focus(self) -> None:
        """Draw the cursor."""
        self.redraw()

    def _take(self, edited: EditedText) -> None:
        changed = edited.text != self._edited.text
        self._edited = edited
        self.redraw()
        if changed:
            self.post_message(self.Changed(edited.text))


CURSOR = "\u258f"
"""Drawn at the insertion point."""


class EditedText(NamedTuple):
    """A text with a cursor in it."""

    text: str
    at: int
    """Number of characters before the cursor."""
    is_selected: bool = False
    """Whether the whole text is selected: typing replaces it, erasing clears it, and moving the cursor keeps it."""

    @classmethod
    def of(cls, text: str) -> EditedText:
        """The text with the cursor at its end."""
        return cls(text, len(text))

    def insert(self, text: str) -> EditedText:
        """With `text` inserted at the cursor, without control characters; line ends become spaces."""
        inert = clean(text.replace("\r\n", " ").replace("\n", " "))
        return EditedText(self.text[: self.at] + inert + self.text[self.at :], self.at + len(inert))

    def move(self, by: int) -> EditedText:
        """With the cursor moved."""
        return EditedText(self.text, min(max(self.at + by, 0), len(self.text)))

    def erase(self, before: int, after: int = 0) -> EditedText:
        """With characters before and after the cursor removed."""
        start, end = max(self.at - before, 0), self.at + after
        return EditedText(self.text[:start] + self.text[end:], start)

    def word_before(self) -> int:
        """Length of the word before the cursor, including spaces after it."""
        head = self.text[: self.at].rstrip(" ")
        return self.at - (head.rfind(" ") + 1)


_ERASING = frozenset({"backspace", "ctrl+h", "delete", "ctrl+d", "ctrl+w", "ctrl+u", "ctrl+k"})


def press(edited: EditedText, key: str, character: str | None) -> EditedText | None:
    """The text after a key press; None if the key does not edit."""
    everything = len(edited.text)
    is_typed = character is not None and character.isprintable()
    if edited.is_selected and (is_typed or key in _ERASING):
        return press(EditedText("", 0), key, character) or EditedText("", 0)
    moves = {
        "left": -1,
        "right": 1,
        "home": -everything,
        "ctrl+a": -everything,
        "end": everything,
        "ctrl+e": everything,
    }
    if key in moves:
        return edited.move(moves[key])
    if key in ("backspace", "ctrl+h"):
        return edited.erase(1)
    if key in ("delete", "ctrl+d"):
        return edited.erase(0, 1)
    if key == "ctrl+w":
        return edited.erase(edited.word_before())
    if key == "ctrl+u":
        return edited.erase(edited.at)
    if key == "ctrl+k":
        return edited.erase(0, everything)
    if character is not None and is_typed:
        return edited.insert(character)
    return None


def spans(edited: EditedText, width: int) -> Line:
    """The text with its cursor in at most `width` cells, scrolled so that the cursor is visible."""
    room = max(width - 1, 1)
    start = max(edited.at - room + 1, 0) if len(edited.text) >= room else 0
    before, after = edited.text[start : edited.at], edited.text[edited.at : start + room]
    if edited.is_selected:
        return [Span(clean(before + after), "chosen"), Span(CURSOR, "accent")]
    return [Span(clean(before), "strong"), Span(CURSOR, "accent"), Span(clean(after), "strong")]
