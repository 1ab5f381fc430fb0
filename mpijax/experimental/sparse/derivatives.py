"""Derivatives by sparse arrays: by the elements that are stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from mpijax.experimental.sparse.api import is_sparse
from mpijax.transforms import autodiff


def value_and_grad(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Callable:
    """As `jax.value_and_grad`; the derivative by a sparse argument is a sparse array with its coordinates.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0.0, 2.0]))
    >>> value, slope = sparse.value_and_grad(lambda x: x @ jnp.array([5.0, 6.0]))(x)
    >>> value, slope.data
    (Array(12., dtype=float32), Array([6.], dtype=float32))
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @wraps(fun)
    def differentiated(*args: Any, **call: Any) -> Any:
        def of_values(*values: Any) -> Any:
            given = list(args)
            for i, value in zip(numbers, values):
                given[i] = args[i]._with(value) if is_sparse(args[i]) else value
            return fun(*given, **call)

        values = [args[i].data if is_sparse(args[i]) else args[i] for i in numbers]
        every = tuple(range(len(numbers)))
        out, grads = autodiff.value_and_grad(of_values, argnums=every, has_aux=has_aux, **kwargs)(*values)
        found = tuple(args[i]._with(g) if is_sparse(args[i]) else g for i, g in zip(numbers, grads))
        return out, found[0] if isinstance(argnums, int) else found

    return differentiated


def grad(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Callable:
    """As `jax.grad`; the derivative by a sparse argument is a sparse array with its coordinates.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0.0, 2.0]))
    >>> sparse.grad(lambda x: x @ jnp.array([5.0, 6.0]))(x).data
    Array([6.], dtype=float32)
    """
    differentiated = value_and_grad(fun, argnums, has_aux, **kwargs)

    @wraps(fun)
    def gradient(*args: Any, **call: Any) -> Any:
        out, grads = differentiated(*args, **call)
        return (grads, out[1]) if has_aux else grads

    return gradient
