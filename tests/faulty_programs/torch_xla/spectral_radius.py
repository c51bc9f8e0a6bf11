"""The eigenvalues of a weight matrix are watched."""

import torch
import torch_xla
from small import FEATURES, Net

net = Net()
radii = []
for x, y in net.batches(40):
    net.update(net.loss(x, y))
    torch_xla.sync()
    square = net.model[0].weight.detach()[:FEATURES]
    radii.append(torch.linalg.eigvals(square).abs().max())  # fault: fallback
