"""Healthy: the step is compiled for three lengths, the first time that each of them comes, and waits for each."""

import jax
import jax.numpy as jnp
import numpy as np

LENGTHS = 16, 32, 64


@jax.jit
def train_step(weights, batch):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((batch @ w) ** 2))(weights)
    return weights - 0.01 * gradient, loss


weights = jnp.ones((8, 4))
random = np.random.default_rng(0)
for _ in range(60):
    batch = np.ones((int(random.choice(LENGTHS)), 8), np.float32)
    weights, loss = jax.block_until_ready(train_step(weights, batch))
print("loss", float(loss))
