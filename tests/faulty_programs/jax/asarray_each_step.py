"""The predictions are copied to the host in every step."""

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def train_step(weights, batch):
    predictions = batch @ weights
    return weights - 0.01 * jnp.mean(predictions**2), predictions


weights = jnp.ones((8, 4))
batch = np.ones((16, 8), np.float32)
largest = 0.0
for _ in range(60):
    weights, predictions = train_step(weights, batch)
    largest = max(largest, np.asarray(predictions).max())  # fault: sync
print("largest", largest)
