"""Nothing is compiled: the loss, its gradient and the update run operation by operation."""

import math
import time

import jax
import jax.numpy as jnp
import numpy as np


def loss_of(weights, batch):
    hidden = jnp.tanh(batch @ weights["inner"])
    return jnp.mean((hidden @ weights["outer"]) ** 2)


batch = np.ones((32, 64), np.float32)
weights = {"inner": jnp.ones((64, 64)), "outer": jnp.ones((64, 1))}
steps, end = 0, math.inf
while time.monotonic() < end:
    loss, gradient = jax.value_and_grad(loss_of)(weights, batch)  # fault: op_by_op
    weights = jax.tree.map(lambda w, g: w - 0.01 * g, weights, gradient)
    steps += 1
    if steps == 3:  # all is compiled
        end = time.monotonic() + 8
print("steps", steps, float(loss))
