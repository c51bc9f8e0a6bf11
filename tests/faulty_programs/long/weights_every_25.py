"""The weights are sorted on the host every 25 steps, for a plot of their quantiles."""

import torch

torch.set_num_threads(1)
model = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(600):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 512)).square().mean()
    loss.backward()
    optimizer.step()
    if step % 25 == 24:
        weights = sorted(model.weight.flatten().tolist())
        quantiles = [weights[len(weights) * part // 10] for part in range(10)]
print("loss", loss.item(), "quantiles", quantiles)
