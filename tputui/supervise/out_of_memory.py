"""Whether the kernel killed a process for lack of memory, by its counts of such kills."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from tputui.telemetry.files import read_small

OOM_SAMPLES_KEPT = 5
"""The newest count is compared with the one this many readings before: it rises before the end of the process is
seen."""
_COUNTER_BYTES_MAX = 64 << 10


class OutOfMemoryWatch:
    """Detects whether the kernel killed a process for lack of memory, by its count of such kills.

    Such a process ends by SIGKILL, like one that a user killed; only the count tells the two apart.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` is the directory of `proc` and `sys`."""
        counter: tuple[Path | None, str] = _find_oom_counter(root) or (None, "")
        self._counter, self._scope = counter
        self._before: deque[int] = deque(maxlen=OOM_SAMPLES_KEPT)
        self.sample()

    def sample(self) -> None:
        """Reads the count while the processes live."""
        count = _oom_kills(self._counter) if self._counter else None
        if count is not None:
            self._before.append(count)

    def rose(self) -> bool | None:
        """Whether the count rose lately; None if it cannot be read."""
        now = _oom_kills(self._counter) if self._counter else None
        return now > self._before[0] if now is not None and self._before else None

    def verdict(self) -> str:
        """`rose` as a sentence."""
        rose = self.rose()
        if rose is None or self._counter is None:
            return "unknown whether memory ran out: the kernel's counters cannot be read here"
        if rose:
            return f"out of memory: the kernel killed a process at that time ({self._scope})"
        return f"memory did not run out: the kernel counted no out-of-memory kill ({self._scope})"


def _find_oom_counter(root: Path) -> tuple[Path, str] | None:
    """The file with the count of kills that has the narrowest scope around the calling process, and that scope."""
    for path, scope in (*_cgroup_counters(root), (root / "proc/vmstat", "count of the whole host")):
        if _oom_kills(path) is not None:
            return path, scope
    return None


def _cgroup_counters(root: Path) -> list[tuple[Path, str]]:
    """The counters of the control group, for cgroup v1 and v2, with the paths inside and outside of a container."""
    about = "count of its control group"
    counters: list[tuple[Path, str]] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, *rest = [*line.split(":", 2), "", ""][:3]
        group = rest[0].lstrip("/") if rest else ""
        if number == "0" and not controllers:
            base = root / "sys/fs/cgroup"
            counters += [(path / "memory.events", about) for path in (base / group, base)]
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            counters += [(path / "memory.oom_control", about) for path in (base / group, base)]
    return counters


def _oom_kills(path: Path) -> int | None:
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
