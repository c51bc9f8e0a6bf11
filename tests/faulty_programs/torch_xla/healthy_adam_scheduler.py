"""Healthy: Adam with a cosine schedule, and clipped gradients."""

import torch
import torch_xla
from small import Net

net = Net()
optimizer = torch.optim.AdamW(net.model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=80, eta_min=1e-4)
for x, y in net.batches(80):
    optimizer.zero_grad()
    net.loss(x, y).backward()
    torch.nn.utils.clip_grad_norm_(net.model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    torch_xla.sync()
