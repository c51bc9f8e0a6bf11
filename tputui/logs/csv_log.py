"""Tables as text: CSV, and columns separated by semicolons, tabs, bars or blanks.

One column per metric; columns of step, epoch and time are recognised by name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tputui.csv_cells import plain_text
from tputui.logs.growing import LineLog
from tputui.logs.number_forms import is_decimal_comma, unwrapped, without_comma
from tputui.logs.rows import (
    TAG_CHARS_MAX,
    LoggedValue,
    RowContext,
    context_of,
    decimal,
    epoch_number,
    step_number,
    unix_time_s,
)

DELIMITERS = ",;\t|"
BLANKS = " "
"""The delimiter of columns that are separated by one or more blanks."""
COLUMNS_MAX = 10_000
NO_VALUES = ("-", "--", "n/a", "N/A", "None")
"""Cells without a value."""
_COMMENT = re.compile(r"\s{0,9}#|sep=.$|[-=+|\s]*[-=]{3}[-=+|\s]*$", re.IGNORECASE)
_LEAST, _MOST, _RUN, _TAG = "__MIN", "__MAX", " - ", "-tag-"
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}m")
_METRIC_LINE = re.compile(rb"\d{13} [-+.\deE]{1,40}(?:nan|inf)? \d{1,18}")
"""`#{...}` as Stable-Baselines begins its files, `# step loss` as numpy does, `sep=;` as Excel does."""
_SPECIAL = '"(<'
"""What makes a row more than cells between delimiters."""
_ROW_SIGNS = frozenset("0123456789+-.,")
"""With what a line begins that is neither a comment nor a header."""
_TEXT_ROWS_MIN = 10
"""Rows without a number after which a file that still grows is reported; one that has ended always is."""
_NAMED_MAX = 3
_CELL_CHARS_MAX = 40


class CsvHeader(NamedTuple):
    """The column names of a table, and what separates its cells."""

    names: list[str]
    delimiter: str


def cleaned(text: str) -> str:
    """A line without colours."""
    return _COLOUR.sub("", text) if "\x1b" in text else text


def header_of(line: bytes) -> CsvHeader | None:
    """The header on a line; None if the line is not a header. Names that blanks separate count as one name."""
    return _header(line.decode("utf-8-sig", "replace").rstrip("\r"))


def _header(text: str) -> CsvHeader | None:
    delimiter = max(DELIMITERS, key=text.count)
    names = [plain_text(name.strip()).strip() for name in _cells(text, delimiter)]
    is_text = all(decimal(name) is None for name in names) and any(decimal(word) is None for word in text.split())
    is_header = any(names) and len(names) <= COLUMNS_MAX and is_text
    return CsvHeader(names, delimiter) if is_header and "\0" not in text else None


class HeaderSearch:
    """Finds the header of a table in its first lines, also behind comments or in the last one of them."""

    def __init__(self) -> None:
        self.header: CsvHeader | None = None
        self.is_refused = False
        """Whether the lines are not those of a table with a header."""
        self._comment = ""
        self._waiting: CsvHeader | None = None
        """A header without delimiters; the next line shows whether blanks separate its names, or it is a title."""

    def take(self, text: str) -> bool:
        """Takes a line before the header is known. Returns whether the line is the first row, below the header."""
        if not text or text.isspace():
            return False
        if _COMMENT.match(text):
            self._comment = text
            return False
        header = _header(text)
        if self._waiting is not None and (header is None or len(header.names) == 1):
            self.header = _split_at_blanks(self._waiting, text)
            return True
        if header is None:
            self.header = _header_above(self._comment.strip().lstrip("#"), text)
            self.is_refused = self.header is None
            return not self.is_refused
        if len(header.names) == 1 and len(text.split()) > 1:
            self._waiting = header
        else:
            self.header = header
        return False


def _split_at_blanks(header: CsvHeader, row: str) -> CsvHeader:
    names = header.names[0].split()
    is_split = len(names) == len(row.split()) and not any(delimiter in row for delimiter in ";\t")
    return CsvHeader(names, BLANKS) if is_split else header


def _header_above(comment: str, row: str) -> CsvHeader | None:
    """The header in a comment above the first row; None if it does not fit the row."""
    delimiter = max(DELIMITERS, key=row.count)
    delimiter = delimiter if delimiter in row else BLANKS
    names = [name.strip() for name in _split(comment, delimiter)]
    fits = any(names) and len(names) == len(_split(row, delimiter))
    return CsvHeader(names, delimiter) if fits and all(decimal(name) is None for name in names) else None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")


def _split(text: str, delimiter: str) -> list[str]:
    return text.split() if delimiter == BLANKS else _cells(text, delimiter)


def _cells(text: str, delimiter: str) -> list[str]:
    if text[:1] == '"':
        # All cells are quoted, without quotes in them: several times as fast as a `csv.reader` for the line.
        cells = text[1:-1].split(f'"{delimiter}"')
        if text[-1] == '"' and text.count('"') == 2 * len(cells):
            return cells
    try:
        return next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:
        return []


def _continues(old: list[bytes], new: list[bytes]) -> bool:
    """Whether a rewritten file is the same log: with all columns that it had, and the same first row."""
    before, after = header_of(old[0]), header_of(new[0])
    if before is None or after is None or not set(before.names) <= set(after.names) or _COMMENT.match(_text(old[0])):
        return False
    if len(old) < 2:
        return True
    row_before = dict(zip(before.names, _cells(_text(old[1]), before.delimiter), strict=False))
    row_after = dict(zip(after.names, _cells(_text(new[1]), after.delimiter), strict=False))
    return all(row_after.get(name, "") == cell for name, cell in row_before.items())


class CsvReader(LineLog):
    """Reads a table. Empty cells, as in Lightning's `metrics.csv`, and text are left out.

    A header may come again, also with other columns, as in files that were joined.
    """

    form = "CSV file"

    def __init__(self, path: Path) -> None:
        super().__init__(path, _continues, needs_header=True)
        self._search = self._new_search()
        self._header = CsvHeader([], ",")
        self._columns: list[tuple[int, str]] = []
        self._places: tuple[int | None, int | None, int | None] = (None, None, None)
        self._is_after_comment = False
        self._has_decimal_commas: bool | None = None
        """Whether a comma that may separate thousands is the decimal separator; None until a number shows it."""
        self._has_values = False
        self._num_rows = 0
        """Rows until there are values."""
        self._text_cells: dict[int, tuple[int, str]] = {}
        """Line and content of the first cell of each column that is not a number, until there are values."""
        self._number_columns: set[int] = set()

    def _new_search(self) -> HeaderSearch:
        return HeaderSearch()

    @property
    def damage(self) -> list[str]:
        """Lines that could not be read, and a table without numbers."""
        is_sure = self._num_rows >= _TEXT_ROWS_MIN
        return [*super().damage, *([self._without_numbers] if is_sure and self._without_numbers else [])]

    @property
    def incomplete(self) -> str:
        """A sentence if the last line has no end, or a short table has no numbers."""
        is_short = self._num_rows < _TEXT_ROWS_MIN
        return super().incomplete or (self._without_numbers if is_short else "")

    def _values_of(self, lines: list[bytes]) -> list[LoggedValue]:
        start = self._lines.first_number
        if self._lines.restarted:
            self._search = self._new_search()
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        values: list[LoggedValue] = []
        content = b"\n".join(lines).decode("utf-8", "replace")
        texts = content.split("\n")
        if "\r" in content:
            texts = [text.rstrip("\r") for text in texts]
        if "\x1b" in content:
            texts = [cleaned(text) for text in texts]
        rows: Iterable[tuple[int, str]] = enumerate(texts, start)
        if self._search.header is None:
            rows = self._below_header(list(rows))
        header, delimiter = self._header, self._header.delimiter
        has_commas = delimiter != "," and "," in content
        is_plain = delimiter != BLANKS and not has_commas and not any(sign in content for sign in _SPECIAL)
        if has_commas or '"' in content:
            rows = list(rows)
            self._learn_commas(rows)
        for line_number, text in rows:
            if not text:
                continue
            if is_plain and text[0] in _ROW_SIGNS and self._header is header:
                self._add_row(text.split(delimiter), line_number, values)
            elif self._is_row(text):
                self._add_row(self._cells_of(text), line_number, values)
        self._has_values = self._has_values or bool(values)
        return values

    def _below_header(self, rows: list[tuple[int, str]]) -> list[tuple[int, str]]:
        """The lines below the header, which is looked for in the first ones."""
        while rows and self._search.header is None and not self._search.is_refused:
            line_number, text = rows[0]
            if not self._search.take(unwrapped(text)):
                del rows[0]
            if self._search.is_refused:
                self._notes.add(f"{self._path}:{line_number}: the first line is not a header with column names")
        if self._search.header is None:
            return []
        self._set_header(self._search.header)
        return rows

    def _is_row(self, text: str) -> bool:
        """Whether a line is a row, and not a comment or another header."""
        if text[0] in "#s-=+|" and _COMMENT.match(text):
            self._is_after_comment = True
            return False
        may_be_header = text[0].isalpha() or (text[0] == '"' and text[1:2] not in _ROW_SIGNS)
        if may_be_header and (header := self._repeated(text)) is not None:
            if header != self._header:
                self._set_header(header)
            return False
        self._is_after_comment = False
        return not text.isspace()

    def _repeated(self, text: str) -> CsvHeader | None:
        """The header on a later line, of a file that was joined from several; None if the line is a row."""
        if any(decimal(cell.strip('"')) is not None for cell in text.split(self._header.delimiter)):
            return None
        header = _header(text)
        if header is not None and self._header.delimiter == BLANKS and len(header.names) == 1:
            header = CsvHeader(text.split(), BLANKS)
        if header is None or not (self._is_after_comment or set(header.names) & set(self._header.names)):
            return None
        return header

    def _set_header(self, header: CsvHeader) -> None:
        self._header = header
        context = context_of(tuple(header.names))
        self._places = _places(header.names, context)
        columns = [
            (place, name)
            for place, name in enumerate(header.names)
            if name and len(name) <= TAG_CHARS_MAX and place not in self._places
        ]
        self._columns = _named_by_file(_of_one_run(columns), self._path.stem)

    def _cells_of(self, text: str) -> list[str]:
        if "(" in text or "<" in text:
            # Also `tensor(0.5, device='xla:0')` without quotes.
            text = unwrapped(text)
        delimiter = self._header.delimiter
        cells = text.split(delimiter) if delimiter != BLANKS and '"' not in text else _split(text, delimiter)
        if "," in text and (delimiter != "," or '"' in text):
            is_decimal, step_place = self._commas_are_decimal, self._places[0]
            for place, cell in enumerate(cells):
                if "," in cell:
                    cells[place] = without_comma(cell, is_decimal=is_decimal and place != step_place) or cell
        return cells

    @property
    def _commas_are_decimal(self) -> bool:
        """Semicolons separate the cells of programs whose decimal separator is the comma."""
        return self._header.delimiter == ";" if self._has_decimal_commas is None else self._has_decimal_commas

    def _learn_commas(self, rows: Iterable[tuple[int, str]]) -> None:
        """Looks for a number that shows what commas mean in this file."""
        if self._has_decimal_commas is not None:
            return
        for _, text in rows:
            if "," in text and (self._header.delimiter != "," or '"' in text):
                cells = [cell.strip() for cell in _split(text, self._header.delimiter)]
                is_decimal = any("," in cell and is_decimal_comma(cell) for cell in cells)
                if is_decimal or any("." in cell and decimal(cell) is not None for cell in cells):
                    self._has_decimal_commas = is_decimal
                    return

    def _add_row(self, cells: list[str], line_number: int, values: list[LoggedValue]) -> None:
        names = self._header.names
        if len(cells) != len(names):
            while len(cells) > len(names) and not cells[-1].strip():
                cells.pop()
        if len(cells) != len(names):
            self._lines.note_line(line_number, f"{len(cells)} cells in a table of {len(names)} columns")
            return
        step_place, epoch_place, time_place = self._places
        step = step_number(cells[step_place]) if step_place is not None else None
        epoch = epoch_number(cells[epoch_place]) if epoch_place is not None else None
        t = unix_time_s(cells[time_place]) if time_place is not None else None
        if time_place is not None and t is None and (duration := decimal(cells[time_place])) is not None:
            values.append(LoggedValue(names[time_place], step, None, duration, epoch))
        for place, tag in self._columns:
            if (cell := cells[place]) and (value := decimal(cell)) is not None:
                values.append(LoggedValue(tag, step, t, value, epoch))
        if not (values or self._has_values):
            self._note_text(cells, line_number)

    def _note_text(self, cells: list[str], line_number: int) -> None:
        """Remembers which columns are numbers, and which are text."""
        self._num_rows += 1
        for place, cell in enumerate(cells):
            if decimal(cell) is not None:
                self._number_columns.add(place)
            elif cell.strip() and self._header.names[place]:
                self._text_cells.setdefault(place, (line_number, cell))

    @property
    def _without_numbers(self) -> str:
        """A sentence if the table has rows, but no metric; empty otherwise."""
        names, text_cells = self._header.names, self._text_cells
        places = [place for place in text_cells if place not in self._number_columns and place < len(names)]
        if self._has_values or not places:
            return ""
        shown = [
            f"{names[place]} is {text_cells[place][1][:_CELL_CHARS_MAX]!r} in line {text_cells[place][0]}"
            for place in places[:_NAMED_MAX]
        ]
        more = f", and {len(places) - _NAMED_MAX} more" if len(places) > _NAMED_MAX else ""
        num_named, num_numbers = sum(map(bool, names)), len(self._number_columns)
        return (
            f"{self._path}: {num_numbers} of {num_named} columns are numbers, and no metric is among them: "
            f"{', '.join(shown)}{more}"
        )


def _of_one_run(columns: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The columns of a chart of W&B: without the ranges of each, and the name of the run if there is only one."""
    names = {name for _, name in columns}
    metrics = [
        (place, name)
        for place, name in columns
        if not (name.endswith((_LEAST, _MOST)) and name[: -len(_LEAST)] in names)
    ]
    runs = {name.partition(_RUN)[0] if _RUN in name else "" for _, name in metrics}
    if len(metrics) == len(columns) or len(runs) > 1 or "" in runs:
        return metrics
    return [(place, name.partition(_RUN)[2]) for place, name in metrics]


def _named_by_file(columns: list[tuple[int, str]], stem: str) -> list[tuple[int, str]]:
    """The columns of a chart of TensorBoard, whose metric only the file names: `run-a-tag-Loss_train.csv`."""
    tag = stem.partition(_TAG)[2]
    if tag and [name.lower() for _, name in columns] == ["value"]:
        return [(columns[0][0], tag)]
    return columns


class MetricFileReader(CsvReader):
    """Reads a metric that MLflow keeps in a file of its name: lines of time in ms, value and step, no header."""

    form = "MLflow metric"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._set_header(self._new_search().header or self._header)

    def _new_search(self) -> HeaderSearch:
        search = HeaderSearch()
        search.header = CsvHeader(["timestamp", self._path.name, "step"], BLANKS)
        return search


def is_metric_file(head: bytes) -> bool:
    """Whether the beginning of a file is that of a metric of MLflow."""
    lines = head.split(b"\n")[:-1]
    return bool(lines) and all(_METRIC_LINE.fullmatch(line.rstrip(b"\r")) for line in lines[:10])


def _places(names: list[str], context: RowContext) -> tuple[int | None, int | None, int | None]:
    step, epoch, time = (names.index(name) if name is not None else None for name in context)
    return step, epoch, time
