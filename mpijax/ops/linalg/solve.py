"""Solves linear systems by LU factorization. The derivative solves again, and does not go through the factorization."""

from __future__ import annotations

from functools import partial
from typing import Any

from mpijax.core.base import provided
from mpijax.ops.ad_ops import stop_gradient
from mpijax.ops.linalg.lu import lu, lu_solve
from mpijax.ops.linalg.matrices import broadcast_behind
from mpijax.ops.products.dot import Precision, dot_general
from mpijax.ops.shapes.reshape import broadcast_in_dim, broadcast_shapes
from mpijax.transforms.vmap import vmap


def matvec(a: Any, b: Any) -> Any:
    """Products of matrices [..., m, n] with vectors [..., n]; leading axes broadcast."""
    stack = broadcast_shapes(a.shape[:-2], b.shape[:-1])
    a = broadcast_behind(a, (*stack, *a.shape[-2:]))
    b = broadcast_behind(b, (*stack, b.shape[-1]))
    batch = list(range(len(stack)))
    return dot_general(a, b, (([a.ndim - 1], [b.ndim - 1]), (batch, batch)), precision=Precision.HIGHEST)


def check_shapes(a: Any, b: Any) -> None:
    """Raise ValueError unless a is [..., m, m] and b [..., m, k] or [..., m]."""
    fits = a.ndim >= 2 and b.ndim in (a.ndim, a.ndim - 1) and a.shape[-1] == a.shape[-2] == b.shape[a.ndim - 2]
    if not fits:
        raise ValueError(
            "The arguments to solve must have shapes a=[..., m, m] and b=[..., m, k] or b=[..., m]; got "
            f"a={a.shape} and b={b.shape}"
        )


def by_columns(a: Any, b: Any, solve_vectors: Any) -> Any:
    """`solve_vectors` of b, or of each of its columns if it has as many axes as a."""
    if a.ndim == b.ndim + 1:
        return solve_vectors(b)
    return vmap(solve_vectors, b.ndim - 1, max(a.ndim, b.ndim) - 1)(b)


def solve(a: Any, b: Any) -> Any:
    """The x with a x = b.

    Args:
      a: matrices [..., m, m].
      b: [..., m, k], or [..., m] with one axis fewer than a.
    """
    check_shapes(a, b)
    shape = tuple(da if db == 1 else db for da, db in zip((*a.shape[:-1], 1), b.shape, strict=False))
    b = broadcast_in_dim(b, shape, range(b.ndim))
    factors, _, permutation = lu(stop_gradient(a))
    return by_columns(
        a,
        b,
        partial(
            provided.custom_linear_solve,
            lambda x: matvec(a, x),
            solve=lambda _, x: lu_solve(factors, permutation, x, trans=0),
            transpose_solve=lambda _, x: lu_solve(factors, permutation, x, trans=1),
        ),
    )
