"""The table of a network's layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from engine.memory.layer_table import Recorder
from tests import forked
from tests.engine.workers import DIGITS
from tputui.telemetry.layer_table import LAYERS_MAX, encode, text


class Net(nn.Module):
    """Two heads that share a weight, a frozen layer, one that is never called, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.idle = nn.Linear(2, 2)
        self.second = nn.Linear(4, 4, bias=False)
        self.first = nn.Linear(3, 4, bias=False)
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.second.weight
        self.first.weight.requires_grad_(False)
        self.lstm = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.tied(self.second(self.first(x * self.scale)))
        return self.lstm(hidden.unsqueeze(1))[0]


def test_layers_are_in_call_order_with_shapes_and_counts() -> None:
    model = Net()
    recorder = Recorder(model)
    model(torch.ones(7, 3))
    table = recorder.table(7)
    assert [layer.name for layer in table.layers] == ["first", "second", "tied", "lstm", "", "idle"]
    rows = {layer.name: layer for layer in table.layers}
    assert (rows["first"].shapes, rows["first"].parameters, rows["first"].trainable) == ([[7, 4]], 12, 0)
    assert rows["lstm"].shapes == [[7, 1, 5], [1, 7, 5], [1, 7, 5]]
    assert rows["idle"].shapes is None
    assert (rows[""].kind, rows[""].parameters) == ("Net", 3)
    assert table.parameters == sum(p.numel() for p in model.parameters()) == table.trainable + 12
    assert "not called" in text(table)


def test_closed_recorder_leaves_no_hook_and_ignores_calls() -> None:
    model = Net()
    recorder = Recorder(model)
    model(torch.ones(7, 3))
    model(torch.ones(2, 3))
    recorder.close()
    assert {layer.name: layer.shapes for layer in recorder.table(7).layers}["first"] == [[7, 4]]
    assert not any(module._forward_hooks for module in model.modules())


def test_secrets_in_names_of_layers_are_masked() -> None:
    key = f"hf_{'a1' * 12}"
    model = nn.ModuleDict({key: nn.Linear(1, 1), "head": nn.Linear(1, 1)})
    content = encode(Recorder(model).table(1))
    assert key.encode() not in content
    assert b'"head"' in content


def test_huge_network_is_listed_partly_but_counted_fully() -> None:
    model = nn.Sequential(*[nn.Linear(1, 1) for _ in range(LAYERS_MAX + 5)])
    table = Recorder(model).table(1)
    assert (len(table.layers), table.num_layers) == (LAYERS_MAX, LAYERS_MAX + 5)
    assert table.parameters == 2 * (LAYERS_MAX + 5)
    assert "and 5 more layers" in text(table)


def test_describe_lists_layers_without_training(tmp_path: Path) -> None:
    done = forked.run("engine.commands.describe", "digits", "--layers", str(DIGITS), cwd=DIGITS.parents[1])
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[2].split() == ["features.0", "Conv2d", "[8,", "32,", "8,", "8]", "288", "288"]
    assert lines[-2] == "10,922 parameters, 10,922 trainable, 0 frozen"
