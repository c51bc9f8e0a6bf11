"""The store where the hosts of a run meet: a TCPStore of torch that host 0 serves, and connections to it.

Anyone who can reach its port can change it, as with torchrun: it belongs into the network of the cluster.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from datetime import timedelta

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined] # documented, but no named exports
from torch.distributed import Store as Store  # type: ignore[attr-defined]

from engine.errors import Unable

OVER = "over"
"""Key that a host sets when its training has ended for good: it comes to no further generation."""
PROBE_S = 1.0
"""How long one attempt to reach host 0 may take."""


def serve(endpoint: tuple[str, int], timeout_s: float) -> TCPStore:
    """Serves the store at the endpoint, on its address if that is one of this host, else on all. Raises `Unable`."""
    name, port = endpoint
    try:
        listener = listen(name, port)
    except OSError as error:
        why = error.strerror or str(error)
        raise Unable(
            f"host 0 cannot listen at {name}:{port}, where the hosts meet: {why}; choose another --rdzv-endpoint, and "
            "check that no other run uses it"
        ) from None
    port = listener.getsockname()[1]
    return TCPStore(
        name,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout_s),
        master_listen_fd=listener.detach(),
    )


def listen(name: str, port: int) -> socket.socket:
    """A listening socket on the address of `name`, or on all addresses if that is not one of this host."""
    addresses = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in addresses:
        if is_loopback(str(address[0])) and not is_loopback(name):
            # Debian gives the own name of a host to 127.0.1.1, where no other host reaches it.
            continue
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1024)
        except OSError as error:
            listener.close()
            if error.errno in _NOT_OURS:
                continue
            raise
        return listener
    listener = socket.create_server(("", port), backlog=1024)
    return listener


def connect(endpoint: tuple[str, int], timeout_s: float) -> Store:
    """A new connection to the store. Raises `RuntimeError` if it is not reachable."""
    name, port = endpoint
    store = TCPStore(name, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=timeout_s))
    return PrefixStore("tputui", store)


def own_address(endpoint: tuple[str, int]) -> str:
    """The address of this host on the way to the endpoint. Raises `OSError` while nothing answers there."""
    with socket.create_connection(endpoint, PROBE_S) as connection:
        return str(connection.getsockname()[0])


def num_come(generation: int) -> str:
    """Key of the number of hosts that have come to a generation."""
    return f"generation/{generation}"


def come(store: Store, generation: int, index: int) -> None:
    """This host waits for a generation to begin."""
    store.set(f"generation/{generation}/{index}", "")
    store.add(num_come(generation), 1)


def have_come(store: Store, generation: int, num_hosts: int) -> list[int]:
    """The hosts that have come to a generation."""
    return [index for index in range(num_hosts) if has(store, f"generation/{generation}/{index}")]


def has(store: Store, *keys: str) -> bool:
    """Whether all keys are set."""
    return bool(store.check(list(keys)))


def put_first(store: Store, key: str, value: str) -> str:
    """Sets a key unless another host was first; returns its value."""
    return bytes(store.compare_set(key, "", value)).decode("utf-8", "replace")


def take(store: Store, key: str) -> str:
    return bytes(store.get(key)).decode("utf-8", "replace")


def take_all(store: Store, keys: list[str]) -> list[bytes]:
    """The values of keys that are set, in one operation."""
    return [bytes(value) for value in store.multi_get(keys)]  # type: ignore[attr-defined] # missing in torch's stub


def wait_for(store: Store, key: str, timeout_s: float, poll_s: float = 0.02) -> str | None:
    """The value of a key once it is set; None after `timeout_s`. Polls, because a wait that times out prints a
    warning."""
    until = time.monotonic() + timeout_s
    while not has(store, key):
        if time.monotonic() >= until:
            return None
        time.sleep(poll_s)
    return take(store, key)


def is_loopback(name: str) -> bool:
    """Whether a name or an address means the loopback device on every host."""
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return name == "localhost"


_NOT_OURS = (99, 97)
"""EADDRNOTAVAIL and EAFNOSUPPORT."""
