"""Records what a script passes to its run at each step: per-core losses, throughput and AverageMeters.

Numbers that are already on the host go into a `StepLog`, which costs the caller less than a microsecond. Values on a
device are fetched about once a second. Meters are folded from the blocks of the log, by the thread of the heartbeat.
"""

from __future__ import annotations

import math
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tputui.reporting.best_epoch import BestEpoch
from tputui.reporting.device_values import PENDING_MAX, DeviceValues, host_row
from tputui.reporting.process import RunProcess
from tputui.telemetry import events as ev
from tputui.telemetry.meters import AverageMeter
from tputui.telemetry.rundir import manifest_if_readable
from tputui.telemetry.step_log import FLOAT_BYTES, RawSteps, StepLog

FETCH_INTERVAL_S = 1.0
ROWS_OPEN_MAX = 4096
"""Most steps that wait for the values of other threads."""
WEIGHTS_MAX = 4 * PENDING_MAX
"""Most changes of the number of examples that are remembered for steps whose values are not known yet."""
REDUCED = "mean over the steps and cores of this process, weighted by their examples"
NAN = float("nan")


def ignore(step: int, values: Any) -> None:
    """Takes the values of a run that records none."""


class StepRecorder:
    """The values of one process. Threads that train a core each share it, with a `ThreadValues` each."""

    def __init__(self, process: RunProcess) -> None:
        self._process = process
        self._lock = threading.RLock()
        self._log: StepLog | None = None
        self.num_columns = 0
        """Values per step in the journal: the cores of this process; 0 before the first step."""
        self._unfolded: deque[tuple[int, bytes]] = deque()
        """First step and values of blocks that are not in the meters yet."""
        self._weights: deque[tuple[int, int]] = deque([(0, 1)])
        """First step and number of examples per step from there on."""
        self.meters: dict[ev.Split, dict[str, AverageMeter]] = {"train": {}, "valid": {}}
        manifest = manifest_if_readable(process.run_dir)
        table = manifest.config.get("checkpoint") if manifest is not None else None
        table = table if isinstance(table, Mapping) else {}
        self.best = BestEpoch(str(table.get("monitor", "loss")), str(table.get("mode", "min")))
        self._open_rows: dict[int, list[float]] = {}
        self._open_counts: dict[int, int] = {}
        self.num_threads = 1
        self._num_ended = 0
        """Threads that have ended the epoch."""
        self._end_epoch: Callable[[], None] | None = None
        """Reports the end of the epoch, once every thread has ended it."""

    def declare(self, num_columns: int) -> Callable[[int, Any], None]:
        """Sets the number of values per step; returns the function that records the values of one step."""
        with self._lock:
            if self._log is None:
                self.num_columns = num_columns
                self._process.declare(num_columns, self.num_threads)
                self._log = StepLog(self._take, self._process.reporter.clock, num_columns)
                # The reporter's thread passes the last steps before a pause on.
                self._process.reporter.follow(self._log)
            return self._log.log

    def weigh(self, step: int, examples: int) -> None:
        """Sets the number of examples per step, from a step on."""
        with self._lock:
            self._weights.append((step, examples))
            if len(self._weights) > WEIGHTS_MAX:
                # Those of steps whose values are folded are dropped then; steps without values never are.
                self.fold()
                while len(self._weights) > WEIGHTS_MAX // 2:
                    self._weights.popleft()

    def put(self, step: int, column: int, row: Sequence[float]) -> None:
        """Records the values of one thread; a step is written when every thread has passed its values."""
        with self._lock:
            log = self.declare(self.num_threads * len(row))
            values = self._open_rows.setdefault(step, [NAN] * self.num_columns)
            first = column * len(row)
            values[first : first + len(row)] = row
            count = self._open_counts[step] = self._open_counts.get(step, 0) + 1
            if count == self.num_threads:
                del self._open_rows[step], self._open_counts[step]
                log(step, values)
            elif len(self._open_rows) > ROWS_OPEN_MAX:
                self._write_oldest()

    def add(self, split: ev.Split, name: str, value: float, count: int) -> None:
        """Adds a value to a meter: the mean over `count` examples."""
        with self._lock:
            self.meters[split].setdefault(name, AverageMeter()).add(value * count, count)

    def end_epoch(self, report: Callable[[], None] | None) -> None:
        """A thread has ended the epoch; the first thread passes what reports its end, which the last one calls."""
        with self._lock:
            self._num_ended += 1
            self._end_epoch = report or self._end_epoch
            is_last = self._num_ended >= self.num_threads
        if is_last:
            self.end_open_epoch()

    def end_open_epoch(self) -> None:
        """Reports the end of an epoch, also if some threads have not ended it."""
        with self._lock:
            report, self._end_epoch, self._num_ended = self._end_epoch, None, 0
        if report is not None:
            report()

    def begin_epoch(self) -> None:
        """Starts the meters anew."""
        self.end_open_epoch()
        with self._lock:
            self.fold()
            self.meters = {"train": {}, "valid": {}}

    def readings(self, split: ev.Split) -> dict[str, ev.MeterReading]:
        with self._lock:
            self.fold()
            return {name: meter.reading() for name, meter in self.meters[split].items() if meter.count}

    def meters_reported(self, split: ev.Split, epoch: int, step: int) -> ev.MetersReported | None:
        """The meters of a split, to be written; None if there are none."""
        reduced = REDUCED if split == "train" else "from the script"
        meters = self.readings(split)
        if not meters:
            return None
        return ev.MetersReported(t=time.time(), epoch=epoch, step=step, split=split, meters=meters, reduced=reduced)

    def flush(self) -> None:
        """Writes all values, also of steps that some threads have not passed."""
        with self._lock:
            while self._open_rows:
                self._write_oldest()
            if self._log is not None:
                self._log.flush()

    def fold(self) -> None:
        """Adds the values written since the last call to the meter of the loss."""
        with self._lock:
            if self._log is not None:
                self._log.flush()
            while self._unfolded:
                first, raw = self._unfolded.popleft()
                self._fold_block(first, raw)

    def _fold_block(self, first: int, raw: bytes) -> None:
        meter = self.meters["train"].setdefault("loss", AverageMeter())
        width = self.num_columns
        values = struct.unpack(f"<{len(raw) // FLOAT_BYTES}f", raw)
        for step, at in enumerate(range(0, len(values), width), first):
            while len(self._weights) > 1 and self._weights[1][0] <= step:
                self._weights.popleft()
            count = self._weights[0][1]
            # Values of a thread that ended early are missing.
            numbers = [value for value in values[at : at + width] if not math.isnan(value)] or values[at : at + width]
            meter.add(sum(numbers) / len(numbers) * count, count)

    def _take(self, steps: RawSteps) -> None:
        """Passes a block to the reporter, and a copy of it to the meters."""
        raw = bytes(steps.raw)
        self._unfolded.append((steps.first, raw))
        steps.release()
        self._process.reporter.put_steps(RawSteps(steps.t, steps.first, steps.cores, steps.metric, raw))

    def _write_oldest(self) -> None:
        step = min(self._open_rows)
        self._open_counts.pop(step)
        self.declare(self.num_columns)(step, self._open_rows.pop(step))


class ThreadValues:
    """The steps of one thread, which trains the cores in its columns. All but the counters belong to that thread."""

    def __init__(self, process: RunProcess, recorder: StepRecorder, column: int) -> None:
        self._process = process
        self._recorder = recorder
        self._column = column
        self._devices = DeviceValues(process.warn)
        self._fetched_at = time.perf_counter()
        self.log: Callable[[int, Any], None] | None = None
        """Records plain numbers, [width], without a detour; None until the first step, and with several threads."""
        self.width = 0
        """Values per step."""
        self.num_waiting = 0
        """Steps whose loss waits on a device."""
        self.num_fetches = 0
        """How often values were fetched from devices."""
        self._before = self._newest = 0
        """Values on a device of the step before the newest one, and of the newest one."""

    def record(self, step: int, value: Any) -> None:
        """Records the loss of a step; one on a device is fetched later."""
        devices = self._devices
        if not devices.add_snapshot(step, value):
            if (row := host_row(value)) is not None:
                if self.num_waiting:
                    self.fetch()
                self._put(step, row)
                return
            devices.add(step, value)
        self._before, self._newest = self._newest, 1
        self.num_waiting += 1
        self._fetch_if_due()

    def add(self, split: ev.Split, name: str, value: Any, count: int) -> None:
        """Adds a value to a meter; one on a device is fetched later."""
        count = int(count)
        devices, tag = self._devices, (split, name, count)
        if not devices.add_snapshot(tag, value, name):
            if (row := host_row(value)) is not None:
                if row:
                    self._recorder.add(split, name, sum(row) / len(row), count)
                return
            devices.add(tag, value, name)
        self._newest += 1
        self._fetch_if_due()

    def _fetch_if_due(self) -> None:
        waiting = len(self._devices)
        if time.perf_counter() - self._fetched_at >= FETCH_INTERVAL_S:
            # The device still computes the newest steps: waiting for them would leave it idle while the next is traced.
            self.fetch(leave=min(self._before + self._newest, waiting // 2))
        elif waiting >= PENDING_MAX:
            self.fetch()

    def fetch(self, *, all_values: bool = False, leave: int = 0) -> None:
        """Fetches the values that wait on devices, without the newest `leave` ones."""
        self._fetched_at = time.perf_counter()
        if not len(self._devices):
            self.num_waiting = 0
            return
        self.num_fetches += 1
        for tag, row in self._devices.fetch(all_values=all_values, leave=leave):
            if isinstance(tag, tuple):
                split, name, num_examples = tag
                self._recorder.add(split, name, sum(row) / len(row), num_examples)
            else:
                self.num_waiting -= 1
                self._put(tag, row)

    def _put(self, step: int, row: list[float]) -> None:
        if not row:
            raise ValueError("the loss has no elements")
        if not self.width:
            self.width = len(row)
        elif len(row) != self.width:
            self._process.warn(
                f"the loss has {len(row)} values in step {step}, and {self.width} before; it is left out"
            )
            row = [NAN] * self.width
        if self._recorder.num_threads > 1:
            self._recorder.put(step, self._column, row)
            return
        if self.log is None:
            self.log = self._recorder.declare(len(row))
        self.log(step, row)
