"""A history of losses as Python numbers, with Adam."""

import torch
import torch_xla
from small import Net

net = Net()
net.optimizer = torch.optim.Adam(net.model.parameters())
history = []
for x, y in net.batches(60, size=1024):
    loss = net.loss(x, y)
    net.update(loss)
    torch_xla.sync()
    history.append(float(loss))  # fault: sync
