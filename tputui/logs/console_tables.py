"""Tables in console output: rows below a header, and boxes with a name and a number per line. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from tputui.logs.console_lines import NUMBER, is_known, number_of, split_of
from tputui.logs.rows import decimal, form

_CELL = re.compile(rf"({NUMBER})\s?%?", re.IGNORECASE)
_BOX_ROW = re.compile(
    rf"\s{{0,4}}[|│]\s{{0,40}}([^|│]{{1,100}}?)\s{{0,60}}[|│]\s{{0,60}}({NUMBER})?\s{{0,60}}[|│]\s?", re.IGNORECASE
)
_RULE = re.compile(r"[\s|+:=_─│└┘┴┌┐┬├┤-]{3,4000}")
_NAME = re.compile(r"[A-Za-z#][\w@.:/#%()-]{0,60}(?: [A-Za-z][\w@./#%()-]{0,60}){0,2}:?")
_STEP_COLUMNS = ("#", "step", "steps", "iter", "iteration", "global_step", "batch")
_EPOCH_COLUMNS = ("e", "ep", "epoch", "epochs")
_STEP_ROWS = (
    "total_timesteps",
    "totalenvinteracts",
    "total_env_interacts",
    "step",
    "global_step",
    "iteration",
    "frames",
)
_OF_YOLO = "gpu_mem"
"""A column of YOLO's tables, whose other columns are losses, with and without the word: `box`, `obj`, `cls`."""
_RESULTS_ROW = re.compile(r"\s{0,20}\d{1,6}/\d{1,6}\s{1,20}[\d.]{1,9}G\s{1,20}")
_RESULTS = (
    f"epoch {_OF_YOLO} box_loss obj_loss cls_loss total_loss labels img_size valid/P valid/R valid/mAP50 "
    "valid/mAP50-95 valid/box_loss valid/obj_loss valid/cls_loss"
).split()
"""Columns of the `results.txt` of YOLOv5 and v7, which has no header; that of YOLOv3 has F1 as the twelfth."""
_NOT_COLUMNS = {"time", "remaining_time", "dur", "eta", "cp", "n"}
_NOT_COLUMNS |= {_OF_YOLO, "instances", "labels", "img_size", "size", "images", "class"}
_CELLS_MAX = 64
_ROWS_MAX = 512
_NAMES_OF_TRAINING = re.compile(r"(?:^|[_/])(?:lr|learning_rate|loss|norm)(?:[_/]|$)|loss", re.IGNORECASE)


class Row(NamedTuple):
    """The values of a row or a box."""

    step: int | None
    epoch: float | None
    epochs: int | None
    values: list[tuple[str, float]]
    is_evaluation: bool
    """Whether all of it is of an evaluation."""


def is_rule(text: str) -> bool:
    """Whether a line consists of signs that separate rows."""
    return _RULE.fullmatch(text) is not None


class PrintedTable:
    """The header of a table, until the next one."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._is_evaluation = False

    @property
    def is_empty(self) -> bool:
        return not self._names

    def take_header(self, text: str, in_evaluation: bool) -> bool:
        """Takes a line if it is a header: at least two names side by side, one of them known."""
        text = text.partition("%|")[0].rpartition(":")[0] if "%|" in text else text
        names = text.split() if text.split(None, 1)[:1] == ["Class"] else _cells(text)
        if not 3 <= len(names) <= _CELLS_MAX or not all(map(_NAME.fullmatch, names)):
            return False
        forms = [form(name.rstrip(":")) for name in _ungrouped(names)]
        has_position = forms[0] in _EPOCH_COLUMNS + _STEP_COLUMNS
        is_classes = forms[0] == "class"
        has_metrics = _OF_YOLO in forms or any(map(is_known, forms))
        if not (has_position or is_classes or in_evaluation) or not has_metrics:
            return False
        self._names, self._is_evaluation = forms, is_classes or (in_evaluation and not has_position)
        return True

    def row_of(self, text: str) -> Row | None:
        """The values of a line that is a row of the table."""
        is_of_results = _RESULTS_ROW.match(text) is not None
        if not (self._names or is_of_results):
            return None
        cells = _cells(text)
        if is_of_results and len(cells) == len(_RESULTS) and len(self._names) != len(cells):
            p, r, _, last = (decimal(cell) or 0.0 for cell in cells[8:12])
            is_f1 = abs(last * (p + r) - 2 * p * r) < 0.02 * last
            self._names = [*_RESULTS[:11], "valid/F1" if is_f1 else _RESULTS[11], *_RESULTS[12:]]
        if len(cells) != len(self._names):
            return None
        step = epoch = epochs = None
        values: list[tuple[str, float]] = []
        for name, cell in zip(self._names, cells, strict=True):
            if name in _EPOCH_COLUMNS and (of := re.fullmatch(r"(\d{1,9})/(\d{1,9})", cell)) is not None:
                epoch, epochs = float(of[1]), int(of[2])
            elif name == "class" and cell != "all":
                return None  # The results of one class.
            elif name in _NOT_COLUMNS:
                continue
            elif (number := _CELL.fullmatch(cell)) is None:
                return None
            elif name in _EPOCH_COLUMNS:
                epoch = number_of(number[1])
            elif name in _STEP_COLUMNS:
                step = int(number_of(number[1]))
            else:
                values.append((self._column(name), number_of(number[1])))
        return Row(step, epoch, epochs, values, self._is_evaluation)

    def _column(self, name: str) -> str:
        """The tag of a column; scores beside losses are those of the validation."""
        if (
            self._is_evaluation
            or split_of(name)
            or _OF_YOLO in self._names
            or _NAMES_OF_TRAINING.search(name) is not None
        ):
            return name
        return f"valid/{name}"


class PrintedBox:
    """The lines of a box so far."""

    def __init__(self) -> None:
        self._section = ""
        self._values: list[tuple[str, float]] = []

    @property
    def is_empty(self) -> bool:
        return not self._values and not self._section

    def take_row(self, text: str) -> bool:
        """Takes a line if it is one of a box."""
        row = _BOX_ROW.fullmatch(text)
        if row is None or len(self._values) >= _ROWS_MAX:
            return False
        name, number = form(row[1]), row[2]
        if number is None:
            self._section = name if name.endswith("/") else self._section
            return name.endswith("/")
        is_inner = self._section and text.lstrip()[1:].startswith("   ")
        self._values.append((f"{self._section if is_inner else ''}{name}", number_of(number)))
        return True

    def end(self) -> Row | None:
        """The values of the box at its end; None if it is none of training. It is empty then."""
        values, self._values, self._section = self._values, [], ""
        by_name = {name.rpartition("/")[2]: value for name, value in values}
        step = next((int(by_name[name]) for name in _STEP_ROWS if name in by_name), None)
        epoch = next((by_name[name] for name in _EPOCH_COLUMNS if name in by_name), None)
        is_test = bool(values) and all(split_of(name) == "valid" for name, _ in values)
        if step is None and epoch is None and not is_test:
            return None
        left_out = {*_STEP_ROWS, *_EPOCH_COLUMNS}
        shown = [(name, value) for name, value in values if name.rpartition("/")[2] not in left_out]
        is_evaluation = is_test or any(name.startswith("eval/") for name, _ in values)
        return Row(step, epoch, None, shown, is_evaluation)


def _ungrouped(names: list[str]) -> list[str]:
    """Names with the letter of the group that encloses them, as Ultralytics calls them elsewhere: `P(B)`, `R(B)` of the
    cells `Box(P` and `R)`."""
    group, ungrouped = "", []
    for name in names:
        if "(" in name and not name.endswith(")"):
            group, _, name = name.partition("(")
        ungrouped.append(f"{name.rstrip(')')}({group[0]})" if group else name)
        group = "" if name.endswith(")") else group
    return ungrouped


def _cells(text: str) -> list[str]:
    """The cells of a line, separated by bars or by two blanks; by one if there are numbers only."""
    text = text.strip()
    if text.startswith("|") or " | " in text:
        return [cell.strip() for cell in text.strip("|").split("|")]
    return re.split(r"\s{2,60}", text)
