"""The reporter: never blocks or raises, and writes or counts every event."""

from __future__ import annotations

import errno
import itertools
import math
import os
import signal
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.deadline import DEADLINE_S
from tests.supervise.harness import wait_for
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks, rundir
from tputui.telemetry.float_blocks import FLOAT32_MAX
from tputui.telemetry.journal import Tail
from tputui.telemetry.reporter import Reporter, StillWritten
from tputui.telemetry.step_log import StepLog


def journal_events(run_dir: Path) -> list[ev.Event]:
    """The events of the journal after its head."""
    tail = Tail(run_dir / "worker-0.jsonl")
    events = [record.event for record in tail.read(64 << 20)]
    assert tail.regions(final=True) == []
    tail.close()
    assert isinstance(events[0], ev.JournalOpened)
    return events[1:]


def steps(run_dir: Path, metric: str = "loss") -> dict[int, list[float]]:
    """The values of every step in the journal."""
    rows: dict[int, list[float]] = {}
    for event in journal_events(run_dir):
        if isinstance(event, ev.StepsRecorded) and event.metric == metric:
            values = float_blocks.unpack(event.block, event.n * event.cores)
            for row in range(event.n):
                rows[event.first + row] = values[row * event.cores : (row + 1) * event.cores].tolist()
    return rows


def step_log(reporter: Reporter, cores: int) -> StepLog:
    log = StepLog(reporter.put_steps, reporter.clock, cores)
    reporter.follow(log)
    return log


def test_first_event_names_the_writer(tmp_path: Path) -> None:
    Reporter(tmp_path, "worker", 3).close()
    tail = Tail(tmp_path / "worker-3.jsonl")
    head = tail.read()[0].event
    tail.close()
    assert isinstance(head, ev.JournalOpened)
    assert (head.writer, head.role, head.pid, head.format) == ("worker-3", "worker", os.getpid(), ev.FORMAT_VERSION)


def test_every_step_of_every_core_is_recorded(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, "worker")
    log = step_log(reporter, cores=2)
    for step in range(1, 20_001):
        log.log(step, [float(step), -float(step)])
    assert reporter.close(DEADLINE_S)
    assert steps(tmp_path) == {step: [float(step), -float(step)] for step in range(1, 20_001)}


def test_step_jump_begins_a_new_event(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, "worker")
    log = step_log(reporter, cores=1)
    for step in (1, 2, 50, 51, 3):
        log.log(step, [float(step)])
    reporter.close()
    assert steps(tmp_path) == {step: [float(step)] for step in (1, 2, 50, 51, 3)}


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ((1.0, 2.0), [1.0, 2.0]),
        (array("f", [1.0, 2.0]), [1.0, 2.0]),
        (array("d", [1.0, 2.0]), [1.0, 2.0]),
        ([1, True], [1.0, 1.0]),
        ([1e300, -1e300], [FLOAT32_MAX, -FLOAT32_MAX]),
        ([1.0], [1.0, math.nan]),
        ([1.0, 2.0, 3.0], [1.0, 2.0]),
        (["a", 2.0], [math.nan, 2.0]),
        (None, [math.nan, math.nan]),
    ],
)
def test_values_of_every_form_are_accepted(tmp_path: Path, values: Any, kept: list[float]) -> None:
    reporter = Reporter(tmp_path, "worker")
    step_log(reporter, cores=2).log(1, values)
    reporter.close()
    assert repr(steps(tmp_path)[1]) == repr(kept)


def test_finite_values_beyond_float32_are_not_infinite(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, "worker")
    log = step_log(reporter, cores=1)
    for step, value in enumerate([0.5, 1e300, -1e300, 0.25], 1):
        log.log(step, [value])
    reporter.close()
    found = [event for event in journal_events(tmp_path) if isinstance(event, ev.StepsRecorded)]
    assert [(event.first, event.mean, event.bad) for event in found] == [
        (1, 0.5, 0), (2, 1e300, 0), (3, -1e300, 0), (4, 0.25, 0)
    ]  # fmt: skip


@pytest.mark.parametrize("values", [None, "text", array("f", [1.0, 2.0, 3.0])])
def test_unusable_values_are_reported_not_raised(tmp_path: Path, values: Any) -> None:
    reporter = Reporter(tmp_path, "worker")
    reporter.record_steps(5, values, cores=2)
    reporter.close()
    (warning,) = journal_events(tmp_path)
    assert isinstance(warning, ev.WarningRaised)
    assert "steps from 5 could not be recorded" in warning.text


def test_bulk_values_of_another_type_are_converted(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, "worker")
    reporter.record_steps(1, array("d", [1.0, 2.0, 3.0, math.nan]), cores=2)
    reporter.close()
    (event,) = journal_events(tmp_path)
    assert isinstance(event, ev.StepsRecorded)
    assert (event.n, event.mean, event.min, event.max, event.bad) == (2, 2.0, 1.0, 3.0, 1)


def test_last_steps_before_a_pause_are_written(tmp_path: Path) -> None:
    clock = itertools.count(0.0).__next__
    reporter = Reporter(tmp_path, "worker", clock=clock)
    step_log(reporter, cores=1).log(1, [1.0])
    tail = Tail(tmp_path / "worker-0.jsonl")
    wait_for(
        lambda: any(isinstance(record.event, ev.StepsRecorded) for record in tail.read()), "the steps in the journal"
    )
    tail.close()
    reporter.close()


def test_stalled_disk_drops_steps_but_not_essential_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = Reporter(tmp_path, "worker", queue_bytes_max=64 << 10)
    assert reporter.flush(DEADLINE_S)
    real_write = os.write
    full = True

    def refuse(fd: int, data: bytes) -> int:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(fd, data)

    monkeypatch.setattr(os, "write", refuse)
    for number in range(1000):
        reporter.record_steps(10 * number + 1, array("f", [1.0] * 80), cores=8)
        if number % 100 == 0:
            reporter.emit(ev.WarningRaised(t=0.0, text=f"warning {number}"))
    assert not reporter.flush(timeout_s=0.3)
    assert "No space" in wait_for(lambda: reporter.failure, "the failure")
    full = False
    assert reporter.close(DEADLINE_S)
    kept = steps(tmp_path)
    reported = [event for event in journal_events(tmp_path) if isinstance(event, ev.StepsDropped)]
    assert sum(event.num_steps for event in reported) == 10_000 - len(kept)
    assert 0 < len(kept) < 10_000
    assert max(kept) == 10_000
    warnings = [event.text for event in journal_events(tmp_path) if isinstance(event, ev.WarningRaised)]
    assert warnings == [f"warning {number}" for number in range(0, 1000, 100)]


def test_kill_9_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    program = (
        "import sys, signal\n"
        "from pathlib import Path\n"
        "from tputui.telemetry.reporter import Reporter\n"
        "from tputui.telemetry.step_log import StepLog\n"
        "reporter = Reporter(Path(sys.argv[1]), 'worker')\n"
        "log = StepLog(reporter.put_steps, reporter.clock, 8)\n"
        "reporter.follow(log)\n"
        "for step in range(1, 501): log.log(step, [0.5] * 8)\n"
        "reporter.flush(); print('flushed', flush=True); signal.pause()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"flushed\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert len(steps(tmp_path)) == 500


def test_any_text_is_recorded_and_so_are_later_events(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, "worker")
    reported = ev.FailureRaised(
        t=0.0,
        error="ValueError",
        message="\udce4 " + "x" * 50_000_000,
        traceback="no such file: \udcff",
        phase="data",
        step=7,
    )
    reporter.emit(reported)
    reporter.emit(ev.TrainingEnded(t=0.0, outcome="failed", step=7, reason="no such file: \udcff"))
    assert reporter.close(DEADLINE_S)

    failure, ended = journal_events(tmp_path)
    assert isinstance(failure, ev.FailureRaised)
    assert failure.message.startswith("\\udce4 x")
    assert "characters are left out" in failure.message
    assert failure.traceback == "no such file: \\udcff"
    assert isinstance(ended, ev.TrainingEnded)
    assert ended.reason == "no such file: \\udcff"


def test_later_generation_continues_the_journal_of_a_process_that_has_ended(tmp_path: Path) -> None:
    gone = msgspec.structs.replace(rundir.this_process(), pid_started=1)
    first = Reporter(tmp_path, "rank", 3, host_index=1, process=gone)
    first.emit(ev.WarningRaised(t=1.0, text="one"))
    first.close()
    with (tmp_path / "rank-3.jsonl").open("ab") as file:
        file.write(b'{"k":"HeartbeatSent","t":2')
    second = Reporter(tmp_path, "rank", 3, host_index=1, generation=2)
    second.emit(ev.WarningRaised(t=3.0, text="two"))
    # The journal is open: a third process must not write to it.
    assert second.flush(DEADLINE_S)
    with pytest.raises(StillWritten, match=f"by process {os.getpid()}"):
        Reporter(tmp_path, "rank", 3, host_index=1, generation=3)
    second.close()
    tail = Tail(tmp_path / "rank-3.jsonl")
    found = [numbered.event for numbered in tail.read()]
    assert tail.regions(final=True) == []
    tail.close()
    heads = [event for event in found if isinstance(event, ev.JournalOpened)]
    assert [(head.generation, head.host_index) for head in heads] == [(0, 1), (2, 1)]
    assert [event.text for event in found if isinstance(event, ev.WarningRaised)] == ["one", "two"]


def test_later_generation_on_a_host_without_a_journal_creates_it(tmp_path: Path) -> None:
    Reporter(tmp_path, "worker", 2, generation=1).close()
    tail = Tail(tmp_path / "worker-2.jsonl")
    (head,) = [numbered.event for numbered in tail.read()]
    tail.close()
    assert isinstance(head, ev.JournalOpened)
    assert (head.generation, head.host_index) == (1, 2)
