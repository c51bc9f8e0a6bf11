"""Lazy layers, whose shapes depend on the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from engine.errors import BadExample, Refused
from engine.loop import network
from tests.engine.mytask import Line


class Pairs:
    """Examples of three numbers; the first example cannot be read."""

    def __len__(self) -> int:
        return 4

    def fetch(self, indices: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        if 0 in indices:
            raise BadExample(0, "pairs.csv row 2", "empty")
        return {"x": torch.ones(len(indices), 3)}


def net() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.LazyLinear(1))


def test_lazy_layers_take_shapes_from_one_example() -> None:
    model = net()
    network.materialise(model, Line(), Pairs())
    assert network.uninitialized(model) == []
    assert [tuple(parameter.shape) for parameter in model.parameters()] == [(4, 3), (4,), (4,), (4,), (1, 4), (1,)]
    assert model.training
    assert dict(model.named_buffers())["1.num_batches_tracked"] == 0


def test_the_weights_are_those_of_the_seed() -> None:
    drawn: list[list[torch.Tensor]] = []
    for _ in range(2):
        torch.manual_seed(0)
        model = net()
        network.materialise(model, Line(), Pairs())
        drawn.append(list(model.parameters()))
    assert all(torch.equal(one, other) for one, other in zip(*drawn, strict=True))


def test_unresolved_lazy_layer_is_rejected_by_name() -> None:
    class Fails(Line):
        def predict(self, model: Any, batch: dict[str, Any]) -> dict[str, Any]:
            raise ValueError("two rows at least")

    class Unused(Line):
        def predict(self, model: Any, batch: dict[str, Any]) -> dict[str, Any]:
            return {"y": batch["x"]}

    with pytest.raises(
        Refused, match=r"model\(\): 0.weight, 0.bias, .* predict\(\) .* failed: ValueError: two rows at le"
    ):
        network.materialise(net(), Fails(), Pairs())
    with pytest.raises(
        Refused, match=r"0.weight has no shape yet, and predict\(\) does not use it; give the layer its"
    ):
        network.materialise(net(), Unused(), Pairs())
