"""An exponent, a number of Python, is annealed: the powers are computed inside torch, as `x ** exponent`."""

import torch_xla
from small import Net


def sharpen(scores, exponent):
    return scores**exponent  # fault: recompile


net = Net()
for step, (x, y) in enumerate(net.batches(14)):
    weights = sharpen(net.model(x).softmax(1).detach(), 1.5 + step / 8)
    net.update(net.loss(x, y) + weights.mean())
    torch_xla.sync()
