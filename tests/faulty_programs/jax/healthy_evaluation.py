"""Healthy: a donated state, a scan over the steps of an epoch, a schedule, and evaluations of two sizes of batch."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


def loss_of(weights, batch):
    return jnp.mean((batch @ weights) ** 2)


@partial(jax.jit, donate_argnums=0)
def train_epoch(state, batches, rate):
    def step(state, batch):
        weights, momentum = state
        loss, gradient = jax.value_and_grad(loss_of)(weights, batch)
        momentum = 0.9 * momentum + gradient
        return (weights - rate * momentum, momentum), loss

    return jax.lax.scan(step, state, batches)


evaluate = jax.jit(loss_of)
state = jnp.ones((8, 4)), jnp.zeros((8, 4))
for epoch in range(40):
    rate = 0.01 * 0.5 ** (epoch // 10)
    state, losses = train_epoch(state, np.ones((10, 16, 8), np.float32), rate)
    valid = [evaluate(state[0], np.ones((size, 8), np.float32)) for size in (32, 32, 20)]
    if epoch % 10 == 9:
        print("epoch", epoch, "loss", float(losses[-1]), "valid", float(sum(valid)) / 3)
