"""Healthy: the images get larger twice during training, and a validation with another size of batch ends each epoch."""

import torch
import torch_xla
from small import CLASSES, FEATURES, Net

net = Net()
net.optimizer = torch.optim.AdamW(net.model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.StepLR(net.optimizer, step_size=2, gamma=0.5)


def examples(count, size):
    images = torch.randn(count, FEATURES, size).to(net.device)
    return images.mean(2), torch.randint(CLASSES, (count,)).to(net.device)


for epoch in range(6):
    net.model.train()
    for _ in range(6):
        net.update(net.loss(*examples(16, (2, 3, 4)[epoch // 2])))
        torch_xla.sync()
    net.model.eval()
    with torch.no_grad():
        for count in (32, 32, 8):
            loss = net.loss(*examples(count, 4))
            torch_xla.sync()
    schedule.step()
    print("epoch", epoch, "loss", loss.item())
