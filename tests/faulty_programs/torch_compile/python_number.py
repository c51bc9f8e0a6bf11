"""The number of the step is a number of Python that the program depends on."""

import torch


@torch.compile(backend="eager", dynamic=False)
def train_step(weights, batch, step):
    loss = (batch @ weights).square().mean()
    return weights - 0.01 / (step + 1) * loss, loss


weights, batch = torch.ones(8, 4), torch.ones(16, 8)
for step in range(6):
    weights, loss = train_step(weights, batch, step)  # fault: recompile
print("loss", loss.item())
