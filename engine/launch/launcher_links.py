"""A connection of each launcher to that of host 0, by which host 0 knows at once that a launcher was killed.

The kernel closes the connections of a process that ends, however it ends. A launcher that ends by itself says so
before. A host without such a connection, or whose connection breaks off otherwise, is watched by its beats alone.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import cast

from engine.launch import stores
from engine.launch.joining import Joined, Registration
from engine.launch.stores import Store

PORT = "launcher_port"
"""Key of the port where host 0 listens."""
CONNECT_S = 5.0
"""How long a host tries to connect before training begins."""
IDLE_S = 30
"""Between two probes of the kernel, so that no firewall forgets a connection without traffic."""
PROBES_MAX = 127
"""Probes without an answer, an hour of them, after which the kernel gives a connection up: beats notice long before."""
ENDED = b"ended\n"
RECEIVED_MAX = 64
STRANGERS_MAX = 64
"""Connections from other programs that may be open at once, such as those of port scanners."""


class LinkServer:
    """The ends at host 0. Only a connection that has sent the token of a host counts."""

    def __init__(self, joined: Joined, killed: Callable[[int], None]) -> None:
        """Listens from now on; `killed` is called, in a thread, with the index of a host whose launcher was killed."""
        self._hosts = {_greeting(host): host.index for host in joined.hosts[1:]}
        self._killed = killed
        self._listener = stores.listen(joined.address(0), 0)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        threading.Thread(target=self._serve, name="tputui-launchers", daemon=True).start()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._accept()
                else:
                    self._read(cast(socket.socket, key.fileobj), key.data)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            # It has ended already, or this process has too many files: the listener stays ready.
            time.sleep(0.1)
            return
        if len(self._selector.get_map()) > len(self._hosts) + STRANGERS_MAX:
            connection.close()
            return
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, bytearray())

    def _read(self, connection: socket.socket, received: bytearray) -> None:
        is_closed = False
        try:
            data = connection.recv(RECEIVED_MAX)
            is_closed = not data
            received.extend(data)
        except BlockingIOError:
            return
        except OSError:
            # The network or a firewall broke the connection off. The end of a process closes it: nothing is sent to it
            # that it could have left unread.
            received.clear()
        else:
            if data and len(received) <= RECEIVED_MAX:
                return
        self._selector.unregister(connection)
        connection.close()
        index = self._hosts.get(bytes(received)) if is_closed else None
        if index is not None:
            self._killed(index)


def connect(store: Store, joined: Joined, index: int) -> socket.socket | None:
    """The connection of host `index`, to keep until `end`; None if host 0 cannot be reached."""
    if sys.platform != "linux":
        raise NotImplementedError("several hosts train on Linux only")
    try:
        port = stores.wait_for(store, PORT, CONNECT_S)
        if port is None:
            return None
        connection = socket.create_connection((joined.address(0), int(port)), CONNECT_S)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, IDLE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES_MAX)
        connection.sendall(_greeting(joined.hosts[index]))
    except (OSError, RuntimeError):
        return None
    return connection


def end(connection: socket.socket) -> None:
    """The launcher of this host is about to end by itself."""
    with contextlib.suppress(OSError):
        connection.sendall(ENDED)


def _greeting(host: Registration) -> bytes:
    # The token, since anyone may guess an index.
    return f"{host.token}\n".encode()
