"""What a viewer of a pod costs, and how old an event is when it shows it.

CPU time is measured in the time of the simulation: a monitor without a terminal draws a frame for each tenth of a
second of the run, and each part of the frame is timed on its thread. Other work on the machine still slows some frames
down by up to a half, so the same run is watched several times, and the median of each frame counts.
Freshness is measured in real time: another process writes the journals, and a reader as in the monitor follows them.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import psutil

from benchmarks.pod_journals import REPORT_S, create
from benchmarks.pod_model import CORES_PER_HOST, Faults, Partition
from tests.recorded import T0
from tputui.session.session import Session
from tputui.state.snapshot import Snapshot
from tputui.ui.app import ScreenApp
from tputui.ui.base.reader_thread import Frame, PlayerControls, ReaderThread
from tputui.ui.monitor.screen import MonitorScreen

SIZE = (160, 45)
WARM_UP_S = 20.0
"""Seconds of the run that are read before the first measured frame."""
DEADLINE_S = 600.0
REPEATS = 3
"""How often the same frames are measured."""
FIRST_FRAMES = 5
"""Frames that are not counted, while the screen opens."""
KEY_S = 0.05
"""Seconds between two keys."""


class Cost(msgspec.Struct, frozen=True):
    """The cost of a viewer of a number of hosts."""

    hosts: int
    events_per_s: float
    read_ms: float
    """CPU time per frame, median: reading and reducing the events of a tenth of a second ..."""
    snapshot_ms: float
    """... building the snapshot ..."""
    draw_ms: float
    """... and drawing it; mean."""
    frame_p95_ms: float
    """95th percentile of reading and building, plus the mean of drawing."""
    frame_max_ms: float
    """The same of the longest frame."""
    idle_poll_ms: float
    """CPU time of a poll that finds nothing new."""
    memory_mib: float
    """Memory of a process that has read a minute of the run, above that of one that has read nothing."""
    fresh_ms: float
    """Milliseconds from an event to the snapshot that shows it, median of the frames."""
    fresh_p95_ms: float


class Frames(NamedTuple):
    """CPU seconds of the frames of a run that was watched once."""

    read_s: list[float]
    snapshot_s: list[float]
    draw_s: float
    """Mean of the frames."""
    num_events: int


class Writer(Protocol):
    """Writes the events of a simulated run up to a time, in seconds since its start."""

    @property
    def num_events(self) -> int: ...
    def write_until(self, seconds: float) -> None: ...


class Stepped:
    """A session for the monitor that writes and reads a tenth of a second of the run before each frame."""

    def __init__(self, pod: Writer, run_dir: Path) -> None:
        self.read_s: list[float] = []
        self.snapshot_s: list[float] = []
        self.write_s = 0.0
        self.num_events: list[int] = []
        self._pod = pod
        self._now_s = WARM_UP_S
        self._is_shown = True
        self._session = Session.live(run_dir, lambda: T0 + self._now_s)
        self._session.disable_cache()
        pod.write_until(WARM_UP_S)
        self._session.read_all()

    @property
    def caught_up(self) -> bool:
        return True

    @property
    def player(self) -> PlayerControls | None:
        return None

    def poll(self, budget_s: float) -> list[object]:
        """Goes on by a tenth of a second, if the last one is on the screen."""
        if not self._is_shown:
            return []
        self._is_shown = False
        self._now_s += REPORT_S
        before, began = self._pod.num_events, time.thread_time()
        self._pod.write_until(self._now_s)
        self.num_events.append(self._pod.num_events - before)
        written = time.thread_time()
        self._session.read_all()
        self.write_s += written - began
        self.read_s.append(time.thread_time() - written)
        return [None]

    def snapshot(self, *, may_defer: bool = False) -> Snapshot:
        began = time.thread_time()
        snapshot = self._session.snapshot(may_defer=may_defer)
        self.snapshot_s.append(time.thread_time() - began)
        self._is_shown = True
        return snapshot

    def newest(self, *, may_defer: bool = False) -> Snapshot:
        return self.snapshot(may_defer=may_defer)

    def fingerprint(self) -> object:
        return self._session.fingerprint()

    def idle_poll_s(self) -> float:
        """CPU time of a poll without news, median."""
        took: list[float] = []
        for _ in range(20):
            began = time.thread_time()
            self._session.poll()
            took.append(time.thread_time() - began)
        return statistics.median(took)

    def close(self) -> None:
        """Nothing: the session is used after the screen has closed."""


def measure(num_hosts: int, frames: int, live_s: float) -> Cost:
    """Measures one number of hosts."""
    repeats: list[Frames] = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as name:
            run_dir, pod = create(Path(name), num_hosts, 1, _faults(num_hosts), T0)
            source = Stepped(pod, run_dir)
            repeats.append(draw(source, run_dir, frames))
            idle_s = source.idle_poll_s()
            pod.write_until(60.0)
            pod.close()
            if len(repeats) == REPEATS:
                grown_mib = memory_mib(run_dir, "read") - memory_mib(run_dir)
    ages = _ages_s(num_hosts, live_s)
    draw_s = statistics.median(each.draw_s for each in repeats)
    both = sorted(
        statistics.median(each.read_s[frame] + each.snapshot_s[frame] for each in repeats) for frame in range(frames)
    )
    return Cost(
        hosts=num_hosts,
        events_per_s=repeats[0].num_events / frames / REPORT_S,
        read_ms=1000 * statistics.median(read_s for each in repeats for read_s in each.read_s),
        snapshot_ms=1000 * statistics.median(build_s for each in repeats for build_s in each.snapshot_s),
        draw_ms=1000 * draw_s,
        frame_p95_ms=1000 * (both[int(0.95 * len(both))] + draw_s),
        frame_max_ms=1000 * (both[-1] + draw_s),
        idle_poll_ms=1000 * idle_s,
        memory_mib=grown_mib,
        fresh_ms=1000 * statistics.median(ages),
        fresh_p95_ms=1000 * sorted(ages)[int(0.95 * len(ages))],
    )


def _faults(num_hosts: int) -> Faults:
    """A slow host, a core whose loss becomes NaN, and a host that is silent for 3 s, while frames are measured."""
    return Faults(
        straggler=num_hosts // 2,
        nan_core=num_hosts // 3 * CORES_PER_HOST,
        nan_from_s=WARM_UP_S + 2.0,
        partition=Partition(num_hosts - 1, WARM_UP_S + 3.0, WARM_UP_S + 6.0) if num_hosts > 1 else None,
    )


def draw(
    source: Stepped, run_dir: Path, frames: int, *, open_with: Sequence[str] = (), press: Sequence[str] = ()
) -> Frames:
    """Draws the run frame by frame. Drawing is everything but the source. The keys of `open_with` are pressed before
    the frames that count; those of `press` in turn meanwhile, one every 50 ms."""
    screen = MonitorScreen(source, run_dir, read_only=True)
    app = ScreenApp(lambda: screen, alone=True)

    def spent_s() -> tuple[float, int]:
        """CPU time besides the source so far, and the number of frames."""
        others_s = source.write_s + sum(source.read_s) + sum(source.snapshot_s)
        return time.process_time() - others_s, len(source.snapshot_s)

    async def run() -> float:
        async with app.run_test(size=SIZE) as pilot:
            await pilot.press(*open_with)
            await _until(lambda: len(source.snapshot_s) >= FIRST_FRAMES)
            before_s, first = spent_s()
            keys = itertools.cycle(press)
            while press and len(source.snapshot_s) < FIRST_FRAMES + frames:
                await pilot.press(next(keys))
                await asyncio.sleep(KEY_S)
            await _until(lambda: len(source.snapshot_s) >= FIRST_FRAMES + frames)
            after_s, last = spent_s()
            return (after_s - before_s) / (last - first)

    draw_s, counted = asyncio.run(run()), slice(FIRST_FRAMES, FIRST_FRAMES + frames)
    return Frames(source.read_s[counted], source.snapshot_s[counted], draw_s, sum(source.num_events[counted]))


async def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the monitor draws nothing")
        await asyncio.sleep(0.01)


_READ = """
import os, sys
from pathlib import Path
from tputui.session.session import Session
session = Session.live(Path(sys.argv[1]))
if sys.argv[2:]:
    session.read_all()
    session.snapshot()
print(int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20)
"""


def memory_mib(run_dir: Path, *action: str) -> float:
    """Resident memory of a process that has opened a run and, with an action, read it."""
    command = [sys.executable, "-c", _READ, str(run_dir), *action]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout)


def _ages_s(num_hosts: int, seconds: float) -> list[float]:
    """Ages of the newest report of the first host in each frame that shows a new one, in seconds."""
    ages: list[float] = []
    newest = 0.0
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "benchmarks.pod", "live", name, "--hosts", str(num_hosts), "--healthy"]
        writer = psutil.Popen([*command, "--seconds", "3600"], stdout=subprocess.PIPE, text=True)
        try:
            run_dir = Path(writer.stdout.readline().strip())

            def deliver(frame: Frame) -> None:
                nonlocal newest
                pace = frame.snapshot.throughput
                if pace is not None and pace.history and pace.history[-1].t != newest:
                    newest = pace.history[-1].t
                    ages.append(time.time() - newest)
                reader.drawn()

            reader = ReaderThread(Session.live(run_dir), deliver)
            thread = threading.Thread(target=reader.run)
            thread.start()
            time.sleep(seconds)
            reader.stop()
            thread.join()
        finally:
            writer.kill()
            writer.wait()
            writer.stdout.close()
    return ages[len(ages) // 4 :]


def table(costs: Sequence[Cost]) -> str:
    """The costs as text."""
    lines = ["hosts  events/s   read  snapshot   draw  frame p95  frame max   idle poll   memory   fresh  fresh p95"]
    for cost in costs:
        lines.append(
            f"{cost.hosts:5}{cost.events_per_s:10,.0f}{cost.read_ms:7.1f}{cost.snapshot_ms:10.1f}{cost.draw_ms:7.1f}"
            f"{cost.frame_p95_ms:11.1f}{cost.frame_max_ms:11.1f}{cost.idle_poll_ms:12.2f}{cost.memory_mib:9.0f}{cost.fresh_ms:8.0f}"
            f"{cost.fresh_p95_ms:11.0f}"
        )
    return "\n".join(lines)
