"""What we plug into Lightning's Trainer: a strategy over a mesh, bf16 precision, and a profiler for our sections.

Must not sync.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.plugins.precision import XLAPrecision
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.strategies.single_xla import SingleDeviceXLAStrategy
from torch.utils import _pytree as pytree

from engine.loop import optimizer as optim
from engine.parallel.base import Strategy
from engine.section_timer import SectionTimer
from engine.xla import backend

_ACTION_SECTIONS = {
    "[_TrainingEpochLoop].train_dataloader_next": "data",
    "run_training_batch": "trace",
}
"""Our section by the name of Lightning's action."""
_TRANSFER_SUFFIX = ".batch_to_device"


class SpmdStrategy(SingleDeviceXLAStrategy):
    """Lightning's single-device strategy over a mesh: all cores are one device, and each batch is split over them.

    So a module needs no sampler and no change. The compiler inserts the sums of the gradients.
    """

    strategy_name = "spmd"

    def __init__(self, cores: Strategy) -> None:
        # Without an index it is the runtime's one device for all cores.
        super().__init__(device=None)  # type: ignore[arg-type]
        self._cores = cores

    def batch_to_device(self, batch: Any, device: torch.device | None = None, dataloader_idx: int = 0) -> Any:
        """Splits the batch over the cores in one transfer; the module's own transfer hooks run after it."""
        return super().batch_to_device(self._split(batch), device, dataloader_idx)

    def _split(self, batch: Any) -> Any:
        """The batch with its tensors, [rows, ...] each, on the cores. A ragged batch stays whole: every core computes
        all of it, and each example counts once without padding."""
        leaves, structure = pytree.tree_flatten(batch)
        rows = {str(index): leaf for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.dim()}
        sizes = {tensor.size(0) for tensor in rows.values()}
        if len(sizes) != 1 or sizes.pop() % len(self._cores.core_ids):
            return batch
        for index, tensor in self._cores.put(rows).items():
            leaves[int(index)] = tensor
        return pytree.tree_unflatten(leaves, structure)


class CorePrecision(XLAPrecision):
    """Computes in fp32 or bf16, with parameters and losses in fp32; leaves the sync to our callback.

    Lightning's own `bf16-true` depends on an environment variable that the runtime is about to drop, and converts
    parameters and losses too. Its `16-true` sets a variable that the runtime ignores, and trains in fp32.
    """

    def __init__(self, cores: Strategy, *, bf16: bool) -> None:
        super().__init__("32-true")
        self._cores = cores
        self._bf16 = bf16

    @contextmanager
    def forward_context(self) -> Generator[None, None, None]:
        """Lightning enters this context around each step of the module."""
        with torch.autocast("xla", dtype=torch.bfloat16, enabled=self._bf16):
            yield

    def optimizer_step(  # type: ignore[override]  # as Lightning's own does
        self, optimizer: Any, model: LightningModule, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        """Traces the step. It runs at the end of the batch, in one program with the values that are reported.

        An optimizer that `engine.loop.optimizer` does not cover takes its own step, with a learning rate above 0.
        """
        whole = partial(self._wrap_closure, model, optimizer, closure)
        if optim.covers(optimizer):
            # Schedulers check this mark to see whether the optimizer stepped before them.
            vars(optimizer)["_opt_called"] = True
            return _step(optimizer, self._send, whole)
        with optim.without_zero(optimizer):
            return optimizer.step(closure=whole, **kwargs)

    def _send(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return backend.put(tensors, self._cores.device)


@torch.optim.Optimizer.profile_hook_step
def _step(optimizer: torch.optim.Optimizer, send: optim.Send, closure: Callable[[], Any]) -> Any:
    """One step of an optimizer, with the hooks that were registered on it."""
    result = closure()
    optim.update(optimizer, send)
    return result


class SectionProfiler(Profiler):
    """Charges the actions of Lightning's loop to our sections."""

    def __init__(self, sections: SectionTimer, evaluating: Callable[[], bool]) -> None:
        """Actions are ignored while `evaluating`, which is one section as a whole."""
        super().__init__()
        self._evaluating = evaluating
        self._sections = sections
        self._running: dict[str, AbstractContextManager[None]] = {}

    def start(self, action_name: str) -> None:
        """Lightning begins an action."""
        name = _ACTION_SECTIONS.get(action_name) or ("data" if action_name.endswith(_TRANSFER_SUFFIX) else None)
        if name is not None and not self._evaluating():
            running = self._running[action_name] = self._sections.section(name)
            running.__enter__()

    def stop(self, action_name: str) -> None:
        """Lightning ends an action."""
        running = self._running.pop(action_name, None)
        if running is not None:
            running.__exit__(None, None, None)
