"""Healthy: texts of any length are padded to one length, and the last batch is filled up and masked."""

import torch
import torch_xla
from small import CLASSES, Net
from torch import nn
from torch.nn.functional import cross_entropy

LENGTH, SIZE = 20, 8
net = Net()
net.model = nn.Sequential(nn.Embedding(100, 16, padding_idx=0), nn.Linear(16, CLASSES)).to(net.device)
net.optimizer = torch.optim.SGD(net.model.parameters(), lr=0.1)
for step in range(60):
    count = SIZE if step % 10 < 9 else 3
    tokens = torch.zeros(SIZE, LENGTH, dtype=torch.int64)
    for text in range(count):
        words = 5 + (step + text) % 15
        tokens[text, :words] = torch.randint(1, 100, (words,))
    tokens, labels = tokens.to(net.device), torch.randint(CLASSES, (SIZE,)).to(net.device)
    is_text = (torch.arange(SIZE) < count).float().to(net.device)
    losses = cross_entropy(net.model(tokens).mean(1), labels, reduction="none")
    net.update((losses * is_text).sum() / is_text.sum())
    torch_xla.sync()
