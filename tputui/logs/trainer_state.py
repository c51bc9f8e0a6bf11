"""Hugging Face's `trainer_state.json`: rewritten as a whole with every save; `log_history` has what was logged."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from tputui.logs.rows import encodable, values_of
from tputui.logs.values import LoggedValue
from tputui.telemetry.safe_open import read_small

FILE_BYTES_MAX = 256 << 20
ENTRIES_PER_READ = 4_096
_HISTORY = re.compile(r'"log_history"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_LEFT_OUT = {"log_history", "best_model_checkpoint"}
_decoder = json.JSONDecoder()


class TrainerStateReader:
    """Reads the file again when it changed, and returns the entries that are new."""

    form = "Hugging Face trainer state"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._signature: tuple[int, int, int] | None = None
        self._entries: list[Any] = []
        self._num_read = 0
        self._last_read: Any = None
        self._config: dict[str, Any] = {}
        self._problem = ""

    @property
    def damage(self) -> list[str]:
        """One sentence while the file is not valid JSON; its entries before the damage are read."""
        return [self._problem] if self._problem else []

    @property
    def incomplete(self) -> str:
        """Empty: the file is read as a whole."""
        return ""

    @property
    def config(self) -> dict[str, Any]:
        """The other keys of the state: `max_steps`, `num_train_epochs`, `train_batch_size`."""
        return self._config

    def read(self) -> list[LoggedValue]:
        """Values of the next entries of `log_history`. Raises `OSError`."""
        if self._num_read >= len(self._entries):
            self._refresh()
        entries = self._entries[self._num_read : self._num_read + ENTRIES_PER_READ]
        self._num_read += len(entries)
        self._last_read = entries[-1] if entries else self._last_read
        return [value for entry in entries if type(entry) is dict for value in values_of(encodable(entry))]

    def move_to(self, path: Path) -> None:
        """Goes on with the state in a later checkpoint of the same training, which contains the entries read so far."""
        self._path = path

    def _refresh(self) -> None:
        status = os.stat(self._path)
        signature = (status.st_mtime_ns, status.st_size, status.st_ino)
        if signature == self._signature:
            return
        text = read_small(self._path, FILE_BYTES_MAX).decode("utf-8", "replace")
        self._signature = signature
        try:
            state = json.loads(text)
            entries = state["log_history"]
            self._problem = "" if type(entries) is list else f"{self._path}: log_history is not a list"
            self._entries = entries if type(entries) is list else self._entries
            if self._num_read and self._entries[self._num_read - 1 : self._num_read] != [self._last_read]:
                self._num_read = 0  # the state of another training
            self._config = {
                key: value
                for key, value in state.items()
                if key not in _LEFT_OUT and type(value) in (bool, int, float, str)
            }
        except (ValueError, RecursionError, KeyError, TypeError):
            found, offset = _readable_entries(text)
            # A file that is just being rewritten is shorter for a moment.
            self._entries = max(found, self._entries, key=len)
            self._problem = (
                f"{self._path}: not valid JSON from character {offset:,} on; {len(found):,} entries were read"
            )

    def close(self) -> None:
        """Nothing to close: the file is closed between reads."""


def _readable_entries(text: str) -> tuple[list[Any], int]:
    """The entries of `log_history` before the damage of a file, and the offset of the damage."""
    start = _HISTORY.search(text)
    if start is None:
        return [], len(text)
    entries: list[Any] = []
    offset = start.end()
    while True:
        gap = _BETWEEN.match(text, offset)
        offset = gap.end() if gap else offset
        try:
            entry, offset = _decoder.raw_decode(text, offset)
        except (ValueError, RecursionError):
            return entries, offset
        entries.append(entry)
