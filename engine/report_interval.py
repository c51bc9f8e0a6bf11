"""`ReportInterval`: when a report is due. Pure: uses no device and no clock."""

from __future__ import annotations

DEPTH = 256
"""Steps that the register on the device holds: the most that fit in one report."""


class ReportInterval:
    """A report is due after a number of steps, which follows from the step time, or when the interval is over.

    The interval counts as well since steps may become slower before the number is adapted. With several processes,
    which have several clocks, `engine.parallel.coordinator` makes them agree.
    """

    def __init__(self, interval_s: float, every_steps: int | None = None) -> None:
        """`every_steps` fixes the number of steps; the interval still counts."""
        self._interval_s = interval_s
        self._fixed = every_steps
        self.steps = min(DEPTH, every_steps or 1)
        """Steps of a report. Unless the number is fixed, the first report is of one step."""

    def due(self, steps: int, waited_s: float) -> bool:
        """Whether a report of that many steps is due, `waited_s` after the last one."""
        return steps >= self.steps or (steps > 0 and waited_s >= self._interval_s)

    def retune(self, step_s: float) -> None:
        """Adapts the number of steps to the measured step time, without the time of compiling."""
        if self._fixed is None:
            self.steps = DEPTH if step_s <= 0 else max(1, min(DEPTH, int(self._interval_s / step_s)))
