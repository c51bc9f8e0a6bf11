"""The line of `--no-ui` for a command that logs values itself: at most one a second, with the newest of every metric.

Pure.
"""

from __future__ import annotations

import math

from tputui import formatting as fmt
from tputui.telemetry import events as ev
from tputui.telemetry.logged_values import CONSOLE

INTERVAL_S = 1.0
"""Shortest time between two lines."""
METRICS_SHOWN = 12
"""More metrics are only counted."""


class LoggedLine:
    """Gathers the values of one process until their line is due."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        """Newest values by split and name, since the last line."""
        self._sources: set[str] = set()
        self._t = -math.inf
        """Time of the newest event with a value."""
        self._printed_t = -math.inf
        self.step = 0
        """Newest step of a value; 0 before the first."""
        self.loss_step = 0
        """Newest step whose loss was recorded since the last line; 0 if none was."""

    def is_due(self, event: ev.Event) -> bool:
        """Whether a line is printed before an event: the events of one look at the logs, which have the same time, make
        one line."""
        has_values = bool(self._values) or self.loss_step > 0
        is_due = has_values and event.t > self._t and event.t - self._printed_t >= INTERVAL_S
        if is_due:
            self._printed_t = event.t
        return is_due

    def add(self, event: ev.Event) -> None:
        """Adds the values of an event."""
        if isinstance(event, ev.ValuesLogged):
            self._t = event.t
            self.step = max(self.step, event.step)
            self._values[event.name if event.split == "train" else f"valid {event.name}"] = event.value
            self._sources.add(event.source)
        elif isinstance(event, ev.StepsRecorded) and event.metric == "loss":
            self._t = event.t
            self.loss_step = event.first + event.n - 1
            self.step = max(self.step, self.loss_step)

    def take(self, loss: str, epoch: int, step_s: float | None) -> tuple[float, str] | None:
        """The unix time and the text of the line; None without new values.

        `loss` is the loss of `loss_step`, empty if unknown; `step_s` is the time of a step in seconds.
        """
        if not (self._values or self.loss_step):
            return None
        if loss:
            self._values.pop("loss", None)
        shown = [f"{name} {fmt.number(value)}" for name, value in list(self._values.items())[:METRICS_SHOWN]]
        if len(self._values) > METRICS_SHOWN:
            shown.append(f"{len(self._values) - METRICS_SHOWN} more")
        columns = [
            f"epoch {epoch}" if epoch else "",
            f"step {self.step}",
            loss,
            ", ".join(shown),
            f"{fmt.duration(step_s)}/step" if step_s is not None else "",
            "(from console)" if self._sources == {CONSOLE} else "",
        ]
        self._values, self._sources, self.loss_step = {}, set(), 0
        return self._t, "  ".join(column for column in columns if column)
