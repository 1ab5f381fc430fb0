"""Householder reflections: their products, and in-place factorizations that produce them."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.shapes.dimensions import min_dim
from mpijax.ops.families import INEXACT
from mpijax.ops.linalg.common import is_complex, linalg_primitive, nan_unless, routine
from mpijax.ops.linalg.kernels import lapack

# ---------------------------------------------------------------- QR, as LAPACK leaves it


def geqrf(a: Any) -> tuple[Any, Any]:
    """In-place QR factorization: R on and above the diagonal, reflections below it, and their factors.

    Args:
      a: matrices [..., m, n].

    Returns:
      (matrices like a, factors [..., min(m, n)]).
    """
    factors, taus = geqrf_p.bind(a)
    return factors, taus


def _geqrf(a):
    if not a.size:
        return a, np.zeros(0)
    factors, taus, _, _ = routine("geqrf", a.dtype)(a)
    return factors, taus


geqrf_p = linalg_primitive(
    "geqrf", (2,), lambda shape: [shape, (min_dim(*shape),)], _geqrf, multiple_results=True, lower=lapack("geqrf")
)


def geqp3(a: Any, jpvt: Any, *, use_magma: bool | None = None) -> tuple[Any, Any, Any]:
    """In-place QR factorization with column pivoting, so that the diagonal of R does not grow.

    Args:
      a: matrices [..., m, n].
      jpvt: integers [..., n]; columns with a nonzero number come first, and stay there.
      use_magma: has no effect.

    Returns:
      (matrices like a, the order of columns counted from 1, factors [..., min(m, n)]).
    """
    factors, order, taus = geqp3_p.bind(a, jpvt, use_magma=use_magma)
    return factors, order, taus


def _geqp3(a, jpvt, *, use_magma):
    if not a.size:
        return a, jpvt, np.zeros(0)
    first = [i for i, fixed in enumerate(jpvt) if fixed]
    order = np.array(first + [i for i, fixed in enumerate(jpvt) if not fixed], int)
    if not first:
        factors, found, taus, _, _ = routine("geqp3", a.dtype)(a)
        return factors, found, taus
    return _geqp3_after(a, order, len(first))


def _geqp3_after(a, order, fixed):
    """Factors fixed columns without exchanges, and the other columns with exchanges."""
    a = np.asfortranarray(a[:, order])
    k = min(a.shape)
    head, head_taus, _, _ = routine("geqrf", a.dtype)(a[:, :fixed])
    rest, *_ = routine("ormqr|unmqr", a.dtype)(
        "L", "C" if is_complex(a.dtype) else "T", head[:, : len(head_taus)], head_taus, a[:, fixed:], 64 * a.shape[1]
    )
    taus = np.zeros(k, a.dtype)
    taus[: len(head_taus)] = head_taus
    if fixed < a.shape[1] and fixed < a.shape[0]:
        tail, found, tail_taus, _, _ = routine("geqp3", a.dtype)(rest[fixed:])
        rest = np.vstack([rest[:fixed][:, found - 1], tail])
        order = np.concatenate([order[:fixed], order[fixed:][found - 1]])
        taus[fixed:] = tail_taus
    return np.hstack([head, rest]), order + 1, taus


def _geqp3_shapes(a, jpvt, *, use_magma):
    if jpvt[0] != a[1]:
        raise ValueError(f"geqp3 takes one integer for each column of a. Got a shape {a} and jpvt shape {jpvt}.")
    return [a, jpvt, (min_dim(*a),)]


geqp3_p = linalg_primitive(
    "geqp3",
    (2, 1),
    _geqp3_shapes,
    _geqp3,
    accepts=(INEXACT, (np.integer,)),
    same=False,
    result_dtypes=lambda a, jpvt, **_: [a, jpvt, a],
    multiple_results=True,
    lower=lapack("geqp3", lambda a, jpvt, *, use_magma: (jpvt.dtype.itemsize,), matrix=0),
)

# ---------------------------------------------------------------- products


def householder_product(a: Any, taus: Any) -> Any:
    """The product of Householder reflections, a matrix with orthonormal columns.

    Args:
      a: matrices [..., m, n] with the reflections below the diagonal, m >= n.
      taus: their factors [..., k], k <= n.

    Returns:
      Matrices like a.

    >>> a, taus = jnp.array([[1.0], [0.0]]), jnp.array([2.0])
    >>> lax.linalg.householder_product(a, taus)[0]
    Array([-1.], dtype=float32)
    """
    return householder_product_p.bind(a, taus)


def _product_shapes(a, taus):
    m, n = a
    if m < n:
        raise ValueError(
            f"The first argument to householder_product must have at least as many rows as columns, got shape {a}"
        )
    if taus[0] > n:
        raise ValueError(
            "The second argument to householder_product must not have more rows than the minimum of the first "
            f"argument's rows and columns: got shapes {a} and {taus}."
        )
    return [a]


def _product(a, taus):
    if not a.size:
        return [a]
    if not taus.size:
        return [np.eye(*a.shape, dtype=a.dtype)]
    q, _, _ = routine("orgqr|ungqr", a.dtype)(a, taus)
    return [q]


householder_product_p = linalg_primitive(
    "householder_product", (2, 1), _product_shapes, _product,
    lower=lapack("householder_product", lambda a, taus: (taus.shape[-1],), matrix=0),
)  # fmt: skip


def ormqr(a: Any, taus: Any, c: Any, *, left: bool = True, transpose: bool = False) -> Any:
    """Q C or C Q from an in-place QR factorization, without forming Q.

    Args:
      a: matrices [..., m, n] with Householder reflections below the diagonal, from `geqrf`.
      taus: their factors [..., k].
      c: matrices [..., m, p] with `left`, else [..., p, m].
      left: whether Q is left of C.
      transpose: use the conjugate transpose of Q.

    Returns:
      Matrices like c.

    >>> lax.linalg.ormqr(jnp.array([[1.0], [0.0]]), jnp.array([2.0]), jnp.array([[3.0], [4.0]]))
    Array([[-3.],
           [ 4.]], dtype=float32)
    """
    return ormqr_p.bind(a, taus, c, left=left, transpose=transpose)


def _ormqr_shapes(a, taus, c, *, left, transpose):
    if a[0] != c[0 if left else 1]:
        raise ValueError(
            f"ormqr with left={left} expects c to have the same number of {'rows' if left else 'columns'} as the "
            f"Householder matrix a has rows. Got a shape {a} and c shape {c}."
        )
    if taus[0] > min(a):
        raise ValueError(f"ormqr takes at most min{a} reflections from a matrix of shape {a}, got {taus[0]} factors.")
    return [c]


def _ormqr(a, taus, c, *, left, transpose):
    if not c.size or not taus.size:
        return [c]
    kind = ("C" if is_complex(a.dtype) else "T") if transpose else "N"
    multiply = routine("ormqr|unmqr", a.dtype)
    out, _, info = multiply("L" if left else "R", kind, a[:, : len(taus)], taus, c, 64 * max(c.shape))
    return nan_unless(info == 0, out)


ormqr_p = linalg_primitive(
    "ormqr", (2, 1, 2), _ormqr_shapes, _ormqr,
    lower=lapack("ormqr", lambda a, taus, c, *, left, transpose: (left, transpose, a.shape[-1], taus.shape[-1])),
)  # fmt: skip
