"""An assertion that the loss is finite."""

import torch
import torch_xla
from small import Net

net = Net()
for x, y in net.batches(60, size=1024):
    loss = net.loss(x, y)
    net.update(loss)
    torch_xla.sync()
    assert torch.isfinite(loss).all(), "the loss is not finite"  # fault: sync
