"""Healthy: one size of batches, one program, one sync per step."""

import torch
import torch_xla
from small import Net

net = Net()
schedule = torch.optim.lr_scheduler.StepLR(net.optimizer, 10)
for x, y in net.batches(80):
    net.update(net.loss(x, y))
    schedule.step()
    torch_xla.sync()
