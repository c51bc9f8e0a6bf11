"""Corrects the running variance of BatchNorm on XLA to that of plain torch.

From a batch with n values per channel, torch adds the unbiased variance (divided by n - 1) to `running_var`, the
runtime the biased one (divided by n), so an evaluation would differ from plain torch by some tenths of a percent. The
layer updates `running_var = (1 - m) running_var + m variance`. Here the old value is multiplied by (n - 1) / n before
the update, and the result by n / (n - 1) after it, which gives torch's value. n counts what a layer sees: the global
batch under `spmd`, one core's share under `replica`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn.modules.batchnorm import _BatchNorm


def correct(model: nn.Module) -> None:
    """Makes every BatchNorm of a model on the XLA device keep the unbiased variance. Must not be called twice."""
    for module in model.modules():
        if isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm):
            module.register_forward_pre_hook(_before)
            module.register_forward_hook(_after)


def _before(module: nn.Module, arguments: tuple[Any, ...]) -> None:
    count = _count(module, arguments)
    if count is not None:
        _scale(module, (count - 1) / count)


def _after(module: nn.Module, arguments: tuple[Any, ...], result: Any) -> None:
    count = _count(module, arguments)
    if count is not None:
        _scale(module, count / (count - 1))


def _count(module: nn.Module, arguments: tuple[Any, ...]) -> int | None:
    """Values per channel in the input; None if the layer does not update its statistics."""
    values = arguments[0] if arguments else None
    if not (module.training and module.track_running_stats and torch.is_tensor(values)):
        return None
    count = values.numel() // values.size(1)
    return count if count > 1 else None


def _scale(module: nn.Module, factor: float) -> None:
    variance = module.running_var
    if isinstance(variance, torch.Tensor):
        # Autograd saved it for the backward pass, which does not read it in training, and would refuse the change.
        with torch.no_grad(), _unsafe_preserve_version_counter(variance):
            variance.mul_(factor)
