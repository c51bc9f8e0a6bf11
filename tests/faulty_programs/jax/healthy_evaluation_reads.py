"""Healthy: each evaluation reads its score once per batch, far more rarely than there are steps."""

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def train_step(weights, batch):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(batch @ w) - 1) ** 2))(weights)
    return weights - 0.05 * gradient, loss


@jax.jit
def score(weights, batch):
    return jnp.mean(jnp.tanh(batch @ weights))


weights = jnp.ones(64)
random = np.random.default_rng(0)
for step in range(160):
    weights, loss = train_step(weights, random.standard_normal((4096, 64), np.float32))
    if step % 40 == 39:
        total = 0.0
        for _ in range(10):
            total += float(score(weights, random.standard_normal((8, 64), np.float32)))
        print("step", step, "score", total / 10)
