"""Chooses the reader of a foreign log by its name and its content.

Other packages add formats by the entry point group `tputui.readers` (docs/guide/extensions.md).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tputui.logs.csv_log import (
    BLANKS,
    NO_VALUES,
    CsvHeader,
    CsvReader,
    HeaderSearch,
    MetricFileReader,
    cleaned,
    is_metric_file,
)
from tputui.logs.growing import files_under
from tputui.logs.jsonl_log import HISTORY, JsonlReader, TrainerStateReader, history_in, object_of
from tputui.logs.parquet_log import MAGIC as PARQUET_MAGIC
from tputui.logs.parquet_log import SUFFIX as PARQUET_SUFFIX
from tputui.logs.parquet_log import ParquetReader, parquet_files
from tputui.logs.rows import LogReader, UnknownLog, decimal
from tputui.logs.tensorboard_dir import LogdirReader, event_file, event_files
from tputui.logs.text_log import SUFFIXES, TextLogReader, is_text_log
from tputui.logs.tfevents import NAME_PART
from tputui.logs.wandb_log import SUFFIX as WANDB_SUFFIX
from tputui.logs.wandb_log import WandbReader, is_wandb
from tputui.telemetry.files import read_at

EXPECTED = (
    "expected TensorBoard event files, a .wandb file, CSV with a header, JSON lines or history, trainer_state.json, "
    "parquet, or text with metrics"
)
_HEAD_BYTES = 1 << 16
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DIGITS_MAX = 19
_STATE_NAME = "trainer_state.json"
_LIGHTNING_NAME = "metrics.csv"
_TABLES, _LINES = (".csv", ".tsv"), (".jsonl", ".ndjson")
GROUP = "tputui.readers"
"""Entry points of other packages, each a `LogFormat`."""


class LogFormat(NamedTuple):
    """A format of log files."""

    matches: Callable[[Path, bytes], bool]
    """Whether a file has this format, by its path and its first 64 KiB."""
    open: Callable[[Path], LogReader]
    """The reader of such a file. Raises `UnknownLog` and `OSError`."""


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
    problems: list[str] = []
    for log_format in itertools.chain(_BY_NAME, _of_packages(problems), _BY_CONTENT):
        if log_format.matches(path, head):
            return log_format.open(path)
    raise UnknownLog("; ".join([f"{path}: unknown format", EXPECTED, *problems]))


def _of_packages(problems: list[str]) -> Iterator[LogFormat]:
    """The formats of other packages. Those that cannot be loaded add a sentence to `problems`."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP):
        package = entry.dist.name if entry.dist is not None else "an installed package"
        try:
            log_format = entry.load()
        except Exception as error:  # noqa: BLE001, RUF100 - one broken package must not hide the formats of the others
            problems.append(f'the reader "{entry.name}" of {package} cannot be loaded: {type(error).__name__}: {error}')
            continue
        if isinstance(log_format, LogFormat):
            yield log_format
        else:
            problems.append(f'the reader "{entry.name}" of {package} is no tputui.logs.formats.LogFormat')


def _table(path: Path) -> LogReader:
    _check_header(path, read_at(path, 0, _HEAD_BYTES))
    return CsvReader(path)


def _check_header(path: Path, head: bytes) -> None:
    search, _ = _search_header(head)
    if search.is_refused:
        raise UnknownLog(f"{path}: the first line is not a header with column names, which a CSV log needs")


def _search_header(head: bytes) -> tuple[HeaderSearch, str | None]:
    """The search for the header of a table in the complete lines at the beginning of a file, and the first row."""
    search = HeaderSearch()
    for line in head.removeprefix(_BYTE_ORDER_MARK).split(b"\n")[:-1]:
        text = cleaned(line.decode("utf-8", "replace").rstrip("\r"))
        if search.header is not None or search.take(text):
            return search, text
        if search.is_refused:
            break
    return search, None


def _has_lines(head: bytes) -> bool:
    """Whether the beginning of a file is text with a complete line."""
    return b"\0" not in head and b"\n" in head


def _is_table(head: bytes) -> bool:
    search, row = _search_header(head)
    return search.header is not None and row is not None and _fits(search.header, row)


def _fits(header: CsvHeader, row: str) -> bool:
    """Whether the first row makes it likely that a file is a table. Words between blanks may as well be prose."""
    if header.delimiter == BLANKS:
        cells = row.split()
        return decimal(cells[0]) is not None and all(decimal(cell) is not None or cell in NO_VALUES for cell in cells)
    if any(":" in name and decimal(name.rpartition(":")[2].strip()) is not None for name in header.names):
        return False  # Printed pairs of name and number.
    cells = row.split(header.delimiter)
    is_filled = any(decimal(cell.strip(" \"'")) is not None or cell.strip() in NO_VALUES for cell in cells)
    return len(header.names) == len(cells) > 1 and is_filled  # Sentences have delimiters too, and no numbers alone.


_BY_NAME = (
    LogFormat(lambda path, _: path.name == _STATE_NAME, TrainerStateReader),
    LogFormat(lambda path, _: NAME_PART in path.name, event_file),
    LogFormat(lambda _, head: head.startswith(PARQUET_MAGIC), ParquetReader),
    LogFormat(lambda path, head: is_wandb(head) or (path.suffix == WANDB_SUFFIX and not head), WandbReader),
    LogFormat(lambda path, _: path.suffix.lower() in _TABLES, _table),
    LogFormat(lambda path, _: path.suffix.lower() in _LINES, JsonlReader),
)
"""Formats that follow for certain from the name of a file or its first bytes. Those of other packages come next."""
_BY_CONTENT = (
    LogFormat(lambda _, head: head.lstrip().startswith(b"{") and b'"log_history"' in head, TrainerStateReader),
    LogFormat(history_in, lambda path: TrainerStateReader(path, HISTORY)),
    LogFormat(lambda _, head: _has_lines(head) and object_of(head.partition(b"\n")[0]) is not None, JsonlReader),
    LogFormat(lambda _, head: is_metric_file(head), MetricFileReader),
    LogFormat(lambda _, head: _has_lines(head) and _is_table(head), CsvReader),
    LogFormat(is_text_log, TextLogReader),
)
"""Formats that the first lines of a file with another name look like."""


def _wandb_runs(path: Path) -> list[Path]:
    """The W&B files in a folder, in its run folders or in its folder `wandb`, oldest first."""
    patterns = (f"*{WANDB_SUFFIX}", f"*run-*/*{WANDB_SUFFIX}", f"wandb/*run-*/*{WANDB_SUFFIX}")
    return next((run_files for pattern in patterns if (run_files := sorted(path.glob(pattern)))), [])


def _checkpoint_step(state: Path) -> int:
    number = state.parent.name.rpartition("-")[2]
    return int(number) if number.isdecimal() and len(number) < _DIGITS_MAX else -1


def files_of(path: Path) -> list[Path]:
    """The files that the reader of a log reads, without those that appear later. Raises `UnknownLog`."""
    try:
        log = _log_in(path) if path.is_dir() else path
        if log.is_dir():
            return list(event_files(log)) or list(parquet_files(log))
        return [log]
    except OSError as error:
        raise UnknownLog(f"{path}: {error.strerror or error}") from error


def _of_directory(path: Path) -> LogReader:
    log = _log_in(path)
    if log != path:
        return _of_file(log)
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
    logs = sorted(file for file in path.iterdir() if file.suffix.lower() in (*_TABLES, *_LINES))
    logs = logs or list(files_under(path, lambda name: name == _LIGHTNING_NAME))
    logs = logs or sorted(file for file in path.iterdir() if file.suffix and _is_text_log(file))
    if len(logs) > 1:
        raise UnknownLog(f"{path}: contains {len(logs)} logs; name one of them, such as {logs[-1]}")
    if logs:
        return logs[0]
    raise UnknownLog(f"{path}: contains no log; {EXPECTED}")


def _is_text_log(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file() and is_text_log(path, read_at(path, 0, _HEAD_BYTES))


_LOG = re.compile(r"(.*\.(csv|tsv|jsonl|ndjson|wandb)|.*tfevents.*|trainer_state\.json)", re.IGNORECASE | re.DOTALL)
_OTHER = re.compile(
    r".*\.(pt|pth|ckpt|bin|safetensors|npy|npz|h5|hdf5|pkl|pickle|arrow|parquet|tar|gz|zst|zip|so|py|pyc|lock|db|sqlite"
    r"|png|jpg|jpeg|mp4|tmp|log|txt|out|err|onnx|lock|prof|xplane|pb)",
    re.IGNORECASE | re.DOTALL,
)  # fmt: skip


def is_log(name: str) -> bool:
    """Whether the name of a file is that of a log."""
    return _LOG.fullmatch(name) is not None


def is_other(name: str) -> bool:
    """Whether the name of a file is that of no log, or of one whose lines are printed text."""
    return _OTHER.fullmatch(name) is not None


def opened_logs_name(host_id: str) -> str:
    """Name of the file in a run directory in which the processes of a host list the logs that they open."""
    # Without the process namespace, since a command may begin one of its own.
    return f"opened-logs-{host_id.partition('/')[0]}"
