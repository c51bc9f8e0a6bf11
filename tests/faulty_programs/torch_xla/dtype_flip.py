"""A second source of data returns float64, so that some batches have another type."""

import torch
import torch_xla
from small import Net

net = Net()
for step, (x, y) in enumerate(net.batches(24)):
    if step % 4 == 3:
        x = x.to(torch.float64)
    net.update(net.loss(x.to(torch.float32), y))
    torch_xla.sync()  # hint: recompile
