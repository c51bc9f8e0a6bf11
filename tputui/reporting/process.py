"""`RunProcess`: one process of a run that a script reports: its journal, heartbeats and the requests to the run.

Must not import a training framework.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tputui import __version__, environment
from tputui.observers.sinks import process_sink
from tputui.reporting import agreement, device_values
from tputui.reporting.cuda_memory import CudaMemory
from tputui.reporting.jax_runtime import JaxMemory
from tputui.reporting.process_exit import as_consequence
from tputui.reporting.progress import Progress
from tputui.reporting.reported_process import HEARTBEAT_INTERVAL_S, ReportedProcess
from tputui.reporting.requests import RunRequests
from tputui.reporting.step_times import Collections, StepTimes
from tputui.telemetry import events as ev
from tputui.telemetry import provenance, rundir
from tputui.telemetry.codec import escape_surrogates
from tputui.telemetry.journal import SUFFIX
from tputui.telemetry.rank_environment import host_index, is_of_torchrun, num_hosts, rank_info, restarts
from tputui.telemetry.reporter import Reporter, newest_head

ROLE = "worker"
REPORT_INTERVAL_S = 1.0
LEAVE_S = 5.0
_MIN_S = 1e-6
_SHORT_SHARE = 0.25
"""Of the step time before: a shorter one is not the time of a step."""
_STDOUT = 1
_UNKNOWN_DEVICE = "the script uses no framework that names its devices"
_log = logging.getLogger("tputui")


QueuedStep = tuple[float | list[float], float | None, float]
"""Loss, or losses per core, learning rate and end (`time.perf_counter`) of a step."""


class MeanPace(NamedTuple):
    """Means over some steps."""

    num_steps: int
    step_s: float
    """Seconds per step."""
    examples: float
    """Examples per step."""
    data_s: float | None
    """Seconds per step that were spent waiting for batches; None if that is not measured."""
    timed: tuple[int, str] = (0, "")
    """`timed_steps` and `steps_s` of the report."""


class StepPace:
    """Counters of one thread, and its step times without those of other phases."""

    def __init__(self) -> None:
        self.queued: list[QueuedStep] = []
        """The newest steps, oldest first. Only the thread that trains appends to it; the first ones may be counted."""
        self._num_counted = 0
        """How many of those queued are counted."""
        self._before = 0
        """The step before them."""
        self.num_steps = 0
        self.num_examples = 0
        self.stepped_at = self._reported_at = time.perf_counter()
        self._lock = threading.RLock()
        self._pauses: list[tuple[float, float]] = []
        """Begin and end of times since the last report that are not part of a step; those between two steps are one."""
        self._steps_at_pause = 0
        self._step_s = _MIN_S
        """The pace of the last report."""
        self._steps_before = self._examples_before = 0
        self._data_s: float | None = None
        """Time of waiting for batches that is in no report yet; None if that was never measured."""
        self.times = StepTimes()

    @property
    def step(self) -> int:
        with self._lock:
            return self._before + len(self.queued)

    def advance(self, step: int, num_steps: int, num_examples: int) -> None:
        """Counts steps up to `step`, which has just ended. Those queued must be counted."""
        with self._lock:
            self._before, self._num_counted = step, 0
            self.queued.clear()
            self.num_steps += num_steps
            self.num_examples += num_examples
            self.stepped_at = time.perf_counter()
            self.times.ended(self.stepped_at, num_steps)

    def count_queued(self, examples: int) -> tuple[int, list[QueuedStep]]:
        """Counts the queued steps, of `examples` each; returns those that were not counted yet, and the first one's
        number."""
        with self._lock:
            first, queued = self._before + self._num_counted + 1, self.queued[self._num_counted :]
            if queued:
                self._num_counted += len(queued)
                self.num_steps += len(queued)
                self.num_examples += len(queued) * examples
                self.stepped_at = max(self.stepped_at, queued[-1][2])
                self.times.extend([ended_at for _, _, ended_at in queued])
            return first, queued

    def drop_counted(self) -> None:
        """Frees the queue. Called by the thread that trains."""
        with self._lock:
            del self.queued[: self._num_counted]
            self._before += self._num_counted
            self._num_counted = 0

    def begin(self, at: float | None = None) -> None:
        """Begins to measure anew, now or `at` (`time.perf_counter`): the time since the last step is not part of the
        next one."""
        at = at or time.perf_counter()
        self.pause(at - self.stepped_at, at)

    def begin_first(self) -> None:
        """Begins to measure after the first step, which contains one-time work."""
        with self._lock:
            self._reported_at, self._pauses = self.stepped_at, []
            self._data_s = None if self._data_s is None else 0.0
            self._steps_before, self._examples_before = self.num_steps, self.num_examples

    def date(self, ended_at: float) -> None:
        """Sets when the newest step ended (`time.perf_counter`), which is reported later."""
        with self._lock:
            if self.num_steps == 1:
                self._reported_at = ended_at
            self.stepped_at = ended_at
            self.times.date(ended_at)

    def pause(self, seconds: float, until: float | None = None) -> None:
        """Leaves out time that ends now, or that ended at `until` (`time.perf_counter`)."""
        with self._lock:
            self.stepped_at = until or time.perf_counter()
            if self._pauses and self._steps_at_pause == self.num_steps:
                began, ended = self._pauses.pop()
                seconds += ended - began
            self._pauses.append((self.stepped_at - seconds, self.stepped_at))
            self._steps_at_pause = self.num_steps
            self.times.skip()

    def wait_for_data(self, seconds: float) -> None:
        """Adds time in which the thread waited for a batch."""
        with self._lock:
            self._data_s = (self._data_s or 0.0) + seconds

    def since_last(self, *, may_wait: bool = False) -> MeanPace | None:
        """The pace since the last call; None without a step. With `may_wait` a single step right after a pause waits
        for the next ones if it seems far shorter than those before: where the time of a step is spent after its end, as
        in a read of its loss, that of the first one was before the pause."""
        with self._lock:
            steps, examples, at = self.num_steps, self.num_examples, self.stepped_at
            num_steps = steps - self._steps_before
            if num_steps <= 0:
                return None
            since = self._reported_at
            paused_s = sum(max(0.0, min(ended, at) - max(began, since)) for began, ended in self._pauses)
            spent_s = at - since - paused_s
            if may_wait and num_steps == 1 and paused_s > 0 and spent_s < _SHORT_SHARE * self._step_s:
                return None
            if spent_s <= _MIN_S:
                # Steps that are reported late ended before the last report, or in what was taken for a pause.
                spent_s = self._step_s * num_steps
            self._step_s = spent_s / num_steps
            data_s = None
            if self._data_s is not None:
                # The rest is of the next step, which has not ended.
                waited_s = min(self._data_s, spent_s)
                self._data_s -= waited_s
                data_s = waited_s / num_steps
            examples_a_step = (examples - self._examples_before) / num_steps
            pace = MeanPace(num_steps, self._step_s, examples_a_step, data_s, self.times.take(num_steps))
            self._reported_at, self._pauses = max(at, since), [pause for pause in self._pauses if pause[1] > at]
            self._steps_before, self._examples_before = steps, examples
            return pace


class RunProcess(ReportedProcess):
    """One process of a run that a script reports. Thread-safe."""

    def __init__(self, run_dir: Path, rank: int, world_size: int, *, supervised: bool, is_whole: bool = True) -> None:
        """Opens the journal `worker-RANK`; `world_size` is the number of processes of the program.

        Raises `FileExistsError` if this rank is reported already, and `OSError` if nothing can be written.
        """
        self.run_dir = run_dir
        self.rank = rank
        self.world_size = world_size
        self.supervised = supervised
        """Whether a supervisor launched the script, so that it answers the requests that the script does not."""
        self.is_whole = is_whole
        """Whether every process of the program can report to this run; else none of them serves requests, since the
        others would not."""
        self.host_index = host_index(os.environ)
        generation = _generation(self.journal_of(rank))
        self.has_other_hosts = num_hosts(os.environ) > 1
        """Whether the program runs on several hosts."""
        self.leads_host = self.has_other_hosts and rank_info(os.environ).local_rank in (None, 0)
        """Whether this process reports the pace of its host, one of several, and answers requests for it."""
        super().__init__(
            Reporter(run_dir, ROLE, rank, generation=generation, host_index=self.host_index),
            Progress(),
            answers=rank == 0 or self.leads_host,
            taken=agreement.decided_in(run_dir),
        )
        self._paces: list[StepPace] = []
        """Counters of the threads that train."""
        self._num_open = 0
        self._on_report: Callable[[], None] = lambda: None
        self._warned: set[str] = set()
        self._ended = threading.Event()
        self._leaving = threading.Lock()
        self._memories = JaxMemory(), CudaMemory(rank)
        self.collections = Collections()
        self.collections.start()
        self.requests = RunRequests(self)
        self._thread = threading.Thread(target=self._run_until_ended, name="tputui-heartbeat", daemon=True)
        self._thread.start()

    @property
    def is_asked(self) -> bool:
        """Whether the script asked to be reported, so that it says when its loop ends; else nothing is logged."""
        return self.progress.knows_loop

    def journal_of(self, rank: int) -> Path:
        """The journal of a rank, if that writes to the same directory."""
        return self.run_dir / f"{ROLE}-{rank}{SUFFIX}"

    def join(self, pace: StepPace, on_report: Callable[[], None] | None) -> None:
        """Adds a thread that trains; `on_report` is called about once a second by the thread of the heartbeat."""
        self._paces.append(pace)
        self._num_open += 1
        if on_report is not None:
            self._on_report = on_report

    def leave(self) -> bool:
        """Removes a thread that trains; returns whether it was the last one."""
        with self._leaving:
            self._num_open -= 1
            return self._num_open <= 0

    def declare(self, num_cores: int, num_threads: int) -> None:
        """Reports the cores of this process, which are the columns of its values."""
        first = self.rank * num_cores
        device = device_values.device_kind()
        strategy, num_devices = "replica", self.world_size * num_cores
        if self.world_size == num_threads == 1:
            strategy, num_devices = "script", max(num_cores, device_values.num_devices())
        self.emit(
            ev.TopologyDeclared(
                t=time.time(),
                strategy=strategy,
                device=device,
                device_reason=_UNKNOWN_DEVICE if device == device_values.UNKNOWN else None,
                chip=environment.chip_name() if device == "TPU" else None,
                num_cores=num_devices,
                num_hosts=1,
                host_index=0,
                cores=list(range(first, first + num_cores)),
            )
        )

        reason = "a script reports no device memory"
        self.emit(ev.MemorySampled(t=time.time(), hbm=None, hbm_reason=reason))

    @property
    def step(self) -> int:
        return max((pace.step for pace in self._paces), default=0)

    @property
    def num_steps(self) -> int:
        """Steps that were reported."""
        return max((pace.num_steps for pace in self._paces), default=0)

    def warn(self, text: str) -> None:
        """Reports a warning, in the log of the script and in the journal. Each text is reported once."""
        if text not in self._warned:
            self._warned.add(text)
            if self.is_asked:
                _log.warning("%s", text)
            self.emit(ev.WarningRaised(t=time.time(), text=text))

    def printed_bytes(self) -> int | None:
        """Bytes of output of the command so far; None if that of this process goes elsewhere."""
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            printed = os.fstat(_STDOUT)
            if os.path.samestat(printed, (self.run_dir / f"{ROLE}-{self.host_index}.log").stat()):
                return printed.st_size
        return None

    def whole(self, name: str, value: Any, default: int) -> int:
        """A whole number that a script passed; the default, with a warning, if that is not one, or is on a device."""
        if type(value) is int and abs(value) <= device_values.INT_MAX:
            return value
        try:
            return int(device_values.host_number(name, value))
        except (TypeError, ValueError) as error:
            self.warn(str(error))
            return default

    def step_number(self, step: Any, pace: StepPace) -> int:
        """The number of a step that a script passed; warns if the script counts anew in every epoch."""
        number = self.whole("step", step, pace.step + 1)
        if number <= pace.step and pace.num_steps:
            self.warn(
                "the step numbers passed to run.step() repeat or went back; pass a number that counts over all epochs, "
                "or leave it out"
            )
        return number

    def warn_of(self, error: BaseException, where: str) -> None:
        """Reports an error of the reporting itself, once per kind of error and place."""
        kind = f"{where}: {type(error).__name__}"
        if kind not in self._warned:
            self._warned.add(kind)
            reason = f"{type(error).__name__}: {error}"
            text = f"{where} failed: {reason}; training continues, some values are missing"
            if self.is_asked:
                _log.warning(text, exc_info=error)
            self.emit(ev.WarningRaised(t=time.time(), text=text))

    def fail(self, failure: ev.FailureRaised) -> None:
        """Reports the error that ends training."""
        self.progress.step = self.step
        self.report_failure(as_consequence(failure) if self.world_size > 1 else failure)

    @property
    def has_ended(self) -> bool:
        """Whether the end was reported."""
        return self._ended.is_set()

    def end(self, outcome: ev.Outcome, reason: str) -> None:
        """Reports the end and closes the journal. Later calls do nothing."""
        if self._ended.is_set():
            return
        self.progress.enter("ending")
        process_sink.leave(self)
        self.collections.stop()
        self._ended.set()
        if threading.current_thread() is not self._thread:
            # A thread that returns from a framework while the interpreter ends would abort the process.
            self._thread.join(LEAVE_S)
        self.requests.close()
        self.progress.step = self.step
        self.report_end(outcome, reason)
        self.close(LEAVE_S)

    def _run_until_ended(self) -> None:
        due = time.monotonic() + REPORT_INTERVAL_S
        while True:
            self.progress.step = self.step
            self.beat()
            if time.monotonic() >= due:
                due = time.monotonic() + REPORT_INTERVAL_S - HEARTBEAT_INTERVAL_S / 2
                self._guarded(self._on_report, "a report")
                self._guarded(self._report_memory, "a reading of the device memory")
            self._guarded(self.requests.poll, "a request")
            if self._ended.wait(HEARTBEAT_INTERVAL_S):
                return

    def _report_memory(self) -> None:
        for memory in self._memories:
            if (sampled := memory.sample()) is not None:
                self.emit(sampled)

    def _guarded(self, call: Callable[[], None], where: str) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001, RUF100 - it would end the heartbeat, and the run would look lost
            self.warn_of(error, where)


def create_run(program: str, parent: Path, config: Mapping[str, Any]) -> Path:
    """Creates the directory of a run named after the time and `program`. Raises `OSError`."""
    now = time.time()
    manifest = rundir.Manifest(
        run=rundir.default_name(program, now),
        created=now,
        version=__version__,
        config_path=escape_surrogates(sys.argv[0]) if sys.argv else "",
        config=escape_surrogates(plain_config(config)),
        argv=escape_surrogates(list(sys.argv)),
        cwd=escape_surrogates(os.getcwd()),
    )
    return rundir.create_numbered(parent, manifest.with_provenance(provenance.collect(Path.cwd())))


def _generation(journal: Path) -> int:
    """How often the processes of the program were restarted before this one, which writes to a journal.

    An agent of torchrun does not count the restarts that follow from the failure of another host. It is older than the
    process before; the agent of another program that the command started later is not.
    """
    counted, before = restarts(os.environ), newest_head(journal)
    if before is None or not is_of_torchrun(os.environ):
        return counted
    is_here = before.host_id == rundir.host_id()
    is_again = counted > 0 or (is_here and 0 < rundir.start_ticks(os.getppid()) < before.pid_started)
    return max(counted, before.generation + 1) if is_again else 0


def plain_config(config: Any) -> Any:
    """A configuration as JSON can hold it: names as text, numbers as they are, anything else as its text."""
    if isinstance(config, Mapping):
        return {str(name): plain_config(value) for name, value in config.items()}
    if isinstance(config, list | tuple | set | frozenset):
        return [plain_config(value) for value in config]
    if isinstance(config, float) and not math.isfinite(config):
        return str(config)
    if config is None or isinstance(config, bool | str | float):
        return config
    if isinstance(config, int):
        return config if abs(config) <= ev.INT_MAX else str(config)
    return str(config)
