"""The number of the step is a static argument, so that every step is another program."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


@partial(jax.jit, static_argnames="step")
def train_step(weights, batch, step):
    loss = jnp.mean((batch @ weights) ** 2)
    return weights - 0.01 / (step + 1) * loss, loss


weights = jnp.ones((8, 4))
batch = np.ones((16, 8), np.float32)
for step in range(16):
    weights, loss = train_step(weights, batch, step=step)  # fault: recompile
print("loss", float(loss))
