"""SPMD over 4 virtual cores: an augmentation shifts by a Python number that changes."""

import os

os.environ["CPU_NUM_DEVICES"] = "4"

import numpy as np
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

xr.use_spmd()
import torch_xla
from small import Net

mesh = xs.Mesh(np.arange(4), (4,), ("data",))
net = Net()
for step, (x, y) in enumerate(net.batches(14)):
    xs.mark_sharding(x, mesh, ("data", None))
    x = x.roll(step, 1)  # fault: recompile
    net.update(net.loss(x, y))
    torch_xla.sync()
