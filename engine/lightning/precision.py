"""Lightning's XLA precision, with the computation in bf16 where it is wanted and the sync left to our callback.

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


class CorePrecision(XLAPrecision):
    """Computes in fp32 or bf16; parameters and losses stay in fp32."""

    def __init__(self, *, bf16: bool) -> None:
        super().__init__("32-true")
        self._bf16 = bf16

    @contextmanager
    def forward_context(self) -> Generator[None, None, None]:
        """Lightning enters it around each step of the module."""
        with torch.autocast("xla", dtype=torch.bfloat16, enabled=self._bf16):
            yield

    def optimizer_step(  # type: ignore[override]  # as Lightning's own does
        self, optimizer: Any, model: LightningModule, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        """Traces the step. It runs at the end of the batch, in one program with what is kept of it."""
        return optimizer.step(closure=partial(self._wrap_closure, model, optimizer, closure), **kwargs)
