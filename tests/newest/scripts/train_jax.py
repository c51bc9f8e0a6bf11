"""A compiled step of JAX, whose loss is printed every ten steps."""

import json

import jax
import jax.numpy as jnp


@jax.jit
def train_step(weights, batch):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((batch @ w - batch.sum(1)) ** 2))(weights)
    return weights - 0.05 * gradient, loss


key = jax.random.key(0)
weights = jnp.zeros(8)
losses = {}
for step in range(60):
    key, own = jax.random.split(key)
    weights, loss = train_step(weights, jax.random.normal(own, (32, 8)))
    if step % 10 == 0:
        # The steps of a script that reports none are counted from 1.
        losses[step + 1] = float(loss)
        print(f"step {step} loss {losses[step + 1]:.9f}")
with open("losses.json", "w") as file:
    json.dump(losses, file)
