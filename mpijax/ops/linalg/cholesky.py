"""Cholesky factorization, its rank-1 update, and products of a matrix with its transpose."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.rules.factors import batched
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.binary import max
from mpijax.ops.elementwise.compare import eq
from mpijax.ops.elementwise.select import select
from mpijax.ops.elementwise.transcendental import sqrt
from mpijax.ops.families import FLOATING
from mpijax.ops.indexing.dynamic import dynamic_slice
from mpijax.ops.linalg.common import linalg_primitive, nan_unless, routine, square
from mpijax.ops.linalg.kernels import lapack
from mpijax.ops.linalg.matrices import (
    exact_product,
    eye,
    lower_triangle,
    symmetrized,
    transposed,
)
from mpijax.ops.linalg.over_ranks import cholesky_over_ranks
from mpijax.ops.linalg.triangular import triangular_solve
from mpijax.ops.rules import const_like, full_like
from mpijax.ops.shapes.creation import iota
from mpijax.ops.shapes.reshape import expand_dims


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Any:
    """The lower triangular L with L L^H = x.

    Args:
      x: Hermitian positive definite matrices [..., n, n], of floats or complex numbers.
      symmetrize_input: take (x + x^H) / 2; else only the lower triangle of x is read.

    Returns:
      Matrices like x; NaN for those that are not positive definite.

    >>> lax.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    if symmetrize_input:
        x = symmetrized(x)
    return lower_triangle(cholesky_p.bind(x))


def _cholesky(x):
    if not x.size:
        return [x]
    factor, info = routine("potrf", x.dtype)(x, lower=1, clean=1)
    return nan_unless(info == 0, factor)


def _cholesky_jvp(primals, tangents):
    """With P(X) the lower triangle of X with half its diagonal: dL = L P(L^-1 dA L^-H).

    S. F. Walter, "Structured higher-order algorithmic differentiation in the forward and reverse mode" (2012);
    I. Murray, "Differentiation of the Cholesky decomposition" (2016), section 3.1.
    """
    (x,), (x_dot,) = primals, tangents
    factor = lower_triangle(cholesky_p.bind(x))
    right = triangular_solve(factor, x_dot, left_side=False, transpose_a=True, conjugate_a=True, lower=True)
    both = lower_triangle(triangular_solve(factor, right, left_side=True, transpose_a=False, lower=True))
    n = both.shape[-1]
    halves = const_like(both, 1) + eye(both.dtype, (n, n))
    return factor, exact_product(factor, both / expand_dims(halves, range(both.ndim - 2)))


def _options(_x, *, symmetrize: bool = False) -> tuple[int]:
    """The compiler sets `symmetrize` if the operand is a symmetrized matrix."""
    return (int(symmetrize),)


cholesky_p = linalg_primitive(
    "cholesky",
    (2,),
    square("cholesky"),
    _cholesky,
    jvp=_cholesky_jvp,
    lower=lapack("cholesky", _options, symmetrizes="symmetrize", triangular=True),
    sharding=batched((2,), better=cholesky_over_ranks),
)

# ---------------------------------------------------------------- update


def cholesky_update(r_matrix: Any, w_vector: Any) -> Any:
    """The upper triangular factor of R^T R + w w^T, from that of R^T R, in O(n^2) operations.

    Args:
      r_matrix: real upper triangular matrix [n, n].
      w_vector: real vector [n].

    >>> lax.linalg.cholesky_update(jnp.array([[3.0, 0.0], [0.0, 1.0]]), jnp.array([4.0, 0.0]))
    Array([[5., 0.],
           [0., 1.]], dtype=float32)
    """
    return cholesky_update_p.bind(r_matrix, w_vector)


def _update_shapes(r, w):
    if r[0] != r[1] or w[0] != r[1]:
        raise ValueError(
            "Rank-1 update to Cholesky decomposition takes a square matrix and a vector of the same size as input. "
            f"Got shapes {r} and {w} instead"
        )
    return [r]


def _update(r, w):
    """Applies one rotation for each row, which sets an element of w to zero."""
    r, w = r.copy(), w.copy()
    for k in range(len(w)):
        if w[k] == 0:
            continue
        length = np.hypot(r[k, k], w[k])
        c, s = r[k, k] / length, w[k] / length
        r[k], w = c * r[k] + s * w, c * w - s * r[k]
    return [r]


def _update_by_scan(r, w):
    """The rotations as a loop over the rows that carries w."""
    n = len(w)

    def iteration(w, k, row):
        a, b = (dynamic_slice(v, (k,), (1,)) for v in (row, w))
        size = max(abs(a), abs(b))
        nothing = eq(b, const_like(b, 0))
        size = select(nothing, full_like(size, 1), size)
        a, b = a / size, b / size
        length = sqrt(a * a + b * b)
        c, s = (select(nothing, full_like(x, rest), x / length) for x, rest in ((a, 1), (b, 0)))
        return [c * w - s * row, c * row + s * w]

    rows = iota(np.int32, n)
    body = trace_to_closed_jaxpr(
        iteration, [typeof(w), *(ShapedArray(typeof(x).shape[1:], x.dtype) for x in (rows, r))]
    )
    outs = registry["scan"].bind(
        w, rows, r, jaxpr=body, length=n, num_carry=1, num_consts=0, reverse=False, unroll=1,
    )  # fmt: skip
    return outs[1]


cholesky_update_p = linalg_primitive(
    "cholesky_update",
    (2, 1),
    _update_shapes,
    _update,
    accepts=(FLOATING, FLOATING),
    stacks=False,
    lower=Decompose(_update_by_scan),
)

# ---------------------------------------------------------------- symmetric products


def symmetric_product(
    a_matrix: Any, c_matrix: Any, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False
) -> Any:
    """alpha A A^T + beta C.

    Args:
      a_matrix: real matrices [..., n, m].
      c_matrix: real symmetric matrices [..., n, n].
      symmetrize_output: copy the lower triangle of the result to the upper one.

    >>> lax.linalg.symmetric_product(jnp.array([[1.0], [2.0]]), jnp.eye(2), alpha=2.0, beta=1.0)
    Array([[3., 4.],
           [4., 9.]], dtype=float32)
    """
    result = symmetric_product_p.bind(a_matrix, c_matrix, alpha=alpha, beta=beta)
    if symmetrize_output:
        result = lower_triangle(result) + transposed(lower_triangle(result, -1))
    return result


def _product_shapes(a, c, **_):
    if a[0] != c[1] or c[0] != c[1]:
        raise ValueError(
            "symmetric_update expects a rectangular matrix of shape (m, n) and a square matrix of shape (n, n). "
            f"Got shapes {a} and {c}."
        )
    return [c]


def _product(a, c, *, alpha, beta):
    return [alpha * (a @ a.T) + beta * c]


def _product_in_parts(a, c, *, alpha, beta):
    return const_like(a, alpha) * exact_product(a, transposed(a)) + const_like(c, beta) * c


symmetric_product_p = linalg_primitive(
    "symmetric_product",
    (2, 2),
    _product_shapes,
    _product,
    accepts=(FLOATING, FLOATING),
    lower=Decompose(_product_in_parts),
)
