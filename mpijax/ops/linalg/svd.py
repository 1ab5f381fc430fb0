"""Singular value decomposition."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from mpijax.core.base import config
from mpijax.core.rules.factors import batched
from mpijax.core.shapes.dimensions import min_dim
from mpijax.ops.linalg.common import linalg_primitive, nan_unless, real_dtype, routine
from mpijax.ops.linalg.kernels import lapack
from mpijax.ops.linalg.matrices import adjoint, diagonal, diagonal_matrix, eye_beside, transposed
from mpijax.ops.linalg.over_ranks import svd_over_ranks


class SvdAlgorithm(enum.Enum):
    """Algorithms under JAX's names.

    >>> lax.linalg.svd(jnp.eye(2), compute_uv=False, algorithm=lax.linalg.SvdAlgorithm.QR)
    Array([1., 1.], dtype=float32)
    """

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


def svd(
    x: Any,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Any:
    """x = U diag(s) V^H, with orthonormal columns of U and V, and s descending and nonnegative.

    Args:
      x: matrices [..., m, n].
      full_matrices: U is [..., m, m] and V^H [..., n, n]; else [..., m, k] and [..., k, n] with k = min(m, n).
      compute_uv: whether to return U and V^H.
      subset_by_index: None, or (0, k).
      algorithm: None, DEFAULT, QR or DIVIDE_AND_CONQUER; all mean LAPACK's gesdd.

    Returns:
      (U, s, V^H), or s alone; NaN if the algorithm does not converge.

    >>> lax.linalg.svd(jnp.array([[0.0, 2.0], [3.0, 0.0]]), compute_uv=False).round(4)
    Array([3., 2.], dtype=float32)
    """
    found = svd_p.bind(
        x, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index, algorithm=algorithm
    )
    if not compute_uv:
        return found[0]
    s, u, v = found
    return u, s, v


def _shapes(shape, *, full_matrices, compute_uv, subset_by_index, **_):
    m, n = shape
    rank = min_dim(m, n)
    if subset_by_index is not None:
        if full_matrices and subset_by_index != (0, rank):
            raise ValueError("full_matrices and subset_by_index cannot both be set")
        rank = min_dim(rank, subset_by_index[1] - subset_by_index[0])
    if not compute_uv:
        return [(rank,)]
    return [(rank,), (m, m if full_matrices else rank), (n if full_matrices else rank, n)]


def _dtypes(dtype, *, compute_uv, **_):
    return [real_dtype(dtype), dtype, dtype] if compute_uv else [real_dtype(dtype)]


def check_supported(m: int, n: int, subset_by_index: Any, algorithm: Any) -> None:
    if subset_by_index not in (None, (0, min(m, n))):
        raise NotImplementedError(f"subset_by_index={subset_by_index} of {min(m, n)} not supported on CPU")
    if algorithm in (SvdAlgorithm.JACOBI, SvdAlgorithm.POLAR):
        raise NotImplementedError(f"The SVD algorithm {algorithm} is not implemented on CPU.")


def _svd(x, *, full_matrices, compute_uv, subset_by_index, algorithm=None):
    m, n = x.shape
    check_supported(m, n, subset_by_index, algorithm)
    s = np.zeros(min(m, n), real_dtype(x.dtype))
    if not x.size:
        u, v = (np.eye(k, k if full_matrices else 0, dtype=x.dtype) for k in (m, n))
    elif not np.isfinite(x).all():
        s, u, v = nan_unless(
            False, s, np.zeros((m, m if full_matrices else len(s)), x.dtype),
            np.zeros((n if full_matrices else len(s), n), x.dtype),
        )  # fmt: skip
        return (s, u, v) if compute_uv else (s,)
    else:
        solve = routine("gesdd", x.dtype)
        u, s, v, info = solve(x, compute_uv=compute_uv, full_matrices=full_matrices)
        s, u, v = nan_unless(info == 0, s, u, v)
        return (s, u, v) if compute_uv else (s,)
    return (s, u, v.T) if compute_uv else (s,)


def _jvp(primals, tangents, *, full_matrices, compute_uv, subset_by_index, algorithm=None):
    with config.default_matmul_precision("float32"):
        return _tangents(*primals, *tangents, full_matrices, compute_uv, subset_by_index, algorithm)


def _tangents(a, a_dot, full_matrices, compute_uv, subset_by_index, algorithm):
    """With S = U^H dA V: ds = Re diag(S), dU = U (F * (S s + (S s)^H)) and dV = V (F * (s S + (s S)^H)), with
    F_ij = 1 / (s_j^2 - s_i^2), and the parts of dA outside the spaces of U and V; for distinct singular values.

    J. Townsend, "Differentiating the singular value decomposition" (2016); for the imaginary diagonal
    Z.-Q. Wan, S.-X. Zhang, "Automatic differentiation for complex valued SVD" (2019).
    """
    s, u, vt = svd_p.bind(a, full_matrices=False, compute_uv=True, subset_by_index=subset_by_index, algorithm=algorithm)
    m, n = a.shape[-2:]
    if compute_uv and full_matrices and m != n:
        raise NotImplementedError("Singular value decomposition JVP not implemented for full matrices")
    ut, v = adjoint(u), adjoint(vt)
    row = s[..., None, :]
    turned = ut @ a_dot @ v
    s_dot = diagonal(turned.real)
    if not compute_uv:
        return [s], [s_dot]
    differences = (row + transposed(row)) * (row - transposed(row))
    one = eye_beside(differences)
    f = 1 / (differences + one) - one
    wide = row.astype(a.dtype)
    right, left = wide * turned, transposed(wide) * turned
    zeros = (s == 0).astype(s.dtype)
    inverses = diagonal_matrix(1 / (s + zeros) - zeros)
    phases = 0.5 * (turned - adjoint(turned)) * inverses.astype(a.dtype)
    f = f.astype(a.dtype)
    u_dot = u @ (f * (right + adjoint(right)) + phases)
    v_dot = v @ (f * (left + adjoint(left)))
    if m > n:
        moved = a_dot @ v
        u_dot = u_dot + (moved - u @ (ut @ moved)) / wide
    if n > m:
        moved = adjoint(a_dot) @ u
        v_dot = v_dot + (moved - v @ (vt @ moved)) / wide
    return [s, u, vt], [s_dot, u_dot, adjoint(v_dot)]


def _options(x, *, full_matrices, compute_uv, subset_by_index, algorithm=None):
    check_supported(*x.shape[-2:], subset_by_index, algorithm)
    return compute_uv, full_matrices


svd_p = linalg_primitive(
    "svd", (2,), _shapes, _svd, result_dtypes=_dtypes, jvp=_jvp, multiple_results=True, lower=lapack("svd", _options),
    sharding=batched((2,), better=svd_over_ranks),
)  # fmt: skip
