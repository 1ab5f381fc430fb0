"""Determinants and their logarithms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpijax import lax
from mpijax.lax import linalg
from mpijax.numpy.creation.constructors import array, asarray
from mpijax.numpy.creation.fills import ones, zeros_like
from mpijax.numpy.creation.matrices import diagonal, trace
from mpijax.numpy.creation.ranges import arange
from mpijax.numpy.indexing.conditions import where
from mpijax.numpy.linear_algebra.factorizations import inexact
from mpijax.numpy.linear_algebra.solutions import solve
from mpijax.numpy.reductions.cumulative import cumprod
from mpijax.numpy.reductions.standard import any as any_of
from mpijax.numpy.reductions.standard import prod
from mpijax.numpy.reductions.standard import sum as sum_of
from mpijax.numpy.reductions.statistics import count_nonzero
from mpijax.numpy.shapes.join import concatenate
from mpijax.numpy.shapes.rearrange import tile
from mpijax.numpy.shapes.reshape import broadcast_to
from mpijax.numpy.ufuncs.arithmetic import abs as magnitude
from mpijax.numpy.ufuncs.arithmetic import sign as sign_of
from mpijax.numpy.ufuncs.complexes import real
from mpijax.numpy.ufuncs.elementwise import exp, log
from mpijax.numpy.ufuncs.logic import isinf, isnan, logical_or
from mpijax.numpy.util import is_complex
from mpijax.ops.linalg.orthogonal import geqrf
from mpijax.transforms.custom_jvp import custom_jvp
from mpijax.transforms.jit import jit


class SlogdetResult(NamedTuple):
    """The sign (or phase) of determinants, and the logarithm of their absolute values."""

    sign: Any
    logabsdet: Any


# ---------------------------------------------------------------- logarithms


@jit(static_argnames=("method",))
def slogdet(a: Any, *, method: str | None = None) -> SlogdetResult:
    """Signs of determinants, and logarithms of their absolute values. They do not overflow if the determinant does.

    Args:
      a: matrices of shape [..., n, n].
      method: "lu" (the default), or "qr" for real matrices.

    Returns:
      SlogdetResult(sign, logabsdet): arrays of shape [...]; 0 and -inf for singular matrices.

    Raises:
      ValueError: the shape of a is not [..., n, n], or `method` is unknown.
      NotImplementedError: the method "qr" with complex matrices.

    >>> [float(x) for x in jnp.linalg.slogdet(np.diag([-1.0, 1.0]))]
    [-1.0, 0.0]
    """
    a = inexact("slogdet", a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"Argument to slogdet() must have shape [..., n, n], got {a.shape}")
    if method in (None, "lu"):
        return SlogdetResult(*(_slogdet_small if a.shape[-1] in (1, 2) else _slogdet_lu)(a))
    if method == "qr":
        return SlogdetResult(*_slogdet_qr(a))
    raise ValueError(f"Unknown slogdet method '{method}'. Supported methods are 'lu' (`None`), and 'qr'.")


def _entries(a):
    return a[..., 0, 0], a[..., 0, 1], a[..., 1, 0], a[..., 1, 1]


@custom_jvp
def _slogdet_small(a):
    """Of matrices with one or two rows."""
    if a.shape[-1] == 1:
        det = a[..., 0, 0]
    else:
        a00, a01, a10, a11 = _entries(a)
        det = a00 * a11 - a01 * a10
    size = magnitude(det)
    return sign_of(det), real(log(size))


@_slogdet_small.defjvp
def _slogdet_small_jvp(primals, tangents):
    (x,), (g,) = primals, tangents
    sign, size = _slogdet_small(x)
    if x.shape[-1] == 1:
        ratio = g[..., 0, 0] / x[..., 0, 0]
    else:
        (x00, x01, x10, x11), (g00, g01, g10, g11) = _entries(x), _entries(g)
        det = x00 * x11 - x01 * x10
        ratio = (g00 * x11 - g01 * x10 - g10 * x01 + g11 * x00) / det
    return _with_tangents(sign, size, ratio)


def _with_tangents(sign, size, ratio):
    """The tangents, from d(det) / det: the real part is that of the logarithm, the imaginary part that of the phase."""
    if not is_complex(sign.dtype):
        return (sign, size), (zeros_like(sign), ratio)
    return (sign, size), ((ratio - real(ratio).astype(ratio.dtype)) * sign, real(ratio))


def _exchanges(pivots):
    """The number of row exchanges of each matrix."""
    unmoved = lax.expand_dims(arange(pivots.shape[-1], dtype=pivots.dtype), range(pivots.ndim - 1))
    return count_nonzero(pivots != unmoved, axis=-1)


@custom_jvp
def _slogdet_lu(a):
    dtype = a.dtype
    factors, pivots, _ = linalg.lu(a)
    values = diagonal(factors, axis1=-2, axis2=-1)
    singular = any_of(values == array(0, dtype=dtype), axis=-1)
    parity = _exchanges(pivots)
    if is_complex(dtype):
        sign = prod(values / magnitude(values).astype(values.dtype), axis=-1)
    else:
        sign = array(1, dtype=dtype)
        parity = parity + count_nonzero(values < 0, axis=-1)
    sign = where(singular, array(0, dtype=dtype), sign * array(-2 * (parity % 2) + 1, dtype=dtype))
    logarithm = sum_of(log(magnitude(values)).astype(dtype), axis=-1)
    return sign, real(where(singular, array(-np.inf, dtype=dtype), logarithm))


@custom_jvp
def _slogdet_qr(a):
    """By Householder reflections. Each has the determinant -1, unless its factor is 0."""
    if is_complex(a.dtype):
        raise NotImplementedError("slogdet method='qr' not implemented for complex inputs")
    n = a.shape[-1]
    factors, taus = geqrf(a)
    values = diagonal(factors, axis1=-2, axis2=-1)
    signs = prod(sign_of(values), axis=-1)
    reflections = prod(where(taus[..., : n - 1] != 0, -1, 1), axis=-1).astype(signs.dtype)
    return signs * reflections, sum_of(log(magnitude(values)), axis=-1)


def _slogdet_jvp(primals, tangents):
    """d log det A = tr(A^-1 dA)."""
    (x,), (g,) = primals, tangents
    sign, size = slogdet(x)
    return _with_tangents(sign, size, trace(solve(x, g), axis1=-1, axis2=-2))


_slogdet_lu.defjvp(_slogdet_jvp)
_slogdet_qr.defjvp(_slogdet_jvp)

# ---------------------------------------------------------------- determinants


@jit
def det(a: Any) -> Any:
    """Determinants of matrices of shape [..., n, n]; the result has the shape [...].

    Raises:
      ValueError: a is not [..., n, n].

    >>> float(jnp.linalg.det(np.array([[1.0, 2.0], [3.0, 4.0]])))
    -2.0
    """
    a = inexact("det", a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"Argument to _det() must have shape [..., n, n], got {a.shape}")
    if a.shape[-1] == 2:
        return a[..., 0, 0] * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]
    return _det_3x3(a) if a.shape[-1] == 3 else _det(a)


def _det_3x3(a):
    """Sarrus' rule."""

    def product(i, j, k):
        return a[..., 0, i] * a[..., 1, j] * a[..., 2, k]

    rising = product(0, 1, 2) + product(1, 2, 0) + product(2, 0, 1)
    return rising - product(2, 1, 0) - product(0, 2, 1) - product(1, 0, 2)


@custom_jvp
def _det(a):
    sign, logarithm = slogdet(a)
    return sign * exp(logarithm).astype(sign.dtype)


@_det.defjvp
def _det_jvp(primals, tangents):
    """d det A = tr(cof(A)^T dA), which is finite for singular matrices too."""
    (x,), (g,) = primals, tangents
    value, solved = _cofactor_solve(x, g)
    return value, trace(solved, axis1=-1, axis2=-2)


def _cofactor_solve(a, b):
    """The determinants of a, and det(a) a^-1 b without dividing by the last pivot.

    With P A = L U, the last row of U is not divided by its diagonal, and the rows above are multiplied by the whole
    determinant. So a zero as the last pivot is harmless. If another pivot is 0, the rank is at most n - 2, and all
    cofactors are 0.
    """
    if a.shape[-1] == 1:
        return a[..., 0, 0], b
    factors, pivots, permutation = linalg.lu(a)
    n, dtype = a.shape[-1], a.dtype
    stack = lax.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    x = broadcast_to(b, stack + b.shape[-2:])
    factors = broadcast_to(factors, stack + factors.shape[-2:])
    sign = asarray(-2 * (_exchanges(pivots) % 2) + 1, dtype=dtype)
    products = cumprod(diagonal(factors, axis1=-2, axis2=-1), axis=-1) * sign[..., None]
    factors = factors.at[..., -1, -1].set(1.0 / products[..., -2])
    permutation = broadcast_to(permutation, (*stack, n))
    deficient = linalg.triangular_solve(factors, ones(x.shape[:-1], x.dtype), left_side=True, lower=False)
    deficient = any_of(logical_or(isnan(deficient), isinf(deficient)), axis=-1)
    deficient = tile(deficient[..., None, None], deficient.ndim * (1,) + x.shape[-2:])
    x = where(deficient, zeros_like(x), x)
    rows = [
        lax.expand_dims(lax.iota(np.int32, size), [j for j in range(len(stack) + 1) if j != i])
        for i, size in enumerate(stack)
    ]
    x = x[(*rows, permutation, slice(None))]
    x = linalg.triangular_solve(factors, x, left_side=True, lower=True, unit_diagonal=True)
    x = concatenate((x[..., :-1, :] * products[..., -1, None, None], x[..., -1:, :]), axis=-2)
    x = linalg.triangular_solve(factors, x, left_side=True, lower=False)
    return products[..., -1], where(deficient, zeros_like(x), x)
