"""The learning rate is a number of Python in the first steps and an array later: one more program."""

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def train_step(weights, batch, rate):
    loss = jnp.mean((batch @ weights) ** 2)
    return weights - rate * loss, loss


weights = jnp.ones((8, 4))
batch = np.ones((16, 8), np.float32)
for step in range(60):
    rate = 0.01 if step < 8 else np.float32(0.01 / step)
    weights, loss = train_step(weights, batch, rate)  # hint: recompile
print("loss", float(loss))
