"""Logs of printed text, such as `train.log`: what a training script printed, read like its output."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tputui.logs.console import ConsoleParser
from tputui.logs.growing import LineLog
from tputui.logs.rows import LoggedValue, unix_time_s
from tputui.telemetry.files import read_at

SUFFIXES = ("", ".log", ".txt", ".out", ".err", ".stdout", ".stderr")
_VALUES_MIN = 2
_HEAD_BYTES = 1 << 20  # Bars of an epoch may be longer than what other formats look at.
"""Values with a step or an epoch, or values that come again, in the beginning of a file that make it a log."""
_TIME = re.compile(r"[\s\[(]{0,4}(\d{4})[-/](\d\d)[-/](\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?")


def is_text_log(path: Path, head: bytes) -> bool:
    """Whether the beginning of a file is text with the metrics of a training."""
    if path.suffix.lower() not in SUFFIXES or b"\0" in head:
        return False
    head = read_at(path, 0, _HEAD_BYTES)
    parser, num_values, tags = ConsoleParser(), 0, set[str]()
    for line in head.decode("utf-8", "replace").split("\n")[:-1]:
        values = parser.parse(line, 0.0)
        num_values += sum(value.step is not None or value.epoch is not None or value.tag in tags for value in values)
        tags |= {value.tag for value in values}
        if num_values >= _VALUES_MIN:
            return True
    return False


class TextLogReader(LineLog):
    """Reads printed lines, with the time that a line begins with, if it does."""

    form = "text log"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._parser = ConsoleParser()

    @property
    def config(self) -> dict[str, Any]:
        """What is printed of it."""
        return self._parser.config

    def read(self) -> list[LoggedValue]:
        return super().read() or self._parser.finish()

    def _values_of(self, lines: list[bytes]) -> list[LoggedValue]:
        if self._lines.restarted:
            self._parser = ConsoleParser()
        values: list[LoggedValue] = []
        for line in lines:
            text = line.decode("utf-8", "replace")
            if found := self._parser.parse(text, 0.0):
                t = _time_of(text)
                values += [value._replace(t=t) for value in found]
        return values


def _time_of(text: str) -> float | None:
    """Unix time in seconds at which a line was printed, in the time zone of this machine; None if it names none."""
    match = _TIME.match(text)
    when = f"{match[1]}-{match[2]}-{match[3]}T{match[4]}.{(match[5] or '0'):0<6}" if match is not None else None
    return unix_time_s(when)
