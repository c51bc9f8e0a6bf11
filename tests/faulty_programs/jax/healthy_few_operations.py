"""Healthy: a step splits a key, puts its batch on the devices and adds up the loss; only the evaluation has more."""

import math
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(np.array(jax.devices()), ("data",))
split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())


@partial(jax.jit, donate_argnums=0, out_shardings=(whole, whole))
def train_step(weights, batch, labels, key):
    def loss_of(w):
        kept = jax.random.bernoulli(key, 0.9, batch.shape)
        return jnp.mean((jnp.tanh((batch * kept) @ w) - labels) ** 2)

    loss, gradient = jax.value_and_grad(loss_of)(weights)
    return weights - 0.01 * gradient, loss


random = np.random.default_rng(0)
key = jax.random.key(0)
weights = jax.device_put(np.ones((64, 64), np.float32), whole)
total = jax.device_put(np.zeros((), np.float32), whole)
step, end = 0, math.inf
while time.monotonic() < end:
    batch = random.standard_normal((512, 64), np.float32)
    key, used = jax.random.split(key)
    inputs = jax.device_put(batch, split)
    weights, loss = train_step(weights, inputs, batch[:, :64], used)
    total = total + loss
    weights.block_until_ready()  # eight devices on one CPU do not queue up well
    step += 1
    if step == 3:  # all is compiled
        end = time.monotonic() + 8
    if step % 100 == 0:
        norms = jnp.sqrt(jnp.sum(weights**2, axis=0))
        print("loss", float(total) / step, "norms", float(norms.min()), float(norms.max()))
