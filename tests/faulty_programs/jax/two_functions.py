"""Batches of many lengths: two functions compile for each, which is one fault, at the first of them."""

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def features_of(texts):
    return jnp.tanh(texts * 2)


@jax.jit
def train_step(weights, features):
    return weights - 0.01 * jax.grad(lambda w: jnp.mean((features @ w) ** 2))(weights)


weights = jnp.ones((8, 4))
for length in range(16, 32):
    features = features_of(np.ones((length, 8), np.float32))  # fault: recompile
    weights = train_step(weights, features)
print("weights", float(weights.sum()))
