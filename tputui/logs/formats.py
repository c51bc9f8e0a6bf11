"""Chooses the reader of a foreign log by its name and its content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tputui.logs.csv_log import BLANKS, CsvReader, Header, HeaderSearch
from tputui.logs.growing import files_under, read_at
from tputui.logs.jsonl_log import JsonlReader, object_of
from tputui.logs.parquet_log import MAGIC as PARQUET_MAGIC
from tputui.logs.parquet_log import SUFFIX as PARQUET_SUFFIX
from tputui.logs.parquet_log import ParquetReader, parquet_files
from tputui.logs.rows import decimal
from tputui.logs.tensorboard_dir import EventFileReader, LogdirReader, event_files
from tputui.logs.tfevents import NAME_PART
from tputui.logs.trainer_state import TrainerStateReader
from tputui.logs.values import LogReader, UnknownLog
from tputui.logs.wandb_log import SUFFIX as WANDB_SUFFIX
from tputui.logs.wandb_log import WandbReader, is_wandb

EXPECTED = (
    "expected TensorBoard event files, a .wandb file, CSV with a header, JSON lines, trainer_state.json or parquet"
)
_HEAD_BYTES = 1 << 16
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DIGITS_MAX = 19
_STATE_NAME = "trainer_state.json"
_LIGHTNING_NAME = "metrics.csv"
_BY_SUFFIX: dict[str, Callable[[Path], LogReader]] = {
    ".csv": CsvReader,
    ".tsv": CsvReader,
    ".jsonl": JsonlReader,
    ".ndjson": JsonlReader,
}


def open_log(path: Path) -> LogReader:
    """The reader of a log file or directory. Raises `UnknownLog`, also if the path cannot be read.

    A file that is still empty is accepted if its name shows its format.
    """
    try:
        return _of_directory(path) if path.is_dir() else _of_file(path)
    except OSError as error:
        raise UnknownLog(f"{path}: {error.strerror or error}") from error


def _of_file(path: Path) -> LogReader:
    head = read_at(path, 0, _HEAD_BYTES)
    if path.name == _STATE_NAME:
        return TrainerStateReader(path)
    if NAME_PART in path.name:
        return EventFileReader(path)
    if head.startswith(PARQUET_MAGIC):
        return ParquetReader(path)
    if is_wandb(head) or (path.suffix == WANDB_SUFFIX and not head):
        return WandbReader(path)
    by_suffix = _BY_SUFFIX.get(path.suffix.lower())
    if by_suffix is CsvReader:
        _check_header(path, head)
    if by_suffix is not None:
        return by_suffix(path)
    return _by_content(path, head)


def _check_header(path: Path, head: bytes) -> None:
    search, _ = _search_header(head)
    if search.is_refused:
        raise UnknownLog(f"{path}: the first line is not a header with column names, which a CSV log needs")


def _search_header(head: bytes) -> tuple[HeaderSearch, str | None]:
    """The search for the header of a table in the complete lines at the beginning of a file, and the first row."""
    search = HeaderSearch()
    for line in head.removeprefix(_BYTE_ORDER_MARK).split(b"\n")[:-1]:
        text = line.decode("utf-8", "replace").rstrip("\r")
        if search.header is not None or search.take(text):
            return search, text
        if search.is_refused:
            break
    return search, None


def _by_content(path: Path, head: bytes) -> LogReader:
    first, newline, _ = head.partition(b"\n")
    if b"\0" in head or not newline:
        raise UnknownLog(f"{path}: unknown format; {EXPECTED}")
    if object_of(first) is not None:
        return JsonlReader(path)
    if head.lstrip().startswith(b"{") and b'"log_history"' in head:
        return TrainerStateReader(path)
    search, row = _search_header(head)
    if search.header is not None and row is not None and _fits(search.header, row):
        return CsvReader(path)
    raise UnknownLog(f"{path}: unknown format; {EXPECTED}")


def _fits(header: Header, row: str) -> bool:
    """Whether the first row makes it likely that a file is a table. Words between blanks may as well be prose."""
    if header.delimiter == BLANKS:
        return all(decimal(cell) is not None for cell in row.split())
    return len(header.names) > 1 and row.count(header.delimiter) == len(header.names) - 1


def _wandb_runs(path: Path) -> list[Path]:
    """The W&B files in a folder, in its run folders or in its folder `wandb`, oldest first."""
    patterns = (f"*{WANDB_SUFFIX}", f"*run-*/*{WANDB_SUFFIX}", f"wandb/*run-*/*{WANDB_SUFFIX}")
    return next((found for pattern in patterns if (found := sorted(path.glob(pattern)))), [])


def _checkpoint_step(state: Path) -> int:
    number = state.parent.name.rpartition("-")[2]
    return int(number) if number.isdecimal() and len(number) < _DIGITS_MAX else -1


def files_of(path: Path) -> list[Path]:
    """The files that the reader of a log reads, without those that appear later. Raises `UnknownLog`."""
    try:
        found = _log_in(path) if path.is_dir() else path
        if found.is_dir():
            return list(event_files(found)) or list(parquet_files(found))
        return [found]
    except OSError as error:
        raise UnknownLog(f"{path}: {error.strerror or error}") from error


def _of_directory(path: Path) -> LogReader:
    found = _log_in(path)
    if found != path:
        return _of_file(found)
    return LogdirReader(path) if next(event_files(path), None) is not None else ParquetReader(path)


def _log_in(path: Path) -> Path:
    """The log file in a folder, or the folder itself if all of its files are read together. Raises `UnknownLog`."""
    runs = _wandb_runs(path)
    if len(runs) > 1:
        raise UnknownLog(f"{path}: contains {len(runs)} W&B runs; name one of them, such as {runs[-1].parent}")
    if runs:
        return runs[0]
    if next(event_files(path), None) is not None:
        return path
    states = [path / _STATE_NAME, *sorted(path.glob(f"checkpoint-*/{_STATE_NAME}"), key=_checkpoint_step, reverse=True)]
    if (state := next((state for state in states if state.exists()), None)) is not None:
        return state
    if next(files_under(path, lambda name: name.endswith(PARQUET_SUFFIX)), None) is not None:
        return path
    logs = sorted(file for file in path.iterdir() if file.suffix.lower() in _BY_SUFFIX)
    logs = logs or list(files_under(path, lambda name: name == _LIGHTNING_NAME))
    if len(logs) > 1:
        raise UnknownLog(f"{path}: contains {len(logs)} logs; name one of them, such as {logs[-1]}")
    if logs:
        return logs[0]
    raise UnknownLog(f"{path}: contains no log; {EXPECTED}")
