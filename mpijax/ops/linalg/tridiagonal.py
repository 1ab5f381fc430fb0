"""Reduces Hermitian matrices to tridiagonal form, and solves linear systems with tridiagonal matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpijax.core.rules.lowering import Native
from mpijax.ops.elementwise.convert import stage
from mpijax.ops.families import FLOATING
from mpijax.ops.indexing.slicing import concatenate
from mpijax.ops.linalg.common import check_square, letter, linalg_primitive, nan_unless, real_dtype, routine
from mpijax.ops.linalg.kernels import LapackCode, lapack
from mpijax.ops.shapes.creation import full_like
from mpijax.ops.shapes.reshape import reshape
from mpijax.transforms.batching import batch_at, move_dim
from mpijax.transforms.zeros import Zero, add_tangents, instantiate

# ---------------------------------------------------------------- reduction


def tridiagonal(a: Any, *, lower: bool = True) -> tuple[Any, Any, Any, Any]:
    """Reduces a Hermitian matrix to tridiagonal form.

    Args:
      a: Hermitian matrices [..., n, n].
      lower: which triangle is read.

    Returns:
      (arr, d, e, taus): matrices like a with the form on their diagonals and Householder reflections in the rest of
      the triangle; real vectors [..., n], the diagonal; real [..., n - 1], the first off-diagonal; the factors of the
      reflections [..., n - 1].

    >>> a = jnp.array([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]])
    >>> lax.linalg.tridiagonal(a)[1].round(4)
    Array([2., 2., 2.], dtype=float32)
    """
    arr, d, e, taus = tridiagonal_p.bind(stage(a), lower=lower)
    return arr, d, e, taus


def _shapes(shape, *, lower):
    if not shape[1]:
        raise ValueError(f"The input to tridiagonal must be a square matrix. Got shape {shape}.")
    check_square("tridiagonal", shape)
    n = shape[0]
    return [shape, (n,), (n - 1,), (n - 1,)]


def _tridiagonal(a, *, lower):
    if len(a) == 1:
        return a, a.real[0], np.zeros(0), np.zeros(0)
    arr, d, e, taus, info = routine("sytrd|hetrd", a.dtype)(a, lower=lower, lwork=32 * len(a))
    return nan_unless(info == 0, arr, d, e, taus)


def _dtypes(dtype, *, lower):
    real = real_dtype(dtype)
    return [dtype, real, real, dtype]


tridiagonal_p = linalg_primitive(
    "tridiagonal", (2,), _shapes, _tridiagonal, result_dtypes=_dtypes, multiple_results=True,
    lower=lapack("tridiagonal", lambda a, *, lower: (lower,)),
)  # fmt: skip

# ---------------------------------------------------------------- systems


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Any:
    """The X with A X = B, for tridiagonal A.

    Args:
      dl: vectors [..., m], the lower diagonal: dl[i] is A[i, i - 1], and dl[0] is not read.
      d: vectors [..., m], the diagonal.
      du: vectors [..., m], the upper diagonal: du[i] is A[i, i + 1], and du[m - 1] is not read.
      b: matrices [..., m, k].
      perturb_singular: replace nearly zero pivots by values of the size of rounding errors. A singular matrix
        then gives a finite result, which inverse iteration needs.

    Returns:
      An array like b; NaN if A is singular, unless `perturb_singular`.

    >>> dl, d, du = jnp.array([0.0, 1.0]), jnp.array([2.0, 2.0]), jnp.array([1.0, 0.0])
    >>> lax.linalg.tridiagonal_solve(dl, d, du, jnp.array([[3.0], [3.0]]))
    Array([[1.],
           [1.]], dtype=float32)
    """
    return tridiagonal_solve_p.bind(dl, d, du, b, perturb_singular=perturb_singular)


def _solve_shapes(dl, d, du, b, **_):
    if dl != d or dl != du:
        raise TypeError("tridiagonal_solve requires that all diagonal arguments have the same shape.")
    if dl != b[:-1]:
        raise TypeError(
            "tridiagonal_solve requires that the leading ndim-1 dimensions of b equal the dimensions of the diagonal "
            f"arguments: got {dl} and {b}."
        )
    return [b]


def _solve(dl, d, du, b, *, perturb_singular):
    if not b.size:
        return [b]
    if perturb_singular:
        return [_perturbed(dl[1:], d, du[:-1], b)]
    if len(d) == 1:
        return nan_unless(bool(d[0]), b / d[0])
    _, _, _, out, info = routine("gtsv", d.dtype)(dl[1:], d, du[:-1], b)
    return nan_unless(info == 0, out)


def _perturbed(dl, d, du, b):
    """Gaussian elimination with row exchanges; small pivots become eps times the largest element."""
    n = len(d)
    upper = np.zeros((n, 3), d.dtype)
    upper[:, 0] = d
    upper[:-1, 1] = du
    dl, b = dl.copy(), b.copy()
    least = np.finfo(d.dtype).eps * max(np.abs(x).max(initial=0) for x in (dl, d, du))
    least = max(least, np.finfo(d.dtype).tiny)
    for i in range(n - 1):
        below = np.array([dl[i], *upper[i + 1, :2]], d.dtype)
        if abs(below[0]) > abs(upper[i, 0]):
            upper[i], below = below, upper[i].copy()
            b[[i, i + 1]] = b[[i + 1, i]]
        if abs(upper[i, 0]) < least:
            upper[i, 0] = least
        factor = below[0] / upper[i, 0]
        upper[i + 1, :2] = below[1:] - factor * upper[i, 1:]
        b[i + 1] -= factor * b[i]
    if abs(upper[-1, 0]) < least:
        upper[-1, 0] = least
    for i in reversed(range(n)):
        for j in (1, 2):
            if i + j < n:
                b[i] -= upper[i, j] * b[i + j]
        b[i] /= upper[i, 0]
    return b


def _times(dl, d, du, b):
    """Products of tridiagonal matrices with matrices."""
    y = reshape(d, (*d.shape, 1)) * b
    y = y.at[..., 1:, :].add(dl[..., 1:, None] * b[..., :-1, :])
    return y.at[..., :-1, :].add(du[..., :-1, None] * b[..., 1:, :])


def _jvp(primals, tangents, *, perturb_singular):
    """dX solves A dX = dB - dA X."""
    *diagonals, _ = primals
    *diagonals_dot, b_dot = tangents
    out = tridiagonal_solve_p.bind(*primals, perturb_singular=perturb_singular)
    if any(type(t) is not Zero for t in diagonals_dot):
        b_dot = add_tangents(b_dot, -_times(*map(instantiate, diagonals_dot), out))
    return out, tridiagonal_solve_p.bind(*diagonals, instantiate(b_dot), perturb_singular=perturb_singular)


def _transpose(ct, dl, d, du, b, *, perturb_singular):
    if type(ct) is Zero:
        return [None, None, None, ct]
    last = d.ndim - 1
    lower = concatenate((full_like(du[..., -1:], 0), du[..., :-1]), last)
    upper = concatenate((dl[..., 1:], full_like(dl[..., :1], 0)), last)
    return [None, None, None, tridiagonal_solve(lower, d, upper, ct, perturb_singular=perturb_singular)]


def _batch(axis, args, dims, *, perturb_singular):
    *diagonals, b = args
    *diagonal_dims, b_dim = dims
    if any(dim is not None for dim in diagonal_dims):
        args = [batch_at(x, d, 0, axis) for x, d in zip(args, dims, strict=True)]
        return tridiagonal_solve(*args, perturb_singular=perturb_singular), 0
    # One matrix for all examples: merge their right-hand sides into the columns of one.
    b = move_dim(b, b_dim, b.ndim - 2)
    flat = b.reshape(*b.shape[:-2], b.shape[-2] * b.shape[-1])
    out = tridiagonal_solve(*diagonals, flat, perturb_singular=perturb_singular)
    return out.reshape(b.shape), b.ndim - 2


tridiagonal_solve_p = linalg_primitive(
    "tridiagonal_solve", (1, 1, 1, 2), _solve_shapes, _solve, jvp=_jvp, transpose=_transpose, batch=_batch,
    lower=lapack("tridiagonal_solve", lambda *_operands, perturb_singular: (perturb_singular,)),
)  # fmt: skip

# ---------------------------------------------------------------- eigenvalues


def _eigh_shapes(d, e):
    if e[0] != max(d[0] - 1, 0):
        raise ValueError(f"tridiagonal_eigh: a diagonal of shape {d} needs an off-diagonal of {d[0] - 1}, got {e}")
    return [d, (d[0], d[0])]


def _eigh(d, e):
    if len(d) < 2:
        return d, np.eye(len(d))
    if not (np.isfinite(d).all() and np.isfinite(e).all()):
        return nan_unless(False, d, np.zeros((len(d), len(d)), d.dtype))
    values, vectors, info = routine("stevd", d.dtype)(d, e)
    return nan_unless(info == 0, values, vectors)


def _eigh_code(in_types, _out_types) -> LapackCode:
    *stack, n = in_types[0].shape
    kind = "sd".index(letter(in_types[0].dtype, "tridiagonal_eigh"))
    return LapackCode("tridiagonal_eigh", (kind, math.prod(stack), n))


# Eigenvalues (ascending) and eigenvectors (in columns) of real symmetric tridiagonal matrices, given by diagonals.
tridiagonal_eigh_p = linalg_primitive(
    "tridiagonal_eigh", (1, 1), _eigh_shapes, _eigh, accepts=(FLOATING, FLOATING), multiple_results=True,
    lower=Native(_eigh_code, foreign=False),
)  # fmt: skip
