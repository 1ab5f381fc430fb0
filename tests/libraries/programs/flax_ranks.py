"""Data-parallel training over the ranks: parameters on all of them, a batch split over them."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.relu(nn.Dense(16)(x)))[:, 0]


def run():
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 5)).astype(np.float32)
    y = np.sin(x).sum(1)
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    x, y = (jax.make_array_from_callback(a.shape, split, lambda i, a=a: a[i]) for a in (x, y))
    net = Net()
    params = jax.jit(net.init, out_shardings=whole)(jax.random.key(0), jnp.ones((1, 5)))
    state = TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-2))

    @jax.jit
    def step(state, x, y):
        loss, grads = jax.value_and_grad(lambda p: jnp.mean((state.apply_fn(p, x) - y) ** 2))(state.params)
        return state.apply_gradients(grads=grads), loss

    losses = []
    for _ in range(20):
        state, loss = step(state, x, y)
        losses.append(float(loss))
    return {"losses": losses, "kernel": state.params["params"]["Dense_0"]["kernel"]}
