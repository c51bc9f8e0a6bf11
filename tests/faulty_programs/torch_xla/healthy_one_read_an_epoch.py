"""Healthy: a number of losses is stacked on the device and read once per epoch."""

import torch
import torch_xla
from small import Net

net = Net()
for epoch in range(4):
    losses = []
    for x, y in net.batches(20):
        loss = net.loss(x, y)
        net.update(loss)
        losses.append(loss.detach())
        torch_xla.sync()
    print("epoch", epoch, "loss", sum(torch.stack(losses).tolist()) / 20)
