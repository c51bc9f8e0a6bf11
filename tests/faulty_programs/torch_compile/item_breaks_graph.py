"""A value is read inside the compiled function, so that it becomes two graphs."""

import torch


@torch.compile(backend="eager")
def train_step(weights, batch):
    loss = (batch @ weights).square().mean()
    if loss.item() > 100:  # fault: graph_break
        loss = loss / 2
    return weights - 0.01 * loss, loss


weights, batch = torch.ones(8, 4), torch.ones(16, 8)
for _ in range(12):
    weights, loss = train_step(weights, batch)
print("loss", loss.item())
