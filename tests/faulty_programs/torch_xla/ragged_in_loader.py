"""MpDeviceLoader syncs by itself, and the last batch of each epoch is smaller."""

import torch
import torch_xla.distributed.parallel_loader as pl
from small import CLASSES, FEATURES, Net
from torch.utils.data import DataLoader, TensorDataset

net = Net()
data = TensorDataset(torch.randn(200, FEATURES), torch.randint(CLASSES, (200,)))
loader = pl.MpDeviceLoader(DataLoader(data, batch_size=16), net.device)  # hint: recompile
for _ in range(3):
    for x, y in loader:
        net.update(net.loss(x, y))
