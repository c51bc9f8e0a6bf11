"""The loss is added up on the host in every step."""

import torch_xla
from small import Net

net = Net()
total = 0.0
for x, y in net.batches(60, size=1024):
    loss = net.loss(x, y)
    net.update(loss)
    torch_xla.sync()
    total += loss.item()  # fault: sync
print("mean loss", total / 60)
