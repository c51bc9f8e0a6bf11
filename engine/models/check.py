"""What a user should know of a network before XLA compiles it. Must not need the device, nor the runtime."""

from __future__ import annotations

from typing import Any

from torch import nn

from engine.models.scan_lstm import LSTM

REMEDY = "engine.models.scan_lstm.LSTM"


def unrolled(model: nn.Module) -> list[str]:
    """A sentence for each recurrent module that XLA would unroll, one copy a step: minutes to compile for 100 steps.

    A cell that the network calls in a loop of its own cannot be seen here.
    """
    sentences = []
    for name, module in model.named_modules():
        kind = _unrolled(module)
        if kind is not None:
            place = f'"{name}"' if name else "the network"
            sentences.append(
                f"{place} is an {kind}, which XLA unrolls: 100 steps take more than a minute and gigabytes to compile; "
                f"{_remedy(module)}"
            )
    return sentences


def _unrolled(module: nn.Module) -> str | None:
    """What the module is called, if it is one that XLA unrolls."""
    if isinstance(module, nn.LSTM):
        return None if isinstance(module, LSTM) else "nn.LSTM"
    if isinstance(module, nn.RNN):
        return "nn.RNN"
    # The runtime puts a GRU of its own, a scan, in the place of nn.GRU, and keeps the one from before for what is read
    # in both directions.
    gru: Any = nn.GRU
    if isinstance(module, getattr(gru, "_orig", gru)) and module.bidirectional:
        return "nn.GRU of both directions"
    return None


def _remedy(module: nn.Module) -> str:
    if isinstance(module, nn.LSTM):
        return f"use {REMEDY}, whose weights and results are the same"
    return f"use {REMEDY} in its place"
