"""One process, a mesh over all its devices, the batch sharded over it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.parallel.base import Alone
from engine.xla import backend


class Spmd(Alone):
    """N cores as one device; parameters are replicated, and the compiler puts the gradients' sums in."""

    name = "spmd"

    def __init__(self, num_cores: int) -> None:
        """Opens the devices."""
        backend.use_spmd()
        self.device = backend.device()
        self.core_ids = list(range(num_cores))
        self.own = range(num_cores)
        self._mesh = backend.CoreMesh(num_cores)

    def put(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Each core gets its contiguous share of the rows."""
        return dict(zip(batch, self._mesh.put(list(batch.values()), self.device), strict=True))

    def shard(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """Marks the dimension as one entry a core."""
        return self._mesh.shard(tensor, dim)

    def read(self, tensor: torch.Tensor) -> npt.NDArray[np.float32]:
        """One transfer of the cores' shares."""
        return backend.read_shards([tensor], 1)[0]

    def read_rows(self, tensors: list[torch.Tensor]) -> list[npt.NDArray[Any]]:
        """One transfer of the cores' shares."""
        return backend.read_shards(tensors, 0)
