"""A program with types, which `mypy --strict` accepts; see test_typing.py."""

from typing import Any

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import lax, nn, random
from mpijax.sharding import Mesh, PartitionSpec
from mpijax.tree_util import tree_map

Params = dict[str, jax.Array]


def init(key: jax.Array, inputs: int, outputs: int) -> Params:
    weights = random.normal(key, (inputs, outputs)) / jnp.sqrt(inputs)
    return {"w": weights, "b": jnp.zeros(outputs)}


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    logits = jnp.dot(x, params["w"]) + params["b"]
    out: jax.Array = -jnp.mean(jnp.sum(nn.log_softmax(logits) * y, axis=-1))
    return out


@jax.jit
def step(params: Params, x: jax.Array, y: jax.Array) -> Params:
    gradients = jax.grad(loss)(params, x, y)
    out: Params = tree_map(lambda p, g: p - 0.1 * g, params, gradients)
    return out


def total(x: jax.Array) -> jax.Array:
    out: jax.Array = lax.fori_loop(0, 3, lambda i, c: c + x.sum(), jnp.float32(0))
    return out


def spread(mesh: Mesh, x: jax.Array) -> Any:
    spec = PartitionSpec("i")
    return jax.shard_map(lambda v: lax.psum(v, "i"), mesh=mesh, in_specs=spec, out_specs=PartitionSpec())(x)


def main() -> None:
    x, y = jnp.ones((8, 4)), nn.one_hot(jnp.arange(8) % 3, 3)
    params = step(init(random.key(0), 4, 3), x, y)
    print(float(loss(params, x, y)), float(total(x)), jax.vmap(jnp.sin)(x).shape, x.at[0].set(1.0).T.shape)


if __name__ == "__main__":
    main()
