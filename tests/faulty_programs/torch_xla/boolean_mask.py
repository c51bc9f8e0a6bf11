"""Examples are selected by a boolean mask: their number is read on the host, and each number is a shape."""

import torch_xla
from small import Net

net = Net()
for x, y in net.batches(14):
    is_known = x[:, 0] > 0
    loss = net.loss(x[is_known], y[is_known])  # fault: recompile
    net.update(loss)
    torch_xla.sync()
