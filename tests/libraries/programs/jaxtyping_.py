# ruff: noqa: F722
"""jaxtyping: shapes and dtypes of arguments are checked while a program runs, also under transformations."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree, jaxtyped


def _check(function):
    from typeguard import typechecked

    return jaxtyped(typechecker=typechecked)(function)


@_check
def outer(x: Float[Array, " n"], y: Float[Array, " m"]) -> Float[Array, "n m"]:
    return x[:, None] * y


@_check
def total(tree: PyTree[Float[Array, "..."]], scale: Int[Array, ""]) -> Float[Array, ""]:
    return scale * sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree))


def run():
    x = jnp.arange(3.0)
    wrong = 0
    for call in (lambda: outer(x, jnp.arange(3)), lambda: outer(x[None], x), lambda: total([x, 1], jnp.array(2))):
        try:
            call()
        except Exception:
            wrong += 1
    batch = jax.jit(jax.vmap(outer, in_axes=(0, None)))(jnp.ones((2, 3)), x)
    return {"wrong": wrong, "outer": outer(x, x), "batch": batch.sum(0), "total": total([x, (x,)], jnp.array(2))}
