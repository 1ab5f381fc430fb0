"""`x.at[index].set(values)` and related methods: updated copies of immutable arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base.option import values as options
from mpijax.core.base.warn import warn_user
from mpijax.core.tracing.out_sharding import F, takes_out_sharding
from mpijax.numpy import util
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.creation.fills import ones_like
from mpijax.numpy.indexing import take as indexing
from mpijax.numpy.indexing.dynamic_slices import has_slices, positions_of_slices
from mpijax.numpy.indexing.gather import gather_plan, is_empty
from mpijax.numpy.indexing.parse import expand_masks, parse
from mpijax.numpy.indexing.plan import wide_indices
from mpijax.numpy.ufuncs.arithmetic import divide, power
from mpijax.transforms.jit import jit


class IndexUpdateHelper:
    """`x.at`: index it, then call a method that reads or updates the elements.

    ==============================  ================================
    ``x.at[idx].set(y)``            ``x[idx] = y``
    ``x.at[idx].add(y)``            ``x[idx] += y``
    ``x.at[idx].subtract(y)``       ``x[idx] -= y``
    ``x.at[idx].multiply(y)``       ``x[idx] *= y``
    ``x.at[idx].divide(y)``         ``x[idx] /= y``
    ``x.at[idx].power(y)``          ``x[idx] **= y``
    ``x.at[idx].min(y)``            ``x[idx] = minimum(x[idx], y)``
    ``x.at[idx].max(y)``            ``x[idx] = maximum(x[idx], y)``
    ``x.at[idx].apply(ufunc)``      ``ufunc.at(x, idx)``
    ``x.at[idx].get()``             ``x[idx]``
    ==============================  ================================

    All return a new array. Under `jit`, the update happens in place if `x` is not used afterwards.
    An element whose index occurs twice is updated twice, in no particular order.

    Keyword arguments of all methods:
      mode: what happens out of bounds. "promise_in_bounds" (default): updates are dropped, reads clipped;
        "clip": the nearest element; "drop" or "fill": updates are dropped, reads give `fill_value`.
      wrap_negative_indices: whether negative indices count from the end (default), or are out of bounds.
      indices_are_sorted, unique_indices: promises about the indices that allow faster code.
      fill_value: of `get` with mode "fill". Default: NaN for floats, the smallest number for signed integers, the
        largest for unsigned integers, True for bool.

    >>> x = jnp.arange(4)
    >>> x.at[1].set(10), x.at[2:].add(100)
    (Array([ 0, 10,  2,  3], dtype=int32), Array([  0,   1, 102, 103], dtype=int32))
    """

    __slots__ = ("array",)

    def __init__(self, array: Any):
        self.array = array

    def __getitem__(self, index: Any) -> IndexUpdateRef:
        return IndexUpdateRef(self.array, index)

    def __repr__(self) -> str:
        return f"_IndexUpdateHelper({self.array!r})"


def _takes_out_sharding(method: F) -> F:
    """A method whose result has the sharding `out_sharding`; see `core.tracing.out_sharding`."""

    @wraps(method)
    def call(self, *args, out_sharding=None, **how):
        if out_sharding is None:
            return method(self, *args, **how)

        @wraps(method)
        def fun(array, index, *rest, **kwargs):
            return method(IndexUpdateRef(array, index), *rest, **kwargs)

        return takes_out_sharding(fun)(self.array, self.index, *args, out_sharding=out_sharding, **how)

    return call  # type: ignore[return-value]


class IndexUpdateRef:
    """`x.at[index]`."""

    __slots__ = ("array", "index")

    def __init__(self, array: Any, index: Any):
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"_IndexUpdateRef({self.array!r}, {self.index!r})"

    @_takes_out_sharding
    def get(self, *, out_sharding: Any = None, **how: Any) -> Any:
        """`x[index]`; see `x.at` for the keyword arguments.

        >>> jnp.array([10, 20, 30]).at[jnp.array([2, 7])].get(mode="fill", fill_value=-1)
        Array([30, -1], dtype=int32)
        """
        return indexing.get(self.array, self.index, **how)

    @_takes_out_sharding
    def set(self, values: Any, *, out_sharding: Any = None, **how: Any) -> Any:
        """Copy of x with `x[index] = values`.

        >>> jnp.zeros((2, 3)).at[:, 1].set(jnp.array([5.0, 6.0]))
        Array([[0., 5., 0.],
               [0., 6., 0.]], dtype=float32)
        """
        return scatter_update(self.array, self.index, values, lax.scatter, **how)

    @_takes_out_sharding
    def apply(self, func: Callable, *, out_sharding: Any = None, **how: Any) -> Any:
        """Copy of x with `func` applied to each indexed element, once for each time that its index occurs.

        >>> jnp.array([1.0, 4.0, 9.0]).at[1:].apply(jnp.sqrt)
        Array([1., 2., 3.], dtype=float32)
        """

        def scatter_apply(x, indices, updates, dimension_numbers, **kwargs):
            return lax.scatter_apply(x, indices, func, dimension_numbers, update_shape=updates.shape, **kwargs)

        return scatter_update(self.array, self.index, util.zero_like(self.array), scatter_apply, **how)

    @_takes_out_sharding
    def add(self, values: Any, *, out_sharding: Any = None, **how: Any) -> Any:
        """Copy of x with `x[index] += values`.

        >>> jnp.zeros(3).at[jnp.array([0, 2, 2])].add(1.0)
        Array([1., 0., 2.], dtype=float32)
        """
        return scatter_update(self.array, self.index, values, lax.scatter_add, **how)

    @_takes_out_sharding
    def subtract(self, values: Any, *, out_sharding: Any = None, **how: Any) -> Any:
        """Copy of x with `x[index] -= values`.

        >>> jnp.array([10, 20, 30]).at[1].subtract(5)
        Array([10, 15, 30], dtype=int32)
        """
        return scatter_update(self.array, self.index, values, lax.scatter_sub, **how)

    @_takes_out_sharding
    def multiply(self, values: Any, *, out_sharding: Any = None, **how: Any) -> Any:
        """Copy of x with `x[index] *= values`.

        >>> jnp.array([1, 2, 3]).at[::2].multiply(10)
        Array([10,  2, 30], dtype=int32)
        """
        return scatter_update(self.array, self.index, values, lax.scatter_mul, **how)

    mul = multiply

    @_takes_out_sharding
    def divide(self, values: Any, *, out_sharding: Any = None, **how: Any) -> Any:
        """Copy of x with `x[index] /= values`.

        >>> jnp.array([1.0, 2.0, 3.0]).at[-1].divide(2.0)
        Array([1. , 2. , 1.5], dtype=float32)
        """
        return divide(self.array, self._factors(values, how))

    @_takes_out_sharding
    def power(self, values: Any, *, out_sharding: Any = None, **how: Any) -> Any:
        """Copy of x with `x[index] **= values`.

        >>> jnp.array([1, 2, 3]).at[1:].power(2)
        Array([1, 4, 9], dtype=int32)
        """
        return power(self.array, self._factors(values, how))

    def _factors(self, values: Any, how: dict[str, Any]) -> Any:
        """`values` at the indexed positions (their product if an index occurs twice), 1 elsewhere."""
        return scatter_update(ones_like(self.array), self.index, values, lax.scatter_mul, **how)

    @_takes_out_sharding
    def min(self, values: Any, *, out_sharding: Any = None, **how: Any) -> Any:
        """Copy of x with `x[index] = minimum(x[index], values)`.

        >>> jnp.array([1, 5, 9]).at[:].min(4)
        Array([1, 4, 4], dtype=int32)
        """
        return scatter_update(self.array, self.index, values, lax.scatter_min, **how)

    @_takes_out_sharding
    def max(self, values: Any, *, out_sharding: Any = None, **how: Any) -> Any:
        """Copy of x with `x[index] = maximum(x[index], values)`.

        >>> jnp.array([1, 5, 9]).at[:].max(4)
        Array([4, 5, 9], dtype=int32)
        """
        return scatter_update(self.array, self.index, values, lax.scatter_max, **how)



def scatter_update(
    x: Any,
    index: Any,
    values: Any,
    scatter: Callable,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
    wrap_negative_indices: bool = True,
) -> Any:
    """Copy of x updated at `index` by one of lax's scatters. `values` broadcast to the shape of
    `x[index]`."""
    x = asarray(x)
    if isinstance(values, int) and dtypes.issubdtype(x.dtype, np.integer) and _fits(values, x.dtype):
        values = asarray(values, dtype=x.dtype)
    else:
        values = asarray(values)
    if has_slices(index):
        index = positions_of_slices(x.shape, index, mode)
    entries = expand_masks(parse(index, x.shape), x.shape)
    dtype, weak_type = x.dtype, dtypes.is_weak(x)
    if not dtypes.safe_to_cast(values, x):
        warn_user(
            "scatter inputs have incompatible types: cannot safely cast value "
            f"from dtype={values.dtype} to dtype={dtype} with "
            f"jax_numpy_dtype_promotion={options.jax_numpy_dtype_promotion}. "
            "In future JAX releases this will result in an error.",
            FutureWarning,
        )
    with wide_indices(x.shape):
        plan = gather_plan(entries, x.shape, wrap_negative_indices)
        if is_empty(plan.shape):
            return x

        x, values = util.promote_dtypes(x, values)
        values = util.broadcast_to(values, tuple(plan.shape))
        if plan.new_axes:
            values = lax.squeeze(values, plan.new_axes)
        if plan.reversed_axes:
            values = lax.rev(values, plan.reversed_axes)
        if plan.bool_axes:
            x = lax.expand_dims(x, plan.bool_axes)
        gathering = plan.dimension_numbers
        out = scatter(
            x,
            plan.indices,
            values,
            # Where a gather reads its slices, a scatter writes them.
            lax.ScatterDimensionNumbers(
                update_window_dims=gathering.offset_dims,
                inserted_window_dims=gathering.collapsed_slice_dims,
                scatter_dims_to_operand_dims=gathering.start_index_map,
            ),
            indices_are_sorted=indices_are_sorted or plan.distinct,
            unique_indices=unique_indices or plan.distinct,
            mode=mode,
        )
        if plan.bool_axes:
            out = lax.squeeze(out, plan.bool_axes)
    return util.convert(out, dtype, weak_type)


def _fits(value: int, dtype: np.dtype) -> bool:
    info = dtypes.iinfo(dtype)
    return info.min <= value <= info.max


@jit(static_argnames=("axis", "inplace", "mode"))
def put_along_axis(
    arr: Any, indices: Any, values: Any, axis: int | None, inplace: bool = True, *, mode: str | None = None
) -> Any:
    """Copy of `arr` with `values` at `indices` along `axis`. Each line along the axis has its own positions.

    Args:
      arr: array.
      indices: integers, with as many axes as `arr`.
      values: broadcast to the shape of `indices`.
      axis: axis to index; None flattens `arr` first.
      inplace: must be False: arrays are immutable.
      mode: as in `arr.at[...].set`.

    >>> scores = jnp.array([[7, 1, 5], [2, 9, 4]])
    >>> worst = jnp.argmin(scores, axis=1, keepdims=True)
    >>> jnp.put_along_axis(scores, worst, 0, axis=1, inplace=False)
    Array([[7, 0, 5],
           [0, 9, 4]], dtype=int32)
    """
    if inplace:
        raise ValueError(
            "jax.numpy.put_along_axis cannot modify arrays in-place, because JAX arrays are immutable. Pass "
            "inplace=False to instead return an updated array."
        )
    arr, indices, values = util.ensure_arraylike("put_along_axis", arr, indices, values)
    shape = arr.shape
    if axis is None:
        arr, at = arr.ravel(), 0
    else:
        at = util.canonical_axis(axis, arr.ndim)
    if arr.ndim != indices.ndim:
        raise ValueError(
            "put_along_axis arguments 'arr' and 'indices' must have same ndim. Got "
            f"arr.ndim={arr.ndim} and indices.ndim={indices.ndim}."
        )
    try:
        values = util.broadcast_to(values, indices.shape)
    except ValueError:
        raise ValueError(
            "put_along_axis argument 'values' must be broadcastable to 'indices'. Got "
            f"values.shape={values.shape} and indices.shape={indices.shape}."
        ) from None
    grid = [_positions(arr.shape, i) for i in range(arr.ndim)]
    grid[at] = indices
    out = IndexUpdateHelper(arr)[tuple(grid)].set(values, mode=mode)
    return out.reshape(shape) if axis is None else out


def _positions(shape: tuple[int, ...], axis: int) -> Any:
    """0, 1, ... along `axis`, in an array of size 1 along the others."""
    line = lax.iota(dtypes.default_int_dtype(), shape[axis])
    if len(shape) == 1:
        return line
    return lax.broadcast_in_dim(line, (*[1] * axis, shape[axis], *[1] * (len(shape) - axis - 1)), (axis,))
