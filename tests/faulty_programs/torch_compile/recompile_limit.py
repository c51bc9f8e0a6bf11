"""There are more shapes than torch compiles a function for; later calls run without compilation."""

import torch


@torch.compile(backend="eager", dynamic=False)
def train_step(weights, batch):
    loss = (batch @ weights).square().mean()
    return weights - 0.01 * loss, loss


weights = torch.ones(8, 4)
for step in range(12):
    weights, loss = train_step(weights, torch.ones(16 + step, 8))  # fault: compile_limit
print("loss", loss.item())
