"""A loop with accelerate, with the tracker of tputui or a print."""

import json
import sys

import torch
from accelerate import Accelerator

tracker = "tracker" in sys.argv
if tracker:
    from tputui.integrations.accelerate import TputuiTracker
accelerator = Accelerator(log_with=TputuiTracker() if tracker else None)
accelerator.init_trackers("line")
torch.manual_seed(0)
x = torch.randn(256, 8)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=32)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses = {}
for _ in range(3):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        step = len(losses) + 1
        losses[step] = loss.item()
        if tracker:
            accelerator.log({"train_loss": loss}, step=step)
        else:
            accelerator.print(f"step {step} loss {losses[step]:.6f}")
accelerator.end_training()
with open("losses.json", "w") as file:
    json.dump(losses, file)
