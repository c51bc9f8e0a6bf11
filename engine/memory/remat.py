"""Rematerialisation: blocks of a network save only their inputs and are computed again in the backward pass.

Parameters keep their names and values, evaluation is unchanged, random draws are repeated exactly, and running
statistics are updated once. torch's own checkpoint has no effect on XLA, which sees the same operations twice and
computes them once. Must not import the runtime: the caller passes the function that recomputes a call.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from engine.errors import Refused
from engine.task import Task

KEY = "device.rematerialise"
LONGEST = 4
"""Maximum number of heavy layers in a block of plain layers; longer sequences are cut."""

Recompute = Callable[[Callable[..., Any], tuple[Any, ...]], Any]
"""Calls a function with arguments, and saves only the arguments for the backward pass."""


RecomputedBlock = tuple[str, nn.Module, list[list[nn.Module]]]
"""A unit that is computed again: its path in the network, as in parameter names, the module, and the pieces of a
sequence of layers that is cut, else none."""


def blocks(task: Task, model: nn.Module) -> list[RecomputedBlock]:
    """The blocks of a network: those that the task names (`blocks(model)`), else the stages of its containers.

    In an `nn.Sequential` or `nn.ModuleList` each member with layers of its own is a block, and so is a run of plain
    layers; a long run is cut into about the square root of its heavy layers. Raises `Refused`.
    """
    chosen = task.blocks(model)
    if chosen is None:
        return list(_within(model, ""))
    names = {module: name for name, module in model.named_modules()}
    if not all(isinstance(module, nn.Module) and module in names for module in chosen):
        raise Refused.of("task", "blocks() returned a module that is not part of the network")
    return [(names[module], module, []) for module in chosen]


def apply(recomputed: Sequence[RecomputedBlock], recompute: Recompute) -> None:
    """Makes the blocks recompute in the backward pass. A block that does so already is left as it is."""
    for name, module, pieces in recomputed:
        if isinstance(getattr(module.forward, "__self__", None), _Recomputed):
            continue
        if pieces:
            module.forward = _Chain([_Recomputed(name, _row(piece), piece, recompute) for piece in pieces]).call
        else:
            module.forward = _Recomputed(name, module.forward, [module], recompute).call


class _Recomputed:
    """Replaces the forward pass of a block."""

    def __init__(self, name: str, forward: Callable[..., Any], modules: list[nn.Module], recompute: Recompute) -> None:
        self._name = name
        self._forward = forward
        self._modules = modules
        self._recompute = recompute

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The block's own forward pass, which saves only its arguments if gradients are needed."""
        given = (*args, *kwargs.values())
        tensors = [value for value in given if torch.is_tensor(value)]
        # Gradients would not reach tensors inside other arguments.
        if not torch.is_grad_enabled() or not tensors or any(map(_holds_tensors, given)):
            return self._forward(*args, **kwargs)
        # The runtime passes no gradients on if no argument needs any, not even to the block's parameters.
        lure = torch.zeros((), device=tensors[0].device, requires_grad=True)
        # The function must not hold the arguments: it lives as long as the step's results.
        num_plain, names, passes = len(args), list(kwargs), [0]

        def run(_: torch.Tensor, *values: Any) -> Any:
            passes[0] += 1
            named = dict(zip(names, values[num_plain:], strict=True))
            with self._unrecorded() if passes[0] > 1 else contextlib.nullcontext():
                return self._checked(self._forward(*values[:num_plain], **named))

        return self._recompute(run, (lure, *given))

    def _checked(self, result: Any) -> Any:
        """The result, if gradients can flow back through it. Raises `Refused`."""
        if torch.is_tensor(result) or (isinstance(result, tuple) and all(map(torch.is_tensor, result))):
            return result
        message = (
            f"the block {self._name} returns {type(result).__name__}, but only tensors can be recomputed; "
            "name other blocks in the task's blocks(), or leave the key out"
        )
        raise Refused.of(KEY, message)

    @contextlib.contextmanager
    def _unrecorded(self) -> Iterator[None]:
        """Leaves running statistics unchanged: they were updated by the first computation."""
        norms = [
            module
            for root in self._modules
            for module in root.modules()
            if isinstance(module, _NormBase) and module.training and module.track_running_stats
        ]
        for norm in norms:
            norm.track_running_stats = False
        try:
            yield
        finally:
            for norm in norms:
                norm.track_running_stats = True


class _Chain(_Recomputed):
    """Replaces the forward pass of a sequence of layers that is cut into pieces."""

    def __init__(self, pieces: list[_Recomputed]) -> None:
        self._pieces = pieces

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Piece after piece."""
        (value,) = args
        for piece in self._pieces:
            value = piece.call(value)
        return value


def _row(layers: list[nn.Module]) -> Callable[[Any], Any]:
    def forward(value: Any) -> Any:
        for layer in layers:
            value = layer(value)
        return value

    return forward


def _within(module: nn.Module, prefix: str) -> Iterator[RecomputedBlock]:
    """Blocks below a module, never nested."""
    if _is_container(module) and _learns(module) and not any(map(_has_parts, module.children())):
        yield prefix, module, _pieces(module)
        return
    for name, child in module.named_children():
        place = f"{prefix}.{name}" if prefix else name
        if _is_container(module) and _has_parts(child) and not _is_container(child):
            if _learns(child):
                yield place, child, []
        elif _has_parts(child):
            yield from _within(child, place)


def _pieces(row: nn.Module) -> list[list[nn.Module]]:
    """The pieces of a long sequence of layers, cut before heavy layers into about equal parts; else empty."""
    layers = list(row.children())
    if type(row) is not nn.Sequential:
        return []
    heavy = [place for place, layer in enumerate(layers) if any(p.dim() > 1 for p in layer.parameters())]
    if len(heavy) <= LONGEST:
        return []
    per_piece = math.ceil(len(heavy) / round(math.sqrt(len(heavy))))
    cuts = [0, *heavy[per_piece::per_piece], len(layers)]
    return [layers[start:end] for start, end in itertools.pairwise(cuts)]


def _is_container(module: nn.Module) -> bool:
    return type(module) in (nn.Sequential, nn.ModuleList)


def _has_parts(module: nn.Module) -> bool:
    return any(True for _ in module.children())


def _learns(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, dict):
        value = tuple(value.values())
    return isinstance(value, (tuple, list)) and any(torch.is_tensor(item) or _holds_tensors(item) for item in value)
