"""Python's min() compares tensors, which reads them."""

import torch_xla
from small import Net

net = Net()
best = None
for x, y in net.batches(60, size=1024):
    loss = net.loss(x, y).detach()
    net.update(net.loss(x, y))
    torch_xla.sync()
    best = loss if best is None else min(best, loss)  # fault: sync
