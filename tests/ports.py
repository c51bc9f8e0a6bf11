"""Ports for servers that tests start, and at which nothing answers until then."""

from __future__ import annotations

import socket

_reserved: list[socket.socket] = []
"""Bound to the ports until this process ends."""


def reserved_port(host: str = "127.0.0.1") -> int:
    """A port of the loopback device at which nothing listens. Only a server that is given its number gets it.

    A port that was merely free a moment ago goes to whichever process asks for any port next, or becomes the port of
    a client, which then connects to itself. A bound socket prevents both. A server may listen at its port although it
    is bound, since both set SO_REUSEADDR.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((host, 0))
    _reserved.append(holder)
    return int(holder.getsockname()[1])
