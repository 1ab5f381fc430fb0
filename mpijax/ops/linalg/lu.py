"""LU factorization with partial pivoting, and solutions of linear systems with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpijax.core.base import config
from mpijax.core.rules.factors import batched
from mpijax.core.rules.lowering import Native
from mpijax.core.rules.primitive import Primitive
from mpijax.core.shapes.dimensions import min_dim
from mpijax.core.types.typeof import typeof
from mpijax.ops.linalg import lu_over_ranks
from mpijax.ops.linalg.common import linalg_primitive, nan_unless, routine
from mpijax.ops.linalg.kernels import LapackCode, lapack
from mpijax.ops.linalg.matrices import broadcast_behind, eye, lower_triangle, upper_triangle
from mpijax.ops.linalg.triangular import triangular_solve
from mpijax.ops.rules import const_like
from mpijax.ops.shapes.creation import iota
from mpijax.ops.shapes.padding import pad
from mpijax.ops.shapes.reshape import broadcast_shapes, reshape
from mpijax.ops.sorting.sort import sort_key_val
from mpijax.transforms.jit import jit
from mpijax.transforms.vmap import vmap
from mpijax.transforms.zeros import Zero

_I32 = np.dtype(np.int32)


def lu(x: Any) -> tuple[Any, Any, Any]:
    """P A = L U, with partial pivoting.

    Args:
      x: matrices [..., m, n].

    Returns:
      (lu, pivots, permutation): matrices like x with U on and above the diagonal and L below it, without L's diagonal
      of ones; int32 [..., min(m, n)], the row exchanged with each; int32 [..., m], the order of the rows.

    >>> lax.linalg.lu(jnp.array([[1.0, 2.0], [4.0, 6.0]]))
    (Array([[4.  , 6.  ],
           [0.25, 0.5 ]], dtype=float32), Array([1, 1], dtype=int32), Array([1, 0], dtype=int32))
    """
    factors, pivots, permutation = lu_p.bind(x)
    return factors, pivots, permutation


def _lu_shapes(shape):
    m, n = shape
    return [shape, (min_dim(m, n),), (m,)]


def _lu(x):
    m = x.shape[0]
    if not x.size:
        return x, np.zeros(0), np.arange(m)
    factors, pivots, info = routine("getrf", x.dtype)(x)
    (factors,) = nan_unless(info >= 0, factors)
    return factors, pivots, permutation_of(pivots, m)


def permutation_of(pivots: np.ndarray, size: int) -> np.ndarray:
    """The order of rows after a sequence of exchanges. Ignores exchanges with rows that do not exist."""
    order = list(range(size))
    for i, j in enumerate(pivots.tolist()):
        if 0 <= j < size:
            order[i], order[j] = order[j], order[i]
    return np.array(order, np.int32)


def _lu_jvp(primals, tangents):
    (a,), (a_dot,) = primals, tangents
    factors, pivots, permutation = lu_p.bind(a)
    tangent = _tangent
    for _ in range(a.ndim - 2):
        tangent = vmap(tangent)
    outs = [factors, pivots, permutation]
    return outs, [tangent(factors, a_dot, permutation), Zero.of_primal(pivots), Zero.of_primal(permutation)]


def _tangent(factors, a_dot, permutation):
    """dL = L tril(L^-1 dA U^-1, -1) and dU = triu(L^-1 dA U^-1) U, with L and U made square by identities.

    F. R. de Hoog, R. S. Anderssen, M. A. Lukas, "Differentiation of matrix functionals using triangular
    factorization" (2011).
    """
    m, n = a_dot.shape
    k, dtype, zero = min_dim(m, n), typeof(a_dot).dtype, const_like(factors, 0)
    lower = pad(lower_triangle(factors[:, :k], -1), zero, [(0, 0, 0), (0, m - k, 0)]) + eye(dtype, (m, m))
    corner = pad(eye(dtype, (n - k, n - k)), zero, ((k, 0, 0), (k, 0, 0)))
    upper = pad(upper_triangle(factors[:k, :]), zero, [(0, n - k, 0), (0, 0, 0)]) + corner
    left = triangular_solve(lower, a_dot[permutation], left_side=True, lower=True, unit_diagonal=True)
    both = triangular_solve(upper, left, left_side=False, lower=False)
    with config.default_matmul_precision("highest"):
        return lower @ lower_triangle(both, -1) + upper_triangle(both) @ upper


lu_p = linalg_primitive(
    "lu", (2,), _lu_shapes, _lu, jvp=_lu_jvp, multiple_results=True,
    result_dtypes=lambda dtype: [dtype, _I32, _I32], lower=lapack("lu"),
    sharding=batched((2,), better=lu_over_ranks.plan),
)  # fmt: skip

# ---------------------------------------------------------------- pivots


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Any:
    """The order of rows after a sequence of exchanges.

    Args:
      pivots: int32 [..., k], the row exchanged with each of the first k rows.
      permutation_size: the number of rows, at least k.

    Returns:
      int32 [..., permutation_size].

    >>> lax.linalg.lu_pivots_to_permutation(jnp.array([2, 1], dtype="int32"), 3)
    Array([2, 1, 0], dtype=int32)
    """
    return lu_pivots_to_permutation_p.bind(pivots, permutation_size=permutation_size)


def _pivots_shapes(shape, *, permutation_size):
    if permutation_size < shape[0]:
        raise ValueError(
            f"Output permutation size {permutation_size} has to exceed the trailing dimension of the pivots. Got "
            f"pivots size {shape[0]}"
        )
    return [(permutation_size,)]


def _ordering(in_types, _out_types, *, permutation_size) -> LapackCode:
    *stack, few = in_types[0].shape
    return LapackCode("lu_pivots_to_permutation", (math.prod(stack), few, permutation_size))


lu_pivots_to_permutation_p: Primitive = linalg_primitive(
    "lu_pivots_to_permutation",
    (1,),
    _pivots_shapes,
    lambda pivots, *, permutation_size: [permutation_of(pivots, permutation_size)],
    accepts=((np.int32,),),
    lower=Native(_ordering, foreign=False),
    jvp=lambda primals, tangents, **params: _no_tangent(lu_pivots_to_permutation_p.bind(*primals, **params)),
)


def _no_tangent(out):
    return out, Zero.of_primal(out)


# ---------------------------------------------------------------- solutions


def lu_solve(lu: Any, permutation: Any, b: Any, trans: int = 0) -> Any:
    """The x with A x = b, from the LU factorization of A.

    Args:
      lu, permutation: the results of `lu`, [..., n, n] and [..., n].
      b: [..., n, k], or [..., n] with one axis fewer than lu; leading axes broadcast.
      trans: 0 for A, 1 for its transpose, 2 for its conjugate transpose.
    """
    return _lu_solve(lu, permutation, b, trans)


def _check_lu_solve(lu, b) -> bool:
    """Whether b is a batch of vectors. Raises ValueError for invalid shapes."""
    if lu.ndim < 2 or lu.shape[-1] != lu.shape[-2]:
        raise ValueError(f"last two dimensions of LU decomposition must be equal, got shape {lu.shape}")
    if b.ndim < 1:
        raise ValueError(f"b matrix must have rank >= 1, got shape {b.shape}")
    vector = lu.ndim == b.ndim + 1
    if b.shape[-1 if vector else -2] != lu.shape[-1]:
        axis = "last axis" if vector else "second to last axis"
        raise ValueError(
            f"lu_solve: the LU decomposition (shape {lu.shape}) is of matrices with {lu.shape[-1]} rows, so b (shape "
            f"{b.shape}) must have {lu.shape[-1]} elements along its {axis}."
        )
    return vector


@jit(static_argnums=(3,))
def _lu_solve(lu, permutation, b, trans):
    vector = _check_lu_solve(lu, b)
    if vector:
        b = b[..., np.newaxis]
    stack = broadcast_shapes(lu.shape[:-2], permutation.shape[:-1], b.shape[:-2])
    lu = broadcast_behind(lu, (*stack, *lu.shape[-2:]))
    permutation = broadcast_behind(permutation, (*stack, permutation.shape[-1]))
    b = broadcast_behind(b, (*stack, *b.shape[-2:]))
    solve = _lu_solve_one
    for _ in stack:
        solve = vmap(solve, in_axes=(0, 0, 0, None))
    x = solve(lu, permutation, b, trans)
    return x[..., 0] if vector else x


def _lu_solve_one(lu, permutation, b, trans):
    m = lu.shape[0]
    x = reshape(b, (m, math.prod(b.shape[1:])))
    if trans == 0:
        x = x[permutation, :]
        x = triangular_solve(lu, x, left_side=True, lower=True, unit_diagonal=True)
        x = triangular_solve(lu, x, left_side=True, lower=False)
    elif trans in (1, 2):
        kind = {"left_side": True, "transpose_a": True, "conjugate_a": trans == 2}
        x = triangular_solve(lu, x, lower=False, **kind)
        x = triangular_solve(lu, x, lower=True, unit_diagonal=True, **kind)
        _, inverse = sort_key_val(permutation, iota(_I32, permutation.shape[0]))
        x = x[inverse, :]
    else:
        raise ValueError(f"'trans' value must be 0, 1, or 2, got {trans}")
    return reshape(x, b.shape)
