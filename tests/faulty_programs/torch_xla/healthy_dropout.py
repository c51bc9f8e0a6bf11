"""Healthy: dropout at a rate that falls, and augmentation on the device with random numbers that are tensors."""

import torch
import torch_xla
from small import Net
from torch.nn.functional import dropout

net = Net()
for step, (x, y) in enumerate(net.batches(80)):
    scale = 1 + 0.1 * torch.randn(len(x), 1, device=net.device)
    x = dropout(x * scale, 0.4 - 0.004 * step)
    net.update(net.loss(x, y))
    torch_xla.sync()
