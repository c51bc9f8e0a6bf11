"""Writes a profile of the next steps of this process on request, for XProf and TensorBoard.

The training thread calls `at_boundary` between steps, where a profile starts and ends; nothing happens there unless one
was requested. Requests may come from another thread.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from tputui.reporting.failures import one_line
from tputui.reporting.request_server import RequestServer
from tputui.telemetry.events import TraceWritten
from tputui.telemetry.files import free_bytes
from tputui.telemetry.requests import TRACE_SECONDS_MAX, TRACE_STEPS_DEFAULT, TRACE_STEPS_MAX, Request

FOLDER = "traces"
"""Folder in the run directory for the profiles."""
FREE_BYTES_MIN = 1 << 30
"""With less free disk space no profile starts."""
FOLDER_BYTES_MAX = 4 << 30
"""If the profiles of a run are larger than this, no further one starts."""
TOO_LATE = "training ended before the profile started"
NO_PROFILER = "the process uses neither torch_xla nor JAX, whose profilers write the trace"


class Profiler(NamedTuple):
    """The profiler of a runtime."""

    start: Callable[[str], object]
    """Starts a profile that will be written to a folder."""
    stop: Callable[[], object]
    """Ends the profile and writes it."""
    mark: Callable[[int], AbstractContextManager[object]]
    """A context that marks a step by its number, from which XProf derives step times."""
    wait: Callable[[], object]
    """Waits until the devices have run what was dispatched."""


class _Active:
    """A profile that is being recorded."""

    def __init__(self, request: Request, profiler: Profiler, folder: Path, first_step: int) -> None:
        self.request = request
        self.profiler = profiler
        self.folder = folder
        self.last_step = first_step + (request.steps or TRACE_STEPS_DEFAULT) - 1
        self.first_step = first_step
        self.began = time.perf_counter()
        self._mark: AbstractContextManager[object] | None = None

    def mark(self, step: int) -> None:
        self.unmark()
        self._mark = self.profiler.mark(step)
        self._mark.__enter__()

    def unmark(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.__exit__(None, None, None)


class StepTracer:
    """Serves requests for a profile, one at a time."""

    def __init__(self, run_dir: Path, server: RequestServer, host_index: int = 0) -> None:
        """`host_index`: index of this host, which is part of the names of profiles of all but the first."""
        self.is_busy = False
        """Whether `at_boundary` has anything to do."""
        self._run_dir = run_dir
        self._server = server
        self._of_host = f"-host-{host_index}" if host_index else ""
        self._waiting: Request | None = None
        self._active: _Active | None = None

    def submit(self, request: Request) -> None:
        """Takes a request; the profile starts at the next boundary, or the request is refused."""
        steps = TRACE_STEPS_DEFAULT if request.steps is None else request.steps
        if not 1 <= steps <= TRACE_STEPS_MAX:
            self._server.refused(request, f"a profile covers 1 to {TRACE_STEPS_MAX} steps, not {steps}")
        elif self._waiting is not None or self._active is not None:
            self._server.refused(request, "another profile is being recorded; only one is possible at a time")
        else:
            self._waiting = request
            self.is_busy = True

    def at_boundary(self, step: int) -> None:
        """Starts or ends a profile between two steps; `step` is the newest step that was dispatched."""
        # Cleared first: a request that another thread submits meanwhile sets it again.
        self.is_busy = False
        active = self._active
        if active is not None:
            took_s = time.perf_counter() - active.began
            if step < active.last_step and took_s < TRACE_SECONDS_MAX:
                active.mark(step + 1)
                self.is_busy = True
                return
            self._finish(active, step)
        elif self._waiting is not None:
            self._start(self._waiting, step + 1)
            self._waiting = None
        if self._active is not None:
            self.is_busy = True

    def close(self, step: int) -> None:
        """Training ends after a step: writes the profile that is being recorded, and refuses the request for one."""
        active, waiting = self._active, self._waiting
        self._waiting, self.is_busy = None, False
        if active is not None:
            self._finish(active, step)
        if waiting is not None:
            self._server.refused(waiting, TOO_LATE)

    def _start(self, request: Request, first_step: int) -> None:
        profiler = loaded_profiler()
        if profiler is None:
            self._server.refused(request, NO_PROFILER)
            return
        if (why := self._obstacle()) is not None:
            self._server.refused(request, why)
            return
        folder = None
        try:
            folder = self._new_folder(first_step)
            profiler.start(str(folder))
        except Exception as error:  # noqa: BLE001, RUF100 - a profiler that does not start must not end training
            _remove_empty(folder)
            self._server.refused(request, f"the profiler did not start: {one_line(error)}")
            return
        self._active = _Active(request, profiler, folder, first_step)
        self._active.mark(first_step)

    def _finish(self, active: _Active, step: int) -> None:
        self._active = None
        request, folder = active.request, active.folder
        problem = _failure(active.unmark) or _failure(active.profiler.wait)
        seconds = time.perf_counter() - active.began
        # In any case: a profiler that stays on slows every step.
        problem = _failure(active.profiler.stop) or problem
        size = _size_of(folder)
        steps = step - active.first_step + 1
        if problem is not None or not size or steps <= 0:
            _remove_empty(folder)
            self._server.refused(request, problem or ("the profiler wrote no file" if steps > 0 else TOO_LATE))
            return
        path = str(folder.relative_to(self._run_dir))
        self._server.reporter.emit(
            TraceWritten(t=time.time(), path=path, step=step, steps=steps, seconds=seconds, bytes=size)
        )
        self._server.applied(request, step, path=path, num_bytes=size, seconds=seconds)

    def _obstacle(self) -> str | None:
        """Why the disk has no room for a profile."""
        free = free_bytes(self._run_dir)
        if free is not None and free < FREE_BYTES_MIN:
            return f"the disk has {free >> 20} MiB of free space, and a profile needs {FREE_BYTES_MIN >> 20} MiB"
        if _size_of(self._run_dir / FOLDER) > FOLDER_BYTES_MAX:
            return f"{FOLDER}/ in the run directory exceeds {FOLDER_BYTES_MAX >> 30} GiB; delete profiles there first"
        return None

    def _new_folder(self, first_step: int) -> Path:
        """Creates the folder of a profile. Raises `OSError`."""
        parent, name = self._run_dir / FOLDER, f"step-{first_step:08d}{self._of_host}"
        parent.mkdir(mode=0o700, exist_ok=True)
        number = 1
        while True:
            folder = parent / (name if number == 1 else f"{name}-{number}")
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                number += 1
                continue
            return folder


def loaded_profiler() -> Profiler | None:
    """The profiler of torch_xla or JAX, if this process has imported one of them."""
    with contextlib.suppress(KeyError, AttributeError):
        return _xla_profiler(sys.modules["torch_xla"], sys.modules["torch_xla.debug.profiler"])
    with contextlib.suppress(KeyError, AttributeError):
        return _jax_profiler(sys.modules["jax"].profiler)
    return None


def _xla_profiler(package: Any, module: Any) -> Profiler:
    trace_me = package._XLAC.profiler.TraceMe
    model = sys.modules["torch_xla.core.xla_model"]
    return Profiler(
        start=module.start_trace,
        stop=module.stop_trace,
        # The runtime's own `StepTrace` syncs, which would add a program to the step.
        mark=lambda step: trace_me("train", step_num=step, _r=1),
        wait=model.wait_device_ops,
    )


def _jax_profiler(module: Any) -> Profiler:
    def start(folder: str) -> None:
        options: Any = getattr(module, "ProfileOptions", None)
        if options is None:
            module.start_trace(folder)
            return
        chosen = options()
        # Otherwise every Python call becomes an event, which slows the steps and fills the file.
        chosen.python_tracer_level = 0
        module.start_trace(folder, profiler_options=chosen)

    def nothing() -> None:
        """JAX cannot wait for all computations; those of the last step may be cut."""

    return Profiler(
        start=start,
        stop=module.stop_trace,
        mark=lambda step: module.StepTraceAnnotation("train", step_num=step),
        wait=nothing,
    )


def _failure(call: Callable[[], object]) -> str | None:
    """Why a part of ending a profile failed; training goes on without the profile then."""
    try:
        call()
    except Exception as error:  # noqa: BLE001, RUF100 - an error of the device is raised again by the next step
        return f"the profile could not be written: {one_line(error)}"
    return None


def _remove_empty(folder: Path | None) -> None:
    """Removes the folder of a profile that was not written, unless it has files."""
    if folder is not None:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _size_of(folder: Path) -> int:
    """Bytes of all files in a folder; 0 if there are none."""
    total = 0
    with contextlib.suppress(OSError):
        total = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
    return total
