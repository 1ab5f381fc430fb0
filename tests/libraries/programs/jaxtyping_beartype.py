# ruff: noqa: F722
"""Shapes in annotations, checked at run time by beartype: arrays, tracers, keys, pytrees."""

import jax
import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, TypeCheckError, jaxtyped


@jaxtyped(typechecker=beartype)
def product(x: Float[Array, "a b"], y: Float[Array, "b c"]) -> Float[Array, "a c"]:
    return x @ y


@jaxtyped(typechecker=beartype)
def draw(key: PRNGKeyArray, like: PyTree[Float[Array, "..."]]) -> PyTree[Float[Array, "..."]]:
    return jax.tree.map(lambda x: jax.random.normal(key, x.shape), like)


@jaxtyped(typechecker=beartype)
def counted(x: Int[Array, " n"]) -> Int[Array, ""]:
    return x.sum()


def run():
    refused = 0
    for call in (
        lambda: product(jnp.ones((2, 3)), jnp.ones((2, 3))),
        lambda: counted(jnp.ones(3)),
        lambda: jax.jit(product)(jnp.ones((2, 3)), jnp.ones((4, 3))),
    ):
        try:
            call()
        except TypeCheckError:
            refused += 1
    x, y = jnp.arange(6.0).reshape(2, 3), jnp.ones((3, 4))
    return {
        "product": jax.jit(product)(x, y),
        "slope": jax.grad(lambda x: product(x, y).sum())(x),
        "mapped": jax.vmap(product, in_axes=(0, None))(jnp.stack([x, x]), y),
        "drawn": draw(jax.random.key(0), {"a": x})["a"],
        "counted": counted(jnp.arange(4)),
        "refused": refused,
    }
