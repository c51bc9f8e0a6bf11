"""Collective operations on host memory between the ranks of a run, over inherited socket pairs.

A socket pair has no name and no port, so no other process can connect to it: a rank is whoever inherited its end. The
first rank has a link to each other rank, and every exchange goes through it. Each method must be called by every rank,
in the same order, from one thread. There is no global state: two ranks may be two threads of one process, each with a
`Group` of its own. Must not touch a device.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine.errors import PeerLost

PATIENCE_S = 2 * 3600.0
"""How late a rank may be: one may compile or save for a long time while the others wait. A rank that has exited is
noticed at once, since its end of the pair closes."""
_LENGTH = struct.Struct("<Q")
_SMALL_BYTES = 1 << 16
"""A shorter message is sent together with its length, in one call."""
_Bytes = npt.NDArray[np.uint8]


class RankSocket(NamedTuple):
    """A rank's number and its links to the other ranks. A rank drives one core."""

    rank: int
    num_ranks: int
    links: Sequence[socket.socket]
    """First rank: one link to each other rank, in order. Any other rank: the link to the first one."""
    on_wait: Callable[[str | None], None] = lambda operation: None
    """Called with the operation that the rank begins to wait for, and with None when the wait is over."""


class Group:
    """One rank's connection to the others."""

    def __init__(self, place: RankSocket) -> None:
        """Waits until every rank is connected. Raises `PeerLost`, as every method does, if another rank has exited."""
        self.rank = place.rank
        self.num_ranks = place.num_ranks
        self._on_wait = place.on_wait
        self._links = place.links
        for link in self._links:
            link.settimeout(PATIENCE_S)
        with self._waiting("rendezvous"):
            self._exchange(_bytes_of(np.zeros(0)), lambda parts: parts[0])

    def mean(self, values: torch.Tensor, byte: int) -> tuple[torch.Tensor, int]:
        """Returns the mean of `values`, [n] float32, over the ranks, bitwise equal on all, and the byte, 0 to 255, of
        the first rank."""
        mine = values.numpy()

        def mean_and_byte(parts: list[_Bytes]) -> _Bytes:
            total = mine.copy()
            for part in parts[1:]:
                total += part.view(np.float32)
            total /= self.num_ranks
            return np.append(_bytes_of(total), np.uint8(byte))

        with self._waiting("all-reduce"):
            answer = self._exchange(_bytes_of(mine), mean_and_byte)
        # Copied, since torch needs writable memory of its own.
        return torch.from_numpy(answer[:-1].copy().view(np.float32)), int(answer[-1])

    def broadcast_byte(self, byte: int) -> int:
        """Returns the byte, 0 to 255, of the first rank."""
        return self.broadcast(bytes([byte]))[0]

    def broadcast(self, payload: bytes) -> bytes:
        """Returns the payload of the first rank."""
        with self._waiting("broadcast"):
            if self.rank:
                return _receive(self._links[0]).tobytes()
            self._send_to_all(np.frombuffer(payload, dtype=np.uint8))
        return payload

    def gather(self, array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """Concatenates the arrays of all ranks, which have one shape and type, along `axis`."""
        with self._waiting("all-gather"):
            combined = self._exchange(_bytes_of(array), np.concatenate)
        parts = combined.view(array.dtype).reshape(self.num_ranks, *array.shape)
        return np.concatenate(list(parts), axis=axis)

    def _exchange(self, mine: _Bytes, combine: Callable[[list[_Bytes]], _Bytes]) -> _Bytes:
        """Returns what `combine` makes, in the first rank, of the messages of all ranks, which have one length."""
        if self.rank:
            _send(self._links[0], mine)
            return _receive(self._links[0])
        parts = [mine, *(_receive(link) for link in self._links)]
        for rank, part in enumerate(parts):
            if len(part) != len(mine):
                raise RuntimeError(
                    f"rank {rank} sent {len(part)} bytes to an exchange and rank 0 {len(mine)}: the ranks do not train "
                    "the same network"
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
