"""The places of hard examples are looked up."""

import torch
import torch_xla
from small import Net
from torch.nn.functional import cross_entropy

net = Net()
hard = 0
for x, y in net.batches(40):
    losses = cross_entropy(net.model(x), y, reduction="none")
    net.update(losses.mean())
    torch_xla.sync()
    hard += len(torch.nonzero(losses.detach() > 2))  # fault: fallback
