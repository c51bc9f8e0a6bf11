"""Lines of styled text and tables of them: what panels draw, before any terminal is involved.

A line is a list of spans, a span is a text and the name of a style. Text is inert: `clean` removes control characters
and escape sequences, `safe` does so for every line that is drawn, and nothing here interprets markup. Must not import
Textual.
"""

from __future__ import annotations

import functools
import itertools
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar, overload

from rich.cells import cell_len, set_cell_size

T = TypeVar("T")

Tone = Literal[
    "plain",
    "dim",
    "label",
    "strong",
    "good",
    "warn",
    "bad",
    "accent",
    "info",
    "band",
    "title",
    "alert",
    "hit",
    "chosen",
    "run1",
    "run2",
    "run3",
    "run4",
    "run5",
    "run6",
    "run7",
    "run8",
    "chip_good",
    "chip_warn",
    "chip_bad",
    "chip_info",
    "in_band",
    "band_edge",
    "accent_in_band",
    "alert_in_band",
    "bad_in_band",
    "good_in_band",
    "info_in_band",
    "label_in_band",
    "warn_in_band",
]
"""The meaning of a text, mapped to a style by the style sheet. `hit`: a search match. `chosen`: the selected line.
`run1` to `run8`: compared runs, which are also labelled by a letter. `in_band`, and tones that end so: with the
background of the band of a chart, whose colour is the text colour of `band_edge`. `chip_`: on a coloured
background."""

_IN_BAND: dict[Tone, Tone] = {
    "plain": "in_band",
    "accent": "accent_in_band",
    "alert": "alert_in_band",
    "bad": "bad_in_band",
    "good": "good_in_band",
    "info": "info_in_band",
    "label": "label_in_band",
    "warn": "warn_in_band",
}
_BANDS = frozenset(_IN_BAND.values())


def in_band(tone: Tone) -> Tone:
    """The tone on the background of the band; itself if there is no such tone."""
    return _IN_BAND.get(tone, tone)


def on_ground_of(below: Tone, tone: Tone) -> Tone:
    """The tone on the background of the tone `below`."""
    return in_band(tone) if below in _BANDS else tone


RGB = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""

Colours = tuple[RGB, RGB | None]
"""Text colour and background; None does not change the background."""


class Sign(NamedTuple):
    """A sign for a condition, a problem or a kind of event, with its tone and its name."""

    mark: str
    tone: Tone
    word: str


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    tone: Tone = "plain"
    colours: Colours | None = None
    """Explicit colours, only for pictures; everything else uses a tone."""


Line = list[Span]


class DrawnLate(Sequence[Line]):
    """Lines that are drawn on access: a panel may have many, and shows a few."""

    @abstractmethod
    def line_at(self, row: int) -> Line:
        """The line of a row, counted from 0."""

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> list[Line]: ...
    def __getitem__(self, index: int | slice) -> Line | list[Line]:
        if isinstance(index, slice):
            return [self.line_at(row) for row in range(len(self))[index]]
        return self.line_at(range(len(self))[index])


GAPS = (2, 1)
"""Cells between two columns: the smaller gap is used if more columns fit."""

CHARS_MAX = 4_096
"""Characters of a text that are measured to fit it into a line, which is shorter. Runs are untrusted, and measuring a
megabyte of wide characters takes half a second."""

ROWS_MAX = 500
"""Rows of a wrapped text: more of one line is of no use on a screen, and `tputui show` prints it whole."""

_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences
    r"|\x1b[\]PX^_][^\x1b\x07\n]*(?:\x1b\\|\x07)?"  # operating system commands and other strings
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_INVISIBLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ud800-\udfff\ufe00-\ufe0f"
    r"\ufeff\U000e0000-\U000e01ef]"
)
"""Control characters, and characters that reorder or hide text or whose width differs between terminals."""
_NARROW = re.compile(
    r"[ -~\xa1-\xac\xae-\u02ff\u2010-\u2027\u2190-\u2319\u2500-\u25fc\u2605\u2606\u276e\u276f\u2714\u2716"
    r"\u2800-\u28ff]*"
).fullmatch
"""Text of characters one cell wide: ASCII, Latin letters, arrows, lines, blocks, signs and dots, which is nearly
everything drawn."""


def clean(text: str) -> str:
    """The text without escape sequences and control characters, tabs as spaces: safe to write to a terminal."""
    return text if text.isascii() and text.isprintable() else _cleaned(text)


@functools.lru_cache(maxsize=32)
def _cleaned(text: str) -> str:
    # Every frame draws the same names, which may be a million characters of an untrusted run.
    return _INVISIBLE.sub("", _ESCAPE.sub("", text.expandtabs(4)))


def printed(text: str) -> str:
    """A cleaned line of a log: the text after the last carriage return, as a terminal would show it."""
    return clean(text.rstrip("\r").rpartition("\r")[2]) if "\r" in text else clean(text)


def cells_of(text: str) -> int:
    """Width of a text in terminal cells; of its first `CHARS_MAX` characters if it is longer."""
    return cell_len(text if len(text) <= CHARS_MAX else text[:CHARS_MAX])


def width_of(line: Iterable[Span]) -> int:
    """Width of a line in terminal cells."""
    texts = [span.text for span in line]
    # Nearly all spans are narrow, so one test of the joined text usually suffices.
    whole = "".join(texts)
    return len(whole) if _NARROW(whole) else sum(map(cells_of, texts))


def joined(line: Iterable[Span]) -> Line:
    """The line with adjacent spans of one style merged."""
    groups = itertools.groupby(line, key=lambda span: span[1:])
    return [Span("".join([span.text for span in spans]), *look) for look, spans in groups]


def crop(text: str, width: int) -> str:
    """The text in at most `width` cells; an ellipsis marks a cut."""
    if width <= 0:
        return ""
    if len(text) <= CHARS_MAX and cell_len(text) <= width:
        return text
    return set_cell_size(text[:CHARS_MAX], width - 1).rstrip() + "\u2026"


def safe(line: Sequence[Span]) -> Sequence[Span]:
    """The line without control sequences."""
    whole = "".join([span.text for span in line])
    # Nearly every line is printable, so one test of the joined text usually suffices.
    return line if whole.isprintable() else [span._replace(text=clean(span.text)) for span in line]


def fit(line: Sequence[Span], width: int) -> Line:
    """The line in at most `width` cells; an ellipsis marks a cut."""
    if width_of(line) <= width:
        return list(line)
    fitted: Line = []
    left = width
    for index, span in enumerate(line):
        size = cells_of(span.text)
        if size >= left:
            more = any(later.text for later in line[index + 1 :])
            if size > left or more:
                fitted.append(Span(crop(span.text + (" \u2026" if more else ""), left), span.tone, span.colours))
                return fitted
        fitted.append(span)
        left -= size
    return fitted


def spread(left: Line, right: Line, width: int) -> Line:
    """One line with `left` at its start and `right` at its end; `left` is cut if needed."""
    room = width - width_of(right)
    if room < 4:
        return fit(left, width)
    start = fit(left, room - 1)
    return [*start, Span(" " * (room - width_of(start))), *right]


def wrap(text: str, width: int, rows: int | None = None) -> list[str]:
    """The text in pieces of at most `width` cells, broken between words if possible.

    The first `rows` of them; without it `ROWS_MAX`, where an ellipsis marks a cut.
    """
    pieces = _pieces(text, max(width, 1))
    lines = list(itertools.islice(pieces, ROWS_MAX if rows is None else rows))
    return [*lines, "\u2026"] if rows is None and next(pieces, None) is not None else lines


def _pieces(text: str, width: int) -> Iterator[str]:
    start = 0
    while start < len(text):
        piece = _window(text, start, width)
        end = start + len(piece)
        if cell_len(piece) > width:
            first = piece[:1]
            piece = set_cell_size(piece, width).rstrip()
            cut = piece.rfind(" ")
            piece = (piece[:cut] if cut > width // 2 else piece) or first
            end = start + len(piece)
            while end < len(text) and text[end].isspace():
                end += 1
        yield piece
        start = end
    if not text:
        yield text


def _window(text: str, start: int, width: int) -> str:
    """The text from `start` on if it fits into `width` cells, else a part of it: it may be long."""
    window = ""
    # Some characters take no cell, so a line may have more characters than cells.
    for size in (width + 1, 4 * width, CHARS_MAX):
        window = text[start : start + size]
        if start + size >= len(text) or cell_len(window) > width:
            break
    return window


def paragraph(text: str, width: int, height: int, tone: Tone = "dim") -> list[Line]:
    """A sentence wrapped to a panel and indented as its rows are, for panels that have nothing to draw yet."""
    return [[Span(f" {piece}", tone)] for piece in wrap(clean(text), width - 1, height)]


def bar(share: float, width: int, tone: Tone = "accent") -> Line:
    """A horizontal bar that fills `share` (0 to 1) of `width` cells, in steps of half a cell."""
    width = max(width, 0)
    halves = round(min(max(share, 0.0), 1.0) * width * 2)
    full, half = divmod(halves, 2)
    filled = "\u2501" * full + "\u2578" * half
    return [Span(filled, tone), Span("\u2500" * (width - full - half), "dim")]


class Cell(NamedTuple):
    """A text in a table."""

    text: str
    tone: Tone = "plain"


class ItemColumn(NamedTuple, Generic[T]):
    """A column of a table with a row per item, `width` cells wide with the gap before it."""

    title: str
    width: int
    text: Callable[[T], str]
    tone: Callable[[T], Tone] = lambda item: "plain"
    is_usual: bool = True
    """Whether it is shown if no item has a value worth showing."""


def columns_that_fit(columns: Iterable[ItemColumn[T]], room: int) -> tuple[list[ItemColumn[T]], int]:
    """The first columns that fit in `room` cells, and later ones that still do; and the room that is left."""
    fitting: list[ItemColumn[T]] = []
    for column in columns:
        if column.width <= room:
            fitting.append(column)
            room -= column.width
    return fitting, room


class TextTable(NamedTuple):
    """A head, rows below it, and the number of omitted columns."""

    head: Line
    rows: list[Line]
    num_hidden: int


def align_table(
    titles: Sequence[str], rows: Sequence[Sequence[Cell]], width: int, *, left: frozenset[int]
) -> TextTable:
    """Align cells to the right, or to the left in the columns `left`; last columns that do not fit are omitted."""
    widths = [
        max([cells_of(title), *(cells_of(row[index].text) for row in rows)]) for index, title in enumerate(titles)
    ]
    shown, gap = max((_columns_that_fit(widths, width, gap), gap) for gap in GAPS)
    head = _cells_line([Cell(title, "label") for title in titles[:shown]], widths, left, gap)
    return TextTable(head, [_cells_line(row[:shown], widths, left, gap) for row in rows], len(titles) - shown)


def stack_tables(titles: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> list[TextTable]:
    """As many tables as needed to show every column; each begins with the first column, aligned to the left."""
    first = align_table(titles, rows, width, left=frozenset({0}))
    tables, shown = [first], len(titles) - first.num_hidden
    while shown < len(titles):
        columns_left = [[row[0], *row[shown:]] for row in rows]
        more = align_table([titles[0], *titles[shown:]], columns_left, width, left=frozenset({0}))
        tables.append(more)
        shown = len(titles) - more.num_hidden if more.num_hidden < len(titles) - shown else len(titles)
    return tables


def _columns_that_fit(widths: Sequence[int], width: int, gap: int) -> int:
    used = 1
    for index, column_width in enumerate(widths):
        used += column_width
        if used > width and index:
            return index
        used += gap
    return len(widths)


def _cells_line(cells: Sequence[Cell], widths: Sequence[int], left: frozenset[int], gap: int) -> Line:
    line: Line = [Span(" ")]
    for index, cell in enumerate(cells):
        text = crop(cell.text, widths[index])
        pad = " " * (widths[index] - cells_of(text))
        line.append(Span(text + pad if index in left else pad + text, cell.tone))
        line.append(Span(" " * gap))
    return line[:-1]


STEPS = 16
"""Number of colours on either side of the middle. Cells of one colour are drawn together."""


class Ramp(NamedTuple):
    """The colours of a map."""

    below: RGB
    middle: RGB
    above: RGB
    text: RGB
    """Colour of signs in the map."""

    def at(self, step: int) -> RGB:
        """The colour of a step, from -`STEPS` to `STEPS`."""
        end = self.above if step >= 0 else self.below
        share = min(abs(step), STEPS) / STEPS
        red, green, blue = (round(a + (b - a) * share) for a, b in zip(self.middle, end, strict=True))
        return red, green, blue

    def bar(self, low: float, high: float, width: int) -> Line:
        """A colour bar from one share to another, -1 to 1."""
        places = [low + (high - low) * cell / max(width - 1, 1) for cell in range(width)]
        return [Span(" ", "plain", (self.text, self.at(round(place * STEPS)))) for place in places]
