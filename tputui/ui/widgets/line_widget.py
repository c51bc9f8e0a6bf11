"""The base class of our widgets: its lines are spans, and only changed lines are repainted.

At ten frames a second this costs a fraction of a table widget, and untrusted text stays inert. Textual requests all
lines of every visible widget when one line changes, so the strip of a line is cached.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Sequence

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.css.styles import RenderStyles
from textual.dom import DOMNode
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tputui.ui.render.lines import Colours, Line, Tone, fit, safe, width_of


class Drawn(Widget):
    """A widget that draws lines of spans. Subclasses implement `paint`; `redraw` repaints the lines that changed."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._strips: dict[int, Strip] = {}
        """Rendered lines by row."""
        self._tones: dict[Tone, Style] = {}
        """Styles of the style sheet by tone."""
        self._filters: Sequence[LineFilter] = ()
        """The filters that were applied to the strips."""

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
        before, self._lines = self._lines, [fit(safe(line), width) for line in self.paint(width, height)[:height]]
        rows = max(len(before), len(self._lines))
        changed = [row for row in range(rows) if before[row : row + 1] != self._lines[row : row + 1]]
        for row in changed:
            self._strips.pop(row, None)
        if changed:
            self.refresh(*(Region(0, row, width, 1) for row in changed))

    def on_resize(self, _: events.Resize) -> None:
        """Draw everything for the new size."""
        self._lines = []
        self._strips.clear()
        self.redraw()
        self.refresh()

    def notify_style_update(self) -> None:
        """Drop cached styles, and repaint if a used tone changed."""
        super().notify_style_update()
        self._tones.clear()
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
            self._strips.clear()
        strips = [self._strips.get(y) or self._cache_strip(y) for y in crop.line_range]
        if crop.column_span == (0, self.size.width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    def render_line(self, y: int) -> Strip:
        """The strip of a line."""
        line = self._lines[y] if y < len(self._lines) else []
        segments = [
            Segment(span.text, painted(span.colours) if span.colours else self._style(span.tone)) for span in line
        ]
        return Strip(segments, width_of(line)).adjust_cell_length(self.size.width, self._style("plain"))

    def _cache_strip(self, y: int) -> Strip:
        strip = self.render_line(y)
        for line_filter in self._filters:
            strip = strip.apply_filter(line_filter, self.background_colors[1])
        self._strips[y] = strip
        return strip

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
        happens three times before the first chart is shown.
        """
        component = DOMNode(classes=name)
        component._attach(self)
        self.app.stylesheet.apply(component, animate=False)
        self._component_styles[name] = component.styles
        return component.styles


def plain_text(lines: Sequence[Line]) -> str:
    """Lines as text, without trailing spaces."""
    return "\n".join("".join(span.text for span in line).rstrip() for line in lines)


@functools.lru_cache(maxsize=1 << 14)
def painted(colours: Colours) -> Style:
    """The style of a piece of a picture; the terminal driver reduces its colours to those available."""
    text, ground = colours
    return Style(color=Color.from_rgb(*text), bgcolor=Color.from_rgb(*ground) if ground is not None else None)
