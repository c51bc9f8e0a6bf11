"""Healthy: an evaluation per epoch with batches of one size; its score is read once."""

import torch
import torch_xla
from small import Net


def train():
    net.model.train()
    for x, y in net.batches(20):
        net.update(net.loss(x, y))
        torch_xla.sync()


@torch.no_grad()
def evaluate():
    net.model.eval()
    correct = torch.zeros((), dtype=torch.int64, device=net.device)
    for x, y in net.batches(5):
        correct += (net.model(x).argmax(1) == y).sum()
        torch_xla.sync()
    return correct.item() / (5 * 16)


net = Net(dropout=0.1)
for epoch in range(4):
    train()
    print("epoch", epoch, "accuracy", evaluate())
