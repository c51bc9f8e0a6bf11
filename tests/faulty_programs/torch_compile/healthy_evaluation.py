"""Healthy: one program for training and one for each way of evaluation, each made once."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch, target = torch.ones(16, 8), torch.zeros(16, 1)
for _ in range(3):
    compiled.train()
    for _ in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(compiled(batch), target)
        loss.backward()
        optimizer.step()
    compiled.eval()
    with torch.no_grad():
        valid = torch.nn.functional.mse_loss(compiled(batch), target)
    with torch.inference_mode():
        predicted = compiled(batch)
    saliency = torch.autograd.grad(compiled(batch).sum(), model[0].weight)
print("loss", loss.item(), valid.item(), predicted.mean().item(), saliency[0].norm().item())
