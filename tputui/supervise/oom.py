"""Whether the kernel ended a process for want of memory: told by its own counters, or said that it cannot be told.

A process that runs out of memory is ended by SIGKILL, as by anybody's `kill -9`; only the kernel knows which. It
counts such ends for each control group, and for the whole host.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import NamedTuple

from tputui.telemetry.safe_open import read_small

SAMPLES_KEPT = 5
"""Readings before the newest one that is compared: a count may rise a moment before the end of a process is seen."""
_COUNTER_BYTES_MAX = 64 << 10


class Counter(NamedTuple):
    """A file in which the kernel counts, and what its count is about."""

    path: Path
    about: str


class OutOfMemoryWatch:
    """Reads the counter again and again, and says at an end whether it rose."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` is where `proc` and `sys` are."""
        self._counter = _find(root)
        self._before: deque[int] = deque(maxlen=SAMPLES_KEPT)
        self.sample()

    def sample(self) -> None:
        """Takes a reading while the processes live."""
        count = _count(self._counter.path) if self._counter else None
        if count is not None:
            self._before.append(count)

    def rose(self) -> bool | None:
        """Whether the kernel ended a process for want of memory lately; None where that cannot be told."""
        now = _count(self._counter.path) if self._counter else None
        return now > self._before[0] if now is not None and self._before else None

    def verdict(self) -> str:
        """The same in words."""
        rose = self.rose()
        if rose is None or self._counter is None:
            return "whether memory ran out cannot be told: the kernel's counters cannot be read here"
        if rose:
            return f"the kernel ended a process for want of memory just then ({self._counter.about})"
        return f"memory did not run out: the kernel counts no such end ({self._counter.about})"


def _find(root: Path) -> Counter | None:
    """The counter that is closest to the calling process."""
    for counter in (*_of_groups(root), Counter(root / "proc/vmstat", "counted for the whole host")):
        if _count(counter.path) is not None:
            return counter
    return None


def _of_groups(root: Path) -> list[Counter]:
    """The counters of the control group, of either version, also as a container sees its own."""
    about = "counted for its control group"
    found: list[Counter] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, *rest = [*line.split(":", 2), "", ""][:3]
        group = rest[0].lstrip("/") if rest else ""
        if number == "0" and not controllers:
            base = root / "sys/fs/cgroup"
            found += [Counter(base / group / "memory.events", about), Counter(base / "memory.events", about)]
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            found += [Counter(base / group / "memory.oom_control", about), Counter(base / "memory.oom_control", about)]
    return found


def _count(path: Path) -> int | None:
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdecimal():
            return int(value)
    return None


def _text(path: Path) -> str:
    try:
        return read_small(path, _COUNTER_BYTES_MAX).decode("ascii", "replace")
    except OSError:
        return ""
