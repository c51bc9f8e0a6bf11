"""What every reader of a foreign log returns: values with the names, steps and times that their writer gave them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class LoggedValue(NamedTuple):
    """One value of one metric."""

    tag: str
    """Name of the metric in the log: `train/loss`, `loss_rank3`."""
    step: int | None
    """Step; None if the log has none."""
    t: float | None
    """Unix time in seconds; None if the log has none."""
    value: float
    """May be NaN or infinite. A float32 of the log is widened exactly."""
    epoch: float | None = None
    """Epoch, possibly fractional; None if the log has none."""


class UnknownLog(Exception):
    """A path is not a log in a known format; the message names the path, and what was expected."""


class LogReader(Protocol):
    """Reads a log file or directory from its beginning, and what is appended to it later."""

    form: str
    """Name of the format, for messages: `TensorBoard event file`."""

    @property
    def damage(self) -> list[str]:
        """Unreadable parts found so far, one sentence each, with the file and the offset or line."""

    @property
    def incomplete(self) -> str:
        """A sentence about a last record that is not complete, so that it was not returned; empty if there is none."""

    @property
    def config(self) -> dict[str, Any]:
        """Configuration that the log contains, such as hyperparameters; empty if it contains none."""

    def read(self) -> list[LoggedValue]:
        """Values since the last call, in the order of the log, at most a bounded number; empty if there are none yet.

        An incomplete last record is left for the next call. Raises `OSError` if the log cannot be read any more.
        """

    def close(self) -> None:
        """Closes the files."""
