"""The loss is that of the hardest examples, fewer of them in every epoch."""

import torch_xla
from small import Net
from torch.nn.functional import cross_entropy

net = Net()
for epoch in range(6):
    keep = 16 - epoch
    for x, y in net.batches(5):
        losses = cross_entropy(net.model(x), y, reduction="none")
        net.update(losses.topk(keep).values.mean())  # fault: recompile
        torch_xla.sync()
