"""A recorded run that is long enough for cached states, and helpers for the tests of the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tests import recorded
from tests.state.test_reducer import snapshot_text
from tputui.cache import cache_file
from tputui.cache.cache_file import Head
from tputui.cache.cache_writer import CacheWriter
from tputui.session import session
from tputui.session.session import Session
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.text.show_page import show_text, to_show

NUM_REPORTS = 600
STEPS_A_REPORT = 4
SPACING_BYTES = 20_000


def write(parent: Path, run: str = "long-1", *, tone: float = 1.0) -> Path:
    """A finished run of `NUM_REPORTS` reports, whose losses are multiplied by `tone`."""
    run_dir = rundir.create(parent, recorded.manifest(run))
    worker = recorded.worker_events()
    head, last = worker[:5], worker[-1]
    events: list[ev.Event] = []
    t = recorded.T0 + 5
    for number in range(NUM_REPORTS):
        t, first = t + 1.0, 1 + number * STEPS_A_REPORT
        rows = [[tone * loss for loss in recorded.losses(step % 50)] for step in range(first, first + STEPS_A_REPORT)]
        events.append(recorded.steps_recorded(t, first, rows))
        events.append(ev.HeartbeatSent(t=t, phase="executing", phase_s=0.1, step=first + 3, epoch=1))
        if not number % 50:
            events.append(ev.WarningRaised(t=t, text=f"report {number} of a long run"))
    end = msgspec.structs.replace(last, t=t + 1)
    recorded.write_journal(run_dir / "worker-0.jsonl", [*head, *events, end])
    recorded.write_journal(run_dir / "supervisor-0.jsonl", recorded.supervisor_events(t + 2))
    return run_dir


def write_cache(run_dir: Path, spacing_bytes: int = SPACING_BYTES) -> list[Path]:
    """Writes cache files as the supervisor does at the end of a run; returns their paths."""
    cache_writer = CacheWriter(run_dir, spacing_bytes=spacing_bytes, spacing_share=0)
    cache_writer.finish(60.0)
    assert cache_writer.error is None
    return cache_file.listed(run_dir)


def rendered(run_dir: Path) -> str:
    """The snapshot of a run as text, and what `show` and `show --json` print."""
    snapshot = session.load(run_dir, clock=lambda: recorded.T0 + 10_000)
    return snapshot_text(snapshot) + show_text(snapshot) + msgspec.json.encode(to_show(snapshot, whole=True)).decode()


def num_read(run_dir: Path) -> int:
    """Number of events that are read to open a run."""
    source = Session.live(run_dir)
    count = len(source.poll())
    while not source.caught_up:
        count += len(source.poll())
    source.close()
    return count


def forge(path: Path, content: bytes | None = None, **changes: Any) -> None:
    """Rewrites a cache file with another head or state, in a valid format."""
    kept_head, _, kept_content = path.read_bytes().partition(b"\n")
    head = msgspec.json.decode(kept_head, type=Head)
    body = kept_content if content is None else content
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(head, **changes)) + b"\n" + body)
