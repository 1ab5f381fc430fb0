"""Derivatives with respect to the stored elements of sparse arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from mpijax.core.trees import tree
from mpijax.experimental.sparse.base import JAXSparse
from mpijax.transforms import autodiff, jacobians
from mpijax.transforms.vmap import vmap


def _is_sparse(x: Any) -> bool:
    return isinstance(x, JAXSparse)


def _by_values(
    transform: Callable, fun: Callable, argnums: int | Sequence[int], has_aux: bool, options: dict
) -> Callable:
    """`transform(fun)` with respect to the values of sparse arguments: its results, and functions that make derivatives
    sparse."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def differentiated(*args: Any, **kwargs: Any) -> tuple[Any, Callable]:
        chosen, structure = tree.tree_flatten([args[i] for i in numbers], is_leaf=_is_sparse)

        def of_values(*values: Any, **kwargs: Any) -> Any:
            leaves = [_with(x, value) if _is_sparse(x) else value for x, value in zip(chosen, values, strict=True)]
            given = list(args)
            for i, x in zip(numbers, structure.unflatten(leaves), strict=True):
                given[i] = x
            return fun(*given, **kwargs)

        def restored(found: Sequence[Any]) -> Any:
            leaves = [_sparse_again(x, g) if _is_sparse(x) else g for x, g in zip(chosen, found, strict=True)]
            out = structure.unflatten(leaves)
            return out[0] if isinstance(argnums, int) else tuple(out)

        every = tuple(range(len(chosen)))
        values = [x.data if _is_sparse(x) else x for x in chosen]
        return transform(of_values, argnums=every, has_aux=has_aux, **options)(*values, **kwargs), restored

    return differentiated


def _with(x: Any, data: Any) -> Any:
    leaves, structure = tree.tree_flatten(x)
    return structure.unflatten([data, *leaves[1:]])


def _sparse_again(x: Any, derivative: Any) -> Any:
    """A derivative with respect to the values of x, as an array with the coordinates of x. Axes of results are batch
    axes."""
    restore: Callable = lambda values: _with(x, values)
    for _ in range(derivative.ndim - x.data.ndim):
        restore = vmap(restore)
    return restore(derivative)


def value_and_grad(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Callable:
    """As `jax.value_and_grad`. The derivative with respect to a sparse argument is a sparse array with its coordinates.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0.0, 2.0]))
    >>> value, slope = sparse.value_and_grad(lambda x: x @ jnp.array([5.0, 6.0]))(x)
    >>> value, slope.data
    (Array(12., dtype=float32), Array([6.], dtype=float32))
    """
    transformed = _by_values(autodiff.value_and_grad, fun, argnums, has_aux, kwargs)

    @wraps(fun)
    def value_and_gradient(*args: Any, **call: Any) -> Any:
        (out, grads), restored = transformed(*args, **call)
        return out, restored(grads)

    return value_and_gradient


def _with_auxiliary(transform: Callable, fun: Callable, argnums: Any, has_aux: bool, options: dict) -> Callable:
    transformed = _by_values(transform, fun, argnums, has_aux, options)

    @wraps(fun)
    def derivative(*args: Any, **call: Any) -> Any:
        out, restored = transformed(*args, **call)
        return (restored(out[0]), out[1]) if has_aux else restored(out)

    return derivative


def grad(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Callable:
    """As `jax.grad`. The derivative with respect to a sparse argument is a sparse array with its coordinates.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0.0, 2.0]))
    >>> sparse.grad(lambda x: x @ jnp.array([5.0, 6.0]))(x).data
    Array([6.], dtype=float32)
    """
    return _with_auxiliary(autodiff.grad, fun, argnums, has_aux, kwargs)


def jacfwd(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Callable:
    """As `jax.jacfwd`, for functions with dense results. The derivative with respect to a sparse argument is a sparse
    array, with the axes of the results as batch axes.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0.0, 2.0, 3.0]))
    >>> sparse.jacfwd(lambda x: x.todense() ** 2)(x)
    BCOO(float32[3, 3], nse=2, n_batch=1)
    """
    return _with_auxiliary(jacobians.jacfwd, fun, argnums, has_aux, kwargs)


def jacrev(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Callable:
    """As `jax.jacrev`, for functions with dense results. The derivative with respect to a sparse argument is a sparse
    array, with the axes of the results as batch axes.

    >>> from mpijax.experimental import sparse
    >>> x = sparse.BCOO.fromdense(jnp.array([0.0, 2.0, 3.0]))
    >>> sparse.jacrev(lambda x: x.todense() ** 2)(x)
    BCOO(float32[3, 3], nse=2, n_batch=1)
    """
    return _with_auxiliary(jacobians.jacrev, fun, argnums, has_aux, kwargs)


jacobian = jacrev
