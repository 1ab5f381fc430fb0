"""Solves linear systems with triangular matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules import sharding_rules as rules
from mpijax.core.rules.factors import Factor, FactorKind, FactorRule, free, not_batched, whole
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.binary import neg
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.linalg import triangular_over_ranks
from mpijax.ops.linalg.common import is_complex, linalg_primitive
from mpijax.ops.linalg.kernels import lapack
from mpijax.ops.linalg.matrices import exact_product, lower_triangle, transposed, upper_triangle
from mpijax.ops.shapes.reshape import expand_dims
from mpijax.transforms.batching import batch_at, move_dim
from mpijax.transforms.zeros import Zero, add_tangents


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Any:
    """The X with op(A) X = B, or X op(A) = B.

    Args:
      a: triangular matrices [..., n, n]; the other triangle is not read.
      b: matrices [..., n, k] with `left_side`, else [..., k, n]; or vectors [..., n].
      left_side: whether A is left of X.
      lower: whether A is lower triangular.
      transpose_a, conjugate_a: op(A) is the transpose of A, its conjugate, or both.
      unit_diagonal: assume that the diagonal of A is ones.

    Returns:
      An array like b, with infinities and NaN if A is singular.

    >>> a, b = jnp.array([[2.0, 0.0], [1.0, 4.0]]), jnp.array([[2.0], [9.0]])
    >>> lax.linalg.triangular_solve(a, b, left_side=True, lower=True)
    Array([[1.],
           [2.]], dtype=float32)
    """
    dtype = typeof(b).dtype
    conjugate_a = conjugate_a and is_complex(dtype)
    vector = typeof(b).ndim == typeof(a).ndim - 1
    if vector:
        b = expand_dims(b, (-1 if left_side else -2,))
    narrow = dtype.itemsize < 4 and dtypes.issubdtype(dtype, np.floating)
    if narrow:  # LAPACK supports no float narrower than float32
        a, b = convert_element_type(a, np.float32), convert_element_type(b, np.float32)
    out = triangular_solve_p.bind(
        a, b, left_side=left_side, lower=lower, transpose_a=transpose_a, conjugate_a=conjugate_a,
        unit_diagonal=unit_diagonal,
    )  # fmt: skip
    out = convert_element_type(out, dtype) if narrow else out
    if vector:
        out = out[..., 0] if left_side else out[..., 0, :]
    return out


def _shapes(a, b, *, left_side, **_):
    if a[0] != a[1]:
        raise ValueError(f"The first input to triangular_solve must be a square matrix. Got shape {a}.")
    if a[1] != b[0 if left_side else 1]:
        raise ValueError(f"Incompatible shapes for arguments to triangular_solve: {a} and {b}.")
    return [b]


def _solve(a, b, *, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
    import scipy.linalg.blas  # deferred: takes 150 ms, and only references need it

    if not b.size:
        return [b]
    if conjugate_a and not transpose_a:
        a = a.conj()
    trsm = scipy.linalg.blas.get_blas_funcs("trsm", (a, b))
    kind = (2 if conjugate_a else 1) if transpose_a else 0
    return [trsm(1, a, b, side=not left_side, lower=lower, trans_a=kind, diag=unit_diagonal)]


def _jvp(primals, tangents, **params) -> tuple[Any, Any]:
    (a, b), (a_dot, b_dot) = primals, tangents
    out = triangular_solve_p.bind(a, b, **params)
    out_dot: Any = Zero.of_primal(out)
    if type(a_dot) is not Zero:
        out_dot = _tangent_by_matrix(a_dot, out, a, b, **params)
    if type(b_dot) is not Zero:
        out_dot = add_tangents(out_dot, triangular_solve(a, b_dot, **params))
    return out, out_dot


def _tangent_by_matrix(a_dot, out, a, b, *, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
    """dX = -A^-1 dA X, in the order with the smaller products."""
    rows, columns = b.shape[-2:]
    skip = 1 if unit_diagonal else 0
    a_dot = neg(lower_triangle(a_dot, -skip) if lower else upper_triangle(a_dot, skip))
    a_dot = transposed(a_dot) if transpose_a else a_dot
    a_dot = a_dot.conj() if conjugate_a else a_dot

    def solve(x):
        return triangular_solve(
            a, x, left_side=left_side, lower=lower, transpose_a=transpose_a, conjugate_a=conjugate_a,
            unit_diagonal=unit_diagonal,
        )  # fmt: skip

    if left_side:
        return solve(exact_product(a_dot, out)) if rows > columns else exact_product(solve(a_dot), out)
    return solve(exact_product(out, a_dot)) if rows < columns else exact_product(out, solve(a_dot))


def _transpose(ct, a, b, *, transpose_a, **params):
    if type(ct) is Zero:
        return [None, ct]
    return [None, triangular_solve(a, ct, transpose_a=not transpose_a, **params)]


def _batch(axis, args, dims, *, left_side, **params):
    (a, b), (a_dim, b_dim) = args, dims
    if a_dim is not None or axis.split is not None:
        a, b = batch_at(a, a_dim, 0, axis), batch_at(b, b_dim, 0, axis)
        return triangular_solve(a, b, left_side=left_side, **params), 0
    # One matrix for all examples: merge their right-hand sides into the columns, or rows, of one.
    place = -1 if left_side else -3
    b = move_dim(b, b_dim, b.ndim - 1 if left_side else b.ndim - 2)
    *stack, m, n, k = b.shape
    whole = (*stack, m, n * k) if left_side else (*stack, m * n, k)
    out = triangular_solve(a, b.reshape(whole), left_side=left_side, **params)
    return out.reshape(b.shape), b.ndim + (place if left_side else -2)


def _options(_a, _b, *, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
    """Codes of op(A): 0 A, 1 its transpose, 2 its conjugate transpose, 3 its conjugate."""
    kind = (2 if transpose_a else 3) if conjugate_a else int(transpose_a)
    return left_side, lower, kind, unit_diagonal


def _factors(s: rules.Operation) -> list[Factor]:
    """Right-hand sides are independent: their axis stays split, and so do batch axes."""
    [a, b] = s.shapes
    stack, sides = len(a) - 2, len(b) - (1 if s.params["left_side"] else 2)
    other = 2 * len(b) - 3 - sides
    return [
        *(free((d, d), (d,)) for d in range(stack)),
        free((None, sides), (sides,), explicit=FactorKind.WHOLE),
        *(whole((d, None), (None,)) for d in (stack, stack + 1)),
        whole((None, other), (None,)),
    ]


triangular_solve_p = linalg_primitive(
    "triangular_solve", (2, 2), _shapes, _solve, jvp=_jvp, transpose=_transpose, batch=_batch,
    lower=lapack("triangular_solve", _options),
    sharding=FactorRule(_factors, better=triangular_over_ranks.plan, alike=True, refusal=not_batched),
)
