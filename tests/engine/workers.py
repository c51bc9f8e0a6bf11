"""Starts real workers on real run directories, and reads their journals."""

from __future__ import annotations

import os
import subprocess
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests import forked
from tests.deadline import DEADLINE_S
from tputui import __version__, config
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks, rundir
from tputui.telemetry.journal import Tail

HERE = Path(__file__).parent
DIGITS = HERE.parents[1] / "sample_configs" / "digits.toml"
LINE = """
task = "mytask:Line"
epochs = 2
[data]
batch_per_core = 16
[optim]
name = "sgd"
lr = 0.01
lr_scaling = "none"
[device]
cores = 1
"""
BETWEEN_CLOCKS_S = 0.3
"""Longest time that a busy machine may take a process away between two readings of its clocks."""

SomeEvent = TypeVar("SomeEvent", bound=ev.Event)


class Run:
    """A worker's run directory and its process."""

    def __init__(self, directory: Path, host: int = 0) -> None:
        self.dir = directory
        self.host = host
        self.log = directory / f"worker-{host}.log"
        self._process: forked.Process | None = None
        self._tail: Tail | None = None
        self._events: list[ev.Event] = []
        self._over = False

    def start(self, environ: dict[str, str] | None = None, *, num_hosts: int = 1) -> None:
        """Starts the worker the way the supervisor does, but with torch imported, there and in its ranks."""
        with self.log.open("wb") as log, open(os.devnull, "rb") as nothing:
            self._process = forked.Process(
                "tests.forked_tree",
                ["engine", str(self.dir), "--host", str(self.host), "--hosts", str(num_hosts)],
                cwd=self.dir,
                env={**os.environ, **(environ or {})},
                streams=[nothing.fileno(), log.fileno(), log.fileno()],
            )

    def finish(self) -> int:
        """Waits for the end of the worker and returns its exit code."""
        assert self._process is not None
        return self._process.wait(DEADLINE_S)

    def kill(self, signal_number: int) -> None:
        """Sends the worker a signal."""
        assert self._process is not None
        self._process.send_signal(signal_number)

    def stop_if_alive(self) -> None:
        """Leaves no process behind, and reads the journal to its end."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self.events()
        self._over = True
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def wait_for(self, kind: type[SomeEvent], matches: Callable[[SomeEvent], bool] = lambda event: True) -> SomeEvent:
        """Reads the journal until it contains such an event."""
        deadline = time.monotonic() + DEADLINE_S
        seen = 0
        while time.monotonic() < deadline:
            events = self.events()
            for event in events[seen:]:
                if isinstance(event, kind) and matches(event):
                    return event
            seen = len(events)
            assert self._process is not None
            if self._process.poll() is not None and len(self.events()) == seen:
                break
            # Polls, since there is no notification for a growing file; a short wait on the process itself.
            try:
                self._process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
        raise AssertionError(f"no such {kind.__name__}; its log: {self.log.read_text()}")

    def events(self) -> list[ev.Event]:
        """All events that the worker has written so far."""
        path = self.dir / f"worker-{self.host}.jsonl"
        if self._tail is None:
            if self._over or not path.exists():
                return list(self._events)
            self._tail = Tail(path)
        while records := self._tail.read():
            self._events += [record.event for record in records]
        return list(self._events)

    def all(self, kind: type[SomeEvent]) -> list[SomeEvent]:
        """All events of a type."""
        return [event for event in self.events() if isinstance(event, kind)]

    def one(self, kind: type[SomeEvent]) -> SomeEvent:
        """The only event of a type."""
        (event,) = self.all(kind)
        return event

    def losses(self) -> dict[int, list[float]]:
        """Per-core losses by step."""
        return self.steps("loss")

    def steps(self, metric: str) -> dict[int, list[float]]:
        """Per-core values of a metric by step."""
        rows: dict[int, list[float]] = {}
        for event in self.all(ev.StepsRecorded):
            if event.metric != metric:
                continue
            values: array[float] = float_blocks.unpack(event.block, event.n * event.cores)
            for row in range(event.n):
                assert event.first + row not in rows, "a step was recorded twice"
                rows[event.first + row] = list(values[row * event.cores : (row + 1) * event.cores])
        return rows


def make(
    parent: Path,
    name: str,
    overrides: list[str] | None = None,
    *,
    text: str | None = None,
    cwd: Path = HERE,
    resume_from: Path | None = None,
) -> Run:
    """Creates a run directory, with the sample configuration or `text`; starts no process."""
    source = text if text is not None else DIGITS.read_text()
    checked = config.parse(source, "test.toml", overrides)
    manifest = rundir.Manifest(
        run=name,
        created=time.time(),
        version=__version__,
        config_path="test.toml",
        config=config.to_builtins(checked),
        argv=[],
        cwd=str(cwd),
        resume_from=str(resume_from) if resume_from else None,
    )
    return Run(rundir.create(parent, manifest))


def runs_to_end(run: Run, exit_code: int = 0) -> Run:
    """Starts the worker and waits for its end."""
    try:
        run.start()
        assert run.finish() == exit_code, run.log.read_text()
    finally:
        run.stop_if_alive()
    return run
