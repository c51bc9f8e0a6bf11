"""Records the layers of a network with hooks while a step is traced; no extra forward pass is run.

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
from tputui.engine_api import LAYERS_MAX, Layer, LayerTable

NAME_MAX = 160
SHAPES_MAX = 4
"""Maximum number of tensors per layer whose shapes are recorded."""


class Recorder:
    """Records the calls of a network's modules until its first step is traced."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._listed = {name: module for name, module in model.named_modules() if _is_listed(module)}
        self._shapes: dict[int, list[list[int]]] = {}
        """Output shapes of the first call, by module identity, in call order."""
        self._handles = [module.register_forward_hook(self._called) for module in self._listed.values()]

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def table(self, batch: int) -> LayerTable:
        """The recorded table; `batch` is the number of examples of the step."""
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
        # A rematerialised block is called a second time in the backward pass.
        self._shapes.setdefault(id(module), [list(tensor.shape) for tensor in _tensors(result)][:SHAPES_MAX])


def trace_layers(plan: Plan, dataset: Dataset) -> LayerTable:
    """The table of a configuration, traced with a fake batch of one core. Raises `Unpredictable`."""
    shapes, batch = estimate.shapes(dataset), plan.config.batch_per_core
    with torch.random.fork_rng(devices=[]):
        try:
            with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
                model = plan.task.model(plan.model, plan.data)
                recorder = Recorder(model)
                plan.task.predict(model, estimate.tensors(shapes, batch, "cpu"))
                return recorder.table(batch)
        except Exception as error:  # The task's own code; training reports it in full.
            raise estimate.tracing_failure(error) from error


def _is_listed(module: nn.Module) -> bool:
    return next(module.children(), None) is None or next(module.parameters(recurse=False), None) is not None


def _count(parameters: Iterable[nn.Parameter]) -> int:
    # Modules shared by two layers have one identity.
    return sum({id(parameter): parameter.numel() for parameter in parameters}.values())


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, Mapping):
        result = list(result.values())
    return [tensor for item in result for tensor in _tensors(item)] if isinstance(result, list | tuple) else []
