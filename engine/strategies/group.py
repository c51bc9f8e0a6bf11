"""The processes of a run on one host, talking to one another over loopback by gloo.

Everything here is for the host's memory; each call is made by every process, in the same order, from one thread. The
group is an object: two cores may be two threads of one process, each with a group of its own. Must not touch a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from engine.errors import PeerLost

LOOPBACK = "127.0.0.1"
PATIENCE = timedelta(hours=2)
"""How long a rank may be late, at most: one may compile or save for a long time while the others wait. A rank that
is gone is noticed at once all the same, since its connections close."""
_THREADS = 2
_gloo: Any = dist.ProcessGroupGloo
_file_store: Any = vars(dist)["FileStore"]


class Place(NamedTuple):
    """Where a rank stands among the ranks of a run. A rank drives one core."""

    rank: int
    num_ranks: int
    meeting: Path
    """File through which the ranks find one another."""
    note: Callable[[str | None], None] = lambda what: None
    """Is told what the rank waits for, and None when it goes on."""


class Group:
    """The ranks of a run, connected."""

    def __init__(self, place: Place) -> None:
        """Waits until every rank is there. Raises `PeerLost`."""
        self.rank = place.rank
        self.num_ranks = place.num_ranks
        self._note = place.note
        options = _gloo._Options()
        options._timeout = PATIENCE
        options._threads = _THREADS
        options._devices = [_gloo.create_device(hostname=LOOPBACK)]
        with self._waiting("the meeting of all"):
            # Read and written by the user alone: no port is open to others before the ranks have met.
            self._store = _file_store(str(place.meeting), place.num_ranks)
            self._gloo = _gloo(self._store, place.rank, place.num_ranks, options)
        self._word = torch.zeros(1, dtype=torch.uint8)
        self._length = torch.zeros(1, dtype=torch.int64)

    def mean(self, values: torch.Tensor, word: int) -> tuple[torch.Tensor, int]:
        """The mean of the values over the ranks, the same bits in each, and the word of the first rank."""
        sums = torch.cat([values, torch.tensor([float(word if self.rank == 0 else 0)])])
        with self._waiting("all-reduce"):
            self._gloo.allreduce([sums]).wait()
        return sums[:-1] / self.num_ranks, int(sums[-1])

    def agree(self, word: int) -> int:
        """The word of the first rank, from 0 to 255."""
        self._word[0] = word
        self._from_first(self._word)
        return int(self._word)

    def share(self, text: bytes) -> bytes:
        """The text of the first rank."""
        self._length[0] = len(text)
        self._from_first(self._length)
        length = int(self._length)
        if length == 0:
            return b""
        content = torch.zeros(length, dtype=torch.uint8)
        if self.rank == 0:
            content = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self._from_first(content)
        return content.numpy().tobytes()

    def gather(self, array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """Joins the ranks' arrays, which have one shape and type, along `axis`."""
        mine = torch.from_numpy(np.frombuffer(array.tobytes(), dtype=np.uint8).copy())
        everyone = torch.empty(len(mine) * self.num_ranks, dtype=torch.uint8)
        with self._waiting("all-gather"):
            self._gloo._allgather_base(everyone, mine).wait()
        parts = everyone.numpy().view(array.dtype).reshape(self.num_ranks, *array.shape)
        return np.concatenate(list(parts), axis=axis)

    def _from_first(self, tensor: torch.Tensor) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = 0
        options.rootTensor = 0
        with self._waiting("broadcast"):
            self._gloo.broadcast([tensor], options).wait()

    @contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        """Tells what is waited for meanwhile, and of the loss of another rank as what it is."""
        self._note(what)
        try:
            yield
        except RuntimeError as error:
            first = str(error).strip().splitlines()[0]
            raise PeerLost(f"another rank does not answer any more: {first}") from error
        finally:
            self._note(None)
