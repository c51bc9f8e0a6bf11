"""The length of the batch changes in every step, and the function is compiled for fixed shapes."""

import torch


@torch.compile(backend="eager", dynamic=False)
def train_step(weights, batch):
    loss = (batch @ weights).square().mean()
    return weights - 0.01 * loss, loss


weights = torch.ones(8, 4)
for step in range(6):
    batch = torch.ones(16 + step, 8)
    weights, loss = train_step(weights, batch)  # fault: recompile
print("loss", loss.item())
