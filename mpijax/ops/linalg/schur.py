"""Schur and Hessenberg forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.ops.linalg.common import check_square, linalg_primitive, nan_unless, routine
from mpijax.ops.linalg.kernels import lapack

# ---------------------------------------------------------------- Schur


def schur(
    x: Any,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable | None = None,
) -> list[Any]:
    """A = Z T Z^H, with unitary Z and upper triangular T; for real matrices T may have 2 x 2 blocks on its diagonal.

    Args:
      x: matrices [..., n, n].
      compute_schur_vectors: whether to return Z.
      sort_eig_vals, select_callable: sorting is not implemented, as in JAX.

    Returns:
      [T, Z], or [T]; NaN if the algorithm does not converge.

    >>> a = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    >>> t, z = lax.linalg.schur(a)
    >>> jnp.allclose(z @ t @ z.T, a, atol=1e-4)
    Array(True, dtype=bool)
    """
    return schur_p.bind(
        x,
        compute_schur_vectors=compute_schur_vectors,
        sort_eig_vals=sort_eig_vals,
        select_callable=select_callable,
    )


def _shapes(shape, *, compute_schur_vectors, **_):
    check_square("schur", shape)
    return [shape] * (1 + compute_schur_vectors)


def _schur(x, *, compute_schur_vectors, **params):
    _options(x, compute_schur_vectors=compute_schur_vectors, **params)
    if not x.size or not np.isfinite(x).all():
        return nan_unless(not x.size, *[x] * (1 + compute_schur_vectors))
    found = routine("gees", x.dtype)(lambda *_: None, x, compute_v=compute_schur_vectors)
    form, vectors, info = found[0], found[-3], found[-1]
    return nan_unless(info == 0, *([form, vectors] if compute_schur_vectors else [form]))


def _options(_x, *, compute_schur_vectors, sort_eig_vals, select_callable):
    if sort_eig_vals:
        raise NotImplementedError("The sort feature of LAPACK's gees routine is not implemented.")
    return (compute_schur_vectors,)


schur_p = linalg_primitive("schur", (2,), _shapes, _schur, multiple_results=True, lower=lapack("schur", _options))

# ---------------------------------------------------------------- Hessenberg


def hessenberg(a: Any) -> tuple[Any, Any]:
    """In-place reduction to upper Hessenberg form.

    Args:
      a: matrices [..., n, n].

    Returns:
      (matrices like a, factors [..., n - 1]): the form on and above the first subdiagonal, Householder reflections
      below it, and the factors of the reflections.

    >>> h, taus = lax.linalg.hessenberg(jnp.arange(9.0).reshape(3, 3))
    >>> h.shape, taus.shape
    ((3, 3), (2,))
    """
    form, taus = hessenberg_p.bind(a)
    return form, taus


def _hessenberg_shapes(shape):
    if shape[0] != shape[1]:
        raise ValueError(f"Argument to Hessenberg reduction must have shape [..., n, n], got shape {shape}")
    return [shape, (shape[0] - 1,)]


def _hessenberg(a):
    if len(a) < 2:
        return a, np.zeros(len(a) - 1)
    form, taus, info = routine("gehrd", a.dtype)(a)
    return nan_unless(info == 0, form, taus)


hessenberg_p = linalg_primitive(
    "hessenberg", (2,), _hessenberg_shapes, _hessenberg, multiple_results=True, lower=lapack("hessenberg")
)
