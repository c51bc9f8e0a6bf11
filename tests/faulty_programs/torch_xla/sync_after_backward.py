"""Two syncs in a step: the gradients are computed in one program, the update in another."""

import torch_xla
from small import Net

net = Net()
for x, y in net.batches(60, size=1024):
    net.optimizer.zero_grad()
    net.loss(x, y).backward()
    torch_xla.sync()
    net.optimizer.step()
    torch_xla.sync()  # fault: extra_execution
