"""A metric of NumPy is computed in every step."""

import numpy as np
import torch_xla
from small import Net
from torch.nn.functional import cross_entropy


def entropy(logits):
    values = logits.detach().softmax(1).to("cpu").numpy()  # fault: sync
    return float(-(values * np.log(values)).sum(1).mean())


net = Net()
entropies = []
for x, y in net.batches(60, size=1024):
    logits = net.model(x)
    net.update(cross_entropy(logits, y))
    torch_xla.sync()
    entropies.append(entropy(logits))
