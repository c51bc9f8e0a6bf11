"""Healthy: an exponent is annealed as a tensor on the device."""

import torch
import torch_xla
from small import Net


def sharpen(scores, exponent):
    return scores**exponent


net = Net()
for step, (x, y) in enumerate(net.batches(14)):
    exponent = torch.tensor(1.5 + step / 8).to(net.device)
    weights = sharpen(net.model(x).softmax(1).detach(), exponent)
    net.update(net.loss(x, y) + weights.mean())
    torch_xla.sync()
