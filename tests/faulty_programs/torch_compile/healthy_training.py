"""Healthy: one program for every step, also of the backward pass, and one value read at the end."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch, target = torch.ones(16, 8), torch.zeros(16, 1)
for _ in range(20):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(compiled(batch), target)
    loss.backward()
    optimizer.step()
print("loss", loss.item())
