"""Training stops once the loss is small: the comparison reads it."""

import torch_xla
from small import Net

net = Net()
for x, y in net.batches(60, size=1024):
    loss = net.loss(x, y)
    net.update(loss)
    torch_xla.sync()
    if loss < 1e-3:  # fault: sync
        break
