"""A loop whose model torch compiles, and that prints a loss every ten steps."""

import json

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
losses = {}
for step in range(60):
    x = torch.randn(32, 8)
    loss = torch.nn.functional.mse_loss(compiled(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        # The steps of a script that reports none are counted from 1.
        losses[step + 1] = loss.item()
        print(f"step {step} loss {loss.item():.5f}")
with open("losses.json", "w") as file:
    json.dump(losses, file)
