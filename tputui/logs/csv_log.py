"""CSV with a header: one column per metric, and columns of step, epoch and time that are recognised by name."""

from __future__ import annotations

import csv
from pathlib import Path

from tputui.logs.growing import LineLog
from tputui.logs.rows import TAG_CHARS_MAX, Context, context_of, decimal, epoch_number, step_number, unix_time_s
from tputui.logs.values import LoggedValue

DELIMITERS = ",;\t"
COLUMNS_MAX = 10_000


def header_of(line: bytes) -> tuple[list[str], str] | None:
    """The column names of a header line, and the delimiter; None if the line is not a header."""
    text = line.decode("utf-8-sig", "replace").rstrip("\r")
    delimiter = max(DELIMITERS, key=text.count)
    names = [name.strip() for name in _cells(text, delimiter)]
    named = [name for name in names if name]
    is_header = bool(named) and len(names) <= COLUMNS_MAX and all(decimal(name) is None for name in named)
    return (names, delimiter) if is_header and "\0" not in text else None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")


def _cells(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:
        return []


def _continues(old: list[bytes], new: list[bytes]) -> bool:
    """Whether a rewritten file is the same log: with all columns that it had, and the same first row."""
    before, after = header_of(old[0]), header_of(new[0])
    if before is None or after is None or not set(before[0]) <= set(after[0]):
        return False
    if len(old) < 2:
        return True
    row_before = dict(zip(before[0], _cells(_text(old[1]), before[1]), strict=False))
    row_after = dict(zip(after[0], _cells(_text(new[1]), after[1]), strict=False))
    return all(row_after.get(name, "") == cell for name, cell in row_before.items())


class CsvReader(LineLog):
    """Reads a CSV file. Empty cells, as in Lightning's `metrics.csv`, and text are left out."""

    form = "CSV file"

    def __init__(self, path: Path) -> None:
        super().__init__(path, _continues)
        self._columns: list[tuple[int, str]] = []
        self._names: list[str] = []
        self._delimiter = ","
        self._places: tuple[int | None, int | None, int | None] = (None, None, None)

    def read(self) -> list[LoggedValue]:
        """Values of the next complete rows. Raises `OSError`."""
        lines = self._lines.read()
        start = self._lines.first_number
        if self._lines.restarted:
            self._set_header(lines.pop(0))
            start += 1
        found: list[LoggedValue] = []
        for line_number, line in enumerate(lines, start):
            text = _text(line)
            if text and self._names:
                cells = _cells(text, self._delimiter) if '"' in text else text.split(self._delimiter)
                self._add_row(cells, line_number, found)
        return found

    def _set_header(self, line: bytes) -> None:
        names, self._delimiter = header_of(line) or ([], ",")
        if not names:
            self._notes.add(f"{self._path}:1: the first line is not a header with column names")
        self._names = names
        context = context_of(names)
        self._places = _places(names, context)
        self._columns = [
            (place, name)
            for place, name in enumerate(names)
            if name and len(name) <= TAG_CHARS_MAX and place not in self._places
        ]

    def _add_row(self, cells: list[str], line_number: int, found: list[LoggedValue]) -> None:
        if len(cells) != len(self._names):
            self._notes.add(f"{self._path}:{line_number}: {len(cells)} cells in a table of {len(self._names)} columns")
            return
        step_place, epoch_place, time_place = self._places
        step = step_number(cells[step_place]) if step_place is not None else None
        epoch = epoch_number(cells[epoch_place]) if epoch_place is not None else None
        t = unix_time_s(cells[time_place]) if time_place is not None else None
        if time_place is not None and t is None and (duration := decimal(cells[time_place])) is not None:
            found.append(LoggedValue(self._names[time_place], step, None, duration, epoch))
        for place, tag in self._columns:
            if (cell := cells[place]) and (value := decimal(cell)) is not None:
                found.append(LoggedValue(tag, step, t, value, epoch))


def _places(names: list[str], context: Context) -> tuple[int | None, int | None, int | None]:
    step, epoch, time = (names.index(name) if name is not None else None for name in context)
    return step, epoch, time
