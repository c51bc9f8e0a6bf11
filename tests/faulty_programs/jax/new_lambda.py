"""A new function is compiled in every step: JAX's cache does not contain it."""

import jax
import jax.numpy as jnp
import numpy as np

weights = jnp.ones((8, 4))
batch = np.ones((16, 8), np.float32)
for _ in range(16):
    weights = jax.jit(lambda w, x: w - 0.01 * jnp.mean((x @ w) ** 2))(weights, batch)  # fault: recompile
print("weight", float(weights[0, 0]))
