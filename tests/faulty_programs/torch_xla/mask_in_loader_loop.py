"""The loader gives batches of one size but for the last; a boolean mask in the model changes the shapes."""

import torch
import torch_xla
from small import CLASSES, FEATURES, Net
from torch.utils.data import DataLoader, TensorDataset

net = Net()
data = TensorDataset(torch.randn(230, FEATURES), torch.randint(CLASSES, (230,)))
for x, y in DataLoader(data, batch_size=16):
    x, y = x.to(net.device), y.to(net.device)
    is_known = x[:, 0] > 0
    net.update(net.loss(x[is_known], y[is_known]))  # fault: recompile
    torch_xla.sync()
