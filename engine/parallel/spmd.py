"""The strategies of one process: `Single`, one core, and `Spmd`, a mesh over all devices with the batch sharded over
it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.parallel.base import OneProcess
from engine.xla import backend


class Single(OneProcess):
    """One core, chosen by its index; nothing is sharded."""

    name = "single"

    def __init__(self, core_id: int, device_index: int) -> None:
        """`core_id` is the global id of the core, `device_index` its index among the devices of this process."""
        self.device = backend.device(device_index)
        self.core_ids = [core_id]
        self.own = range(1)

    def put(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Moves the batch to the core."""
        return dict(zip(batch, backend.put(list(batch.values()), self.device), strict=True))

    def shard(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """Returns the tensor: there is one core."""
        return tensor

    def read(self, tensor: torch.Tensor) -> npt.NDArray[np.float32]:
        """Reads [rows, 1]; one transfer."""
        return backend.read(tensor)

    def read_rows(self, tensors: list[torch.Tensor]) -> list[npt.NDArray[Any]]:
        """Reads [rows, ...] each; one transfer a tensor, since the runtime reads plain tensors one by one."""
        return [backend.read(tensor) for tensor in tensors]


class Spmd(OneProcess):
    """N cores as one device. Parameters are replicated, and the compiler inserts the sums of the gradients."""

    name = "spmd"

    def __init__(self, num_cores: int) -> None:
        """Opens the devices."""
        backend.use_spmd()
        self.device = backend.device()
        self.core_ids = list(range(num_cores))
        self.own = range(num_cores)
        self._mesh = backend.CoreMesh(num_cores)

    def put(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Moves the batch to the device; each core gets a contiguous share of the rows."""
        return dict(zip(batch, self._mesh.put(list(batch.values()), self.device), strict=True))

    def shard(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """Marks the dimension as split over the mesh."""
        return self._mesh.shard(tensor, dim)

    def read(self, tensor: torch.Tensor) -> npt.NDArray[np.float32]:
        """Reads [rows, cores]; one transfer of all shards."""
        return backend.read_shards([tensor], 1)[0]

    def read_rows(self, tensors: list[torch.Tensor]) -> list[npt.NDArray[Any]]:
        """Reads [rows, ...] each; one transfer of all shards."""
        return backend.read_shards(tensors, 0)
