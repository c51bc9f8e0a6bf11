"""AdamW scales weights by 1 - lr * weight_decay, which rounds to 1.0 at the end of the schedule: that is a constant."""

import torch
import torch_xla
from small import Net

net = Net()
net.optimizer = torch.optim.AdamW(net.model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(net.optimizer, T_max=40)
for x, y in net.batches(40):
    net.update(net.loss(x, y))
    schedule.step()
    torch_xla.sync()  # hint: recompile
