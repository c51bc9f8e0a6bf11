"""The loss is printed in every step."""

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def train_step(weights, batch):
    loss = jnp.mean((batch @ weights) ** 2)
    return weights - 0.01 * loss, loss


def report(step, loss):
    print("step", step, "loss", loss)  # fault: sync


weights = jnp.ones((8, 4))
batch = np.ones((16, 8), np.float32)
for step in range(60):
    weights, loss = train_step(weights, batch)
    report(step, loss)
