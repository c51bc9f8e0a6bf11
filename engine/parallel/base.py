"""The `Strategy` protocol: how the cores of a run execute one program, on one process or on several.

Cores are numbered from 0 over all processes of the run, host by host. One process may drive all of them (`OneProcess`),
or several processes one part each (`replica`, and any strategy over several hosts). Those processes train in step: a
method marked *collective* must be called by every process, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from engine.parallel.host_group import HostGroup


class HostShare(NamedTuple):
    """The host of a process, and its part of the cores."""

    number: int
    num_hosts: int
    cores: range
    """Indices in `core_ids` of the cores of this host."""


class Strategy(Protocol):
    """The cores behind one device."""

    name: str
    """Its name in the journal: `spmd`, `single` or `replica`."""
    core_ids: list[int]
    """Global ids of the cores of all processes."""
    own: range
    """Indices in `core_ids` of the cores that this process drives."""
    traced: int
    """Number of cores whose rows are in the tensors of a traced program: those of this process, or all cores of a mesh
    over several hosts."""
    stream: int
    """Number of the stream of random numbers; copies of the network that see different rows have different streams."""
    host: HostShare
    """The host of this process. The process that drives the first core of its host leads it: it records the losses of
    the cores of the host, and receives requests."""
    hosts: HostGroup | None
    """Connection to the other hosts, in a process that leads its host; None if there is one host."""
    is_first: bool
    """Whether this process drives core 0. The first process reports and saves."""
    is_only: bool
    """Whether this process drives all cores, so that nothing has to be agreed on with other processes."""
    device: torch.device

    def put(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Moves host tensors, [rows, ...], to the device and splits their rows evenly over the own cores, in order.
        Thread-safe."""
        ...

    def shard(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """Marks dimension `dim`, whose size is a multiple of the number of own cores, as split evenly over them."""
        ...

    def read(self, tensor: torch.Tensor) -> npt.NDArray[np.float32]:
        """Reads a tensor, [rows, own cores], that was sharded in dimension 1; returns [rows, all cores]. One transfer,
        which runs and compiles nothing. Collective."""
        ...

    def read_rows(self, tensors: list[torch.Tensor]) -> list[npt.NDArray[Any]]:
        """Reads tensors, [own rows, ...], that were sharded in dimension 0; returns [rows of all cores, ...] each.
        Collective."""
        ...

    def gather(self, array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """Concatenates the host arrays of all processes, which have one shape, along `axis`, in the order of the cores.
        Collective."""
        ...

    def reduce_gradients(
        self, parameters: Sequence[torch.nn.Parameter], run: Callable[[], None], ready: Callable[[], None], byte: int
    ) -> int | None:
        """Replaces each gradient by its mean over the processes. `run` runs the traced program if the exchange needs
        its result; then `ready` is called before this process waits for the others. Returns the `byte` of all
        leading processes, OR-ed, if the exchange can carry it, else None. Collective."""
        ...

    def broadcast_tensors(self, tensors: Sequence[torch.Tensor]) -> None:
        """Overwrites tensors on the device by those of the first process. Must be called right after a sync.
        Collective."""
        ...

    def combine(self, byte: int) -> int:
        """Returns the bytes, 0 to 255, of the processes that lead a host, OR-ed. Collective."""
        ...

    def collect(self, payload: bytes) -> list[bytes]:
        """Returns the payloads of the processes that lead a host, in the order of the hosts. Collective."""
        ...

    def broadcast(self, payload: bytes) -> bytes:
        """Returns the payload of the first process. Collective."""
        ...


class OneProgram:
    """Base of strategies in which one program runs on all cores: it takes the mean over the whole batch by itself, and
    its tensors are the same everywhere."""

    stream = 0
    """The random state is an input of the one program."""

    def reduce_gradients(
        self, parameters: Sequence[torch.nn.Parameter], run: Callable[[], None], ready: Callable[[], None], byte: int
    ) -> int | None:
        return None

    def broadcast_tensors(self, tensors: Sequence[torch.Tensor]) -> None:
        """Does nothing."""


class OneProcess(OneProgram):
    """Base of strategies in which one process drives all cores: the collective methods have nothing to exchange."""

    hosts: HostGroup | None = None
    is_first = True
    is_only = True

    def __init__(self, device: torch.device, core_ids: list[int]) -> None:
        self.device = device
        self.core_ids = core_ids
        self.own = range(len(core_ids))
        self.traced = len(core_ids)
        self.host = HostShare(0, 1, self.own)

    def gather(self, array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        return array

    def combine(self, byte: int) -> int:
        return byte

    def collect(self, payload: bytes) -> list[bytes]:
        return [payload]

    def broadcast(self, payload: bytes) -> bytes:
        return payload
