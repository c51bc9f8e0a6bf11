"""Every step splits the batch over the devices, though it is on the first one already, and copies equal labels."""

import math
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(np.array(jax.devices()), ("data",))
split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())


@partial(jax.jit, donate_argnums=0, out_shardings=whole)
def train_step(weights, batch, labels):
    return weights - 0.01 * jax.grad(lambda w: jnp.mean((batch @ w - labels) ** 2))(weights)


weights = jax.device_put(np.ones((256, 4), np.float32), whole)
batch = jnp.ones((1024, 256))
steps, end = 0, math.inf
while time.monotonic() < end:
    shares = jax.device_put(batch, split)  # fault: device_put
    labels = jax.device_put(np.ones((1024, 4), np.float32), split)  # hint: device_put
    weights = train_step(weights, shares, labels)
    weights.block_until_ready()  # eight devices on one CPU do not queue up well
    steps += 1
    if steps == 3:  # all is compiled
        end = time.monotonic() + 8
print("steps", steps, float(weights[0, 0]))
