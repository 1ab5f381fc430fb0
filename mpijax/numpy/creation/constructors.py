"""`array` and `asarray`: arrays from numbers, nested lists, NumPy arrays and objects with a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base.state import state
from mpijax.core.base.warn import warn_user
from mpijax.core.shapes.dimensions import DimExpr
from mpijax.core.tracing.trace import EVAL
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.types.array_api import is_whole
from mpijax.numpy.util import convert, device_sharding, is_complex, place_inside, requested_dtype, unwrap

# The number of arrays that are concatenated at once.
_CONCATENATE_AT_ONCE = 16


def array(
    object: Any,
    dtype: Any = None,
    *args: Any,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    device: Any = None,
    out_sharding: Any = None,
):
    """An array of the numbers in `object`: a number, nested lists of numbers and arrays, an array, or a buffer.

    Args:
      object: the object to convert. The elements of lists are promoted to one dtype.
      dtype: element type; by default that of the input. Without jax_enable_x64, 64-bit types become 32-bit types.
      copy: True if the result must not share memory with the input.
      order: None or "K".
      ndmin: the least number of axes; missing axes are added in front, with size 1.
      device, out_sharding: where to put the array; give at most one of the two.

    Raises:
      TypeError: an element of `object` is not a number.
      ValueError: nested lists of different lengths, or None as an element.

    >>> jnp.array([[1, 2.5], [3, 4]])
    Array([[1. , 2.5],
           [3. , 4. ]], dtype=float32)
    """
    if args:
        copy, order, ndmin = _positional(args, copy, order, ndmin)
    if order is not None and order != "K":
        raise NotImplementedError("Only implemented for order='K'")
    if isinstance(object, DimExpr):
        object = object.__jax_array__()
    if dtype is None and device is None and out_sharding is None and ndmin == 0:
        if isinstance(object, Tracer) and object.concrete() is None:
            return lax.copy_p.bind(object) if copy else object
        if isinstance(object, (int, float, complex, np.number)):
            return lax.stage(object)
        if type(object) is np.ndarray:
            return _staged_ndarray(object, copy)
    dtype = requested_dtype(dtype, "array")
    sharding = device_sharding(device, out_sharding, "jnp.array")
    weak_type = dtype is None and dtypes.is_weak(object)
    out = convert(_collect(object, dtype, copy), *_target(object, dtype, weak_type))
    if not hasattr(out, "aval"):
        out = lax.stage(out)
    if ndmin > out.ndim:
        out = lax.expand_dims(out, range(ndmin - out.ndim))
    return place_inside(out, sharding)


def _positional(args, copy, order, ndmin):
    if len(args) > 3:
        raise TypeError(f"array() takes at most 5 positional arguments but {len(args) + 2} were given")
    named, defaults = [copy, order, ndmin], [True, "K", 0]
    for name, given, default, _ in zip(("copy", "order", "ndmin"), named, defaults, args):
        if given != default:
            raise TypeError(f"array() got multiple values for argument '{name}'")
    warn_user(
        "Passing the copy, order, and ndmin arguments to jnp.array positionally is deprecated. Use keyword "
        "arguments instead.",
        DeprecationWarning,
    )
    return [*args, *named[len(args) :]]


def _staged_ndarray(x: np.ndarray, copy: bool):
    # NumPy arrays can change later, but a program that is being traced keeps its constants.
    return lax.stage(x.copy() if copy and state.trace is not EVAL else x)


def _is_array(x: Any) -> bool:
    return getattr(x, "aval", None) is not None


def _leaves(x: Any, out: list[Any]) -> list[Any]:
    """The entries of nested lists and tuples."""
    if isinstance(x, (list, tuple)):
        for entry in x:
            _leaves(entry, out)
    else:
        out.append(x)
    return out


def _map_leaves(fun, x: Any) -> Any:
    return [_map_leaves(fun, entry) for entry in x] if isinstance(x, (list, tuple)) else fun(x)


def _promoted(leaves: list[Any]) -> Any:
    """The promoted dtype of a list of values."""
    if not leaves:
        return dtypes.default_float_dtype()
    distinct: dict[Any, Any] = {}
    for x in leaves:
        kind = type(x)
        key: Any
        if kind in dtypes.python_scalar_dtypes:
            key = kind
        else:
            if kind is str:
                x = np.asarray(x)  # not the name of a dtype
            aval = getattr(x, "aval", None)
            key = (x.dtype if hasattr(x, "dtype") else id(x)) if aval is None else aval
        distinct.setdefault(key, x)
    values = list(distinct.values())
    try:
        return dtypes.lattice_result_type(*values)[0]
    except TypeError:
        pass
    arrays = [np.asarray(x) if not _has_type(x) and _is_read_by_numpy(x) else x for x in values]
    wrong = next((x for x in arrays if not _may_be_in_an_array(x)), None)
    if wrong is not None:
        raise TypeError(
            f"Value '{wrong}' with dtype object is not a valid JAX array type. Only arrays of numeric types are "
            f"supported by JAX. Its type is {type(wrong)}. To apply a function to each array of a dict or another "
            "pytree, use jax.tree.map."
        )
    return dtypes.lattice_result_type(*arrays)[0]


def _may_be_in_an_array(x: Any) -> bool:
    return _has_type(x) or np.isscalar(x)


def _has_type(x: Any) -> bool:
    return hasattr(x, "dtype") or hasattr(x, "aval")


def _is_number(x: Any) -> bool:
    """Whether x is the tracer of a Python number that is known now. The tracer itself, returned, stays a number."""
    return isinstance(x, Tracer) and x.concrete() is not None and x.aval.weak_type and not x.aval.shape


def _is_read_by_numpy(x: Any) -> bool:
    """Whether x is an array, a sequence such as a range, or a buffer."""
    if hasattr(x, "__array__") or (isinstance(x, Sequence) and not isinstance(x, str)):
        return True
    try:
        memoryview(x)
    except TypeError:
        return False
    return True


def _target(x: Any, dtype: Any, weak_type: bool) -> tuple[Any, bool]:
    """dtype and weak type of the result."""
    if dtype is None:
        leaves = _leaves(unwrap(x), [])
        dtype = _promoted([unwrap(leaf) for leaf in leaves])
    return dtype, weak_type


def _collect(x: Any, dtype: Any, copy: bool) -> Any:
    """`x` as one array, or as one NumPy array of the dtype if no part of it is already an array."""
    x = unwrap(x)
    if _is_array(x):
        return lax.copy_p.bind(x) if copy else x
    leaves = _leaves(x, [])
    if any(leaf is None for leaf in leaves):
        raise ValueError("None is not a valid value for jnp.array")
    unwrapped = [unwrap(leaf) for leaf in leaves]
    if dtype is None:
        dtype = _promoted(unwrapped)
    if not any(map(_is_array, unwrapped)):
        return _from_numpy(x, dtype)
    if state.trace is EVAL and not any(_is_elsewhere(leaf) for leaf in unwrapped):
        # All values are in this process: copy each once instead of running a program for each level.
        return np.asarray(_map_leaves(lambda leaf: np.asarray(unwrap(leaf)), x)).astype(dtype)
    return _concatenated(x, dtype)


def _is_elsewhere(x: Any) -> bool:
    """Whether x is traced, or other ranks have parts of it."""
    return isinstance(x, Tracer) or not is_whole(x)


def _from_numpy(x: Any, dtype: Any) -> np.ndarray:
    of_python = isinstance(x, (list, tuple, bool, int, float, complex)) and not isinstance(x, np.generic)
    if not of_python and not _is_read_by_numpy(x):
        raise TypeError(f"Unexpected input type for array: {type(x)}")
    if isinstance(dtype, dtypes.ExtendedDType):
        raise TypeError(f"Cannot make an array with dtype {dtype} from {type(x)}.")
    if of_python:
        return np.asarray(x, dtype)
    value = np.asarray(x)
    if is_complex(value.dtype) and not is_complex(dtype):
        value = value.real
    with np.errstate(all="ignore"):
        return value.astype(dtype)


def _concatenated(x: Any, dtype: Any) -> Any:
    if not isinstance(x, (list, tuple)):
        return convert(array(x, dtype=dtype, copy=False), dtype)
    if not x:
        return np.array([], dtype)
    parts = [lax.expand_dims(array(entry, dtype=dtype, copy=False), [0]) for entry in x]
    while len(parts) > _CONCATENATE_AT_ONCE:
        parts = [
            lax.concatenate(parts[i : i + _CONCATENATE_AT_ONCE], 0)
            for i in range(0, len(parts), _CONCATENATE_AT_ONCE)
        ]
    return lax.concatenate(parts, 0)


def asarray(
    a: Any, dtype: Any = None, order: str | None = None, *, copy=None, device=None, out_sharding=None
):
    """An array of the numbers in `a`. An array of the right dtype is returned unchanged unless `copy` is true.

    See `array` for the arguments.

    >>> x = jnp.array([1, 2])
    >>> jnp.asarray(x) is x, jnp.asarray([1, 2], dtype=jnp.float32)
    (True, Array([1., 2.], dtype=float32))
    """
    if (
        dtype is None
        and device is None
        and out_sharding is None
        and not copy
        and order is None
        and _is_array(a)
    ):
        return lax.copy_p.bind(a) if _is_number(a) else a
    dtype = requested_dtype(dtype, "asarray")
    return array(a, dtype=dtype, copy=bool(copy), order=order, device=device, out_sharding=out_sharding)
