"""A training function under torch_xla.launch reads the loss in every step."""

import torch_xla
from small import Net


def train(index):
    net = Net()
    total = 0.0
    for x, y in net.batches(60, size=1024):
        loss = net.loss(x, y)
        net.update(loss)
        torch_xla.sync()
        total += loss.item()  # fault: sync
    print("rank", index, "mean loss", total / 60)


if __name__ == "__main__":
    torch_xla.launch(train, debug_single_process=True)
