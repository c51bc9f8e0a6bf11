"""`tputui.start`: joins the run that launched the script, or creates one.

A process has one journal. Threads of `torch_xla.launch`, which train a core each, share it with a `Run` each; everyone
else in the process gets the same `Run`. A forked process must call `start` again: it does not inherit the journal.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tputui.observers import autoload
from tputui.observers.sinks import process_sink
from tputui.reporting import jax_runtime
from tputui.reporting.process import ROLE, RunProcess, create_run
from tputui.reporting.process_exit import ExitWatch, ScriptEnding, ending_of_child
from tputui.reporting.run import Run
from tputui.reporting.script_plan import ScriptPlan
from tputui.reporting.step_recorder import StepRecorder
from tputui.telemetry import rundir
from tputui.telemetry.events import FlopsCounted, JournalOpened, LossNamed
from tputui.telemetry.journal import SUFFIX, Tail
from tputui.telemetry.rank_environment import GLOBAL_RANK, RankInfo, rank_info

DISABLED_VARIABLE = "TPUTUI_DISABLED"
"""Environment variable that disables reporting, unless it is empty or `0`."""
_log = logging.getLogger("tputui")
_lock = threading.Lock()


class _Joined:
    """What this process reports to."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.process: RunProcess | None = None
        self.recorder: StepRecorder | None = None
        self.runs: dict[int, Run] = {}
        """By column: the threads that train a core each; else only column 0."""
        self.parent_dir: Path | None = None
        """Run directory of the process that this one was forked from."""
        self.is_forked = False
        """Whether this process was forked from one that reports; it inherits the hook for forks."""
        self.is_hooked = False
        self.exit_watch: ExitWatch | None = None
        self.was_asked = False
        """Whether the script, or a callback of its framework, asked for a run."""


_joined = _Joined()
_before_close: list[Callable[[ScriptEnding], None]] = []


def start(
    config: Mapping[str, Any] | None = None,
    *,
    total_steps: int | None = None,
    epochs: int | None = None,
    name: str | None = None,
    runs_dir: str | Path | None = None,
    num_parameters: int = 0,
    flops_per_step: float | None = None,
) -> Run:
    """Joins the run that launched this script (`tputui run -- ...`), else creates one. Never raises.

    `config`: what to show as the configuration, such as `vars(args)`; a run that was launched has the configuration of
    its launch. `total_steps` and `epochs`: planned steps of the run over all epochs, and number of epochs, for the
    progress and the time remaining. `name`: name of a run that is created, after the time; by default that of the
    script. `runs_dir`: the directory for it; by default `$TPUTUI_RUNS`, else `./runs`. `num_parameters`: number of
    trainable parameters. `flops_per_step`: floating-point operations of one training step over all processes, forward
    and backward (for a transformer about 6 x parameters x tokens), for the utilisation of the TPU (MFU).

    A second call in the same process returns the same run. With `TPUTUI_DISABLED=1` in the environment, and if nothing
    can be written, the run does nothing.
    """
    program = name or script_name()
    return _joined_run(
        ScriptPlan(program, total_steps, epochs, num_parameters, flops_per_step), program, config or {}, runs_dir, None
    )


def script_name() -> str:
    """Name of the script that runs; `run` if Python runs none."""
    return Path(sys.argv[0] if sys.argv else "").stem or "run"


def join(
    program: str,
    config: Mapping[str, Any],
    runs_dir: str | Path | None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
) -> Run:
    """As `start`, for a callback of a framework, which may know the rank of the process."""
    info = None if rank is None else RankInfo(rank, None, world_size)
    return _joined_run(ScriptPlan(program), program, config, runs_dir, info)


def _joined_run(
    plan: ScriptPlan, program: str, config: Mapping[str, Any], runs_dir: str | Path | None, info: RankInfo | None
) -> Run:
    with _lock:
        try:
            if not _joined.was_asked and not is_disabled():
                _take_over(plan)
            return _start(plan, program, config, runs_dir, info)
        except Exception as error:  # noqa: BLE001, RUF100 - reporting must not end training
            _log.warning("nothing is reported to tputui: %s: %s", type(error).__name__, error)
            return Run(None)


def join_unasked() -> Run | None:
    """Joins the run that launched this process, for hooks of which the script knows nothing: nothing is logged.

    None if the script reports by itself, or another process has reported its rank.
    """
    with _lock:
        if _joined.was_asked or is_disabled() or not os.environ.get(rundir.RUN_DIR_VARIABLE):
            return None
        try:
            program = script_name()
            run = _start(ScriptPlan(program), program, {}, None, None)
        except Exception:  # noqa: BLE001, RUF100 - the script did not ask for it
            return None
        return run if run.is_active else None


def was_asked() -> bool:
    """Whether the script, or a callback of its framework, has asked for a run in this process."""
    return _joined.was_asked


def before_close(act: Callable[[ScriptEnding], None]) -> None:
    """Calls `act` when the process exits, before its run is closed, with how training ended."""
    _before_close.append(act)


def _take_over(plan: ScriptPlan) -> None:
    """The script asks for the run that its hooks have joined: it reports from now on."""
    _joined.was_asked = True
    if _joined.process is not None:
        _joined.process.progress.knows_loop = True
        process_sink.join(_joined.process)
        _joined.process.emit(LossNamed(t=time.time(), name="", source=""))
    for run in _joined.runs.values():
        run.take_plan(plan)


def current() -> Run | None:
    """The run that this process asked for; None if it has joined none, or the run has ended."""
    run = _joined.runs.get(0) if _joined.pid == os.getpid() and _joined.was_asked else None
    return run if run is not None and run.is_active else None


def is_disabled() -> bool:
    """Whether the user disabled reporting."""
    return os.environ.get(DISABLED_VARIABLE, "") not in ("", "0")


def _start(
    plan: ScriptPlan, program: str, config: Mapping[str, Any], runs_dir: str | Path | None, info: RankInfo | None
) -> Run:
    if is_disabled():
        return Run(None)
    column, num_threads = _thread_column()
    if (before := _joined.runs.get(column)) is not None and before.is_active:
        return before
    process, recorder = _joined.process, _joined.recorder
    if process is None or recorder is None or process.has_ended:
        _joined.runs.clear()
        process = _joined.process = _open(program, config, runs_dir, info or _rank())
        if process is None:
            return Run(None)
        process.progress.knows_loop = _joined.was_asked
        # Hooks report steps about once a second.
        process_sink.join(process, knows_step=_joined.was_asked)
        autoload.observe_torch()
        recorder = _joined.recorder = StepRecorder(process)
        recorder.num_threads = process.requests.num_threads = num_threads
        if plan.flops_per_step is not None and process.rank == 0:
            _report_flops(process, plan.flops_per_step)
        _hook()
    run = _joined.runs[column] = Run(process, recorder, plan, column)
    if _joined.was_asked:
        _show_in_notebook(process)
    return run


def _report_flops(process: RunProcess, flops_per_step: float) -> None:
    try:
        flops = float(flops_per_step)
        process.emit(FlopsCounted(t=time.time(), flops_per_step=flops if math.isfinite(flops) else None))
    except (TypeError, ValueError, OverflowError) as error:
        process.warn(f"flops_per_step is not a number: {error}")


def _show_in_notebook(process: RunProcess) -> None:
    """In a notebook, shows the run below the cell: there the process that trains is also the only viewer."""
    if "IPython" in sys.modules and process.rank == 0 and threading.current_thread() is threading.main_thread():
        from tputui import notebook

        notebook.show_started(process.run_dir)


def _open(program: str, config: Mapping[str, Any], runs_dir: str | Path | None, info: RankInfo) -> RunProcess | None:
    """Opens the journal of this process; None if it is reported already, or only rank 0 can be shown."""
    rank, world_size = info.rank or 0, info.world_size or 1
    launched = os.environ.get(rundir.RUN_DIR_VARIABLE)
    shared = launched or _joined.parent_dir
    if shared is None:
        if rank:
            _log.info("rank %d is not shown; start the program with `tputui run -- ...` to show every rank", rank)
            return None
        parent = rundir.runs_dir(os.fspath(runs_dir) if runs_dir else None, os.environ)
        process = RunProcess(
            create_run(program, parent, config), 0, world_size, supervised=False, is_whole=world_size == 1
        )
        if world_size > 1:
            process.warn(
                f"only rank 0 of {world_size} is shown; start the program with `tputui run -- ...` to show all"
            )
        return process
    try:
        return RunProcess(Path(shared), rank, world_size, supervised=bool(launched))
    except FileExistsError:
        # The engine, or a callback of a framework, reports this process already; or another process has its rank.
        message = "%s has a journal of rank %d already; this process is not shown"
        is_expected = not _joined.was_asked or _is_own_journal(Path(shared), rank)
        _log.log(logging.INFO if is_expected else logging.WARNING, message, shared, rank)
        return None


def _is_own_journal(run_dir: Path, rank: int) -> bool:
    """Whether this process writes the journal of a rank; it may also be of a process before a restart."""
    with contextlib.suppress(OSError, IndexError, AttributeError):
        with contextlib.closing(Tail(run_dir / f"{ROLE}-{rank}{SUFFIX}")) as tail:
            head = tail.read()[0].event
        return isinstance(head, JournalOpened) and head.pid == os.getpid()
    return False


def _rank() -> RankInfo:
    """The rank of this process: from the environment, else from `torch.distributed` or `jax.distributed` if one is
    initialised. These also know how many processes a host has if only its number is in the environment."""
    info = rank_info(os.environ)
    if info.world_size is not None and set(info.sources) & set(GLOBAL_RANK):
        return info
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return RankInfo(distributed.get_rank(), info.local_rank, distributed.get_world_size(), ("torch.distributed",))
    return jax_runtime.rank() or info


def _thread_column() -> tuple[int, int]:
    """The column of this thread and the number of threads, if `torch_xla.launch` started a thread for each core."""
    xla = sys.modules.get("torch_xla")
    if xla is None or threading.current_thread() is threading.main_thread() or not _is_launched_thread():
        return 0, 1
    runtime: Any = sys.modules["torch_xla.runtime"]
    return int(xla.device().index), int(runtime.addressable_device_count())


def _is_launched_thread() -> bool:
    frame = sys._getframe()
    while (caller := frame.f_back) is not None:
        frame = caller
        if frame.f_code.co_name == "_thread_fn" and frame.f_globals.get("__name__") == "torch_xla._internal.pjrt":
            return True
    return False


def _hook() -> None:
    """Closes the run when the process exits, and detaches it in forked processes."""
    if _joined.is_hooked:
        return
    if not _joined.is_forked:
        os.register_at_fork(after_in_child=_after_fork)
    _joined.is_hooked = True
    _joined.exit_watch = ExitWatch()
    atexit.register(_close_at_exit)
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None:
        # Processes of multiprocessing leave by os._exit, which skips atexit.
        multiprocessing.Finalize(None, _close_in_child, exitpriority=0)


def _close_at_exit() -> None:
    watch, process = _joined.exit_watch, _joined.process
    if _joined.pid == os.getpid() and watch is not None:
        _close_runs(watch.ending_at_exit(is_supervised=process is not None and process.supervised))


def _close_in_child() -> None:
    if _joined.pid == os.getpid():
        _close_runs(ending_of_child())


def _close_runs(ending: ScriptEnding) -> None:
    for act in _before_close:
        with contextlib.suppress(Exception):
            act(ending)
    for run in list(_joined.runs.values()):
        if run.is_active:
            run.close_with(ending)


def _after_fork() -> None:
    """In a forked child: the journal belongs to the parent, and its thread does not run here."""
    global _joined, _lock
    parent, _lock = _joined, threading.Lock()
    for run in parent.runs.values():
        run.detach(warn=True)
    _joined = _Joined()
    _joined.is_forked = parent.is_forked or parent.is_hooked
    if parent.process is not None and not parent.process.has_ended:
        _joined.parent_dir = parent.process.run_dir
