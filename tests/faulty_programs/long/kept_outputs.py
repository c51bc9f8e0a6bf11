"""The outputs of every step are kept on the host, so that its memory grows until there is none left."""

import time

import torch

import tputui

kept = []
with tputui.start(total_steps=100_000) as run:
    for _ in range(1_500):
        kept.append(torch.ones(2_000_000 // 4))
        time.sleep(0.1)
        run.step(loss=0.0, examples=16)
