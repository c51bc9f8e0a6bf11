"""Joins the hosts of a run: each registers at the store of host 0, and waits until all have.

Hosts that do not belong together are refused: a run of another name, a configuration that differs, or two hosts with
one index. The host that finds it publishes the reason, and all end.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from engine.errors import Unable
from engine.launch import stores
from engine.launch.plan import LaunchPlan
from engine.launch.stores import Store
from engine.launch.supervisor import StoppedEarly
from tputui.engine_api import ExitCode, LaunchFailed, run_clock
from tputui.reporting import events as ev

AWAITED_S = 60.0
"""Seconds after which missing hosts are reported, and between reports."""
POLL_S = 0.2
ABORT = "abort"
"""Key of the reason why the hosts do not train."""
CONFIG = "config"
"""Key of the configuration of host 0."""
JOINED = "joined"
"""Key of the number of hosts that have registered."""
_GOODBYE_S = 5.0
"""How long host 0 serves the store after it gave up, unless the others have read why before."""
_DIFFERENCES_MAX = 3


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What a host says about itself."""

    index: int
    host: str
    address: str
    """Its address in the network of the hosts."""
    digest: str
    token: str
    """Random, to distinguish two launchers on one host."""


class NotJoined(Unable):
    """The hosts did not meet, or do not belong to one run."""

    def __init__(self, reason: str, code: ExitCode = ExitCode.ENVIRONMENT) -> None:
        super().__init__(reason)
        self.code = code


class Joined(NamedTuple):
    hosts: list[Registration]
    """All hosts, by index."""
    waited_s: float

    def address(self, index: int) -> str:
        return self.hosts[index].address


class Patience:
    """How long this host waits for the others: who is missing is reported every minute, until it gives up."""

    def __init__(self, plan: LaunchPlan, emit: Callable[[ev.Event], None], joined: Callable[[], list[int]]) -> None:
        """Begins to wait; `joined` returns the hosts that are there."""
        self._plan = plan
        self._emit = emit
        self._joined = joined
        self._began = time.monotonic()
        self._next_report_s = AWAITED_S

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._began

    def check(self, no_answer: str = "") -> None:
        """Reports missing hosts when that is due; `no_answer` says why it is not known who is missing. Raises
        `NotJoined` when the time is over."""
        waited_s, limit_s = self.waited_s, self._plan.launch.join_timeout_s
        if waited_s < min(self._next_report_s, limit_s):
            return
        num_hosts, joined = self._plan.num_hosts, self._joined()
        sentence = no_answer or missing_hosts(num_hosts, joined)
        if waited_s >= limit_s:
            raise NotJoined(f"{sentence}; gave up after {limit_s:g} s (launch.join_timeout_s)")
        self._next_report_s += AWAITED_S
        missing = [0] if no_answer else [index for index in range(num_hosts) if index not in joined]
        now = run_clock.now()
        self._emit(ev.HostsAwaited(t=now, num_hosts=num_hosts, joined=joined, missing=missing, waited_s=waited_s))
        if no_answer:
            self._emit(ev.WarningRaised(t=now, text=f"{no_answer}; waiting for {waited_s:.0f} s"))


class Joining:
    """One host that joins the others."""

    def __init__(self, plan: LaunchPlan, emit: Callable[[ev.Event], None]) -> None:
        self._plan = plan
        self._patience = Patience(plan, emit, self._joined)
        self._store: Store | None = None
        self._no_answer = ""
        """Why host 0 cannot be reached."""

    def join(self, endpoint: tuple[str, int], begin: Callable[[], None] = lambda: None) -> Joined:
        """Waits until all hosts have registered. `endpoint` is where the store is; `begin` is called first, and may
        raise `StoppedEarly`. Raises `NotJoined` and `StoppedEarly`."""
        plan = self._plan
        try:
            begin()
            return self._join(endpoint)
        except NotJoined as error:
            self._abort(str(error))
            raise
        except StoppedEarly as error:
            self._connect_late(endpoint)
            self._abort(str(error), ExitCode.STOPPED)
            raise
        except RuntimeError as error:
            if self._store is None:
                raise NotJoined(
                    f"what answers at {plan.where} is not host 0 of a run ({_first(error)}); check --rdzv-endpoint, "
                    "and whether another program uses the port"
                ) from None
            raise NotJoined(f"the connection to host 0 at {plan.where} broke off: {_first(error)}") from None

    def _join(self, endpoint: tuple[str, int]) -> Joined:
        plan = self._plan
        address = self._reached(endpoint)
        store = self._store = stores.connect(endpoint, plan.launch.lost_after_s)
        name = stores.put_first(store, "run", plan.run)
        if name != plan.run:
            self._store = None
            text = (
                f"host 0 at {plan.where} runs {name!r}, but this host was started for {plan.run!r}; give all hosts one "
            )
            raise NotJoined(text + "--name, and each run an endpoint of its own", ExitCode.USAGE)
        registration = Registration(
            index=plan.index,
            host=socket.gethostname(),
            address=address,
            digest=plan.digest,
            token=secrets.token_hex(8),
        )
        self._register(store, registration)
        while int(store.add(JOINED, 0)) < plan.num_hosts:
            self._check_abort(store)
            self._check_time()
            time.sleep(POLL_S)
        self._check_abort(store)
        texts = stores.take_all(store, [f"host/{index}" for index in range(plan.num_hosts)])
        return Joined([msgspec.json.decode(text, type=Registration) for text in texts], self._patience.waited_s)

    def _check_abort(self, store: Store) -> None:
        if stores.has(store, ABORT):
            failed = msgspec.json.decode(stores.take(store, ABORT), type=LaunchFailed)
            raise NotJoined(failed.reason, ExitCode(failed.code))

    def _reached(self, endpoint: tuple[str, int]) -> str:
        """The address of this host once host 0 answers."""
        while (address := self._own_address(endpoint)) is None:
            self._check_time()
            time.sleep(POLL_S)
        name = endpoint[0]
        if not self._plan.index and stores.is_loopback(address) and not stores.is_loopback(name):
            # The other hosts reach this one by its name.
            return name
        return address

    def _own_address(self, endpoint: tuple[str, int]) -> str | None:
        """The address of this host on the way to host 0; None while that does not answer."""
        try:
            return stores.own_address(endpoint)
        except OSError as error:
            # A name without an address may get one, as those of pods do.
            self._no_answer = error.strerror or str(error)
            return None

    def _register(self, store: Store, registration: Registration) -> None:
        """Registers this host. Raises `NotJoined` if it does not belong to the others."""
        index = registration.index
        if index:
            while not stores.has(store, "host/0"):
                self._check_time()
                time.sleep(POLL_S)
            first = msgspec.json.decode(stores.take(store, "host/0"), type=Registration)
            if first.digest != registration.digest:
                first_config = msgspec.json.decode(stores.take(store, CONFIG), type=dict[str, str])
                raise NotJoined(_difference(registration, self._plan.flat_config, first, first_config), ExitCode.USAGE)
        else:
            store.set(CONFIG, msgspec.json.encode(self._plan.flat_config).decode())
        text = msgspec.json.encode(registration).decode()
        present = stores.put_first(store, f"host/{index}", text)
        if present != text:
            other = msgspec.json.decode(present, type=Registration)
            # Only this host is wrong.
            self._store = None
            raise NotJoined(
                f"host {index} has already joined from {other.host} ({other.address}), but {registration.host} "
                f"({registration.address}) was started with the same index; each host needs a --host-index of its own",
                ExitCode.USAGE,
            )
        store.add(JOINED, 1)

    def _check_time(self) -> None:
        """Reports missing hosts when that is due. Raises `NotJoined` when the time is over."""
        no_answer = ""
        if self._store is None:
            no_answer = f"host 0 does not answer at {self._plan.where} ({self._no_answer})"
        self._patience.check(no_answer)

    def _joined(self) -> list[int]:
        if self._store is None:
            # Which other hosts wait too, only host 0 could know.
            return [self._plan.index]
        return [index for index in range(self._plan.num_hosts) if stores.has(self._store, f"host/{index}")]

    def _connect_late(self, endpoint: tuple[str, int]) -> None:
        """Connects a host that was stopped before it reached host 0, if that answers now."""
        with contextlib.suppress(RuntimeError):
            if self._store is None and self._own_address(endpoint) is not None:
                self._store = stores.connect(endpoint, self._plan.launch.lost_after_s)

    def _abort(self, reason: str, code: ExitCode = ExitCode.ENVIRONMENT) -> None:
        """Has the other hosts end for this reason, if they are still joining."""
        store, plan = self._store, self._plan
        if store is None:
            return
        message = msgspec.json.encode(LaunchFailed(code=code, reason=reason)).decode()
        with contextlib.suppress(RuntimeError):
            stores.put_first(store, ABORT, message)
            store.set(f"left/{plan.index}", "")
            until = time.monotonic() + (_GOODBYE_S if not plan.index else 0.0)
            # Until all hosts that have registered know that they do not train.
            while time.monotonic() < until and not all(stores.has(store, f"left/{i}") for i in self._joined()):
                time.sleep(POLL_S)


def missing_hosts(num_hosts: int, joined: list[int]) -> str:
    """`3 of 4 hosts joined; missing: host 2`."""
    missing = [index for index in range(num_hosts) if index not in joined]
    names = ", ".join(str(index) for index in missing[:16]) + (" ..." if len(missing) > 16 else "")
    return f"{len(joined)} of {num_hosts} hosts joined; missing: {'host' if len(missing) == 1 else 'hosts'} {names}"


def _difference(
    registration: Registration, config: dict[str, str], first: Registration, first_config: dict[str, str]
) -> str:
    """In which values the configuration of this host differs from that of host 0."""
    different = [key for key in sorted({*config, *first_config}) if config.get(key) != first_config.get(key)]
    parts = [
        f"{key} is {config.get(key, 'not set')} on host {registration.index} ({registration.host}) and "
        f"{first_config.get(key, 'not set')} on host 0 ({first.host})"
        for key in different[:_DIFFERENCES_MAX]
    ]
    more = f"; {len(different) - len(parts)} more keys differ" if len(different) > len(parts) else ""
    return f"the hosts were not started with the same configuration: {'; '.join(parts)}{more}"


def _first(error: Exception) -> str:
    return str(error).partition("\n")[0]
