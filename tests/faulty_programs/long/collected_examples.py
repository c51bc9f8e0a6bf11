"""Memory is freed by hand every 10 steps, which traverses the examples in memory each time."""

import gc

import torch

examples = [{"number": number, "words": [number % 7, number % 11]} for number in range(200_000)]
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(400):
    rows = [examples[(step * 64 + row) % len(examples)]["number"] % 100 for row in range(64)]
    loss = (model(torch.eye(64)) - torch.tensor(rows).view(64, 1) / 100).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        gc.collect()
print("loss", loss.item())
