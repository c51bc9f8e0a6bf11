"""Healthy: gradients are accumulated over 4 micro-batches, with a sync after each."""

import torch_xla
from small import Net

net = Net()
for step, (x, y) in enumerate(net.batches(80), start=1):
    (net.loss(x, y) / 4).backward()
    if step % 4 == 0:
        net.optimizer.step()
        net.optimizer.zero_grad()
    torch_xla.sync()
