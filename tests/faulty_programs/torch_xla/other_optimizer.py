"""Training changes to another optimizer after a few epochs, whose state does not exist at first."""

import torch
import torch_xla
from small import Net

net = Net()
for epoch in range(4):
    if epoch == 2:
        net.optimizer = torch.optim.AdamW(net.model.parameters(), lr=1e-3)
    for x, y in net.batches(10):
        net.update(net.loss(x, y))
        torch_xla.sync()  # hint: recompile
