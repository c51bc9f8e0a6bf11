"""Healthy: batches are split over all devices, the state is donated, and the loss is read once per epoch."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(np.array(jax.devices()), ("data",))
split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())


@partial(jax.jit, donate_argnums=0, out_shardings=(whole, whole))
def train_step(weights, batch):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((batch @ w) ** 2))(weights)
    return weights - 0.01 * gradient, loss


weights = jax.device_put(np.ones((8, 4), np.float32), whole)
for epoch in range(8):
    for _ in range(30):
        batch = jax.device_put(np.ones((32, 8), np.float32), split)
        weights, loss = train_step(weights, batch)
    print("epoch", epoch, "loss", float(loss))
