"""A crop at a random place, on the device: the bounds of a slice are constants of the program."""

import random

import torch
import torch_xla
from small import FEATURES, Net

net = Net()
random.seed(0)
for _, y in net.batches(14):
    images = torch.randn(16, FEATURES + 4, 6).to(net.device)
    top = random.randint(0, 4)
    crop = images[:, top : top + FEATURES]  # fault: recompile
    net.update(net.loss(crop.mean(2), y))
    torch_xla.sync()
