"""The table of a network's layers: recorded by hooks while a step is traced, so nothing is run for it.

Must not read a tensor's values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.memory import estimate
from engine.task import Dataset, Plan
from tputui.telemetry.layer_table import LAYERS_MAX, Layer, LayerTable

NAME_MAX = 160
SHAPES_MAX = 4
"""Tensors of one layer whose shapes are kept."""


class Recorder:
    """Follows a network until its first step was traced."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._listed = {name: module for name, module in model.named_modules() if _is_listed(module)}
        self._shapes: dict[int, list[list[int]]] = {}
        """By identity of the module: what its first call returned, in the order of these calls."""
        self._handles = [module.register_forward_hook(self._called) for module in self._listed.values()]

    def close(self) -> None:
        """Follows no longer."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def table(self, batch: int) -> LayerTable:
        """What was recorded; `batch` is how many examples went through the network."""
        order = {identity: place for place, identity in enumerate(self._shapes)}
        listed = sorted(self._listed.items(), key=lambda pair: order.get(id(pair[1]), len(order)))
        layers = [
            Layer(
                name=name[-NAME_MAX:],
                kind=type(module).__name__[:NAME_MAX],
                shapes=self._shapes.get(id(module)),
                parameters=_count(module.parameters(recurse=False)),
                trainable=_count(p for p in module.parameters(recurse=False) if p.requires_grad),
            )
            for name, module in listed[:LAYERS_MAX]
        ]
        return LayerTable(
            batch=batch,
            layers=layers,
            num_layers=len(listed),
            parameters=_count(self._model.parameters()),
            trainable=_count(p for p in self._model.parameters() if p.requires_grad),
        )

    def _called(self, module: nn.Module, _args: Any, result: Any) -> None:
        # A block that is computed again for the backward pass is called twice.
        self._shapes.setdefault(id(module), [list(tensor.shape) for tensor in _tensors(result)][:SHAPES_MAX])


def of(plan: Plan, dataset: Dataset) -> LayerTable:
    """The table of a configuration, by a batch of one core that has shapes and no data. Raises `Unpredictable`."""
    shapes, batch = estimate.shapes(dataset), plan.config.batch_per_core
    with torch.random.fork_rng(devices=[]):
        try:
            with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
                model = plan.task.model(plan.model, plan.data)
                recorder = Recorder(model)
                plan.task.predict(model, estimate.tensors(shapes, batch, "cpu"))
                return recorder.table(batch)
        except Exception as error:  # The task's own code; training reports it in full.
            raise estimate.unpredictable(error) from error


def _is_listed(module: nn.Module) -> bool:
    return next(module.children(), None) is None or next(module.parameters(recurse=False), None) is not None


def _count(parameters: Iterable[nn.Parameter]) -> int:
    # What two layers share has one identity.
    return sum({id(parameter): parameter.numel() for parameter in parameters}.values())


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, Mapping):
        result = list(result.values())
    return [tensor for one in result for tensor in _tensors(one)] if isinstance(result, list | tuple) else []
