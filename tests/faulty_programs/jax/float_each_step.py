"""The loss is read in every step, so that the host waits for the device."""

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def train_step(weights, batch):
    loss = jnp.mean((batch @ weights) ** 2)
    return weights - 0.01 * loss, loss


weights = jnp.ones((8, 4))
batch = np.ones((16, 8), np.float32)
total = 0.0
for _ in range(60):
    weights, loss = train_step(weights, batch)
    total += float(loss)  # fault: sync
print("mean loss", total / 60)
