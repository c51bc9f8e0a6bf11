"""Healthy: the loader drops the smaller last batch."""

import torch
import torch_xla
from small import CLASSES, FEATURES, Net
from torch.utils.data import DataLoader, TensorDataset

net = Net()
data = TensorDataset(torch.randn(200, FEATURES), torch.randint(CLASSES, (200,)))
for _ in range(5):
    for x, y in DataLoader(data, batch_size=16, shuffle=True, drop_last=True):
        net.update(net.loss(x.to(net.device), y.to(net.device)))
        torch_xla.sync()
