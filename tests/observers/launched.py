"""Trains in one thread per core under `torch_xla.launch`; the lines of faults are marked. Arguments: kind, steps.

The threads exchange nothing, since the CPU runtime aborts at a rendezvous of several devices.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch import nn

KIND, STEPS = sys.argv[1], int(sys.argv[2])


def train(index: int) -> None:
    device = torch_xla.device()
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    total = 0.0
    for step in range(STEPS):
        x = torch.randn(15 - step // 8 if KIND == "ragged" and step % 8 == 7 else 16, 16).to(device)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        torch_xla.sync()  # fault: ragged
        if KIND == "reads" and is_first():
            total += loss.item()  # fault: reads
        if KIND == "logs" and is_first() and step % 10 == 0:
            total += loss.item()
    assert total >= 0


def is_first() -> bool:
    ordinal: Any = xm.is_master_ordinal
    return bool(ordinal())


if __name__ == "__main__":
    launch: Any = torch_xla.launch
    launch(train)
