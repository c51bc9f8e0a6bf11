"""A small network, its optimizer and random batches, for programs whose faults are in their own files."""

import torch
import torch_xla
from torch import nn
from torch.nn.functional import cross_entropy

FEATURES, CLASSES = 16, 4


class Net:
    """A classifier of vectors, on the device."""

    def __init__(self, dropout=0.0):
        torch.manual_seed(0)
        self.device = torch_xla.device()
        layers = nn.Linear(FEATURES, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, CLASSES)
        self.model = nn.Sequential(*layers).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def batches(self, count, size=16):
        """Batches of one size, copied to the device."""
        for _ in range(count):
            yield torch.randn(size, FEATURES).to(self.device), torch.randint(CLASSES, (size,)).to(self.device)

    def loss(self, x, y):
        return cross_entropy(self.model(x), y)

    def update(self, loss):
        """Computes the gradients and updates the weights."""
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
