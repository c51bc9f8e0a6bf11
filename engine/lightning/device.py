"""Lightning's single-device strategy over a mesh: several cores are one device, and each batch is shared out.

So a module needs no sampler of its own and no change. Must not sync.
"""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch.strategies.single_xla import SingleDeviceXLAStrategy
from torch.utils import _pytree as pytree

from engine.parallel.base import Strategy


class SpmdStrategy(SingleDeviceXLAStrategy):
    """One process drives all the cores; the compiler puts the gradients' sums in."""

    strategy_name = "spmd"

    def __init__(self, cores: Strategy) -> None:
        # Without an index it is the runtime's one device that stands for all cores.
        super().__init__(device=None)  # type: ignore[arg-type]
        self._cores = cores

    def batch_to_device(self, batch: Any, device: torch.device | None = None, dataloader_idx: int = 0) -> Any:
        """Shares the batch out among the cores, in one transfer; the module's own transfer hooks run after it."""
        return super().batch_to_device(self._shared_out(batch), device, dataloader_idx)

    def _shared_out(self, batch: Any) -> Any:
        """The batch with its tensors on the cores. A ragged one stays whole: every core computes all of it then, and
        each example counts once without padding."""
        leaves, structure = pytree.tree_flatten(batch)
        rows = {str(place): leaf for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.dim()}
        sizes = {tensor.size(0) for tensor in rows.values()}
        if len(sizes) != 1 or sizes.pop() % len(self._cores.core_ids):
            return batch
        for place, tensor in self._cores.put(rows).items():
            leaves[int(place)] = tensor
        return pytree.tree_unflatten(leaves, structure)
