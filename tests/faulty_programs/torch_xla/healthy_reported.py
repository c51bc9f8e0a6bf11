"""Healthy: a loop that reports its steps and epochs; its values are fetched without waiting for the device."""

import torch
import torch_xla
from small import Net

import tputui

net = Net()
with tputui.start() as run:
    for epoch in range(3):
        with run.epoch(epoch, of=3, steps=30):
            for x, y in net.batches(30):
                loss = net.loss(x, y)
                net.update(loss)
                torch_xla.sync()
                run.step(loss=loss, examples=len(x))
            with run.phase("evaluate"), torch.no_grad():
                [(x, y)] = net.batches(1)
                correct = (net.model(x).argmax(1) == y).float().mean()
                torch_xla.sync()
                run.valid(accuracy=correct.item(), examples=len(x))
