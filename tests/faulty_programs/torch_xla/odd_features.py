"""Layers of 129 features: a TPU computes with 256."""

import torch
import torch_xla
from small import Net
from torch import nn

net = Net()
net.model = nn.Sequential(nn.Linear(16, 129), nn.Linear(129, 129), nn.Linear(129, 4)).to(net.device)
net.optimizer = torch.optim.SGD(net.model.parameters(), lr=0.1)
for x, y in net.batches(20, size=16384):
    net.update(net.loss(x, y))
    torch_xla.sync()
