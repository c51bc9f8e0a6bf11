"""A histogram of the outputs in every step."""

import torch
import torch_xla
from small import Net
from torch.nn.functional import cross_entropy

net = Net()
for x, y in net.batches(40):
    logits = net.model(x)
    counts = torch.histc(logits.detach(), bins=10, min=-3, max=3)  # fault: fallback
    net.update(cross_entropy(logits, y))
    torch_xla.sync()
