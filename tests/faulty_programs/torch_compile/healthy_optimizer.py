"""Healthy: the step of the optimizer is compiled, as torch's own recipe does, and its learning rate is a tensor."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)
batch, target = torch.ones(16, 8), torch.zeros(16, 1)


@torch.compile(backend="aot_eager")
def update():
    optimizer.step()
    schedule.step()


for _ in range(20):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(batch), target)
    loss.backward()
    update()
print("loss", loss.item())
