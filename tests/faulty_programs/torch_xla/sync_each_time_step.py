"""A sync after every time step of a sequence: the forward pass of one update is cut into six programs."""

import torch
import torch_xla
from small import CLASSES, FEATURES, Net
from torch import nn

LENGTH = 6

net = Net()
cell = nn.GRUCell(FEATURES, FEATURES).to(net.device)
net.optimizer.add_param_group({"params": list(cell.parameters())})
for _ in range(40):
    sequence = [torch.randn(16, FEATURES).to(net.device) for _ in range(LENGTH)]
    target = torch.randint(CLASSES, (16,)).to(net.device)
    net.optimizer.zero_grad()
    state = torch.zeros(16, FEATURES, device=net.device)
    for x in sequence:
        state = cell(x, state)
        torch_xla.sync()  # fault: extra_execution
    net.loss(state, target).backward()
    net.optimizer.step()
    torch_xla.sync()
