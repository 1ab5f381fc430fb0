"""Arrays from other arrays and from memory: casts, copies, buffers, DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax import dlpack, lax
from mpijax.core import dtypes
from mpijax.core.base.warn import warn_user
from mpijax.numpy.creation.constructors import array, asarray
from mpijax.numpy.util import check_arraylike, convert, ensure_arraylike, is_complex, place_inside, scalar_like


def astype(x, dtype, /, *, copy=False, device=None):
    """The array with another dtype.

    Floats are truncated to integers and limited to their range; NaN becomes 0. Complex numbers lose their imaginary
    part, with a warning.

    >>> jnp.astype(jnp.array([1.7, -2.2, 300.0]), jnp.uint8)
    Array([  1,   0, 255], dtype=uint8)
    """
    x = ensure_arraylike("astype", x)
    if dtype is None:
        dtype = dtypes.default_float_dtype()
    else:
        dtype = dtypes.check_user_dtype_supported(dtype, "astype")
    if is_complex(x.dtype):
        if dtypes.isdtype(dtype, ("integral", "real floating")):
            warn_user(
                "Casting from complex to real dtypes will soon raise a ValueError. Please first use "
                "jnp.real or jnp.imag to take the real/imaginary component of your input.",
                DeprecationWarning,
            )
        elif dtype == np.bool_:
            x = lax.ne(x, scalar_like(x, 0))
    result = convert(x, dtype, warn=False)
    return place_inside(lax.copy_p.bind(result) if copy else result, device)


def copy(a, order=None):
    """A copy of the array.

    >>> x = jnp.arange(3)
    >>> jnp.copy(x) is x
    False
    """
    check_arraylike("copy", a)
    return array(a, copy=True, order=order)


def ascontiguousarray(a, dtype=None):
    """The array with at least one axis. (All arrays are contiguous.)

    >>> jnp.ascontiguousarray(3.0).shape
    (1,)
    """
    return array(a, dtype=dtype, copy=False, ndmin=1)


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0):
    """A 1-d array of the numbers in a buffer.

    Args:
      buffer: bytes, or an object with the buffer interface.
      count: number of numbers to read; -1 for all.
      offset: position of the first byte.

    >>> jnp.frombuffer(b"abc", dtype=jnp.uint8, offset=1)
    Array([98, 99], dtype=uint8)
    """
    return asarray(np.frombuffer(buffer=buffer, dtype=dtype, count=count, offset=offset))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str):
    """A 1-d array of the numbers in a text, separated by `sep`.

    Args:
      dtype: dtype of the numbers; default float.
      count: number of numbers to read; -1 for all.

    Raises:
      ValueError: the text has something that is not a number.

    >>> jnp.fromstring("1 2 5", dtype=int, sep=" ")
    Array([1, 2, 5], dtype=int32)
    """
    return asarray(np.fromstring(string=string, dtype=dtype, count=count, sep=sep))


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None):
    """An array that shares the memory of another library's array, through DLPack.

    Args:
      x: an array with `__dlpack__`.
      copy: True copies the memory; False raises an error if the memory cannot be shared.

    >>> jnp.from_dlpack(np.arange(3.0, dtype=np.float32))
    Array([0., 1., 2.], dtype=float32)
    """
    return dlpack.from_dlpack(x, device=device, copy=copy)


def _unsafe(name: str, reads: str):
    def fun(*args, **kwargs):
        raise NotImplementedError(
            f"jnp.{name}() is not implemented because it may be non-pure and thus unsafe for use with JIT and other "
            f"JAX transformations. Consider using jnp.asarray(np.{name}(...)) instead, outside of transformed "
            f"functions: it reads {reads}. See "
            "https://docs.jax.dev/en/latest/notebooks/Common_Gotchas_in_JAX.html#pure-functions"
        )

    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = f"""Not implemented: it has the side effect of consuming {reads}.

    >>> jnp.{name}("numbers")
    Traceback (most recent call last):
        ...
    NotImplementedError: jnp.{name}() is not implemented because it may be non-pure...
    """
    return fun


fromfile = _unsafe("fromfile", "a file")
fromiter = _unsafe("fromiter", "an iterator")
