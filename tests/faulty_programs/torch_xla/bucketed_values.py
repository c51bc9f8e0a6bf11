"""Features are replaced by the bucket that they are in."""

import torch
import torch_xla
from small import Net

net = Net()
bounds = torch.linspace(-2, 2, 9).to(net.device)
for x, y in net.batches(40):
    x = torch.searchsorted(bounds, x).float()  # fault: fallback
    net.update(net.loss(x, y))
    torch_xla.sync()
