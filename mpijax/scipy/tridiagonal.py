"""Eigenvalues and eigenvectors of Hermitian tridiagonal matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax import numpy as jnp
from mpijax.core import dtypes
from mpijax.ops.linalg.tridiagonal import tridiagonal_eigh_p
from mpijax.transforms.jit import jit

_KINDS = ("float32", "float64", "complex64", "complex128")


@jit(static_argnames=("eigvals_only", "select", "select_range"))
def eigh_tridiagonal(
    d: Any,
    e: Any,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[int, int] | None = None,
    tol: Any = None,
    key: Any = None,
) -> Any:
    """Eigenvalues, in ascending order, and eigenvectors of a Hermitian tridiagonal matrix, by LAPACK.

    Args:
      d: the diagonal, of shape [n].
      e: the diagonal above it, of shape [n - 1], with the same dtype; the diagonal below is its conjugate.
      eigvals_only: return only the eigenvalues.
      select: "a" for all eigenvalues; "i" for those with the indices `select_range[0]` to `select_range[1]`, inclusive.
      tol, key: have no effect: LAPACK finds values to working precision, and vectors without random starts.

    Returns:
      Real eigenvalues of shape [k], or (eigenvalues, eigenvectors as columns of shape [n, k]).

    Raises:
      TypeError: another dtype. ValueError: the range is missing or empty, or `select` is unknown.
      NotImplementedError: select="v".

    >>> mpijax.scipy.linalg.eigh_tridiagonal(jnp.array([2.0, 2.0]), jnp.array([1.0]), eigvals_only=True).round(4)
    Array([1., 3.], dtype=float32)
    """
    d, e = jnp.asarray(d), jnp.asarray(e)
    if d.dtype != e.dtype:
        raise TypeError(f"diagonal and off-diagonal values must have same dtype, got {d.dtype} and {e.dtype}")
    if d.dtype.name not in _KINDS:
        raise TypeError(f"eigh_tridiagonal takes {', '.join(_KINDS)}, got {d.dtype} and {e.dtype}")
    taken = _selected(d.shape[0], select, select_range)
    is_complex = dtypes.issubdtype(e.dtype, np.complexfloating)
    values, vectors = tridiagonal_eigh_p.bind(jnp.real(d), jnp.abs(e) if is_complex else e)
    if is_complex:
        # The matrix is P T P^H with the real T of the sizes |e| and a diagonal P of phases.
        turns = jnp.where(e == 0, 1, jnp.conj(jnp.sign(e)))
        phases = jnp.concatenate([jnp.ones(1, e.dtype)[: d.shape[0]], jnp.cumprod(turns)])
        vectors = phases[:, None] * vectors.astype(e.dtype)
    return values[taken] if eigvals_only else (values[taken], vectors[:, taken])


def _selected(n: int, select: str, select_range: Any) -> slice:
    if n <= 1 or select == "a":
        return slice(None)
    if select == "v":
        raise NotImplementedError("eigh_tridiagonal(..., select='v') is not implemented")
    if select != "i":
        raise ValueError("'select must have a value in {'a', 'i', 'v'}.")
    if select_range is None:
        raise ValueError("for select='i', select_range must be specified.")
    first, last = select_range
    if first > last:
        raise ValueError("Got empty index range in select_range.")
    return slice(first, last + 1)
