"""A batch for which the device has not enough memory."""

import torch
from small import FEATURES, Net

import tputui

net = Net()
with tputui.start():
    x = torch.randn(1 << 38, FEATURES, device=net.device)
    print(net.model(x).mean().item())  # fault: out_of_memory
