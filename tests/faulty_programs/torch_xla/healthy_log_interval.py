"""Healthy: the loss is read and printed every 20 steps."""

import torch_xla
from small import Net

net = Net()
for step, (x, y) in enumerate(net.batches(120)):
    loss = net.loss(x, y)
    net.update(loss)
    torch_xla.sync()
    if step % 20 == 0:
        print("step", step, "loss", loss.item())
