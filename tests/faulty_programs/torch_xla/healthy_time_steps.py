"""Healthy: a recurrent network, one program per sequence; each epoch ends with an evaluation that syncs per batch."""

import torch
import torch_xla
from small import CLASSES, FEATURES, Net
from torch import nn

LENGTH = 6

net = Net()
cell = nn.GRUCell(FEATURES, FEATURES).to(net.device)
net.optimizer.add_param_group({"params": list(cell.parameters())})


def batch():
    sequence = [torch.randn(16, FEATURES).to(net.device) for _ in range(LENGTH)]
    return sequence, torch.randint(CLASSES, (16,)).to(net.device)


def forward(sequence):
    state = torch.zeros(16, FEATURES, device=net.device)
    for x in sequence:
        state = cell(x, state)
    return state


for epoch in range(4):
    for step in range(1, 21):
        sequence, target = batch()
        (net.loss(forward(sequence), target) / 2).backward()
        if step % 2 == 0:
            net.optimizer.step()
            net.optimizer.zero_grad()
        torch_xla.sync()
    wrong = torch.zeros((), device=net.device)
    for _ in range(5):
        sequence, target = batch()
        with torch.no_grad():
            wrong += (net.model(forward(sequence)).argmax(1) != target).float().mean()
        torch_xla.sync()
    print("epoch", epoch, "error", wrong.item() / 5)
