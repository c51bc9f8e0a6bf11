"""Healthy: the loss of selected examples by a mask that is multiplied, so that all shapes stay the same."""

import torch_xla
from small import Net
from torch.nn.functional import cross_entropy

net = Net()
for x, y in net.batches(14):
    is_known = (x[:, 0] > 0).float()
    losses = cross_entropy(net.model(x), y, reduction="none")
    net.update((losses * is_known).sum() / is_known.sum())
    torch_xla.sync()
