"""Inputs are scaled by their median."""

import torch_xla
from small import Net

net = Net()
for x, y in net.batches(40):
    x = x / x.abs().median()  # fault: fallback
    net.update(net.loss(x, y))
    torch_xla.sync()
