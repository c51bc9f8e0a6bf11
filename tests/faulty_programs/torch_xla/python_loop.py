"""A recurrence over 60 time steps is a Python loop, so that the host traces for longer than the device computes."""

import torch
import torch_xla
from small import Net
from torch.nn.functional import cosine_similarity

import tputui

DECAYS = torch.linspace(0.9, 0.99, 60).tolist()


def smoothed(x):
    """The last state, and how far it is from the input."""
    state = torch.zeros_like(x)
    for decay in DECAYS:  # fault: tracing
        state = state * decay + x * (1 - decay)
        distance = (state - x).square().mean().sqrt() * (1 - cosine_similarity(state, x).mean())
    return state, distance


net = Net()
with tputui.start() as run:
    for epoch in range(3):
        with run.epoch(epoch):
            for x, y in net.batches(40):
                with run.phase("trace"):
                    state, distance = smoothed(x)
                    loss = net.loss(state / (1 + distance), y)
                    net.update(loss)
                with run.phase("execute"):
                    torch_xla.sync()
                run.step(loss=loss, examples=16)
