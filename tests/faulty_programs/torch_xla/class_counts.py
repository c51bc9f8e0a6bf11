"""The loss is weighted by how often each class is in the batch."""

import torch
import torch_xla
from small import CLASSES, Net
from torch.nn.functional import cross_entropy

net = Net()
for x, y in net.batches(40):
    counts = torch.bincount(y, minlength=CLASSES)  # fault: fallback
    net.update(cross_entropy(net.model(x), y, weight=1 / (counts + 1)))
    torch_xla.sync()
