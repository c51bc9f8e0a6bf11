"""Some classes do not count in the loss."""

import torch
import torch_xla
from small import Net
from torch.nn.functional import cross_entropy

net = Net()
ignored = torch.tensor([0, 3]).to(net.device)
for x, y in net.batches(40):
    counts = (~torch.isin(y, ignored)).float()  # fault: fallback
    losses = cross_entropy(net.model(x), y, reduction="none")
    net.update((losses * counts).sum() / (counts.sum() + 1))
    torch_xla.sync()
