"""QR factorization."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.base import provided
from mpijax.core.rules.factors import batched
from mpijax.core.shapes.dimensions import min_dim
from mpijax.ops.indexing.slicing import concatenate
from mpijax.ops.linalg.common import linalg_primitive, routine
from mpijax.ops.linalg.kernels import lapack
from mpijax.ops.linalg.lu import lu, lu_solve
from mpijax.ops.linalg.matrices import adjoint, eye_beside, lower_triangle
from mpijax.ops.linalg.over_ranks import qr_over_ranks
from mpijax.ops.linalg.triangular import triangular_solve
from mpijax.ops.shapes.creation import full
from mpijax.transforms.zeros import Zero

_I32 = np.dtype(np.int32)


def qr(x: Any, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None) -> tuple:
    """A = Q R, with orthonormal columns of Q and an upper triangular R.

    Args:
      x: matrices [..., m, n].
      pivoting: exchange columns, A[:, p] = Q R, so that the diagonal of R does not grow.
      full_matrices: Q is [..., m, m] and R [..., m, n]; else [..., m, k] and [..., k, n] with k = min(m, n).
      use_magma: has no effect.

    Returns:
      (Q, R), and with `pivoting` p, int32 [..., n].

    >>> a = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> q, r = lax.linalg.qr(a, full_matrices=False)
    >>> q.shape, r.shape
    ((3, 2), (2, 2))
    >>> jnp.allclose(q @ r, a, atol=1e-5)
    Array(True, dtype=bool)
    """
    return tuple(qr_p.bind(x, pivoting=pivoting, full_matrices=full_matrices, use_magma=use_magma))


def _shapes(shape, *, pivoting, full_matrices, use_magma):
    m, n = shape
    k = m if full_matrices else min_dim(m, n)
    return [(m, k), (k, n), (n,)] if pivoting else [(m, k), (k, n)]


def _dtypes(dtype, *, pivoting, **_):
    return [dtype, dtype, _I32] if pivoting else [dtype, dtype]


def _qr(x, *, pivoting, full_matrices, use_magma):
    m, n = x.shape
    k = m if full_matrices else min(m, n)
    order = np.zeros(n, np.int32)
    if not x.size:
        q, r = np.eye(m, k, dtype=x.dtype), np.zeros((k, n), x.dtype)
    else:
        if pivoting:
            factors, order, taus, _, _ = routine("geqp3", x.dtype)(x)
        else:
            factors, taus, _, _ = routine("geqrf", x.dtype)(x)
        r = np.triu(factors[:k])
        vectors = np.zeros((m, k), x.dtype)
        vectors[:, : min(k, n)] = factors[:, : min(k, n)]
        q, _, _ = routine("orgqr|ungqr", x.dtype)(vectors, taus)
    return (q, r, order - 1 if x.size else order) if pivoting else (q, r)


def _thin_tangents(q, r, x_dot):
    """With W = Q^H dA R^-1 and the antisymmetric D = tril(W, -1) - tril(W, -1)^H + i Im(diag W):
    dQ = Q (D - W) + dA R^-1 and dR = (W - D) R.

    S. F. Walter, L. Lehmann, R. Lamour, "On evaluating higher-order derivatives of the QR decomposition of tall
    matrices with full column rank" (2012).
    """
    solved = triangular_solve(r, x_dot)
    w = adjoint(q) @ solved
    below = lower_triangle(w, -1)
    d = below - adjoint(below)
    d = d + eye_beside(d) * (w - w.real.astype(w.dtype))
    return q @ (d - w) + solved, (w - d) @ r


def _complement_tangent(q, dq_thin, n):
    """The tangent of the columns of Q beyond the n of A, which are an arbitrary orthonormal basis of the complement.

    The basis here rotates with the Householder vectors: with Q in blocks of n and m - n rows and columns and
    Z = Q21 (Q11 - I)^-1, the last columns of Q move by dQ1 Z^H - (Q1 + Q2 Z) (dQ21 - Z dQ11)^H.
    """
    q_thin, q_rest = q[..., :, :n], q[..., :, n:]
    top, bottom = q_thin[..., :n, :], q_thin[..., n:, :]
    top_dot, bottom_dot = dq_thin[..., :n, :], dq_thin[..., n:, :]
    factors, _, order = lu(top - eye_beside(top))
    z_adjoint = lu_solve(factors, order, adjoint(bottom), trans=2)
    z = adjoint(z_adjoint)
    return dq_thin @ z_adjoint - (q_thin + q_rest @ z) @ adjoint(bottom_dot - z @ top_dot)


def _jvp(primals, tangents, *, pivoting, full_matrices, use_magma):
    (x,), (x_dot,) = primals, tangents
    q, r, *order = qr_p.bind(x, pivoting=pivoting, full_matrices=full_matrices, use_magma=use_magma)
    m, n = x.shape[-2:]
    if pivoting:
        take = order[0][..., np.newaxis, :]
        x, x_dot = _columns(x, take), _columns(x_dot, take)
    if m < n:
        dq, left = _thin_tangents(q, r[..., :, :m], x_dot[..., :, :m])
        right = adjoint(dq) @ x[..., :, m:] + adjoint(q) @ x_dot[..., :, m:]
        dr = concatenate((left, right), r.ndim - 1)
    else:
        thin = q[..., :, :n] if full_matrices else q
        dq, dr = _thin_tangents(thin, r[..., :n, :n] if full_matrices else r, x_dot)
        if full_matrices and m != n:
            dq = concatenate((dq, _complement_tangent(q, dq, n)), q.ndim - 1)
            zeros = full((*dr.shape[:-2], m - n, n), 0, dtype=dr.dtype)
            dr = concatenate((dr, zeros), r.ndim - 2)
    return [q, r, *order], [dq, dr, *map(Zero.of_primal, order)]


def _columns(x, order):
    """x with the columns of each matrix in the given order, which has the axes of x with one row."""
    return provided.take_along_axis(x, order, axis=-1)


qr_p = linalg_primitive(
    "qr", (2,), _shapes, _qr, result_dtypes=_dtypes, multiple_results=True, jvp=_jvp,
    lower=lapack("qr", lambda x, *, pivoting, full_matrices, use_magma: (full_matrices, pivoting)),
    sharding=batched((2,), better=qr_over_ranks),
)  # fmt: skip
