"""The gradient is compiled, but the optimizer's update is not: each of its operations is a program of its own."""

import math
import time

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def gradient(weights, batch):
    return jax.grad(lambda w: jnp.mean(jnp.tanh(batch @ w) ** 2))(weights)


def update(weights, mean, square, change):
    mean = 0.9 * mean + 0.1 * change
    square = 0.999 * square + 0.001 * change**2
    weights = weights - 0.01 * mean / (jnp.sqrt(square) + 1e-8)  # fault: op_by_op
    return weights, mean, square


batch = np.ones((32, 64), np.float32)
weights, mean, square = jnp.ones((64, 64)), jnp.zeros((64, 64)), jnp.zeros((64, 64))
steps, end = 0, math.inf
while time.monotonic() < end:
    weights, mean, square = update(weights, mean, square, gradient(weights, batch))
    steps += 1
    if steps == 3:  # all is compiled
        end = time.monotonic() + 8
print("steps", steps, float(weights[0, 0]))
