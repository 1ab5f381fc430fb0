"""Eigenvalues and eigenvectors of Hermitian matrices."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from mpijax.core.base import config
from mpijax.core.rules.factors import batched
from mpijax.ops.elementwise.power import integer_pow
from mpijax.ops.linalg import eigh_over_ranks
from mpijax.ops.linalg.common import linalg_primitive, nan_unless, real_dtype, routine
from mpijax.ops.linalg.kernels import lapack
from mpijax.ops.linalg.matrices import adjoint, diagonal, exact_product, eye, symmetrized


class EighImplementation(enum.Enum):
    """Algorithms under JAX's names; on CPUs the only one is LAPACK's divide and conquer.

    >>> lax.linalg.EighImplementation.JACOBI.name
    'JACOBI'
    """

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


def eigh(
    x: Any,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: EighImplementation | None = None,
) -> tuple[Any, Any]:
    """x = V diag(w) V^H, with orthonormal eigenvectors, the columns of V.

    Args:
      x: Hermitian matrices [..., n, n].
      lower: which triangle is read, unless `symmetrize_input`.
      symmetrize_input: use (x + x^H) / 2.
      sort_eigenvalues: has no effect: eigenvalues are always ascending.
      subset_by_index: None, or (0, n).

    Returns:
      (V, w): matrices like x, and real vectors [..., n]; NaN if the algorithm does not converge.

    Raises NotImplementedError for other subsets and implementations.

    >>> lax.linalg.eigh(jnp.array([[2.0, 1.0], [1.0, 2.0]]))[1].round(4)
    Array([1., 3.], dtype=float32)
    """
    if symmetrize_input:
        x = symmetrized(x)
    v, w = eigh_p.bind(
        x, lower=lower, sort_eigenvalues=sort_eigenvalues, subset_by_index=subset_by_index, algorithm=implementation
    )
    return v, w


def _shapes(shape, *, subset_by_index, **_):
    if shape[0] != shape[1]:
        raise ValueError(f"Argument to symmetric eigendecomposition must have shape [..., n, n], got shape {shape}")
    n = shape[0]
    d = n if subset_by_index is None else subset_by_index[1] - subset_by_index[0]
    return [(n, d), (d,)]


def check_supported(n: int, subset_by_index: Any, algorithm: Any) -> None:
    if subset_by_index not in (None, (0, n)):
        raise NotImplementedError(f"subset_by_index={subset_by_index} of {n} not supported on CPU")
    if algorithm not in (None, EighImplementation.QR):
        raise NotImplementedError(f"{algorithm} is not supported on CPU: leave `implementation` out")


def _eigh(x, *, lower, sort_eigenvalues, subset_by_index, algorithm):
    check_supported(len(x), subset_by_index, algorithm)
    if not x.size:
        return x, np.zeros(0)
    if not np.isfinite(np.tril(x) if lower else np.triu(x)).all():
        return nan_unless(False, x, x.real[0])
    w, v, info = routine("syevd|heevd", x.dtype)(x, lower=lower)
    return nan_unless(info == 0, v, w)


def _jvp(primals, tangents, *, lower, sort_eigenvalues, subset_by_index, algorithm):
    """dw = diag(V^H dA V), and dV = V (F * V^H dA V) with F_ij = 1 / (w_j - w_i), for distinct eigenvalues.

    M. B. Giles, "An extended collection of matrix derivative results for forward and reverse mode automatic
    differentiation" (2008), section 3.1.
    """
    (a,), (a_dot,) = primals, tangents
    n = a.shape[-1]
    if subset_by_index not in (None, (0, n)):
        raise NotImplementedError("Derivatives not defined for partial eigen decomposition.")
    v, w_real = eigh_p.bind(
        symmetrized(a), lower=lower, sort_eigenvalues=sort_eigenvalues, subset_by_index=subset_by_index,
        algorithm=algorithm,
    )  # fmt: skip
    w = w_real.astype(a.dtype)
    one = eye(a.dtype, (n, n))
    with config.numpy_rank_promotion("allow"):
        factors = integer_pow(one + w[..., np.newaxis, :] - w[..., np.newaxis], -1) - one
    turned = exact_product(exact_product(adjoint(v), a_dot), v)
    return [v, w_real], [exact_product(v, factors * turned), diagonal(turned.real)]


def _options(x, *, lower, sort_eigenvalues, subset_by_index, algorithm):
    check_supported(x.shape[-1], subset_by_index, algorithm)
    return (lower,)


eigh_p = linalg_primitive(
    "eigh", (2,), _shapes, _eigh, jvp=_jvp, multiple_results=True,
    result_dtypes=lambda dtype, **_: [dtype, real_dtype(dtype)], lower=lapack("eigh", _options),
    sharding=batched((2,), better=eigh_over_ranks.plan),
)  # fmt: skip
