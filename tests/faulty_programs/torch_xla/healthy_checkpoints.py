"""Healthy: a checkpoint after each epoch, and early stopping by the mean loss of the epoch."""

import io

import torch
import torch_xla
from small import Net

net = Net()
net.optimizer = torch.optim.SGD(net.model.parameters(), lr=0.1, momentum=0.9)
best = float("inf")
for _ in range(4):
    losses = []
    for x, y in net.batches(25):
        loss = net.loss(x, y)
        net.update(loss)
        losses.append(loss.detach())
        torch_xla.sync()
    mean = torch.stack(losses).mean().item()
    torch.save({name: value.cpu() for name, value in net.model.state_dict().items()}, io.BytesIO())
    if mean > best + 1:
        break
    best = min(best, mean)
