"""The first step of each epoch adds its loss to a new zero, a constant; in the first epoch that was another program."""

import torch
import torch_xla
from small import Net

net = Net()
net.optimizer = torch.optim.SGD(net.model.parameters(), lr=0.1, momentum=0.9)
for _ in range(4):
    total = torch.zeros((), device=net.device)
    for x, y in net.batches(10):
        loss = net.loss(x, y)
        net.update(loss)
        total += loss.detach()
        torch_xla.sync()  # hint: recompile
    print("mean loss", total.item() / 10)
