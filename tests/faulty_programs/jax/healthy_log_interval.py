"""Healthy: parameters of many shapes, one program, and the loss is read every 20 steps."""

import jax
import jax.numpy as jnp
import numpy as np

sizes = [8, 16, 12, 10, 6, 4]
keys = jax.random.split(jax.random.key(0), len(sizes))
weights = [jax.random.normal(key, (m, n)) * 0.1 for key, m, n in zip(keys, sizes, sizes[1:], strict=False)]


@jax.jit
def loss_of(weights, batch):
    for weight in weights:
        batch = jnp.tanh(batch @ weight)
    return jnp.mean(batch**2)


@jax.jit
def train_step(weights, batch):
    loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
    return jax.tree.map(lambda w, g: w - 0.01 * g, weights, gradients), loss


batch = np.ones((16, 8), np.float32)
for step in range(400):
    weights, loss = train_step(weights, batch)
    if step % 20 == 0:
        print("step", step, "loss", float(loss))
validation = [float(loss_of(weights, batch)) for _ in range(5)]
print("validation", np.mean(validation))
