"""Requests and the processes that answer them, also after a restart of the processes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.process.main_thread import WorkerMonitor
from engine.process.requests import RequestQueue
from tputui.reporting.progress import Progress
from tputui.telemetry import events as ev
from tputui.telemetry import requests, rundir
from tputui.telemetry.journal import Tail
from tputui.telemetry.reporter import Reporter


def test_restarted_process_carries_out_only_requests_without_an_answer(tmp_path: Path) -> None:
    (tmp_path / rundir.REQUESTS).mkdir()
    kinds: list[ev.RequestKind] = ["checkpoint", "trace", "stacks", "checkpoint"]
    saved, traced, stacks, missed = (
        requests.submit(tmp_path, kind, by="test", now=1.0 + number) for number, kind in enumerate(kinds)
    )
    gone = msgspec.structs.replace(rundir.this_process(), pid_started=1)
    first = Reporter(tmp_path, "worker", 0, process=gone)
    for answered in (saved, stacks):
        first.emit(ev.RequestSeen(t=5.0, request=answered.id, kind=answered.kind, phase="executing", step=1))
        first.emit(ev.RequestApplied(t=5.0, request=answered.id, kind=answered.kind, step=1))
    first.emit(ev.RequestRefused(t=5.0, request=traced.id, kind=traced.kind, why="a profile is running"))
    first.emit(ev.RequestSeen(t=5.0, request=missed.id, kind=missed.kind, phase="executing", step=1))
    first.close()
    second, queue = Reporter(tmp_path, "worker", 0, generation=1), RequestQueue()
    WorkerMonitor(tmp_path, second, Progress(), queue).poll()
    second.close()
    assert [request.id for request in queue.take()] == [missed.id]
    tail = Tail(tmp_path / "worker-0.jsonl")
    seen = [each.event.request for each in tail.read() if isinstance(each.event, ev.RequestSeen)]
    tail.close()
    assert seen == [saved.id, stacks.id, missed.id, missed.id]


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b'{"k":"RequestApplied","t":1}\n'])
def test_journal_without_a_valid_answer_has_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "worker-0.jsonl").write_bytes(content)
    assert requests.answered_in(tmp_path / "worker-0.jsonl") == set()
    assert requests.answered_in(tmp_path / "worker-1.jsonl") == set()


def test_request_that_was_served_for_another_host_is_not_served_again() -> None:
    queue = RequestQueue()
    request = requests.Request(id="1", kind="checkpoint", t=1.0, by="test")
    # It arrives here at the same moment as the loop takes it from another host.
    assert queue.note(request)
    assert queue.adopt([request]) == []
    queue.submit(request)
    assert not queue.is_pending
    assert queue.take(epoch_end=True) == []
