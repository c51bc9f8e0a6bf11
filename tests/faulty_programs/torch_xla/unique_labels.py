"""The labels of a batch are made unique, to see which classes it has."""

import torch
import torch_xla
from small import Net

net = Net()
shown = []
for x, y in net.batches(40):
    net.update(net.loss(x, y))
    torch_xla.sync()
    shown.append(torch.unique(y).shape[0])  # fault: fallback
