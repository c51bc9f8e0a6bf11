"""Collective operations on host memory between the ranks of a run: over inherited socket pairs within a host, and by a
`HostGroup` between hosts.

A socket pair has no name and no port, so no other process can connect to it: a rank is whoever inherited its end. The
leading rank of a host has a link to each other rank of the host, and every exchange goes through it. With several hosts
the leading ranks exchange what their hosts have combined. Each method must be called by every rank, in the same order,
from one thread. There is no global state: two ranks may be two threads of one process, each with a `Group` of its own.
Must not touch a device.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from engine.errors import PeerLost, Unable
from engine.parallel.host_group import HostGroup

PATIENCE_S = 2 * 3600.0
"""How late a rank may be: one may compile or save for a long time while the others wait. A rank that has exited is
noticed at once, since its end of the pair closes."""
_LENGTH = struct.Struct("<Q")
_SMALL_BYTES = 1 << 16
"""A shorter message is sent together with its length, in one call."""
_Bytes = npt.NDArray[np.uint8]


class RankSocket(NamedTuple):
    """A rank's number and its links to the other ranks."""

    rank: int
    """Number of the rank over all hosts."""
    num_ranks: int
    """Number of ranks of all hosts."""
    links: Sequence[socket.socket]
    """Leading rank: one link to each other rank of its host, in order. Any other rank: the link to the leading one."""
    on_wait: Callable[[str | None], None] = lambda operation: None
    """Called with the operation that the rank begins to wait for, and with None when the wait is over."""
    num_hosts: int = 1
    """Number of hosts, each with as many ranks."""
    hosts: HostGroup | None = None
    """Connection of a leading rank to the other hosts, if there are any."""

    @property
    def of_host(self) -> range:
        size = self.num_ranks // self.num_hosts
        first = self.rank - self.rank % size
        return range(first, first + size)


class Group:
    """One rank's connection to the others."""

    def __init__(self, place: RankSocket) -> None:
        """Waits until every rank is connected. Raises `PeerLost`, as every method does, if another rank has exited, and
        `Unable` if the hosts have different numbers of ranks."""
        self.rank = place.rank
        self.num_ranks = place.num_ranks
        self._leads = place.rank == place.of_host.start
        self._hosts = place.hosts
        self._on_wait = place.on_wait
        self._links = place.links
        for link in self._links:
            link.settimeout(PATIENCE_S)
        with self._waiting("rendezvous"):
            self._exchange(_bytes_of(np.zeros(0)), lambda parts: parts[0])
            if self._hosts is not None:
                _require_equal_sizes(self._hosts, len(place.of_host))

    def mean(self, values: torch.Tensor, byte: int) -> tuple[torch.Tensor, int]:
        """Returns the mean of `values`, [n] float32, over the ranks, bitwise equal on all, and the bytes, 0 to 255, of
        the leading ranks, OR-ed."""
        mine = values.numpy()

        def mean_and_byte(parts: list[_Bytes]) -> _Bytes:
            total = mine.copy()
            for part in parts[1:]:
                total += part.view(np.float32)
            bits = byte if self._hosts is None else self._hosts.sum(total, byte)
            total /= self.num_ranks
            return np.append(_bytes_of(total), np.uint8(bits))

        with self._waiting("all-reduce"):
            answer = self._exchange(_bytes_of(mine), mean_and_byte)
        # Copied, since torch needs writable memory of its own.
        return torch.from_numpy(answer[:-1].copy().view(np.float32)), int(answer[-1])

    def combine(self, byte: int) -> int:
        """Returns the bytes, 0 to 255, of the leading ranks, OR-ed."""
        with self._waiting("broadcast"):
            if not self._leads:
                return int(_receive(self._links[0])[0])
            byte = byte if self._hosts is None else self._hosts.combine(byte)
            self._send_to_all(np.array([byte], dtype=np.uint8))
        return byte

    def broadcast(self, payload: bytes) -> bytes:
        """Returns the payload of the first rank."""
        with self._waiting("broadcast"):
            if not self._leads:
                return _receive(self._links[0]).tobytes()
            payload = payload if self._hosts is None else self._hosts.broadcast(payload)
            self._send_to_all(np.frombuffer(payload, dtype=np.uint8))
        return payload

    def collect(self, payload: bytes) -> list[bytes]:
        """Returns the payloads of the leading ranks, in the order of their hosts."""
        with self._waiting("all-gather"):
            if not self._leads:
                return msgspec.msgpack.decode(_receive(self._links[0]).tobytes(), type=list[bytes])
            found = [payload] if self._hosts is None else self._hosts.gather_payloads(payload)
            self._send_to_all(np.frombuffer(msgspec.msgpack.encode(found), dtype=np.uint8))
        return found

    def gather(self, array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """Concatenates the arrays of all ranks, which have one shape and type, along `axis`."""
        with self._waiting("all-gather"):
            combined = self._exchange(_bytes_of(array), self._gathered)
        parts = combined.view(array.dtype).reshape(self.num_ranks, *array.shape)
        return np.concatenate(list(parts), axis=axis)

    def _gathered(self, parts: list[_Bytes]) -> _Bytes:
        """The messages of all ranks of all hosts, from those of the ranks of this host."""
        of_host = np.concatenate(parts)
        return of_host if self._hosts is None else np.concatenate(self._hosts.gather(of_host))

    def _exchange(self, mine: _Bytes, combine: Callable[[list[_Bytes]], _Bytes]) -> _Bytes:
        """Returns what `combine` makes, in the leading rank, of the messages of the ranks of its host, which have one
        length."""
        if not self._leads:
            _send(self._links[0], mine)
            return _receive(self._links[0])
        parts = [mine, *(_receive(link) for link in self._links)]
        for offset, part in enumerate(parts):
            if len(part) != len(mine):
                raise RuntimeError(
                    f"rank {self.rank + offset} sent {len(part)} bytes to an exchange and rank {self.rank} "
                    f"{len(mine)}: the ranks do not train the same network"
                )
        combined = combine(parts)
        self._send_to_all(combined)
        return combined

    def _send_to_all(self, message: _Bytes) -> None:
        for link in self._links:
            _send(link, message)

    @contextmanager
    def _waiting(self, operation: str) -> Iterator[None]:
        """Reports the wait, and turns errors of a link into `PeerLost`."""
        self._on_wait(operation)
        try:
            yield
        except (OSError, EOFError) as error:
            raise PeerLost(f"another rank no longer answers: {error}") from error
        finally:
            self._on_wait(None)


def _require_equal_sizes(hosts: HostGroup, num_ranks: int) -> None:
    sizes = [int(part.view(np.int64)[0]) for part in hosts.gather(_bytes_of(np.array([num_ranks])))]
    for host, size in enumerate(sizes):
        if size != sizes[0]:
            raise Unable(
                f"host {host} trains on {size} cores and host 0 on {sizes[0]}: every host of a run must have the same "
                "number; set device.cores"
            )


def _bytes_of(array: npt.NDArray[Any]) -> _Bytes:
    """The bytes of an array, copied only if the array is not contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _send(link: socket.socket, message: _Bytes) -> None:
    length = _LENGTH.pack(len(message))
    if len(message) < _SMALL_BYTES:
        link.sendall(length + message.tobytes())
        return
    link.sendall(length)
    link.sendall(message.data)


def _receive(link: socket.socket) -> _Bytes:
    """Returns the next message. Raises `OSError`, and `EOFError` if the other end is closed."""
    length = np.empty(_LENGTH.size, dtype=np.uint8)
    _fill(link, length)
    message = np.empty(_LENGTH.unpack(length.tobytes())[0], dtype=np.uint8)
    _fill(link, message)
    return message


def _fill(link: socket.socket, buffer: _Bytes) -> None:
    done = 0
    while done < len(buffer):
        count = link.recv_into(buffer.data[done:])
        if not count:
            raise EOFError("its connection is closed")
        done += count
