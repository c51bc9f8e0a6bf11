"""Turns the logged training loss into steps: one value per core if the log names cores, else a single one. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks

ROWS_PER_EVENT = 256
"""Steps in one event, which have one time."""
WAITING_MAX = 1 << 17
"""Steps that wait for the values of other cores, whose file may be read later; older ones are left out."""
WAIT_S = 1.0
"""Seconds without a new core after which the cores are complete, if all that are known to exist have a value ..."""
WAIT_MAX_S = 5.0
"""... and after which they are complete in any case."""
UNKNOWN = "unknown"
REASON = "the logs of a script do not name its devices"


class Row(NamedTuple):
    """The loss of one step: a value per core."""

    step: int
    values: Sequence[float]


class LossRows:
    """Gathers the values of the cores of a step, in any order."""

    def __init__(self, *, per_core: bool) -> None:
        """`per_core`: the log names cores."""
        self._per_core = per_core
        self._cores: list[int] = []
        """The cores in order, once they were declared."""
        self._seen: set[int] = set()
        self._since: float | None = None
        """Unix time at which the first core appeared that is not declared."""
        self._grown = 0.0
        """Unix time at which the newest core appeared."""
        self._num_seen = 0
        """Number of cores at the last look."""
        self.num_expected = 0
        """Number of cores that are known to exist; 0 if unknown."""
        self._waiting: dict[int, dict[int, float]] = {}
        """The values by step and core."""
        self.num_left_out = 0
        """Steps left out because a core had no value."""

    def add(self, core: int, step: int, value: float) -> None:
        """Adds the value of a core; 0 if the log names no cores."""
        self._seen.add(core)
        self._waiting.setdefault(step, {})[core] = value

    def events(self, now: float, *, final: bool = False) -> Iterator[ev.Event]:
        """The complete steps since the last call, after the cores if they are new. `now` is unix time."""
        if not self._waiting:
            return
        cores = sorted(self._seen)
        if cores != self._cores:
            if not (final or self._is_settled(now)):
                return
            self._cores, self._since = cores, None
            yield topology(now, cores)
        yield from steps_recorded(self._complete(), now)
        while len(self._waiting) > WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
            self.num_left_out += 1

    def _is_settled(self, now: float) -> bool:
        """Whether no further cores are to be waited for. They may log to files of their own, which are read one after
        the other, or begin later than the first."""
        if not self._per_core or len(self._waiting) > WAITING_MAX:
            return True
        if self._num_seen != len(self._seen):
            self._num_seen, self._grown = len(self._seen), now
        self._since = now if self._since is None else self._since
        num_known = max(self.num_expected, max(self._seen) + 1)
        if len(self._seen) >= num_known > 1 and self.num_expected:
            return True
        is_whole = len(self._seen) >= num_known and now - self._grown >= WAIT_S
        return is_whole or now - self._since >= WAIT_MAX_S

    def _complete(self) -> list[Row]:
        size = len(self._cores)
        steps = [step for step, row in self._waiting.items() if len(row) == size]
        rows = [(step, self._waiting.pop(step)) for step in steps]
        return [Row(step, [values[core] for core in self._cores]) for step, values in rows]


def topology(t: float, cores: list[int]) -> ev.TopologyDeclared:
    """The cores that a log names, at the unix time `t`."""
    return ev.TopologyDeclared(
        t=t,
        strategy=UNKNOWN,
        device=UNKNOWN,
        device_reason=REASON,
        num_cores=len(cores),
        num_hosts=1,
        host_index=0,
        cores=cores,
    )


def steps_recorded(rows: Sequence[Row], now: float) -> Iterator[ev.StepsRecorded]:
    """The steps as events; consecutive ones together."""
    start = 0
    for place in range(1, len(rows) + 1):
        is_next = place < len(rows) and rows[place].step == rows[place - 1].step + 1
        if is_next and place - start < ROWS_PER_EVENT:
            continue
        yield from _events(rows[start:place], now)
        start = place


def _events(rows: Sequence[Row], now: float) -> Iterator[ev.StepsRecorded]:
    """The rows as one event; as several if a finite value is beyond float32, since one alone stays exact."""
    exact = [value for row in rows for value in row.values]
    values = array("f", exact)
    mean, least, greatest, bad = float_blocks.summarise(values)
    if bad and any(map(float_blocks.is_beyond_float32, exact)):
        if len(rows) > 1:
            for row in rows:
                yield from _events([row], now)
            return
        values = float_blocks.float32(exact)
        mean, least, greatest, bad = float_blocks.summarise(exact)
    yield ev.StepsRecorded(
        t=now,
        first=rows[0].step,
        n=len(rows),
        cores=len(rows[0].values),
        mean=mean,
        min=least,
        max=greatest,
        bad=bad,
        block=float_blocks.pack(float_blocks.little_endian_bytes(values)),
    )
