"""Many small layers, so that the host takes longer to trace a step than the device to run it."""

import torch
import torch_xla
from small import Net
from torch import nn

import tputui

net = Net()
layers = [nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16)) for _ in range(20)]
net.model = nn.Sequential(*layers, nn.Linear(16, 4)).to(net.device)
net.optimizer = torch.optim.SGD(net.model.parameters(), lr=0.1)
with tputui.start() as run:
    for epoch in range(3):
        with run.epoch(epoch):
            for x, y in net.batches(40):
                with run.phase("trace"):
                    loss = net.loss(x, y)
                    net.update(loss)
                with run.phase("execute"):
                    torch_xla.sync()
                run.step(loss=loss, examples=16)
