"""The ranks of a run on one host, exchanging host memory over socket pairs that they inherit.

A pair has no name and no port, so no other process can connect to it: a rank is whoever was given its end. The first
rank has a link to each other rank, and every exchange goes through it. Each call is made by every rank, in the same
order, from one thread. The group is an object: two cores may be two threads of one process, each with a group of its
own. Must not touch a device.
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
"""How long a rank may be late, at most: one may compile or save for a long time while the others wait. A rank that
is gone is noticed at once all the same, since its end of the pair closes."""
_LENGTH = struct.Struct("<Q")
_SMALL_BYTES = 1 << 16
"""A shorter message is sent together with its length, by one call."""
_Bytes = npt.NDArray[np.uint8]


class RankSocket(NamedTuple):
    """Where a rank stands among the ranks of a run. A rank drives one core."""

    rank: int
    num_ranks: int
    links: Sequence[socket.socket]
    """Of the first rank: one to each other rank, in order. Of any other: the one to the first."""
    note: Callable[[str | None], None] = lambda what: None
    """Is told what the rank waits for, and None when it goes on."""


class Group:
    """The ranks of a run, connected."""

    def __init__(self, place: RankSocket) -> None:
        """Waits until every rank is there. Raises `PeerLost`."""
        self.rank = place.rank
        self.num_ranks = place.num_ranks
        self._note = place.note
        self._links = place.links
        for link in self._links:
            link.settimeout(PATIENCE_S)
        with self._waiting("the meeting of all"):
            self._exchange(_bytes_of(np.zeros(0)), lambda parts: parts[0])

    def mean(self, values: torch.Tensor, word: int) -> tuple[torch.Tensor, int]:
        """The mean of the values, [n] float32, over the ranks, the same bits in each; and the word of the first rank,
        from 0 to 255."""
        mine = values.numpy()

        def mean_and_word(parts: list[_Bytes]) -> _Bytes:
            total = mine.copy()
            for part in parts[1:]:
                total += part.view(np.float32)
            total /= self.num_ranks
            return np.append(_bytes_of(total), np.uint8(word))

        with self._waiting("all-reduce"):
            answer = self._exchange(_bytes_of(mine), mean_and_word)
        # Copied, since what torch makes is to be its own and writable.
        return torch.from_numpy(answer[:-1].copy().view(np.float32)), int(answer[-1])

    def agree(self, word: int) -> int:
        """The word of the first rank, from 0 to 255."""
        return self.share(bytes([word]))[0]

    def share(self, text: bytes) -> bytes:
        """The text of the first rank."""
        with self._waiting("broadcast"):
            if self.rank:
                return _receive(self._links[0]).tobytes()
            self._tell_all(np.frombuffer(text, dtype=np.uint8))
        return text

    def gather(self, array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """Joins the ranks' arrays, which have one shape and type, along `axis`."""
        with self._waiting("all-gather"):
            everyone = self._exchange(_bytes_of(array), np.concatenate)
        parts = everyone.view(array.dtype).reshape(self.num_ranks, *array.shape)
        return np.concatenate(list(parts), axis=axis)

    def _exchange(self, mine: _Bytes, combine: Callable[[list[_Bytes]], _Bytes]) -> _Bytes:
        """What `combine` makes in the first rank of what every rank brings, one after another. All bring as much."""
        if self.rank:
            _send(self._links[0], mine)
            return _receive(self._links[0])
        parts = [mine, *(_receive(link) for link in self._links)]
        for rank, part in enumerate(parts):
            if len(part) != len(mine):
                raise RuntimeError(
                    f"rank {rank} brought {len(part)} bytes to an exchange and rank 0 {len(mine)}: the ranks do not "
                    "train the same network"
                )
        combined = combine(parts)
        self._tell_all(combined)
        return combined

    def _tell_all(self, message: _Bytes) -> None:
        for link in self._links:
            _send(link, message)

    @contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        """Tells what is waited for meanwhile, and of the loss of another rank as what it is."""
        self._note(what)
        try:
            yield
        except (OSError, EOFError) as error:
            raise PeerLost(f"another rank does not answer any more: {error}") from error
        finally:
            self._note(None)


def _bytes_of(array: npt.NDArray[Any]) -> _Bytes:
    """The bytes of an array, copied only if they do not lie in order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _send(link: socket.socket, message: _Bytes) -> None:
    length = _LENGTH.pack(len(message))
    if len(message) < _SMALL_BYTES:
        link.sendall(length + message.tobytes())
        return
    link.sendall(length)
    link.sendall(message.data)


def _receive(link: socket.socket) -> _Bytes:
    """The next message. Raises `OSError`, and `EOFError` if the other end is closed."""
    length = np.empty(_LENGTH.size, dtype=np.uint8)
    _fill(link, length)
    message = np.empty(_LENGTH.unpack(length.tobytes())[0], dtype=np.uint8)
    _fill(link, message)
    return message


def _fill(link: socket.socket, room: _Bytes) -> None:
    done = 0
    while done < len(room):
        count = link.recv_into(room.data[done:])
        if not count:
            raise EOFError("its connection is closed")
        done += count
