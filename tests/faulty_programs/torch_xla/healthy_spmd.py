"""Healthy: SPMD over 4 virtual cores; the replicated loss is read every 20 steps."""

import os

os.environ["CPU_NUM_DEVICES"] = "4"

import numpy as np
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from small import Net

xr.use_spmd()
mesh = xs.Mesh(np.arange(4), (4,), ("data",))
net = Net()
for step, (x, y) in enumerate(net.batches(80)):
    xs.mark_sharding(x, mesh, ("data", None))
    loss = net.loss(x, y)
    net.update(loss)
    torch_xla.sync()
    if step % 20 == 19:
        print("step", step, "loss", loss.item())
