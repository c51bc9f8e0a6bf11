"""How the cores run one program: what the rest of the engine needs of a strategy."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch


class Strategy(Protocol):
    """The cores behind one device."""

    name: str
    """As it stands in the journal: `spmd`, `single`."""
    core_ids: list[int]
    """Global indices of its cores."""
    device: torch.device
    """What tensors live on."""

    def put(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Moves a host batch to the device, its rows shared out among the cores in order. For any thread."""
        ...

    def shard(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """Says that dimension `dim` holds one entry a core, each on its own core."""
        ...

    def read(self, tensor: torch.Tensor) -> npt.NDArray[np.float32]:
        """Reads what was sharded in its dimension 1; one transfer, which runs and compiles nothing."""
        ...

    def read_rows(self, tensors: list[torch.Tensor]) -> list[npt.NDArray[Any]]:
        """Reads tensors that were sharded in their dimension 0, with the rows of all cores; one transfer."""
        ...
