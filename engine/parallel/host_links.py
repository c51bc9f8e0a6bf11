"""TCP connections between the leading processes of the hosts of a run, which show whether each host is still there.

A collective of gloo waits in silence for a host that is gone: a cut link resets nothing. Nor may its timeout be short,
since a host that compiles is late by minutes. So every pair of hosts has a connection of its own, on which the kernels
exchange keep-alive probes: a host that is compiling, or stopped by a debugger, still answers them, and one that is
unreachable does not. A process that ends says why in its last message. Requests that must not wait for the loop go to
the other hosts here as well. Must not touch a device.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import selectors
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from engine.errors import PeerLost
from tputui.reporting import Request, printable

LINK_TIMEOUT_S = 10.0
"""A host that answers no probe for this long is lost."""
ROOT_CAUSE_S = 2.0
"""If a host ended because it lost another one, that loss shows here within this time."""
LATE_S = 15.0
"""How much later than another host this one may reach its regular end."""
MESSAGE_BYTES_MAX = 64 << 10
_HELLO_BYTES = 40
_SENTENCE_CHARS = 4_000
_HELLO_TIMEOUT_S = 5.0
_NUM_PROBES = 4
_POLL_S = 0.05

Outcome = Literal["done", "stopped", "failed", "lost"]
"""How a host ended; `lost` if it ended because of another host."""


class Farewell(msgspec.Struct, frozen=True, kw_only=True, tag="farewell"):
    outcome: Outcome
    sentence: str
    """Why it ended."""
    because_of: int | None = None
    """The host that it lost."""


class Passed(msgspec.Struct, frozen=True, kw_only=True, tag="request"):
    """A request that arrived at another host."""

    request: Request


class LostHost(NamedTuple):
    """A host that ended before the others, or no longer answers."""

    host: int
    t: float
    """Monotonic time in seconds."""
    sentence: str
    is_consequence: bool
    """Whether it ended because of a third host."""


class Address(NamedTuple):
    """Where a host accepts connections."""

    host: str
    port: int
    token: str
    """Sent first by a process that connects, since any other process could connect as well."""


class HostLinks:
    """The connections of one host to all others, read by a thread. Methods may be called by any thread."""

    def __init__(
        self, index: int, sockets: dict[int, socket.socket], addresses: Sequence[str], timeout_s: float
    ) -> None:
        """`sockets` are the connections by host; `addresses` are those of all hosts."""
        self.index = index
        self.addresses = list(addresses)
        self._names = [f"host {host} ({address})" for host, address in enumerate(addresses)]
        self._sockets = dict(sockets)
        self._lock = threading.Lock()
        self._lost: list[LostHost] = []
        self._ended: dict[int, float] = {}
        """When hosts came to a regular end (monotonic)."""
        self._requests: list[Request] = []
        self._closed = False
        self._timeout_s = timeout_s
        self._selector = selectors.DefaultSelector()
        for host, link in self._sockets.items():
            keep_alive(link, timeout_s)
            link.setblocking(False)
            self._selector.register(link, selectors.EVENT_READ, host)
        self._unread = dict.fromkeys(self._sockets, b"")
        self._thread = threading.Thread(target=self._read, name="tputui-hosts", daemon=True)
        self._thread.start()

    def lost(self) -> LostHost | None:
        """The host that was lost first; None if none was, or if it is not known yet which one is the cause."""
        with self._lock:
            causes = [lost for lost in self._lost if not lost.is_consequence]
            if causes:
                return causes[0]
            waited = bool(self._lost) and time.monotonic() - self._lost[0].t > ROOT_CAUSE_S
            return self._lost[0] if waited else None

    def require_all(self) -> None:
        """Raises `PeerLost` if a host was lost, or if one has ended while this one waits for it."""
        lost = self.lost()
        if lost is not None:
            raise PeerLost(lost.sentence)
        with self._lock:
            late = [host for host, t in self._ended.items() if time.monotonic() - t > LATE_S]
        if late:
            raise PeerLost(f"{self._names[late[0]]} has ended, and this host still waits for it")

    def wait_for_cause(self, error: Exception) -> PeerLost:
        """The exception to raise after an exchange has failed with `error`; names the lost host if it shows soon."""
        deadline = time.monotonic() + ROOT_CAUSE_S + 0.5
        while (lost := self.lost()) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return PeerLost(lost.sentence if lost is not None else f"another host no longer answers: {error}")

    def pass_on(self, request: Request) -> None:
        """Sends a request to all other hosts."""
        self._send(Passed(request=request))

    def passed(self) -> list[Request]:
        """The requests that other hosts have sent since the last call."""
        with self._lock:
            found, self._requests = self._requests, []
        return found

    def close(self, outcome: Outcome, sentence: str) -> None:
        """Informs the other hosts how this one ends, and closes the connections."""
        lost = self.lost()
        with self._lock:
            if self._closed:
                return
            self._closed = True
        because_of = lost.host if lost is not None and outcome == "failed" else None
        words = printable(sentence, _SENTENCE_CHARS)
        self._send(
            Farewell(outcome="lost" if because_of is not None else outcome, sentence=words, because_of=because_of)
        )
        for link in self._sockets.values():
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_WR)

    def _send(self, message: Farewell | Passed) -> None:
        line = msgspec.json.encode(message) + b"\n"
        for link in list(self._sockets.values()):
            # The buffer of a connection that carries a few messages in its life has room for one more.
            with contextlib.suppress(OSError):
                link.send(line)

    def _read(self) -> None:
        while self._selector.get_map():
            for key, _ in self._selector.select():
                host, link = key.data, key.fileobj
                assert isinstance(link, socket.socket)
                try:
                    data = link.recv(MESSAGE_BYTES_MAX)
                except BlockingIOError:
                    continue
                except OSError as error:
                    is_silence = isinstance(error, TimeoutError) or error.errno in _UNREACHABLE
                    what = f"no answer for {self._timeout_s:g} s" if is_silence else f"{error.strerror}"
                    self._gone(host, link, f"{self._names[host]} no longer answers: {what}")
                    continue
                if not data:
                    self._gone(host, link, f"{self._names[host]} has ended without a report: its process was killed")
                    continue
                self._take(host, link, data)

    def _take(self, host: int, link: socket.socket, data: bytes) -> None:
        *lines, self._unread[host] = (self._unread[host] + data).split(b"\n")
        if len(self._unread[host]) > MESSAGE_BYTES_MAX:
            self._gone(host, link, f"{self._names[host]} sent a message that is no message of this program")
            return
        for line in lines:
            try:
                message = msgspec.json.decode(line, type=Farewell | Passed)
            except (msgspec.MsgspecError, ValueError):
                self._gone(host, link, f"{self._names[host]} sent a message that is no message of this program")
                return
            if isinstance(message, Passed):
                with self._lock:
                    self._requests.append(message.request)
            else:
                self._end(host, link, message)
                return

    def _end(self, host: int, link: socket.socket, said: Farewell) -> None:
        if said.outcome in ("done", "stopped"):
            with self._lock:
                self._ended[host] = time.monotonic()
            self._drop(link)
            return
        name, third = self._names[host], said.because_of
        if third is None or not 0 <= third < len(self._names):
            self._gone(host, link, f"{name} failed: {said.sentence}")
        elif third == self.index:
            self._gone(host, link, f"{name} no longer reaches this host: {said.sentence}")
        else:
            self._gone(host, link, f"{name} ended: {said.sentence}", is_consequence=True)
            # It may be this host that does not notice: the link between two others is not its own.
            with self._lock:
                self._lost.append(LostHost(third, time.monotonic(), said.sentence, is_consequence=False))

    def _gone(self, host: int, link: socket.socket, sentence: str, *, is_consequence: bool = False) -> None:
        self._drop(link)
        with self._lock:
            self._lost.append(LostHost(host, time.monotonic(), sentence, is_consequence))

    def _drop(self, link: socket.socket) -> None:
        self._selector.unregister(link)


def keep_alive(link: socket.socket, timeout_s: float) -> None:
    """Makes the kernel probe the other end of an idle connection, which then fails after `timeout_s` of silence."""
    if sys.platform != "linux":
        raise NotImplementedError("several hosts train on Linux only")
    interval_s = max(1, round(timeout_s / (_NUM_PROBES + 1)))
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, interval_s)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval_s)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _NUM_PROBES)
    # For data that is under way, whose own retransmissions would go on for a quarter of an hour.
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(timeout_s * 1000))


def connect_all(
    index: int, listener: socket.socket, token: str, addresses: Sequence[Address], deadline: float
) -> dict[int, socket.socket]:
    """Connects host `index` to all others: to those before it, and from those after it.

    `token` is what must be sent to `listener`. Raises `TimeoutError` with the hosts that are missing at the `deadline`
    (monotonic), and `OSError`.
    """
    links: dict[int, socket.socket] = {}
    for host in range(index):
        address = addresses[host]
        try:
            link = socket.create_connection((address.host, address.port), timeout=max(0.1, deadline - time.monotonic()))
        except TimeoutError:
            raise TimeoutError(_hosts([host])) from None
        link.sendall(_hello(address.token, index))
        links[host] = link
    while len(links) < len(addresses) - 1:
        listener.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            link, _ = listener.accept()
        except TimeoutError:
            missing = [host for host in range(index + 1, len(addresses)) if host not in links]
            raise TimeoutError(_hosts(missing)) from None
        greeted = _greeted(link, token)
        if greeted is None or greeted in links or not index < greeted < len(addresses):
            link.close()
            continue
        links[greeted] = link
    return links


def _hello(token: str, index: int) -> bytes:
    return f"{token} {index}".encode().ljust(_HELLO_BYTES)


def _greeted(link: socket.socket, token: str) -> int | None:
    """The host that has connected; None if it is a stranger."""
    link.settimeout(_HELLO_TIMEOUT_S)
    try:
        found, _, index = link.recv(_HELLO_BYTES, socket.MSG_WAITALL).decode("ascii", "replace").partition(" ")
    except OSError:
        return None
    known = hmac.compare_digest(found.encode(), token.encode())
    return int(index) if known and index.strip().isdigit() else None


_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH)


def _hosts(hosts: Sequence[int]) -> str:
    return f"host{'s' if len(hosts) > 1 else ''} {', '.join(map(str, hosts))}"
