"""The operators and methods of arrays, for concrete arrays and tracers alike."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.array_api import Array, install_array_methods
from mpijax.core.trace import Tracer
from mpijax.numpy import ufuncs
from mpijax.numpy.at import IndexUpdateHelper
from mpijax.numpy.indexing import getitem
from mpijax.numpy.linear import matmul
from mpijax.numpy.namespace_info import __array_api_version__
from mpijax.numpy.util import index_tuple

# -- operators
# --------------------------------------------------------------------------------------------------------

_SCALARS = (int, float, complex, np.generic, np.ndarray, Array)
# Types whose values need no look: filled as they come.
_operand_types: set[type] = {bool, int, float, complex, np.ndarray}


def _operand(x: Any) -> Any:
    """What an operator makes of its other side: an array or scalar, or NotImplemented."""
    method = getattr(x, "__jax_array__", None)
    if method is not None:
        x = method()
    if not isinstance(x, _SCALARS):
        return NotImplemented
    if method is None:
        _operand_types.add(type(x))
    return x


def _binary(symbol: str, fun: Callable, *, swapped: bool = False, refused: tuple[type, ...] = ()) -> Callable:
    """The operator `symbol`. Values of the types `refused` raise at once, rather than let Python try other
    ways."""

    def apply(self, other):
        if type(other) not in _operand_types:
            given = other
            other = _operand(other)
            if other is NotImplemented:
                if type(given) in refused:
                    left, right = (given, self) if swapped else (self, given)
                    raise TypeError(
                        f"unsupported operand type(s) for {symbol}: {type(left).__name__!r} and "
                        f"{type(right).__name__!r}"
                    )
                return NotImplemented
        return fun(other, self) if swapped else fun(self, other)

    return apply


def _operators() -> dict[str, Callable]:
    sequences: tuple[type, ...] = (tuple, list)
    containers: tuple[type, ...] = (dict, list, set, tuple)
    refused: tuple[type, ...]
    table = {}
    for name, symbol, fun, refused in (
        ("add", "+", ufuncs.add, sequences),
        ("sub", "-", ufuncs.subtract, ()),
        ("mul", "*", ufuncs.multiply, sequences),
        ("truediv", "/", ufuncs.true_divide, ()),
        ("floordiv", "//", ufuncs.floor_divide, ()),
        ("divmod", "divmod()", ufuncs.divmod, ()),
        ("mod", "%", ufuncs.remainder, ()),
        ("pow", "**", ufuncs.power, ()),
        ("matmul", "@", matmul, ()),
        ("and", "&", ufuncs.bitwise_and, ()),
        ("or", "|", ufuncs.bitwise_or, ()),
        ("xor", "^", ufuncs.bitwise_xor, ()),
        ("lshift", "<<", ufuncs.left_shift, ()),
        ("rshift", ">>", ufuncs.right_shift, ()),
    ):
        table[f"__{name}__"] = _binary(symbol, fun, refused=refused)
        table[f"__r{name}__"] = _binary(symbol, fun, swapped=True, refused=refused)
    for name, symbol, fun, refused in (
        ("eq", "==", ufuncs.equal, containers),
        ("ne", "!=", ufuncs.not_equal, containers),
        ("lt", "<", ufuncs.less, ()),
        ("le", "<=", ufuncs.less_equal, ()),
        ("gt", ">", ufuncs.greater, ()),
        ("ge", ">=", ufuncs.greater_equal, ()),
    ):
        table[f"__{name}__"] = _binary(symbol, fun, refused=refused)
    for name, fun in (
        ("neg", ufuncs.negative),
        ("pos", ufuncs.positive),
        ("abs", ufuncs.absolute),
        ("invert", ufuncs.invert),
    ):
        table[f"__{name}__"] = _unary(fun)
    return table


def _unary(fun: Callable) -> Callable:
    def apply(self):
        return fun(self)

    return apply


def _setitem(self, index, value):
    raise TypeError(
        "JAX arrays are immutable and do not support in-place item assignment. Instead of x[idx] = y, use "
        "x = x.at[idx].set(y) or another .at[] method: "
        "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.ndarray.at.html"
    )


def _iter(self) -> Iterator[Any]:
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d array")
    rows = range(self.shape[0])
    if isinstance(self, Tracer):
        return (lax.index_in_dim(self, i, keepdims=False) for i in rows)
    return (getitem(self, i) for i in rows)


def _contains(self, value) -> Any:
    """Whether a one-dimensional array has an element equal to the scalar `value`."""
    if value is None or isinstance(value, str):
        raise TypeError(f"Array.__contains__: unsupported operand type {type(value)}.")
    value = jnp.asarray(value)
    if self.ndim != 1:
        raise ValueError(f"Array.__contains__: search array must be one-dimensional, got arr.shape={self.shape}.")
    if value.ndim != 0:
        raise ValueError(f"Array.__contains__: query value must be a scalar, got query.shape={value.shape}")
    return jnp.any(self == value)


def _round_operator(self, ndigits: int | None = None) -> Any:
    out = jnp.round(self, decimals=ndigits or 0)
    # As for Python's floats: round(x) is an integer, round(x, 0) is not.
    return out.astype(int) if ndigits is None else out


# -- methods
# ----------------------------------------------------------------------------------------------------------


def _forward(name: str) -> Callable:
    """The method that is the function `mpijax.numpy.<name>` of the array."""

    def method(self, *args, **kwargs):
        return getattr(jnp, name)(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"See `mpijax.numpy.{name}`."
    return method


_FORWARDED = (
    "all any argmax argmin argpartition argsort choose conj conjugate copy cumprod cumsum diagonal dot max "
    "mean min "
    "nonzero prod ptp repeat round searchsorted sort squeeze std sum swapaxes take var"
).split()


def _astype(self, dtype, copy: bool = False, device=None) -> Any:
    """The array with another dtype; see `mpijax.numpy.astype`."""
    return jnp.astype(self, dtype, copy=copy, device=device)


def _clip(self, min=None, max=None) -> Any:
    """The array with its elements brought into [min, max]; see `mpijax.numpy.clip`."""
    return jnp.clip(self, min=min, max=max)


def _trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype=None, out=None) -> Any:
    """Sum along a diagonal; see `mpijax.numpy.trace`."""
    return jnp.trace(self, offset=offset, axis1=axis1, axis2=axis2, dtype=dtype, out=out)


def _compress(self, condition, axis: int | None = None, *, out=None, size: int | None = None, fill_value=0) -> Any:
    """Slices of the array where `condition` holds; see `mpijax.numpy.compress`."""
    return jnp.compress(condition, self, axis=axis, out=out, size=size, fill_value=fill_value)


def _ravel(self, order: str = "C", *, out_sharding=None) -> Any:
    """The elements along one axis; see `mpijax.numpy.ravel`."""
    return jnp.ravel(self, order=order)


def _reshape(self, *args, order: str = "C", out_sharding=None) -> Any:
    """The elements in another shape; one size may be -1, to be worked out."""
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
    if rest == 0 or x.size % rest:
        raise TypeError(f"{start} because the product of specified axis sizes ({rest}) does not evenly divide {x.size}")
    return tuple(x.size // rest if d == -1 else d for d in sizes)


def _canonical_sizes(sizes: tuple) -> tuple[int, ...]:
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    try:
        return tuple(map(operator.index, sizes))
    except TypeError:
        hint = "\nIf using `jit`, try using `static_argnums` or applying `jit` to smaller subfunctions."
        raise TypeError(f"Shapes must be 1D sequences of concrete values of integer type, got {sizes}.{hint}") from None


def _transpose(self, *args) -> Any:
    """The array with its axes permuted: reversed, or in the order given as ints or as one tuple."""
    if not args or (len(args) == 1 and args[0] is None):
        return jnp.transpose(self)
    return jnp.transpose(self, index_tuple(args[0] if len(args) == 1 else args))


def _to_device(self, device, *, stream=None) -> Any:
    """The array on another device."""
    if stream is not None:
        raise NotImplementedError("stream argument of array.to_device()")
    from mpijax import device_put  # the runtime lies above this layer

    return device_put(self, device)


def _byteswap(self) -> Any:
    """The array with the bytes of each element in reverse order."""
    if dtypes.issubdtype(self.dtype, np.complexfloating):
        return lax.complex(self.real.byteswap(), self.imag.byteswap())
    if self.dtype.itemsize == 1:
        return self.copy()
    swapped = lax.rev(lax.bitcast_convert_type(self, np.dtype(np.uint8)), [self.ndim])
    return lax.bitcast_convert_type(swapped, self.dtype)


def _view(self, dtype=None, type=None) -> Any:
    """The bits of the array as another dtype; the last axis grows or shrinks with its size."""
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
        parts = jnp.zeros((*x.shape[:-1], x.shape[-1] * 2), dtypes.finfo(x.dtype).dtype)
        return _view(parts.at[..., 0::2].set(x.real).at[..., 1::2].set(x.imag), dtype)
    if dtypes.issubdtype(dtype, np.complexfloating):
        parts = _view(x, dtypes.finfo(dtype).dtype).astype(dtype)
        return parts[..., 0::2] + 1j * parts[..., 1::2]
    if bits < new_bits:
        factor = new_bits // bits
        return lax.bitcast_convert_type(x.reshape(*x.shape[:-1], x.shape[-1] // factor, factor), dtype)
    out = lax.bitcast_convert_type(x, dtype)
    return out.reshape(*out.shape[:-2], out.shape[-2] * out.shape[-1]) if bits > new_bits else out


def _flat(self):
    raise NotImplementedError("JAX Arrays do not implement the arr.flat property: consider arr.flatten() instead.")


def _array_namespace(self, *, api_version: str | None = None) -> Any:
    """The module of functions for this array, as the array API standard has it."""
    if api_version not in (None, __array_api_version__):
        raise ValueError(
            f"api_version={api_version!r} is not available; available versions are: {[__array_api_version__]}"
        )
    return jnp


def _array_module(self, types) -> Any:
    """The module of functions for arrays of several types (NEP 37), if all of them are of this library."""
    return jnp if all(issubclass(t, Array) for t in types) else NotImplemented


def _tobytes(self, order: str = "C") -> bytes:
    """The elements as bytes, in row-major order."""
    return np.asarray(self).tobytes(order)


METHODS: dict[str, Any] = {
    **_operators(),
    **{name: _forward(name) for name in _FORWARDED},
    "__getitem__": getitem,
    "__setitem__": _setitem,
    "__iter__": _iter,
    "__contains__": _contains,
    "__round__": _round_operator,
    "__array_module__": _array_module,
    "__array_namespace__": _array_namespace,
    "astype": _astype,
    "byteswap": _byteswap,
    "clip": _clip,
    "compress": _compress,
    "flatten": _ravel,
    "ravel": _ravel,
    "reshape": _reshape,
    "to_device": _to_device,
    "tobytes": _tobytes,
    "trace": _trace,
    "transpose": _transpose,
    "view": _view,
    "T": property(lambda self: jnp.transpose(self)),
    "mT": property(lambda self: jnp.matrix_transpose(self)),
    "at": property(IndexUpdateHelper),
    "flat": property(_flat),
    "imag": property(lambda self: ufuncs.imag(self)),
    "real": property(lambda self: ufuncs.real(self)),
}

install_array_methods(METHODS)
