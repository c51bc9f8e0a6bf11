"""A progress bar shows the newest loss."""

import sys

import torch_xla
from small import Net

net = Net()
for step, (x, y) in enumerate(net.batches(60, size=1024), start=1):
    loss = net.loss(x, y)
    net.update(loss)
    torch_xla.sync()
    bar = "#" * (step // 3)
    sys.stderr.write(f"\r{bar:20} {step}/60 loss {loss.detach():.3f}")  # fault: sync
