"""Lightning's XLA precision, with the computation in bf16 where it is wanted, optimizer steps that stay one program,
and the sync left to our callback.

Lightning's own `bf16-true` rests on an environment variable that the runtime is about to drop and takes parameters
and losses down with it; its `16-true` sets one that the runtime does not know and trains in fp32 without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.plugins.precision import XLAPrecision

from engine.loop import optimizer as optim
from engine.parallel.base import Strategy
from engine.xla import backend


class CorePrecision(XLAPrecision):
    """Computes in fp32 or bf16; parameters and losses stay in fp32."""

    def __init__(self, cores: Strategy, *, bf16: bool) -> None:
        super().__init__("32-true")
        self._cores = cores
        self._bf16 = bf16

    @contextmanager
    def forward_context(self) -> Generator[None, None, None]:
        """Lightning enters it around each step of the module."""
        with torch.autocast("xla", dtype=torch.bfloat16, enabled=self._bf16):
            yield

    def optimizer_step(  # type: ignore[override]  # as Lightning's own does
        self, optimizer: Any, model: LightningModule, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        """Traces the step. It runs at the end of the batch, in one program with what is kept of it.

        An optimizer that `engine.loop.optimizer` does not cover takes its own step, with a learning rate above 0.
        """
        whole = partial(self._wrap_closure, model, optimizer, closure)
        if optim.covers(optimizer):
            # Schedulers ask their optimizer by this mark whether it was stepped before them.
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
