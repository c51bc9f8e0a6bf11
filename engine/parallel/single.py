"""One core, chosen by its index."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.parallel.base import Alone
from engine.xla import backend


class Single(Alone):
    """One core; nothing is shared out."""

    name = "single"

    def __init__(self, core_id: int, device_index: int) -> None:
        """`core_id` is the core's name in the journal, `device_index` its place among the process's devices."""
        self.device = backend.device(device_index)
        self.core_ids = [core_id]
        self.own = range(1)

    def put(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Moves the batch to the core."""
        return dict(zip(batch, backend.put(list(batch.values()), self.device), strict=True))

    def shard(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """There is one core: nothing to say."""
        return tensor

    def read(self, tensor: torch.Tensor) -> npt.NDArray[np.float32]:
        """One transfer."""
        return backend.read(tensor)

    def read_rows(self, tensors: list[torch.Tensor]) -> list[npt.NDArray[Any]]:
        """A transfer each: the runtime has no other way for a plain tensor."""
        return [backend.read(tensor) for tensor in tensors]
