"""The last batch of each epoch is smaller, because the loader does not drop it."""

import torch
import torch_xla
from small import CLASSES, FEATURES, Net
from torch.utils.data import DataLoader, TensorDataset

net = Net()
data = TensorDataset(torch.randn(200, FEATURES), torch.randint(CLASSES, (200,)))
for _ in range(3):
    for x, y in DataLoader(data, batch_size=16, shuffle=True):  # hint: recompile
        x, y = x.to(net.device), y.to(net.device)
        net.update(net.loss(x, y))
        torch_xla.sync()
