"""Texts are padded to the longest one of their batch, so that batches have many lengths."""

import random

import torch
import torch_xla
from small import CLASSES, Net
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

net = Net()
net.model = nn.Sequential(nn.Embedding(100, 16, padding_idx=0), nn.Linear(16, CLASSES)).to(net.device)
net.optimizer = torch.optim.SGD(net.model.parameters(), lr=0.1)
random.seed(0)
for _ in range(14):
    texts = [torch.randint(1, 100, (random.randint(5, 20),)) for _ in range(4)]
    tokens = pad_sequence(texts, batch_first=True).to(net.device)
    labels = torch.randint(CLASSES, (4,)).to(net.device)
    net.update(cross_entropy(net.model(tokens).mean(1), labels))
    torch_xla.sync()  # fault: recompile
