"""The step at which all ranks of a program serve a request: rank 0 chooses it, and the others learn it.

Ranks with one run directory use a file beside the request. On hosts with directories of their own they use the store
of `torch.distributed`, if the program has initialised that (`ProgramStore`).

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

from tputui.telemetry import requests, rundir
from tputui.telemetry.safe_open import read_small

ARRIVAL_S = 20.0
"""How long a request may take from one host to all ranks."""
_POLL_S = 0.5
_STEP_SUFFIX = ".step"
_NUMBER_BYTES_MAX = 32
_NUM_SHARED = "requests"
"""Key of the number of requests in the store."""


def path_of(run_dir: Path, request: str) -> Path:
    """The file with the step for a request, in a directory that all ranks share. `request` is an id."""
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


def store_of_program() -> Any | None:
    """The store of `torch.distributed` in this process; None if it is not initialised."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    core: Any = sys.modules["torch.distributed.distributed_c10d"]
    return core.PrefixStore("tputui", core._get_default_store())


class ProgramStore:
    """Passes requests on to all hosts, and has their ranks agree, by the store of the program.

    A step is chosen only once every rank has the request: one that does not leave its loop with the others would wait
    for them for ever. No collective is needed. The store is used by a thread of its own, since an operation waits as
    long as rank 0, which serves it.
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
    ) -> None:
        """`choose` gives the step at rank 0, None while it cannot; the first rank of a host passes requests on."""
        self._store = store
        self._run_dir = run_dir
        self._rank = rank
        self._world_size = world_size
        self._leads_host = leads_host
        self._choose = choose
        self._asked: dict[str, tuple[requests.Request, float]] = {}
        """Requests of this rank that are not agreed on, by id, and since when (monotonic)."""
        self._agreed: dict[str, int | str] = {}
        self._passed_on: set[str] = set()
        self._num_read = 0
        """Requests of the store that were read."""
        self._closing = threading.Event()
        threading.Thread(target=self._run, name="tputui-requests", daemon=True).start()

    def agreed(self, request: requests.Request) -> int | str | None:
        """The step for a request, or why there is none; None while that is not known. Ask until it is."""
        if request.id not in self._agreed:
            self._asked.setdefault(request.id, (request, time.monotonic()))
        return self._agreed.get(request.id)

    def close(self) -> None:
        """Ends the thread; does not wait for it."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(_POLL_S):
            # Raised if rank 0 has ended; training will, too.
            with contextlib.suppress(RuntimeError):
                if self._leads_host:
                    self._pass_on()
                for request, since in list(self._asked.values()):
                    agreed = self._agree(request.id, time.monotonic() - since)
                    if agreed is not None:
                        self._agreed[request.id] = agreed
                        del self._asked[request.id]

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
            # What is no request, and a directory that cannot be written: then it does not reach the ranks of this host.
            with contextlib.suppress(ValueError, OSError):
                content = bytes(store.get(f"{_NUM_SHARED}/{number}"))
                requests.pass_on(self._run_dir, msgspec.json.decode(content, type=requests.Request))
            self._num_read = number

    def _agree(self, request: str, waited_s: float) -> int | str | None:
        store, decided = self._store, f"{request}/step"
        if not store.check([decided]):
            store.set(f"{request}/{self._rank}", "")
            if not self._rank and store.check([f"{request}/{rank}" for rank in range(self._world_size)]):
                if (step := self._choose()) is None:
                    return None
                store.compare_set(decided, "", str(step))
            elif waited_s > ARRIVAL_S and (missing := self._missing(request)):
                which = f"rank {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
                # A step that rank 0 has chosen meanwhile stays.
                store.compare_set(decided, "", f"it did not reach {which} within {ARRIVAL_S:.0f} s")
            else:
                return None
        found = bytes(store.get(decided)).decode("utf-8", "replace")
        return int(found) if found.isdecimal() else found

    def _missing(self, request: str) -> list[int]:
        return [rank for rank in range(self._world_size) if not self._store.check([f"{request}/{rank}"])]
