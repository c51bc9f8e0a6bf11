"""The loss is printed in every step."""

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def train_step(weights, batch):
    loss = jnp.mean(jnp.tanh(batch @ weights) ** 2)
    return weights - 0.01 * loss, loss


def report(step, loss):
    print("step", step, "loss", loss)  # fault: sync


weights = jnp.ones((384, 384))
random = np.random.default_rng(0)
for step in range(300):
    batch = random.standard_normal((384, 384), np.float32)
    weights, loss = train_step(weights, batch)
    report(step, loss)
