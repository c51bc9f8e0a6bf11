"""What watching a run over ssh costs: bytes per second from one host, idle and live, and processor time there.

    python -m benchmarks.remote_stream [--seconds 30]

Counts the bytes that `tputui stream` prints, which is what ssh carries; ssh and TCP add about 100 bytes to each burst.
Idle is a run whose processes send heartbeats and samples of the host while no step ends. Live is a run of 8 cores with
100 steps and 10 reports a second.
"""

from __future__ import annotations

import argparse
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from tests import recorded
from tputui.remote import protocol as p
from tputui.remote.mirror import Mirror
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.journal import JournalWriter

REPORT_S = 0.1
REPORT_STEPS = 10
SETTLE_S = 3.0


class Cost(NamedTuple):
    """What one host sent."""

    name: str
    journal_bytes_s: float
    sent_bytes_s: float
    cpu_percent: float


def beats(since: float, until: float) -> Iterator[tuple[str, ev.Event]]:
    """What an idle run writes each second: heartbeats, and a sample of the host every other one."""
    for second in range(int(since), int(until)):
        t = float(second)
        for writer in ("worker-0", "supervisor-0"):
            yield writer, ev.HeartbeatSent(t=t, phase="executing", phase_s=t % 60, step=100, epoch=1)
        if second % 2 == 0:
            yield (
                "supervisor-0",
                ev.HostSampled(
                    t=t,
                    cpu_percent=80 + t % 7,
                    memory_used_bytes=(3 << 30) + int(t * 4_096) % 999_999,
                    memory_total_bytes=24 << 30,
                    processes=[ev.ProcessSample(pid=4243, role="worker", rss_bytes=950 << 20, cpu_percent=99 + t % 5)],
                ),
            )


def reports(since: float, until: float, origin: float) -> Iterator[tuple[str, ev.Event]]:
    """The reports of training."""
    for number in range(int((since - origin) / REPORT_S), int((until - origin) / REPORT_S)):
        first = number * REPORT_STEPS + 1
        rows = [recorded.losses(step) for step in range(first, first + REPORT_STEPS)]
        yield "worker-0", recorded.steps_recorded(origin + number * REPORT_S, first, rows)


def measure(name: str, folder: Path, seconds: float, *, live: bool, summary: bool) -> Cost:
    """Follows a run for some seconds."""
    run_dir = rundir.create(folder, recorded.manifest(name.replace(" ", "-").replace(",", "")))
    writers = {each: JournalWriter(run_dir / f"{each}.jsonl") for each in ("worker-0", "supervisor-0")}
    origin = time.time()
    writers["worker-0"].append(recorded.worker_events()[:5])
    writers["supervisor-0"].append(recorded.supervisor_events(None))
    words = [sys.executable, "-P", "-m", "tputui", "stream"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    frames, mirror = p.HostFrames(), Mirror(folder / f"mirror-{run_dir.name}")
    process.stdout.readline()
    process.stdin.write(p.pack(p.Open(version=p.VERSION, run=str(run_dir), runs_dir=None, summary=summary, have=[])))
    process.stdin.flush()
    fd, written, pinged = process.stdout.fileno(), origin, origin
    sent = start_bytes = 0
    start_cpu, started = 0.0, 0.0
    while (now := time.time()) < origin + SETTLE_S + seconds:
        events = [*beats(written, now), *(reports(written, now, origin) if live else ())]
        for writer, event in events:
            writers[writer].append([event])
        written = now
        if now - pinged >= p.KEEP_ALIVE_S:
            pinged = now
            process.stdin.write(p.pack(p.Ping(t=now)))
            process.stdin.flush()
        if select.select([fd], [], [], 0.05)[0]:
            data = os.read(fd, 1 << 20)
            sent += len(data)
            frames.feed(data)
            while (messages := frames.next_frame()) is not None:
                for message in messages:
                    if isinstance(message, p.Found):
                        process.stdin.write(p.pack(mirror.copy_of(message.writer)))
                        process.stdin.flush()
                    elif isinstance(message, p.Data):
                        mirror.write(message)
        if not started and now > origin + SETTLE_S:
            started, start_cpu, sent = now, _cpu_s(process.pid), 0
            start_bytes = _size_of(run_dir)
    elapsed = time.time() - started
    cost = Cost(
        name,
        (_size_of(run_dir) - start_bytes) / elapsed,
        sent / elapsed,
        100 * (_cpu_s(process.pid) - start_cpu) / elapsed,
    )
    process.stdin.close()
    process.wait(10)
    process.stdout.close()
    for each in writers.values():
        each.close()
    return cost


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _size_of(run_dir: Path) -> int:
    return sum(path.stat().st_size for path in run_dir.glob("*.jsonl"))


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    seconds = parser.parse_args().seconds
    print("| run | journals, B/s | sent, B/s | CPU on the host |")
    print("|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, live, summary in (
            ("idle", False, False),
            ("live", True, False),
            ("live, --summary", True, True),
        ):
            cost = measure(name, Path(folder), seconds, live=live, summary=summary)
            row = f"{cost.journal_bytes_s:,.0f} | {cost.sent_bytes_s:,.0f} | {cost.cpu_percent:.1f} %"
            print(f"| {cost.name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
