"""Each device has a whole copy of the batch, so that all of them compute the same."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(np.array(jax.devices()), ("data",))
whole = NamedSharding(mesh, PartitionSpec())


@jax.jit
def train_step(weights, batch):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((batch @ w) ** 2))(weights)
    return weights - 0.01 * gradient, loss


weights = jax.device_put(np.ones((256, 64), np.float32), whole)
for _ in range(30):
    batch = jax.device_put(np.ones((128, 256), np.float32), whole)
    weights, loss = train_step(weights, batch)  # hint: replicated
print("loss", float(loss))
