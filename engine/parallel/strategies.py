"""The strategies: `Single`, one core; `Spmd`, a mesh over all devices of a host; `SpmdOverHosts`, a mesh over those of
several hosts; `Replica`, one core for each rank, on one host or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.parallel.base import HostShare, OneProcess, OneProgram, Strategy
from engine.parallel.group import Group, RankSocket
from engine.parallel.host_group import HostGroup
from engine.xla import backend


class _OnCore:
    """One core for this process: it takes all rows, and nothing is sharded."""

    device: torch.device

    def put(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return dict(zip(batch, backend.put(list(batch.values()), self.device), strict=True))

    def shard(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        return tensor

    def read(self: Strategy, tensor: torch.Tensor) -> npt.NDArray[np.float32]:
        return self.gather(backend.read(tensor), 1)

    def read_rows(self: Strategy, tensors: list[torch.Tensor]) -> list[npt.NDArray[Any]]:
        """One transfer and one exchange a tensor, since the runtime reads plain tensors one by one."""
        return [self.gather(backend.read(tensor), 0) for tensor in tensors]


class _OnMesh:
    """The cores of this process as a part of a mesh, or all of it: each core takes a contiguous share of the rows. The
    tensors on the device have the rows of the whole mesh."""

    device: torch.device
    _mesh: backend.CoreMesh

    def put(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return dict(zip(batch, self._mesh.put(list(batch.values()), self.device), strict=True))

    def shard(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        return self._mesh.shard(tensor, dim)

    def read(self: Strategy, tensor: torch.Tensor) -> npt.NDArray[np.float32]:
        return self.gather(backend.read_shards([tensor], 1)[0], 1)

    def read_rows(self: Strategy, tensors: list[torch.Tensor]) -> list[npt.NDArray[Any]]:
        """One transfer of the shards of all tensors, and one exchange a tensor."""
        return [self.gather(shards, 0) for shards in backend.read_shards(tensors, 0)]


class Single(_OnCore, OneProcess):
    """One core, chosen by its index; nothing is sharded."""

    name = "single"

    def __init__(self, core_id: int, device_index: int) -> None:
        """`core_id` is the global id of the core, `device_index` its index among the devices of this process."""
        super().__init__(backend.device(device_index), [core_id])


class Spmd(_OnMesh, OneProcess):
    """N cores as one device. Parameters are replicated, and the compiler inserts the sums of the gradients."""

    name = "spmd"

    def __init__(self, num_cores: int) -> None:
        backend.use_spmd()
        super().__init__(backend.device(), list(range(num_cores)))
        self._mesh = backend.CoreMesh(num_cores)


class SeveralProcesses:
    """Base of strategies with a process per host or per core: `Group` exchanges what they read and decide."""

    is_only = False
    _group: Group

    def gather(self, array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """Concatenates the arrays of all processes; one exchange."""
        return self._group.gather(array, axis)

    def combine(self, byte: int) -> int:
        """Returns the bytes of the leading processes of all hosts, OR-ed."""
        return self._group.combine(byte)

    def collect(self, payload: bytes) -> list[bytes]:
        return self._group.collect(payload)

    def broadcast(self, payload: bytes) -> bytes:
        """Returns the payload of the first process."""
        return self._group.broadcast(payload)


class SpmdOverHosts(_OnMesh, SeveralProcesses, OneProgram):
    """One mesh over the devices of all hosts of a TPU slice: one process per host, which feeds the rows of its cores.

    The program is the same on all hosts, and exchanges gradients by itself; what the hosts decide or read goes through
    `HostGroup`. Needs a runtime that connects the devices of several hosts, which only that of the TPU does. It has
    never run on a real TPU.
    """

    name = "spmd"

    def __init__(self, place: RankSocket, num_cores: int) -> None:
        """Opens the devices. `place` is that of the one rank of each host; `num_cores` is the number of all cores.
        Raises `PeerLost`, and `RuntimeError` if the runtime has another number of devices."""
        assert place.hosts is not None
        backend.use_spmd()
        self.device = backend.device()
        self.core_ids = list(range(num_cores))
        self.traced = num_cores
        size = num_cores // place.num_hosts
        self.own = range(place.rank * size, (place.rank + 1) * size)
        self.host = HostShare(place.rank, place.num_hosts, self.own)
        self.hosts: HostGroup | None = place.hosts
        self.is_first = place.rank == 0
        self._group = Group(place)
        # Host by host: the runtime numbers devices by their position in the slice.
        devices = self._group.gather(np.array(backend.own_devices(), dtype=np.int64), 0)
        self._mesh = backend.CoreMesh(num_cores, devices.tolist(), per_host=True)


class Replica(_OnCore, SeveralProcesses):
    """One core, driven by this rank; each of the other ranks drives one core, with its own copy of the weights.

    Each rank takes its share of every batch, and gradients are averaged before each optimizer step. A layer that
    depends on the whole batch sees only the share of its core, while under `spmd` it sees the whole batch: BatchNorm
    normalises by the statistics of one core, and evaluates by the running statistics of the first one. Without such
    layers both strategies give the same result, up to the order of sums.

    On CPU devices the gradients are exchanged through the host, since the runtime's own collectives do nothing between
    processes there: first within each host, then between the hosts. On a TPU the program itself averages them, over all
    hosts of the slice; that path has never run on a real TPU.
    """

    name = "replica"
    traced = 1

    def __init__(self, place: RankSocket, device_index: int = 0) -> None:
        """Opens the core and waits for the other ranks. Raises `PeerLost`."""
        self.device = backend.device(device_index)
        self.core_ids = list(range(place.num_ranks))
        self.own = range(place.rank, place.rank + 1)
        self.stream = place.rank
        self.host = HostShare(place.of_host.start // len(place.of_host), place.num_hosts, place.of_host)
        self.hosts = place.hosts
        self.is_first = place.rank == 0
        self._through_host = backend.kind() == "CPU"
        self._group = Group(place)

    def reduce_gradients(
        self, parameters: Sequence[torch.nn.Parameter], run: Callable[[], None], ready: Callable[[], None], byte: int
    ) -> int | None:
        """Averages all gradients in one exchange."""
        with_gradients = [parameter for parameter in parameters if parameter.grad is not None]
        if not self._through_host:
            backend.reduce_gradients(with_gradients)
            return None
        run()
        gradients = backend.read_all([_gradient(parameter) for parameter in with_gradients])
        ready()
        flat = torch.cat([gradient.reshape(-1).float() for gradient in gradients])
        flat, combined = self._group.mean(flat, byte)
        means = torch.split(flat, [gradient.numel() for gradient in gradients])
        shaped = [mean.view(old.shape).to(old.dtype) for mean, old in zip(means, gradients, strict=True)]
        for parameter, gradient in zip(with_gradients, backend.put(shaped, self.device), strict=True):
            parameter.grad = gradient
        return combined

    def broadcast_tensors(self, tensors: Sequence[torch.Tensor]) -> None:
        """Overwrites the tensors by those of the first rank, in one exchange."""
        if not tensors:
            return
        mine = backend.read_all(list(tensors))
        raw = b"".join(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in mine)
        theirs = torch.frombuffer(bytearray(self._group.broadcast(raw)), dtype=torch.uint8)
        parts = torch.split(theirs, [tensor.numel() * tensor.element_size() for tensor in mine])
        # Copied, since a part may not be aligned for its type.
        values = [part.clone().view(old.dtype).view(old.shape) for part, old in zip(parts, mine, strict=True)]
        with torch.no_grad():
            for tensor, value in zip(tensors, backend.put(values, self.device), strict=True):
                tensor.data = value


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad
