"""The last dimension of the batch changes in every step."""

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def train_step(weights, batch):
    loss = jnp.mean((batch @ weights) ** 2)
    return weights - 0.01 * loss, loss


weights = jnp.ones((8, 4))
for step in range(16):
    batch = np.ones((16 + step, 8), np.float32)
    weights, loss = train_step(weights, batch)  # fault: recompile
print("loss", float(loss))
