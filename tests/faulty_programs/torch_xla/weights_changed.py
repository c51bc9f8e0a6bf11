"""A check that a step changed the weights."""

import torch
import torch_xla
from small import Net

net = Net()
weight = net.model[0].weight
for x, y in net.batches(60):
    before = weight.detach().clone()
    net.update(net.loss(x, y))
    torch_xla.sync()
    if torch.equal(before, weight.detach()):  # fault: fallback
        raise SystemExit("the weights did not change")
