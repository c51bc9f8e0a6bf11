"""The step at which all ranks of a program serve a request: rank 0 chooses it, and the others learn it.

If the program has initialised `torch.distributed` or `jax.distributed`, its ranks agree by the store of that
(`ProgramStore`), also if they have different run directories. Others use a file beside the request, in a directory that
all ranks share.

Must not import a training framework.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tputui.reporting import jax_runtime
from tputui.telemetry import requests, rundir
from tputui.telemetry.files import read_small

ARRIVAL_S = 20.0
"""How long a request may take to all ranks, once they train."""
_POLL_S = 0.5
_CLOSE_S = 5.0
_STEP_SUFFIX = ".step"
_NUMBER_BYTES_MAX = 32
_NO_STEPS = "no steps"
_NUM_SHARED = "requests"
"""Key of the number of requests in the store."""


def path_of(run_dir: Path, request: str) -> Path:
    """The file with the step for a request. `request` is an id."""
    return run_dir / rundir.REQUESTS / f"{request}{_STEP_SUFFIX}"


def read(path: Path) -> int | None:
    """The step that rank 0 wrote; None if it has not."""
    try:
        return int(read_small(path, _NUMBER_BYTES_MAX))
    except (OSError, ValueError):
        return None


def write(path: Path, step: int | None) -> int | None:
    """Writes the step that rank 0 chose, if it could choose one; returns it. Raises `OSError`."""
    if step is not None:
        rundir.write_atomically(path, str(step).encode())
    return step


def decided_in(run_dir: Path) -> set[str]:
    """Ids of the requests for which a step was written: when a process starts, by those before a restart."""
    return {path.stem for path in (run_dir / rundir.REQUESTS).glob(f"*{_STEP_SUFFIX}")}


def store_of_program() -> Any | None:
    """The store of `torch.distributed` or `jax.distributed` in this process; None if neither is initialised."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return jax_runtime.store()
    core: Any = sys.modules["torch.distributed.distributed_c10d"]
    return core.PrefixStore("tputui", core._get_default_store())


class ProgramStore:
    """Passes requests on to all hosts, and has their ranks agree, by the store of the program.

    A step is chosen only once every rank has the request: one that does not leave its loop with the others would wait
    for them for ever. No collective is needed. A thread of its own uses the store, since an operation waits as long as
    rank 0, which serves it; `look` alone is for the thread that trains.
    """

    def __init__(
        self,
        store: Any,
        run_dir: Path,
        rank: int,
        world_size: int,
        *,
        leads_host: bool,
        choose: Callable[[], int | None],
        trains: Callable[[], bool],
        counts_steps: Callable[[], bool],
    ) -> None:
        """`choose` gives rank 0 a step, None while it cannot. The first rank of a host passes requests on. `trains`
        returns whether this rank has made steps, `counts_steps` is False once its loop has shown that it reports
        none."""
        self._store = store
        self._run_dir = run_dir
        self._rank = rank
        self._world_size = world_size
        self._leads_host = leads_host
        self._choose = choose
        self._trains = trains
        self._counts_steps = counts_steps
        self._asked: dict[str, tuple[requests.Request, float]] = {}
        """Requests of this rank that are not agreed on, by id, and since when (monotonic)."""
        self._trained_since: float | None = None
        self._passed_on: set[str] = set()
        self._num_read = 0
        """Requests of the store that were read."""
        self._agreed: dict[str, int | str] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tputui-requests", daemon=True)
        self._thread.start()

    def agreed(self, request: requests.Request) -> int | str | None:
        """The step for a request, or why there is none; None while that is not known. Ask until it is."""
        if request.id not in self._agreed:
            self._asked.setdefault(request.id, (request, time.monotonic()))
        return self._agreed.get(request.id)

    def look(self, request: requests.Request) -> int | str | None:
        """Like `agreed`, but what rank 0 has decided is known at once."""
        if self._rank and request.id not in self._agreed:
            with contextlib.suppress(RuntimeError):
                self._take(request.id)
        return self._agreed.get(request.id)

    def close(self) -> None:
        """Ends the thread. A thread that returns from the store while the interpreter ends would abort the process."""
        self._closing.set()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        # Raised if rank 0 has ended; training will, too.
        with contextlib.suppress(RuntimeError):
            while not self._closing.wait(_POLL_S):
                if self._trained_since is None and self._trains():
                    self._trained_since = time.monotonic()
                if self._leads_host:
                    self._pass_on()
                for request, since in list(self._asked.values()):
                    self._agree(request.id, since)

    def _pass_on(self) -> None:
        """Puts the requests of this host into the store, and those of the others into its directory."""
        store, own = self._store, str(self._rank)
        for request, _ in list(self._asked.values()):
            if request.id in self._passed_on:
                continue
            self._passed_on.add(request.id)
            # A viewer of all hosts sends it to each.
            if bytes(store.compare_set(f"{request.id}/from", "", own)).decode() == own:
                store.set(f"{_NUM_SHARED}/{store.add(_NUM_SHARED, 1)}", msgspec.json.encode(request))
        for number in range(self._num_read + 1, store.add(_NUM_SHARED, 0) + 1):
            if not store.check([f"{_NUM_SHARED}/{number}"]):
                return
            # An invalid request, or one that cannot be written, is skipped: the ranks of this host do not get it.
            with contextlib.suppress(ValueError, OSError):
                request = requests.decode(bytes(store.get(f"{_NUM_SHARED}/{number}")))
                requests.pass_on(self._run_dir, request)
            self._num_read = number

    def _agree(self, request: str, since: float) -> None:
        """Says that this rank has a request, and decides on it if it can."""
        if self._take(request):
            return
        store, now = self._store, time.monotonic()
        store.set(f"{request}/{self._rank}", "" if self._counts_steps() else _NO_STEPS)
        keys = [f"{request}/{rank}" for rank in range(self._world_size)]
        if not self._rank and store.check(keys):
            if (step := self._choose()) is not None:
                # Without steps a rank would never come to the one that was chosen.
                stepless = [
                    rank for rank, key in enumerate(keys) if step and bytes(store.get(key)).decode() == _NO_STEPS
                ]
                why = f"rank {stepless[0]} reports no steps; call run.step() in every process" if stepless else ""
                self._decide(request, why or str(step))
        elif self._trained_since is not None and now - max(since, self._trained_since) > ARRIVAL_S:
            missing = [rank for rank in range(self._world_size) if not store.check([f"{request}/{rank}"])]
            if missing:
                which = f"rank {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
                self._decide(request, f"it did not reach {which} within {ARRIVAL_S:.0f} s")

    def _decide(self, request: str, decision: str) -> None:
        """Decides, unless another rank was first."""
        self._store.compare_set(f"{request}/step", "", decision)
        self._take(request)

    def _take(self, request: str) -> bool:
        """Takes the decision on a request; returns whether there is one."""
        if not self._store.check([f"{request}/step"]):
            return False
        answer = bytes(self._store.get(f"{request}/step")).decode("utf-8", "replace")
        self._agreed[request] = int(answer) if answer.isdecimal() else answer
        self._asked.pop(request, None)
        return True
