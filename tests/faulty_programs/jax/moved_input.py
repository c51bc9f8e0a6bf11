"""A mask stays on the first device, so that the compiled function gets it from there in every step."""

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
def train_step(weights, batch, mask):
    return weights - 0.01 * jax.grad(lambda w: jnp.mean((batch @ w * mask) ** 2))(weights)


random = np.random.default_rng(0)
weights = jax.device_put(np.ones((64, 64), np.float32), whole)
mask = jnp.ones((1024, 64))
steps, end = 0, math.inf
while time.monotonic() < end:
    batch = jax.device_put(random.standard_normal((1024, 64), np.float32), split)
    weights = train_step(weights, batch, mask)  # hint: device_put
    weights.block_until_ready()  # eight devices on one CPU do not queue up well
    steps += 1
    if steps == 3:  # all is compiled
        end = time.monotonic() + 8
print("steps", steps, float(weights[0, 0]))
