"""The loss is printed in every step."""

import torch_xla
from small import Net

net = Net()
for step, (x, y) in enumerate(net.batches(60, size=1024)):
    loss = net.loss(x, y)
    net.update(loss)
    torch_xla.sync()
    print("step", step, "loss", loss.detach())  # fault: sync
