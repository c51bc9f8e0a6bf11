"""When a report falls due. Pure: knows no device and no clock."""

from __future__ import annotations

DEPTH = 256
"""Steps that the register holds: at most so many lie between two reports."""


class ReportInterval:
    """When a report falls due: after a number of steps, re-derived from the step time.

    Steps may slow down before it is derived anew, so the time counts too: one process drives all the cores, and its
    clock is the only one. Several processes would have to agree first.
    """

    def __init__(self, interval_s: float, every_steps: int | None = None) -> None:
        """`every_steps` fixes the number of steps; the time counts all the same."""
        self._interval_s = interval_s
        self._fixed = every_steps
        self.steps = min(DEPTH, every_steps or 1)
        """At first every step is reported at once, where the number is not fixed."""

    def due(self, steps: int, waited_s: float) -> bool:
        """Whether a report is due that is to tell of so many steps."""
        return steps >= self.steps or (steps > 0 and waited_s >= self._interval_s)

    def retune(self, step_s: float) -> None:
        """Takes the measured step time, compiling left out."""
        if self._fixed is None:
            self.steps = DEPTH if step_s <= 0 else max(1, min(DEPTH, int(self._interval_s / step_s)))
