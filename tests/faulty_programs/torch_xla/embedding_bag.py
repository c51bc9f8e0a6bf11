"""An embedding bag has no implementation on the device: its forward and backward passes run on the host."""

import torch
import torch_xla
from small import CLASSES, Net
from torch import nn
from torch.nn.functional import cross_entropy

net = Net()
bag = nn.EmbeddingBag(100, CLASSES).to(net.device)
net.optimizer = torch.optim.SGD(bag.parameters(), lr=0.1)
for _, y in net.batches(30):
    tokens = torch.randint(100, (16, 12)).to(net.device)
    net.update(cross_entropy(bag(tokens), y))  # fault: fallback
    torch_xla.sync()
