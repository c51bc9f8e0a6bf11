"""Each example is parsed by Python code, in the thread that trains."""

import torch
import torch_xla
from small import CLASSES, FEATURES, Net
from torch.utils.data import DataLoader, Dataset

import tputui


class Recordings(Dataset):
    def __len__(self):
        return 16 * 30

    def __getitem__(self, index):
        text = " ".join(str(index * place % 97) for place in range(4000))
        values = [int(word) / 97 for word in text.split()]
        return torch.tensor(values[:FEATURES]), index % CLASSES


net = Net()
with tputui.start() as run:
    for epoch in range(3):
        with run.epoch(epoch):
            batches = iter(DataLoader(Recordings(), batch_size=16))
            for _ in range(30):
                with run.phase("data"):
                    x, y = next(batches)  # fault: input
                loss = net.loss(x.to(net.device), y.to(net.device))
                net.update(loss)
                torch_xla.sync()
                run.step(loss=loss, examples=16)
