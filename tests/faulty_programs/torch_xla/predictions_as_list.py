"""Predictions become a Python list in every step, to count the classes."""

from collections import Counter

import torch_xla
from small import Net
from torch.nn.functional import cross_entropy

net = Net()
classes = Counter()
for x, y in net.batches(60, size=1024):
    logits = net.model(x)
    net.update(cross_entropy(logits, y))
    torch_xla.sync()
    classes.update(logits.argmax(1).tolist())  # fault: sync
