"""Collective operations on host memory between the leading processes of the hosts of a run, over gloo.

Each method must be called by the leading process of every host, in the same order, from one thread. The process group
is an object of its own, not the default one of torch: there is no global state, so that two hosts may be two threads of
one process, and the user's code may have a group too. Must not touch a device.
"""

from __future__ import annotations

import datetime
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from engine.errors import PeerLost, Unable
from engine.host_place import HostPlace
from engine.parallel.host_links import LINK_TIMEOUT_S, Address, HostLinks, Outcome, connect_all

JOIN_TIMEOUT_S = 300.0
"""How long the hosts wait for each other at the start; the launcher has let them meet before it starts this process."""
PATIENCE_S = 2 * 3600.0
"""How late a host may be that is still there."""
INTERFACE_VARIABLE = "GLOO_SOCKET_IFNAME"
"""Network interface to use, if it is not the one that leads to host 0."""
# Typed incompletely.
_dist: Any = dist
_gloo: Any = _dist.ProcessGroupGloo
_POLL_S = 0.5
_JOIN_POLL_S = 0.1
_JOIN_MARGIN_S = 5.0
"""How much earlier than another host one may have started to wait for all."""
_BITS = 8

Bytes = npt.NDArray[np.uint8]


class HostGroup:
    def __init__(
        self,
        place: HostPlace,
        on_wait: Callable[[str | None], None] = lambda operation: None,
        *,
        link_timeout_s: float = LINK_TIMEOUT_S,
        join_timeout_s: float = JOIN_TIMEOUT_S,
    ) -> None:
        """Waits until every host is connected. Raises `PeerLost` with the hosts that are missing after
        `join_timeout_s`, and `Unable`. `on_wait` is called with what the host begins to wait for, and with None."""
        self.index = place.index
        self.num_hosts = place.num_hosts
        self.waited_s = 0.0
        """Seconds in `sum` so far: waiting for other hosts, and exchanging with them."""
        self.ready_s = 0.0
        """When this host was ready for the newest `sum` (`time.perf_counter`)."""
        self._on_wait = on_wait
        on_wait("the other hosts")
        try:
            self._store, self.links = _join(place, link_timeout_s, time.monotonic() + join_timeout_s)
            self._gloo = self._connect(place, join_timeout_s)
            # A host that left now would break the connections that another one still makes.
            self._wait(self._gloo.allreduce([torch.zeros(1)]))
        finally:
            on_wait(None)

    def sum(self, values: npt.NDArray[np.float32], byte: int) -> int:
        """Replaces `values`, [n], by their sum over the hosts, bitwise equal on all. Returns the bytes of all hosts,
        0 to 255, OR-ed; they travel with the values."""
        self.ready_s = time.perf_counter()
        bits = [float(byte >> bit & 1) for bit in range(_BITS)]
        total = torch.from_numpy(np.append(values, np.array(bits, dtype=np.float32)))
        with self._waiting("all-reduce"):
            self._wait(self._gloo.allreduce([total]))
        self.waited_s += time.perf_counter() - self.ready_s
        values[:] = total.numpy()[:-_BITS]
        return int(sum(1 << bit for bit, count in enumerate(total[-_BITS:].tolist()) if count > 0))

    def combine(self, byte: int) -> int:
        """Returns the bytes of all hosts, 0 to 255, OR-ed."""
        value = torch.tensor([byte], dtype=torch.uint8)
        with self._waiting("all-reduce"):
            self._wait(self._gloo.allreduce([value], _bitwise_or()))
        return int(value)

    def broadcast(self, payload: bytes) -> bytes:
        """Returns the payload of the first host."""
        size = torch.tensor([len(payload)], dtype=torch.int64)
        with self._waiting("broadcast"):
            self._wait(self._gloo.broadcast([size], _from_first()))
            content = (
                torch.from_numpy(_array(payload)) if self.index == 0 else torch.empty(int(size), dtype=torch.uint8)
            )
            if len(content):
                self._wait(self._gloo.broadcast([content], _from_first()))
        return content.numpy().tobytes()

    def gather(self, part: Bytes) -> list[Bytes]:
        """Returns the parts of all hosts, which have one length, in order."""
        found = [torch.empty(len(part), dtype=torch.uint8) for _ in range(self.num_hosts)]
        if len(part):
            with self._waiting("all-gather"):
                self._wait(self._gloo.allgather([found], [torch.from_numpy(part)]))
        return [each.numpy() for each in found]

    def gather_payloads(self, payload: bytes) -> list[bytes]:
        """Returns the payloads of all hosts, of any length, in order."""
        sizes = [int(size.view(np.int64)[0]) for size in self.gather(np.array([len(payload)]).view(np.uint8))]
        padded = np.zeros(max(sizes), dtype=np.uint8)
        padded[: len(payload)] = _array(payload)
        return [part[:size].tobytes() for part, size in zip(self.gather(padded), sizes, strict=True)]

    def close(self, outcome: Outcome, sentence: str) -> None:
        """Informs the other hosts how this one ends."""
        self.links.close(outcome, sentence)

    def _connect(self, place: HostPlace, join_timeout_s: float) -> Any:
        options = _gloo._Options()
        options._devices = [_device(self.address)]
        options._timeout = datetime.timedelta(seconds=join_timeout_s)
        options._threads = 2
        store = _dist.PrefixStore(f"gloo-{place.generation}", self._store)
        try:
            gloo = _gloo(store, place.index, place.num_hosts, options)
        except RuntimeError as error:
            raise self.links.wait_for_cause(error) from error
        gloo._set_default_timeout(datetime.timedelta(seconds=PATIENCE_S))
        return gloo

    @property
    def address(self) -> str:
        """The address of this host, as the others reach it."""
        return self.links.addresses[self.index]

    @contextmanager
    def _waiting(self, operation: str) -> Iterator[None]:
        self._on_wait(f"{operation} with the other hosts")
        try:
            yield
        finally:
            self._on_wait(None)

    def _wait(self, work: Any) -> None:
        """Waits for an exchange, however long the other hosts take, but not for one that is lost."""
        while True:
            try:
                work.wait(datetime.timedelta(seconds=_POLL_S))
                return
            except RuntimeError as error:
                if work.is_completed():
                    raise self.links.wait_for_cause(error) from error
            self.links.require_all()


def _join(place: HostPlace, link_timeout_s: float, deadline: float) -> tuple[Any, HostLinks]:
    """Meets the other hosts at the store of the first one, and connects to each."""
    store = _store(place, deadline)
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    listener = socket.create_server(("", 0), family=family, backlog=place.num_hosts, dualstack_ipv6=dual)
    token = secrets.token_hex(16)
    with listener:
        mine = Address(_own_address(place), listener.getsockname()[1], token)
        store.set(_key(place, place.index), msgspec.json.encode([*mine, _address_of(place.master_addr)]))
        found = _meet(store, place, deadline)
        addresses = [address for address, _ in found]
        seen = found[-1][1]
        if addresses[0].host.startswith("127.") and not seen.startswith("127."):
            # The name of host 0 means the loopback device on host 0 itself, but its address everywhere else.
            addresses[0] = addresses[0]._replace(host=seen)
        try:
            sockets = connect_all(place.index, listener, token, addresses, deadline)
        except TimeoutError as error:
            raise PeerLost(f"{error} did not connect") from error
        except OSError as error:
            raise PeerLost(f"another host cannot be reached: {error}") from error
    return store, HostLinks(place.index, sockets, [address.host for address in addresses], link_timeout_s)


def _store(place: HostPlace, deadline: float) -> Any:
    timeout = datetime.timedelta(seconds=max(1.0, deadline - time.monotonic()))
    where = f"{place.master_addr}:{place.master_port}"
    try:
        return _dist.TCPStore(
            place.master_addr,
            place.master_port,
            None,
            is_master=place.is_first,
            timeout=timeout,
            wait_for_workers=False,
        )
    except (RuntimeError, OSError) as error:
        first = str(error).strip().splitlines()[0]
        if place.is_first:
            raise Unable(f"host 0 cannot serve the store of the run at {where}: {first}") from error
        raise PeerLost(f"host 0 does not answer at {where}: {first}") from error


def _key(place: HostPlace, host: int) -> str:
    return f"tputui/{place.generation}/host/{host}"


def _meet(store: Any, place: HostPlace, deadline: float) -> list[tuple[Address, str]]:
    """The address of each host, and that of host 0 as it sees it, once all are there."""
    missing = list(range(place.num_hosts))
    while True:
        try:
            # Polled: a read that waits would not say which hosts are missing.
            missing = [host for host in missing if not store.check([_key(place, host)])]
            if not missing:
                found = [store.get(_key(place, host)) for host in range(place.num_hosts)]
                break
        except (RuntimeError, OSError) as error:
            if time.monotonic() < deadline - _JOIN_MARGIN_S or not 0 < len(missing) < place.num_hosts:
                raise PeerLost("host 0 ended while the hosts of the run were joining") from error
            # Host 0 has waited as long as this host, and reached its deadline a little earlier.
            deadline = time.monotonic()
        if time.monotonic() >= deadline:
            joined, those = place.num_hosts - len(missing), f"host{'s' if len(missing) > 1 else ''}"
            names = ", ".join(map(str, missing))
            raise PeerLost(f"only {joined} of {place.num_hosts} hosts joined; missing: {those} {names}")
        time.sleep(_JOIN_POLL_S)
    published = [msgspec.json.decode(each, type=tuple[str, int, str, str]) for each in found]
    return [(Address(host, port, token), first) for host, port, token, first in published]


def _own_address(place: HostPlace) -> str:
    """The address of this host in the network that leads to host 0."""
    family = socket.AF_INET6 if ":" in _address_of(place.master_addr) else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((place.master_addr, place.master_port))
        except OSError as error:
            raise PeerLost(f"host 0 at {place.master_addr} cannot be reached: {error.strerror}") from error
        return str(probe.getsockname()[0])


def _address_of(name: str) -> str:
    try:
        return str(socket.getaddrinfo(name, None)[0][4][0])
    except OSError as error:
        raise Unable(f"MASTER_ADDR is {name!r}, which cannot be resolved: {error}") from error


def _device(address: str) -> Any:
    interface = os.environ.get(INTERFACE_VARIABLE, "")
    return _gloo.create_device(interface=interface) if interface else _gloo.create_device(hostname=address)


def _array(payload: bytes) -> Bytes:
    return np.frombuffer(bytearray(payload), dtype=np.uint8)


def _from_first() -> Any:
    options = _dist.BroadcastOptions()
    options.rootRank = 0
    return options


def _bitwise_or() -> Any:
    options = _dist.AllreduceOptions()
    options.reduceOp = _dist.ReduceOp.BOR
    return options
