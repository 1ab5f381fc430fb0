"""Transformations."""

from mpijax.checkpoint import checkpoint
from mpijax.core.types.avals import ShapeDtypeStruct
from mpijax.scopes import effects_barrier
from mpijax.transforms.api import (
    clear_caches,
    eval_shape,
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jit,
    jvp,
    linear_transpose,
    linearize,
    make_jaxpr,
    value_and_grad,
    vjp,
    vmap,
)

__all__ = [
    "ShapeDtypeStruct", "checkpoint", "clear_caches", "effects_barrier", "eval_shape", "grad", "hessian", "jacfwd",
    "jacobian", "jacrev", "jit", "jvp", "linear_transpose", "linearize", "make_jaxpr", "value_and_grad", "vjp", "vmap",
]  # fmt: skip
