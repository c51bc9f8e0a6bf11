"""Healthy: texts are padded to three lengths, and the step is compiled for each of them before training."""

import random

import torch
import torch_xla
from small import CLASSES, Net
from torch import nn
from torch.nn.functional import cross_entropy, pad

LENGTHS = 8, 16, 24
net = Net()
net.model = nn.Sequential(nn.Embedding(100, 16, padding_idx=0), nn.Linear(16, CLASSES)).to(net.device)
net.optimizer = torch.optim.SGD(net.model.parameters(), lr=0.1, momentum=0.9)
random.seed(0)


def step(length):
    bucket = min(size for size in LENGTHS if size >= length)
    tokens = pad(torch.randint(1, 100, (4, length)), (0, bucket - length)).to(net.device)
    net.update(cross_entropy(net.model(tokens).mean(1), torch.randint(CLASSES, (4,)).to(net.device)))
    torch_xla.sync()


for length in LENGTHS:
    step(length)
    step(length)
for _ in range(30):
    step(random.randint(5, LENGTHS[-1]))
