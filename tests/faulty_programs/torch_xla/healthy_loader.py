"""Healthy: MpDeviceLoader copies batches ahead and syncs after each step."""

import torch
import torch_xla.distributed.parallel_loader as pl
from small import CLASSES, FEATURES, Net
from torch.utils.data import DataLoader, TensorDataset

net = Net()
data = TensorDataset(torch.randn(256, FEATURES), torch.randint(CLASSES, (256,)))
loader = pl.MpDeviceLoader(DataLoader(data, batch_size=16, drop_last=True), net.device)
for _ in range(5):
    for x, y in loader:
        net.update(net.loss(x, y))
