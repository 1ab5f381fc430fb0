"""Parts of complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.shapes.dimensions import DimExpr
from mpijax.numpy.util import convert, ensure_arraylike, is_complex, is_float, is_inexact, scalar_like
from mpijax.transforms.jit import jit


def real(val, /):
    """Real part, elementwise; for real numbers the array itself.

    complex64 gives float32, and complex128 gives float64.

    >>> jnp.real(jnp.array([1 + 2j, 3]))
    Array([1., 3.], dtype=float32)
    """
    val = ensure_arraylike("real", val)
    return lax.real(val) if is_complex(val.dtype) else val


def imag(val, /):
    """Imaginary part, elementwise; 0 for real numbers.

    complex64 gives float32, and complex128 gives float64; other dtypes do not change.

    >>> jnp.imag(jnp.array([1 + 2j, 3]))
    Array([2., 0.], dtype=float32)
    """
    val = ensure_arraylike("imag", val)
    return lax.imag(val) if is_complex(val.dtype) else lax.full_like(val, 0)


def conjugate(x, /):
    """Complex conjugate, elementwise.

    The dtype does not change; real numbers do not change.

    >>> jnp.conjugate(jnp.array([1 - 4j, 2j]))
    Array([1.+4.j, 0.-2.j], dtype=complex64)
    """
    x = ensure_arraylike("conjugate", x)
    return lax.conj(x) if is_complex(x.dtype) else x


def conj(x, /):
    """Complex conjugate, elementwise.

    >>> jnp.conj(jnp.array([1 + 2j, 3]))
    Array([1.-2.j, 3.-0.j], dtype=complex64)
    """
    return conjugate(x)


@jit(static_argnames=("deg",))
def angle(z, deg=False):
    """The angle of z in the complex plane in (-pi, pi], elementwise, in radians (degrees if `deg`).

    complex64 gives float32, and complex128 gives float64. The angle of a real number is 0 or pi.

    >>> jnp.angle(jnp.array([1j, -1, 1 + 1j]), deg=True)
    Array([ 90., 180.,  45.], dtype=float32)
    """
    z = ensure_arraylike("angle", z)
    re, im = real(z), imag(z)
    if not is_inexact(re.dtype) or (is_float(z.dtype) and z.ndim == 0):
        dtype = dtypes.default_float_dtype()
        re, im = convert(re, dtype), convert(im, dtype)
    result = lax.atan2(im, re)
    return lax.mul(result, scalar_like(result, 180 / np.pi)) if deg else result


def iscomplexobj(x: Any) -> bool:
    """Whether x is a complex number or an array of complex numbers.

    >>> jnp.iscomplexobj(jnp.zeros(2, jnp.complex64)), jnp.iscomplexobj(0.0)
    (True, False)
    """
    if isinstance(x, (complex, np.complexfloating)):
        return True
    if x is None or isinstance(x, (bool, int, float, str, np.generic)):
        return False
    dtype = getattr(x, "dtype", None)
    if dtype is None:
        dtype = dtypes.dtype(x) if isinstance(x, DimExpr) else jnp.asarray(x).dtype
    return dtypes.issubdtype(dtype, np.complexfloating)


def isrealobj(x: Any) -> bool:
    """Whether x is neither a complex number nor an array of complex numbers.

    >>> jnp.isrealobj(jnp.zeros(2, jnp.complex64)), jnp.isrealobj(0.0)
    (False, True)
    """
    return not iscomplexobj(x)
