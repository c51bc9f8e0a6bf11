"""An augmentation shifts by a Python number that changes in every step."""

import torch
import torch_xla
from small import Net

net = Net()
for step, (x, y) in enumerate(net.batches(14)):
    x = torch.roll(x, step, dims=1)  # fault: recompile
    net.update(net.loss(x, y))
    torch_xla.sync()
