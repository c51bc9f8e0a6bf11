"""The norm of the gradient is compared with a limit in Python."""

import torch
import torch_xla
from small import Net

net = Net()
skipped = 0
for x, y in net.batches(60, size=1024):
    net.optimizer.zero_grad()
    net.loss(x, y).backward()
    norm = torch.nn.utils.clip_grad_norm_(net.model.parameters(), 1.0)
    net.optimizer.step()
    torch_xla.sync()
    if norm > 100:  # fault: sync
        skipped += 1
