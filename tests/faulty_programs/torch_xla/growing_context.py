"""A curriculum: the model sees a longer part of its input every few steps."""

import torch
import torch_xla
from small import FEATURES, Net

net = Net()
weights = torch.randn(FEATURES, device=net.device)
for step, (x, y) in enumerate(net.batches(24)):
    length = min(FEATURES, 4 + step // 2)
    seen = torch.arange(FEATURES, device=net.device) < length
    parts = (x[:, :length] * weights[:length]).sum(1, keepdim=True)  # fault: recompile
    net.update(net.loss(x * seen + parts, y))
    torch_xla.sync()
