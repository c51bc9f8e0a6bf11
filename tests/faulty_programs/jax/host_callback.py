"""The compiled step calls a function on the host, in order, which takes as long as the step."""

import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback


def record(loss):
    time.sleep(0.003)
    history.append(float(loss))
    return np.int32(0)


@jax.jit
def train_step(weights, batch):
    loss = jnp.mean((batch @ weights) ** 2)
    io_callback(record, jax.ShapeDtypeStruct((), jnp.int32), loss, ordered=True)  # fault: sync
    return weights - 0.01 * loss, loss


history = []
weights = jnp.ones((8, 4))
batch = np.ones((16, 8), np.float32)
for _ in range(400):
    weights, loss = train_step(weights, batch)
print("loss", float(loss))
