"""Recognises the values that a script both prints and logs to a file, so that they are shown once. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from decimal import Decimal

RECENT_MAX = 4_096
"""Values of a metric among which others are looked for."""
_SHARE_MAX = 5e-3
"""Greatest relative difference of equal values, however few digits are printed ..."""
_UNIT_MAX = 1e-4
"""... unless the metric is printed in such units, so that a value has few digits because it is small, ..."""
_SHARE_MAX_AFTER = 5e-2
"""... or has repeated values before, or has the name of the other."""


class Shown:
    """The newest values of a metric that is shown."""

    def __init__(self) -> None:
        self.values: deque[tuple[int | None, float, float]] = deque(maxlen=RECENT_MAX)
        """Step, value and epoch; NaN where no epoch is known."""
        self.num_values = 0
        """Of all values, also of those that are left out."""

    def add(self, step: int | None, value: float, epoch: float = math.nan) -> None:
        """Adds a value in the order of its log."""
        self.values.append((step, value, epoch))
        self.num_values += 1


class Repeats:
    """Whether a metric of one log only repeats, in their order, values of a metric that another log has."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        """Number of the value after the one that was found last, by the number of the metric."""
        self._lost: set[int] = set()
        """The metrics that it does not repeat."""
        self._unit = 1.0
        """Of the last digit that was printed."""

    def take(
        self,
        step: int | None,
        value: float,
        epoch: float,
        others: Iterable[Shown],
        *,
        is_printed: bool,
        namesake: Shown | None = None,
    ) -> bool:
        """Whether some metric that has all values so far has this one, too. `epoch`: NaN if not known; a log may count
        steps where another counts epochs. `is_printed`: this one was printed, else those of the others were.
        `namesake`: the one with its name."""
        found: dict[int, int] = {}
        missing: set[int] = set()
        if is_printed:
            self._unit = min(self._unit, _unit_of(value) or 1.0)
        for number, other in enumerate(others):
            if number in self._lost:
                continue
            missing.add(number)
            first = other.num_values - len(other.values)
            # A value may be printed twice: on a bar, and below it.
            start = max(self._places.get(number, 0) - is_printed, first)
            for place in range(start, other.num_values):
                at, known, at_epoch = other.values[place - first]
                near = step is None or at is None or abs(step - at) <= 1 or epoch == at_epoch
                share_max = _SHARE_MAX_AFTER if number in self._places or other is namesake else _SHARE_MAX
                if near and is_same(*((value, known) if is_printed else (known, value)), share_max, self._unit):
                    found[number] = place + 1
                    break
        if found:
            self._places |= found
            self._lost |= missing - found.keys()
        return bool(found)


def is_same(printed: float, exact: float, share_max: float = _SHARE_MAX, unit: float = 1.0) -> bool:
    """Whether a number is the other one, as it was printed with fewer digits. `unit`: that of the last digit of other
    numbers of the metric, since the last zeros of this one are not known."""
    if not (math.isfinite(printed) and math.isfinite(exact)):
        return printed == exact or (math.isnan(printed) and math.isnan(exact))
    if printed == exact:
        return True
    difference = abs(printed - exact)
    if unit <= _UNIT_MAX and difference <= 0.501 * unit:
        return True
    return difference <= 0.501 * _unit_of(printed) and difference <= share_max * abs(exact)


def _unit_of(printed: float) -> float:
    # A whole number was printed without decimals: 117 of 117.11.
    exponent = 0 if printed.is_integer() else Decimal(repr(printed)).as_tuple().exponent
    return 10.0**exponent if isinstance(exponent, int) else 0.0
