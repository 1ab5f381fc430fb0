"""Parts of complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.util import convert, ensure_arraylike, is_complex, is_float, is_inexact, scalar_like
from mpijax.transforms.api import jit


def real(val, /):
    """Real part, elementwise; of real numbers the array itself."""
    val = ensure_arraylike("real", val)
    return lax.real(val) if is_complex(val.dtype) else val


def imag(val, /):
    """Imaginary part, elementwise; of real numbers 0."""
    val = ensure_arraylike("imag", val)
    return lax.imag(val) if is_complex(val.dtype) else lax.full_like(val, 0)


def conjugate(x, /):
    """Complex conjugate, elementwise."""
    x = ensure_arraylike("conjugate", x)
    return lax.conj(x) if is_complex(x.dtype) else x


def conj(x, /):
    """Complex conjugate, elementwise."""
    return conjugate(x)


@jit(static_argnames=("deg",))
def angle(z, deg=False):
    """The angle of z in the complex plane in (-pi, pi], elementwise, in radians (degrees if `deg`)."""
    z = ensure_arraylike("angle", z)
    re, im = real(z), imag(z)
    if not is_inexact(re.dtype) or (is_float(z.dtype) and z.ndim == 0):
        dtype = dtypes.default_float_dtype()
        re, im = convert(re, dtype), convert(im, dtype)
    result = lax.atan2(im, re)
    return lax.mul(result, scalar_like(result, 180 / np.pi)) if deg else result


def iscomplexobj(x: Any) -> bool:
    """Whether x is a complex number or an array of them."""
    if isinstance(x, (complex, np.complexfloating)):
        return True
    if x is None or isinstance(x, (bool, int, float, str, np.generic)):
        return False
    dtype = getattr(x, "dtype", None)
    if dtype is None:
        dtype = np.asarray(x).dtype
    return dtypes.issubdtype(dtype, np.complexfloating)


def isrealobj(x: Any) -> bool:
    """Whether x is no complex number or array of them."""
    return not iscomplexobj(x)
