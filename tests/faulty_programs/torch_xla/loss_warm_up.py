"""The weight of a second loss reaches 1.0: zeros and ones become constants of the program, other numbers do not."""

import torch_xla
from small import Net

net = Net()
for step, (x, y) in enumerate(net.batches(40)):
    weight = min(1.0, 0.1 + step / 20)
    penalty = sum(parameter.square().sum() for parameter in net.model.parameters())
    net.update(net.loss(x, y) + weight * penalty)
    torch_xla.sync()  # hint: recompile
