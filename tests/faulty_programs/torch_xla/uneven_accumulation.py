"""Gradients are accumulated over as many micro-batches as a budget of tokens allows, within one program."""

import torch_xla
from small import Net

net = Net()
for step in range(16):
    net.optimizer.zero_grad()
    for x, y in net.batches(1 + step % 5):
        net.loss(x, y).backward()
    net.optimizer.step()
    torch_xla.sync()  # fault: recompile
