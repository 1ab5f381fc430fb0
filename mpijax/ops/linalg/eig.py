"""Eigenvalues and eigenvectors of general square matrices."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import config
from mpijax.core.base.warn import warn_user
from mpijax.ops.elementwise.binary import complex as complex_of
from mpijax.ops.elementwise.compare import eq
from mpijax.ops.elementwise.power import reciprocal
from mpijax.ops.elementwise.unary import abs as magnitude
from mpijax.ops.linalg.common import check_square, is_complex, linalg_primitive, nan_unless, routine
from mpijax.ops.linalg.kernels import lapack
from mpijax.ops.linalg.matrices import adjoint, diagonal, exact_product, eye, transposed
from mpijax.ops.linalg.solve import solve
from mpijax.ops.reductions.arg_extremes import argmax
from mpijax.ops.shapes.creation import broadcasted_iota
from mpijax.ops.shapes.reshape import expand_dims


class EigImplementation(enum.Enum):
    """Implementations, under JAX's names; mpijax uses LAPACK only.

    >>> lax.linalg.eig(jnp.diag(jnp.array([1.0, 2.0])), implementation=lax.linalg.EigImplementation.LAPACK)[0]
    Array([1.+0.j, 2.+0.j], dtype=complex64)
    """

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


def eig(
    x: Any,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: EigImplementation | None = None,
    use_magma: bool | None = None,
) -> list[Any]:
    """Eigenvalues w and eigenvectors of square matrices, A v = w v and u^H A = w u^H.

    Args:
      x: matrices [..., n, n].
      compute_left_eigenvectors, compute_right_eigenvectors: which vectors to return.
      enable_eigvec_derivs: whether eigenvectors may be differentiated. Each has length 1 and a real largest element;
        the derivative is valid for distinct eigenvalues and vectors with a unique largest element.
      implementation: None or LAPACK.

    Returns:
      [w, left vectors, right vectors], only those requested: complex [..., n] and [..., n, n], with vectors in
      columns; NaN if the algorithm does not converge.

    >>> w, v = lax.linalg.eig(jnp.array([[0.0, 1.0], [-1.0, 0.0]]), compute_left_eigenvectors=False)
    >>> jnp.sort(w.imag)
    Array([-1.,  1.], dtype=float32)
    """
    if use_magma is not None:
        message = "use_magma is deprecated, please use implementation=EigImplementation.MAGMA instead."
        warn_user(message, DeprecationWarning)
        implementation = EigImplementation.MAGMA if use_magma else EigImplementation.LAPACK
    return eig_p.bind(
        x,
        compute_left_eigenvectors=compute_left_eigenvectors,
        compute_right_eigenvectors=compute_right_eigenvectors,
        enable_eigvec_derivs=enable_eigvec_derivs,
        implementation=implementation,
    )


def _shapes(shape, *, compute_left_eigenvectors, compute_right_eigenvectors, **_):
    check_square("eig", shape)
    return [shape[:1], *[shape] * (compute_left_eigenvectors + compute_right_eigenvectors)]


def _dtypes(dtype, *, compute_left_eigenvectors, compute_right_eigenvectors, **_):
    return [dtypes.to_complex_dtype(dtype)] * (1 + compute_left_eigenvectors + compute_right_eigenvectors)


def _wanted(_x, *, compute_left_eigenvectors, compute_right_eigenvectors, enable_eigvec_derivs, implementation):
    if implementation not in (None, EigImplementation.LAPACK):
        raise ValueError("Only the lapack implementation is supported on CPU.")
    return compute_left_eigenvectors, compute_right_eigenvectors


def _eig(x, **params):
    wanted = _wanted(x, **params)
    kind = np.dtype(dtypes.to_complex_dtype(x.dtype))
    if not x.size or not np.isfinite(x).all():
        bare = np.zeros(x.shape, kind)
        return nan_unless(not x.size, *([bare[:1].reshape(-1)] + [bare] * sum(wanted)))
    found = routine("geev", x.dtype)(x, compute_vl=wanted[0], compute_vr=wanted[1])
    if is_complex(x.dtype):
        w, left, right, info = found
    else:
        real, imag, left, right, info = found
        w = (real + 1j * imag).astype(kind)
        left, right = (_paired(v, imag) if needed else v for v, needed in zip((left, right), wanted, strict=True))
    vectors = [v for v, needed in zip((left, right), wanted, strict=True) if needed]
    return nan_unless(info == 0, w, *vectors)


def _paired(v, imag):
    """Complex eigenvectors of a real matrix. Two columns hold the real and imaginary part of a conjugate pair."""
    first = np.flatnonzero(imag > 0)
    out = v.astype(np.dtype(dtypes.to_complex_dtype(v.dtype)))
    out[:, first] += 1j * v[:, first + 1]
    out[:, first + 1] = out[:, first].conj()
    return out


def _vectors_tangents(w, v, da):
    """With P = V^-1 dA V and F_ij = 1 / (w_j - w_i): dw = diag(P) and dV = V (F * P) + V diag(c).

    M. B. Giles, "An extended collection of matrix derivative results for forward and reverse mode automatic
    differentiation" (2008), section 3.1. The equation does not determine the length and phase of a vector. c keeps
    its length 1 and its largest element real.
    """
    n = w.shape[-1]
    one = eye(w.dtype, (n, n))
    with config.numpy_rank_promotion("allow"):
        factors = reciprocal(one + w[..., None, :] - w[..., None]) - one
    turned = exact_product(solve(v, da), v)
    moved = exact_product(v, factors * turned)
    row = v.ndim - 2
    largest = expand_dims(argmax(magnitude(v), row, np.int32), (row,))
    mask = eq(broadcasted_iota(np.int32, v.shape, row), largest).astype(v.dtype)
    c = complex_of(
        -(v.conj() * moved).sum(-2).real, -(mask * moved).sum(-2).imag / (mask * v).sum(-2).real
    )
    return diagonal(turned), moved + v * expand_dims(c, (row,))


def _jvp(primals, tangents, **params):
    (a,), (da,) = primals, tangents
    left, right = params["compute_left_eigenvectors"], params["compute_right_eigenvectors"]
    if (left or right) and not params["enable_eigvec_derivs"]:
        raise NotImplementedError(
            "Derivatives of non-symmetric eigenvectors are only valid under assumptions on the input that cannot be "
            "checked: distinct eigenvalues, and one largest element in each vector. If they hold, pass "
            "enable_eigvec_derivs=True to lax.linalg.eig."
        )
    outs = eig_p.bind(a, **{**params, "compute_right_eigenvectors": True})
    w, vectors = outs[0], outs[-1]
    da = da.astype(vectors.dtype)
    if not (left or right):
        return [w], [(solve(vectors, da) * transposed(vectors)).sum(-1)]
    w_dot, vectors_dot = _vectors_tangents(w, vectors, da)
    primals_out, tangents_out = [w], [w_dot]
    if left:
        primals_out.append(outs[1])
        tangents_out.append(_vectors_tangents(w.conj(), outs[1], adjoint(da))[1])
    if right:
        primals_out.append(vectors)
        tangents_out.append(vectors_dot)
    return primals_out, tangents_out


eig_p = linalg_primitive(
    "eig", (2,), _shapes, _eig, result_dtypes=_dtypes, jvp=_jvp, multiple_results=True, lower=lapack("eig", _wanted)
)
