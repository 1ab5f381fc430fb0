"""Arrays of evenly spaced numbers and of coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base.errors import InconclusiveDimensionOperation
from mpijax.core.shapes.dimensions import DimExpr, steps_between
from mpijax.numpy.creation.constructors import array, asarray
from mpijax.numpy.creation.fills import empty, full
from mpijax.numpy.ufuncs.arithmetic import add, divide, multiply, power, sign, subtract
from mpijax.numpy.ufuncs.complexes import iscomplexobj
from mpijax.numpy.ufuncs.elementwise import log10
from mpijax.numpy.util import (
    broadcast_to,
    canonical_axis,
    canonical_shape,
    check_arraylike_or_none,
    convert,
    device_sharding,
    ensure_arraylike,
    ensure_arraylike_tuple,
    is_float,
    is_integer,
    place_inside,
    requested_dtype,
    static,
    static_int,
)
from mpijax.transforms.jit import jit
from mpijax.transforms.vmap import vmap


def arange(start, stop=None, step=None, dtype=None, *, device=None, out_sharding=None):
    """Numbers from `start` (default 0) up to `stop`, excluding `stop`, in steps of `step`.

    The arguments are scalars that must be known while tracing, because they decide the length.

    >>> jnp.arange(3), jnp.arange(0, 1, 0.25)
    (Array([0, 1, 2], dtype=int32), Array([0.  , 0.25, 0.5 , 0.75], dtype=float32))
    """
    sharding = device_sharding(device, out_sharding, "jnp.arange")
    return place_inside(_arange(start, stop, step, requested_dtype(dtype, "arange")), sharding)


def _arange(start, stop, step, dtype):
    check_arraylike_or_none("arange", start, stop, step)
    first_name = "stop" if stop is None and step is None else "start"
    bounds = {}
    for name, value in ((first_name, start), ("stop", stop), ("step", step)):
        if value is None:
            bounds.setdefault(name, None)
            continue
        value = static(value, f"It arose in the jnp.arange argument '{name}'")
        if np.ndim(value) != 0:
            raise ValueError(f"jax.numpy.arange: arguments must be scalars; got {name}={value}")
        bounds[name] = value
    start = bounds[first_name]
    if any(map(iscomplexobj, (start, stop, step))):
        raise ValueError(
            "Passing complex start/stop/step to jnp.arange is no longer supported starting in JAX v0.10.0."
        )
    dtype = dtypes.jax_dtype(dtype or dtypes.result_type(*(x for x in (start, stop, step) if x is not None)))
    if any(isinstance(x, DimExpr) for x in (start, stop, step)):
        return _symbolic_arange(start, stop, step, dtype)
    start, stop, step = (_number(x) for x in (start, stop, step))
    if stop is None:
        start, stop = 0, start
    if step is not None:
        size = max(0, math.ceil((stop - start) / step))
        narrow = is_float(dtype) and dtypes.finfo(dtype).bits < 32
        working = np.dtype(np.float32) if narrow else dtype
        return convert(_steps(convert(start, working), convert(step, working), size, working), dtype)
    size = max(0, math.ceil(stop - start))
    if start == 0:
        return lax.broadcasted_iota(dtype, (size,), 0)
    return lax.add(convert(start, dtype), lax.broadcasted_iota(dtype, (size,), 0))


def _symbolic_arange(start: Any, stop: Any, step: Any, dtype: np.dtype) -> Any:
    """`arange` between symbolic sizes."""
    given = (start, stop, step)
    if not all(x is None or isinstance(x, (int, np.integer, DimExpr)) for x in given):
        raise ValueError(
            "jax.numpy.arange with symbolic dimensions: all arguments must be either dimension expressions or "
            f"integers, got {start=}, {stop=}, {step=}"
        )
    if stop is None:
        start, stop = 0, start
    step = 1 if step is None else step
    if not isinstance(step, DimExpr) and step == 0:
        raise ValueError(f"jax.numpy.arange with symbolic dimensions has step == 0, got {start=}, {stop=}, {step=}")
    try:
        away, stride = (stop - start, step) if step > 0 else (start - stop, -step)
    except InconclusiveDimensionOperation as error:
        raise InconclusiveDimensionOperation(
            f"jax.numpy.arange: the step {step} must be resolved statically if it is > 0 or < 0. {error}"
        ) from error
    return _steps(convert(start, dtype), convert(step, dtype), steps_between(away, stride), dtype)


def _number(x: Any) -> Any:
    """A scalar that is known while tracing, as a Python or NumPy number."""
    return np.asarray(x)[()] if hasattr(x, "aval") else x


@jit(static_argnums=(2, 3), inline=True)
def _steps(start, step, size, dtype):
    return lax.add(start, lax.mul(step, lax.broadcasted_iota(dtype, (size,), 0)))


def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0, *, device=None):
    """`num` evenly spaced numbers from `start` to `stop`. `stop` is included if `endpoint`.

    Args:
      start, stop: scalars or arrays that broadcast together; the numbers run along the new axis `axis`.
      retstep: return (numbers, step).

    Returns:
      Array with `num` elements along `axis`. The default dtype is a float dtype; integers are rounded down.

    Raises:
      ValueError: `num` is negative.

    >>> jnp.linspace(0, 1, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    num = static_int(num, "'num' argument of jnp.linspace")
    axis = static_int(axis, "'axis' argument of jnp.linspace")
    result = _linspace(start, stop, num, endpoint, retstep, dtype, axis)
    if device is None:
        return result
    return (place_inside(result[0], device), result[1]) if retstep else place_inside(result, device)


@jit(static_argnames=("num", "endpoint", "retstep", "dtype", "axis"))
def _linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0):
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    start, stop = ensure_arraylike("linspace", start, stop)
    dtype = _inexact_result("linspace", dtype, start, stop)
    computation = dtypes.to_inexact_dtype(dtype)
    start, stop = convert(start, computation), convert(stop, computation)
    bounds_shape = list(lax.broadcast_shapes(start.shape, stop.shape))
    first, last = broadcast_to(start, bounds_shape), broadcast_to(stop, bounds_shape)
    axis = len(bounds_shape) + axis + 1 if axis < 0 else axis
    shape = [*bounds_shape[:axis], 1, *bounds_shape[axis:]]
    steps = num - 1 if endpoint else num
    if num > 1:
        delta = divide(subtract(stop, start), asarray(steps, dtype=computation))
        out = _between(first, last, shape, axis, steps, computation)
        if endpoint:
            out = lax.concatenate([out, lax.expand_dims(last, (axis,))], canonical_axis(axis, out.ndim))
    elif num == 1:
        delta = asarray(np.nan if endpoint else subtract(stop, start), dtype=computation)
        out = lax.reshape(first, shape)
    else:
        delta = full((), np.nan, computation)
        out = empty([*bounds_shape[:axis], 0, *bounds_shape[axis:]], dtype)
    if is_integer(dtype) and not is_integer(out.dtype):
        out = lax.floor(out)
    out = convert(out, dtype)
    return (out, delta) if retstep else out


def _between(first, last, shape, axis, steps, dtype):
    """The numbers at 0, 1, ..., steps - 1 of `steps` steps, as weighted means of both ends; exact at 0."""
    real_dtype = dtypes.finfo(dtype).dtype
    along = [1] * len(shape)
    along[axis] = steps
    way = lax.iota(real_dtype, steps)
    if len(along) > 1:
        way = lax.reshape(way, along)
    way = convert(divide(way, asarray(steps, real_dtype)), dtype)
    start_part = multiply(lax.reshape(first, shape), subtract(1, way))
    return add(start_part, multiply(lax.reshape(last, shape), way))


def _inexact_result(name: str, dtype, start, stop):
    if dtype is None:
        return dtypes.to_inexact_dtype(dtypes.result_type(start, stop))
    return dtypes.check_user_dtype_supported(dtype, name)


def logspace(start, stop, num=50, endpoint=True, base=10.0, dtype=None, axis=0):
    """base ** x for `num` evenly spaced x from `start` to `stop`.

    The arguments are those of `linspace`.

    >>> jnp.logspace(0, 3, 4, base=2)
    Array([1., 2., 4., 8.], dtype=float32)
    """
    num = static_int(num, "'num' argument of jnp.logspace")
    axis = static_int(axis, "'axis' argument of jnp.logspace")
    return _logspace(start, stop, num, endpoint, base, dtype, axis)


@jit(static_argnames=("num", "endpoint", "dtype", "axis"))
def _logspace(start, stop, num=50, endpoint=True, base=10.0, dtype=None, axis=0):
    dtype = _inexact_result("logspace", dtype, start, stop)
    computation = dtypes.to_inexact_dtype(dtype)
    start, stop = ensure_arraylike("logspace", start, stop)
    start, stop = convert(start, computation), convert(stop, computation)
    exponents = linspace(start, stop, num, endpoint=endpoint, axis=axis)
    return convert(power(base, exponents), dtype)


def geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    """`num` numbers from `start` to `stop`, with a constant ratio of neighbours.

    The arguments are those of `linspace`.

    >>> jnp.geomspace(1, 1000, 4).round(3)
    Array([   1.,   10.,  100., 1000.], dtype=float32)
    """
    num = static_int(num, "'num' argument of jnp.geomspace")
    axis = static_int(axis, "'axis' argument of jnp.geomspace")
    return _geomspace(start, stop, num, endpoint, dtype, axis)


@jit(static_argnames=("num", "endpoint", "dtype", "axis"))
def _geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    dtype = _inexact_result("geomspace", dtype, start, stop)
    computation = dtypes.to_inexact_dtype(dtype)
    start, stop = ensure_arraylike("geomspace", start, stop)
    start, stop = convert(start, computation), convert(stop, computation)
    factor = sign(start)
    first, last = (log10(divide(x, factor)) for x in (start, stop))
    result = multiply(factor, logspace(first, last, num, endpoint=endpoint, base=10.0, dtype=computation, axis=0))
    axis = canonical_axis(axis, result.ndim)
    if axis != 0:
        result = lax.transpose(result, (*range(1, axis + 1), 0, *range(axis + 1, result.ndim)))
    return convert(result, dtype)


def meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    """Coordinate arrays of the grid spanned by 1-d arrays.

    Args:
      sparse: axes along which an array does not change have size 1.
      indexing: "ij" for result axes in the order of the arguments, "xy" with the first two swapped.

    Returns:
      A list of arrays. Arguments of sizes n and m give the shape [m, n] with "xy", and [n, m] with "ij".

    Raises:
      ValueError: an argument has more than one axis.

    >>> x, y = jnp.meshgrid(jnp.array([1, 2, 3]), jnp.array([10, 20]))
    >>> x + y
    Array([[11, 12, 13],
           [21, 22, 23]], dtype=int32)
    """
    axes = list(ensure_arraylike_tuple("meshgrid", xi))
    if not copy:
        raise ValueError("jax.numpy.meshgrid only supports copy=True")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Valid values for indexing are 'xy' and 'ij', got {indexing}")
    if any(a.ndim != 1 for a in axes):
        raise ValueError(f"Arguments to jax.numpy.meshgrid must be 1D, got shapes {[a.shape for a in axes]}")
    swapped = indexing == "xy" and len(axes) >= 2
    if swapped:
        axes[0], axes[1] = axes[1], axes[0]
    full_shape = [a.shape[0] for a in axes]
    grids = []
    for i, a in enumerate(axes):
        shape = [n if i == j else 1 for j, n in enumerate(full_shape)] if sparse else full_shape
        grids.append(lax.broadcast_in_dim(a, shape, (i,)))
    if swapped:
        grids[0], grids[1] = grids[1], grids[0]
    return grids


def indices(dimensions, dtype=None, sparse=False):
    """For each axis of a grid, the index along it: an array of shape (axes, *dimensions), or a tuple of arrays if
    sparse.

    Args:
      dimensions: the sizes of the axes.
      dtype: default int32 (int64 with jax_enable_x64).

    >>> rows, columns = jnp.indices((2, 3))
    >>> columns
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    dtype = dtypes.check_user_dtype_supported(int if dtype is None else dtype, "indices")
    dimensions = tuple(static_int(d, "dimensions argument of jnp.indices") for d in dimensions)
    grids = []
    for i, n in enumerate(dimensions):
        shape = tuple(n if i == j else 1 for j in range(len(dimensions))) if sparse else dimensions
        grids.append(lax.broadcast_in_dim(lax.iota(dtype, n), shape, (i,)))
    if sparse:
        return tuple(grids)
    return lax.stack(grids, axis=0) if grids else array([], dtype=dtype)


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float, **kwargs: Any):
    """`function(i, j, ...)` at every index of the shape; `vmap` vectorises the function.

    Args:
      function: a function of scalars, one for each axis, and of `kwargs`.
      dtype: dtype of these scalars; default float.

    >>> jnp.fromfunction(lambda i, j: 10 * i + j, (2, 3), dtype=int)
    Array([[ 0,  1,  2],
           [10, 11, 12]], dtype=int32)
    """
    shape = canonical_shape(shape, context="shape argument of jnp.fromfunction()")
    rank = len(shape)
    for i in range(rank):
        in_axes = tuple(0 if i == j else None for j in range(rank))
        function = vmap(function, in_axes=in_axes[::-1])
    return function(*(arange(n, dtype=dtype) for n in shape), **kwargs)
