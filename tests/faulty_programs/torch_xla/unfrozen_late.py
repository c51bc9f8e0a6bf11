"""The first layer is frozen for some epochs; unfreezing it makes another program."""

import torch_xla
from small import Net

net = Net()
net.model[0].requires_grad_(False)
for epoch in range(4):
    if epoch == 2:
        net.model[0].requires_grad_(True)
    for x, y in net.batches(10):
        net.update(net.loss(x, y))
        torch_xla.sync()  # hint: recompile
