"""A batch is donated whose memory no result can use."""

from functools import partial

import jax
import jax.numpy as jnp


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(weights, batch):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((batch @ w) ** 2))(weights)
    return weights - 0.01 * gradient, loss


weights = jnp.ones((256, 64))
for _ in range(30):
    batch = jnp.ones((128, 256))
    weights, loss = train_step(weights, batch)  # hint: donation
print("loss", float(loss))
