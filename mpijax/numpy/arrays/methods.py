"""The methods of arrays, for concrete arrays and tracers alike. This file adds them, and the operators, to the
classes."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base import errors
from mpijax.core.base.warn import warn_user
from mpijax.core.shapes.dimensions import DimExpr, dimension
from mpijax.core.tracing.out_sharding import put, takes_out_sharding
from mpijax.core.types.array_api import Array, install_array_methods
from mpijax.core.types.typeof import typeof
from mpijax.numpy.arrays.forwarded_methods import FORWARDED
from mpijax.numpy.arrays.operators import OPERATORS
from mpijax.numpy.indexing.at import IndexUpdateHelper
from mpijax.numpy.namespace_info import __array_api_version__
from mpijax.numpy.ufuncs import complexes
from mpijax.numpy.util import index_tuple


def _astype(self, dtype, copy: bool = False, device=None) -> Any:
    """The array with another dtype; see `mpijax.numpy.astype`.

    >>> jnp.array([1.7, -2.2]).astype(jnp.int32)
    Array([ 1, -2], dtype=int32)
    """
    return jnp.astype(self, dtype, copy=copy, device=device)


def _clip(self, min=None, max=None) -> Any:
    """The array with its elements limited to [min, max]; see `mpijax.numpy.clip`.

    >>> jnp.array([-4, 1, 9]).clip(0, 5)
    Array([0, 1, 5], dtype=int32)
    """
    return jnp.clip(self, min=min, max=max)


def _trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype=None, out=None) -> Any:
    """Sum along a diagonal; see `mpijax.numpy.trace`.

    >>> jnp.array([[1, 2], [3, 4]]).trace()
    Array(5, dtype=int32)
    """
    return jnp.trace(self, offset=offset, axis1=axis1, axis2=axis2, dtype=dtype, out=out)


def _compress(self, condition, axis: int | None = None, *, out=None, size: int | None = None, fill_value=0) -> Any:
    """Slices of the array where `condition` holds; see `mpijax.numpy.compress`.

    >>> jnp.array([10, 20, 30]).compress(jnp.array([True, False, True]))
    Array([10, 30], dtype=int32)
    """
    return jnp.compress(condition, self, axis=axis, out=out, size=size, fill_value=fill_value)


def _ravel(self, order: str = "C", *, out_sharding=None) -> Any:
    """The elements along one axis; see `mpijax.numpy.ravel`.

    >>> jnp.array([[1, 2], [3, 4]]).ravel()
    Array([1, 2, 3, 4], dtype=int32)
    """
    return jnp.ravel(self, order=order, out_sharding=out_sharding)


@takes_out_sharding
def reshape(self, *args, order: str = "C", out_sharding=None) -> Any:
    """The elements in another shape. One size may be -1; it follows from the others.

    Args:
      args: the sizes, or one sequence of them.
      order: "C" for row-major order, "F" for column-major order.

    Raises:
      TypeError: the shape has another number of elements, or two sizes are -1.

    >>> jnp.arange(6).reshape(2, -1)
    Array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    """
    shape = _new_shape(self, args[0] if len(args) == 1 else args)
    if order == "C":
        return lax.reshape(self, shape, None)
    if order == "F":
        return lax.reshape(self, shape[::-1], tuple(range(self.ndim))[::-1]).T
    if order == "A":
        raise NotImplementedError("np.reshape order=A is not implemented.")
    raise ValueError(f"Unexpected value for 'order' argument: {order}.")


def _new_shape(x: Any, given: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(given)
    except TypeError:
        sizes = (given,)
    sizes = _canonical_sizes(sizes)
    unknown = [i for i, d in enumerate(sizes) if d == -1]
    start = f"cannot reshape array of shape {x.shape} (size {x.size}) into shape {given}"
    if len(unknown) > 1:
        raise TypeError(f"can only specify one unknown axis size with a `-1` value, got {given}")
    if not unknown:
        if x.size != math.prod(sizes):
            raise TypeError(f"{start} (size {math.prod(sizes)})")
        return sizes
    rest = math.prod(d for d in sizes if d != -1)
    if rest == 0 and x.size == 0:
        return tuple(0 if d == -1 else d for d in sizes)
    if isinstance(x.size, DimExpr) or isinstance(rest, DimExpr):
        return _symbolic_shape(x, sizes)
    if rest == 0 or x.size % rest:
        raise TypeError(f"{start} because the product of specified axis sizes ({rest}) does not evenly divide {x.size}")
    return tuple(x.size // rest if d == -1 else d for d in sizes)


def _symbolic_shape(x: Any, sizes: tuple) -> tuple:
    """`sizes`, one of which is unknown, for symbolic sizes."""
    negative, remainder = divmod(x.size, math.prod(sizes))
    if not isinstance(remainder, int) or remainder:
        raise errors.InconclusiveDimensionOperation(
            f"Cannot divide evenly the sizes of shapes {tuple(x.shape)} and {sizes}"
        )
    return tuple(-negative if type(d) is int and d == -1 else d for d in sizes)


def _canonical_sizes(sizes: tuple) -> tuple[int, ...]:
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    try:
        return tuple(map(dimension, sizes))
    except TypeError:
        raise errors.shape_error(sizes) from None


def _transpose(self, *args) -> Any:
    """The array with its axes permuted: in reverse order, or in the order of `axes` (ints, or one tuple).

    >>> jnp.ones((2, 3, 4)).transpose(2, 0, 1).shape
    (4, 2, 3)
    """
    if not args or (len(args) == 1 and args[0] is None):
        return jnp.transpose(self)
    return jnp.transpose(self, index_tuple(args[0] if len(args) == 1 else args))


def _to_device(self, device, *, stream=None) -> Any:
    """The array on another device.

    >>> jnp.arange(3).to_device(mpijax.devices()[0])
    Array([0, 1, 2], dtype=int32)
    """
    if stream is not None:
        raise NotImplementedError("stream argument of array.to_device()")
    return put(self, device)


def _byteswap(self) -> Any:
    """The array with the bytes of each element in reverse order.

    >>> jnp.array([1, 256], dtype=jnp.int16).byteswap()
    Array([256,   1], dtype=int16)
    """
    if dtypes.issubdtype(self.dtype, np.complexfloating):
        return lax.complex(self.real.byteswap(), self.imag.byteswap())
    if self.dtype.itemsize == 1:
        return self.copy()
    swapped = lax.rev(lax.bitcast_convert_type(self, np.dtype(np.uint8)), [self.ndim])
    return lax.bitcast_convert_type(swapped, self.dtype)


def _view(self, dtype=None, type=None) -> Any:
    """The bits of the array as another dtype. The size of the last axis changes with the size of an element.

    Raises:
      ValueError: the bytes of the last axis are not a multiple of the new element size, or an array without axes
        changes it.

    >>> jnp.array([1.0, -2.0]).view(jnp.uint32)
    Array([1065353216, 3221225472], dtype=uint32)
    """
    if type is not None:
        raise NotImplementedError("`type` argument of array.view() is not supported.")
    if dtype is None:
        return self
    dtype = dtypes.check_user_dtype_supported(dtype, "view")
    bits, new_bits = dtypes.itemsize_bits(self.dtype), dtypes.itemsize_bits(dtype)
    if self.ndim == 0:
        if bits != new_bits:
            raise ValueError("view() of a 0d array is only supported if the itemsize is unchanged.")
        return lax.squeeze(_view(lax.expand_dims(self, (0,)), dtype), (0,))
    if (self.shape[-1] * bits) % new_bits != 0:
        raise ValueError(
            "When changing to a larger dtype, its size must be a divisor of the total size in bytes of the "
            "last axis "
            "of the array."
        )
    return self if self.dtype == dtype else _view_bits(self, dtype, bits, new_bits)


def _view_bits(x: Any, dtype: Any, bits: int, new_bits: int) -> Any:
    if x.dtype == np.bool_:
        return _view(x.astype("uint8"), dtype)
    if dtype == np.bool_:
        return _view(x, np.uint8).astype(bool)
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        sharding, shape = typeof(x).said_sharding, (*x.shape[:-1], x.shape[-1] * 2)
        parts = jnp.zeros(shape, dtypes.finfo(x.dtype).dtype, out_sharding=sharding)
        return _view(parts.at[..., 0::2].set(x.real).at[..., 1::2].set(x.imag), dtype)
    if dtypes.issubdtype(dtype, np.complexfloating):
        parts = _view(x, dtypes.finfo(dtype).dtype)
        return lax.complex(parts[..., 0::2], parts[..., 1::2])
    if bits < new_bits:
        factor = new_bits // bits
        return lax.bitcast_convert_type(x.reshape(*x.shape[:-1], x.shape[-1] // factor, factor), dtype)
    out = lax.bitcast_convert_type(x, dtype)
    return out.reshape(*out.shape[:-2], out.shape[-2] * out.shape[-1]) if bits > new_bits else out


def _reversed_axes(self) -> Any:
    """The array with its axes reversed; see `mpijax.numpy.transpose`.

    >>> jnp.array([[1, 2], [3, 4]]).T
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    return jnp.transpose(self)


def _transposed_matrices(self) -> Any:
    """The matrices in the last two axes transposed. Raises ValueError for fewer than two axes.

    >>> jnp.ones((5, 2, 3)).mT.shape
    (5, 3, 2)
    """
    return jnp.matrix_transpose(self)


def _imag(self) -> Any:
    """The imaginary parts; see `mpijax.numpy.imag`.

    >>> jnp.array([1 + 2j, 3]).imag
    Array([2., 0.], dtype=float32)
    """
    return complexes.imag(self)


def _real(self) -> Any:
    """The real parts; see `mpijax.numpy.real`.

    >>> jnp.array([1 + 2j, 3]).real
    Array([1., 3.], dtype=float32)
    """
    return complexes.real(self)


def _flat(self):
    """Raises NotImplementedError: arrays are immutable, so nothing can be assigned through it.

    >>> jnp.ones((2, 2)).flat
    Traceback (most recent call last):
        ...
    NotImplementedError: JAX Arrays do not implement the arr.flat property...
    """
    raise NotImplementedError("JAX Arrays do not implement the arr.flat property: consider arr.flatten() instead.")


def _array_namespace(self, *, api_version: str | None = None) -> Any:
    """The module with the functions for this array, as the array API standard requires."""
    if api_version not in (None, __array_api_version__):
        raise ValueError(
            f"api_version={api_version!r} is not available; available versions are: {[__array_api_version__]}"
        )
    return jnp


def _array_module(self, types) -> Any:
    """The module of functions for arrays of several types (NEP 37), if all of them are of this library."""
    return jnp if all(issubclass(t, Array) for t in types) else NotImplemented


def _numpy_dtype(self) -> Any:
    """The dtype, which `np.dtype(x)` asks for. Warns: programs should write `x.dtype`."""
    warn_user(
        "Implicit conversion of an array to a dtype is deprecated; rather than dtype=arr use dtype=arr.dtype. In the "
        "future this will result in an error.",
        DeprecationWarning,
    )
    return self.dtype


def _tobytes(self, order: Literal["C", "F", "A", "K"] | None = "C") -> bytes:
    """The elements as bytes, in row-major order.

    >>> jnp.array([1, 2], dtype=jnp.uint8).tobytes() == bytes([1, 2])
    True
    """
    return np.asarray(self).tobytes(order)


METHODS: dict[str, Any] = {
    **OPERATORS,
    **FORWARDED,
    "__array_module__": _array_module,
    "__array_namespace__": _array_namespace,
    "__numpy_dtype__": property(_numpy_dtype),
    "astype": _astype,
    "byteswap": _byteswap,
    "clip": _clip,
    "compress": _compress,
    "flatten": _ravel,
    "ravel": _ravel,
    "reshape": reshape,
    "to_device": _to_device,
    "tobytes": _tobytes,
    "trace": _trace,
    "transpose": _transpose,
    "view": _view,
    "T": property(_reversed_axes),
    "mT": property(_transposed_matrices),
    "at": property(IndexUpdateHelper),
    "flat": property(_flat),
    "imag": property(_imag),
    "real": property(_real),
}

install_array_methods(METHODS)
