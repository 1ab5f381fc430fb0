"""`ufunc`: a function of scalars that works elementwise. If it has two arguments, it can reduce and accumulate.

If a function has a fast form of a method, such as `sum` for `add.reduce`, the ufunc uses it. Other methods are loops.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.numpy.ufuncs.vectorization import vectorize
from mpijax.numpy.util import (
    _where,
    as_array,
    broadcast_to,
    canonical_axis,
    check_arraylike,
    dtype_of,
    ensure_arraylike,
    shape_of,
)
from mpijax.transforms.api import eval_shape
from mpijax.transforms.jit import jit
from mpijax.transforms.vmap import vmap


class ufunc:
    """A function of scalars, applied elementwise to arrays.

    Args:
      func: function of `nin` scalars that returns `nout` scalars; it is traced.
      name: default the name of `func`.
      nargs: number of arguments that `func` uses; default `nin`.
      identity: the value that leaves the other argument unchanged, for reductions; None if there is none.
      call, reduce, accumulate, at, reduceat: functions to use instead of the general methods.

    >>> average = jnp.ufunc(lambda x, y: (x + y) / 2, nin=2, nout=1, name="average")
    >>> average.outer(jnp.array([0.0, 10.0]), jnp.array([2.0, 4.0]))
    Array([[1., 2.],
           [6., 7.]], dtype=float32)
    """

    def __init__(
        self,
        func: Callable,
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        nargs: int | None = None,
        identity: Any = None,
        call: Callable | None = None,
        reduce: Callable | None = None,
        accumulate: Callable | None = None,
        at: Callable | None = None,
        reduceat: Callable | None = None,
    ):
        self.__doc__ = func.__doc__
        self.__name__ = self.__qualname__ = name or func.__name__
        # The attributes of the hash cannot be set.
        self._fixed = func, operator.index(nin), operator.index(nout), operator.index(nargs or nin), identity
        self._call = call
        self._forms = {"reduce": reduce, "accumulate": accumulate, "at": at, "reduceat": reduceat}

    @property
    def _func(self) -> Callable:
        return self._fixed[0]

    @property
    def nin(self) -> int:
        """Number of arguments."""
        return self._fixed[1]

    @property
    def nout(self) -> int:
        """Number of results."""
        return self._fixed[2]

    @property
    def nargs(self) -> int:
        """Number of arguments that the function uses."""
        return self._fixed[3]

    @property
    def identity(self) -> Any:
        """The value that leaves the other argument unchanged, for reductions; None if there is none."""
        return self._fixed[4]

    def _key(self) -> tuple:
        return self.__name__, *self._fixed

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ufunc) and self._key() == other._key()

    def __repr__(self) -> str:
        return f"<jnp.ufunc '{self.__name__}'>"

    def __call__(self, *args: Any, out: None = None, where: None = None) -> Any:
        """The function, elementwise; the arguments broadcast against each other."""
        if out is not None or where is not None:
            raise NotImplementedError(f"{'where' if out is None else 'out'} argument of {self}")
        if self._call is not None:
            return self._call(*args)
        check_arraylike(self.__name__, *args)
        return _call_vectorized(self, *args)

    def reduce(
        self,
        a: Any,
        axis: int | None = 0,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Any:
        """Combine all elements along an axis with the function, from left to right (None: of the flattened array).

        Args:
          dtype: dtype of the arguments of the function and of the result.
          keepdims: keep the axis with size 1.
          initial: the start value; default the identity, or the first element.
          where: bool array that selects elements.

        >>> jnp.maximum.reduce(jnp.array([[1, 5], [3, 4]]), axis=1)
        Array([5, 4], dtype=int32)
        """
        name = f"{self.__name__}.reduce"
        check_arraylike(name, a)
        self._require_binary("reduce")
        _refuse_out(name, out)
        if initial is not None:
            check_arraylike(name, initial)
        if where is not None:
            self._check_where(where, initial)
        return _reduce(self, a, axis, dtype, keepdims, initial, where)

    def accumulate(self, a: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
        """The results of `reduce` for the first 1, 2, 3, ... elements along an axis. The shape is that of `a`.

        >>> jnp.maximum.accumulate(jnp.array([2, 1, 5, 3]))
        Array([2, 2, 5, 5], dtype=int32)
        """
        self._require_binary("accumulate")
        _refuse_out(f"{self.__name__}.accumulate", out)
        check_arraylike(f"{self.__name__}.accumulate", a)
        return _accumulate(self, a, axis, dtype)

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Any:
        """`a` with the function applied to the elements at `indices`: twice if an index occurs twice.

        Args:
          b: the second argument of a function with two arguments; broadcast against the indices.
          inplace: must be False; `at` returns an updated copy.

        >>> jnp.add.at(jnp.zeros(3), jnp.array([0, 2, 2]), 1.0, inplace=False)
        Array([1., 0., 2.], dtype=float32)
        """
        if inplace:
            raise NotImplementedError(
                "Because JAX arrays are immutable, jnp.ufunc.at() cannot operate inplace like np.ufunc.at(). "
                "Instead, you can pass inplace=False and capture the result; e.g. "
                ">>> arr = jnp.add.at(arr, ind, val, inplace=False)"
            )
        return _at(self, a, indices, *(() if b is None else (b,)))

    def reduceat(self, a: Any, indices: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
        """`reduce` of segments of an axis: each goes from one index to the next (exclusive), and the last to the end.

        If the next index is not larger, the segment gives its first element.

        >>> jnp.add.reduceat(jnp.array([1, 2, 3, 4]), jnp.array([0, 3]))
        Array([6, 4], dtype=int32)
        """
        self._require_binary("reduceat")
        _refuse_out(f"{self.__name__}.reduceat", out)
        return _reduceat(self, a, indices, axis, dtype)

    def outer(self, A: Any, B: Any, /) -> Any:
        """The function of each pair of an element of `A` and an element of `B`: an array of shape `[*A.shape,
        *B.shape]`.

        >>> jnp.multiply.outer(jnp.array([1, 2]), jnp.array([10, 20, 30]))
        Array([[10, 20, 30],
               [20, 40, 60]], dtype=int32)
        """
        self._require_binary("outer")
        check_arraylike(f"{self.__name__}.outer", A, B)
        return _outer(self, A, B)

    def _require_binary(self, method: str) -> None:
        if self.nin != 2:
            raise ValueError(f"{method} only supported for binary ufuncs")
        if self.nout != 1:
            raise ValueError(f"{method} only supported for functions returning a single value")

    def _check_where(self, where: Any, initial: Any) -> None:
        check_arraylike(f"{self.__name__}.reduce", where)
        if self.identity is None and initial is None:
            raise ValueError(
                f"reduction operation {self.__name__!r} does not have an identity, so to use a where mask one has "
                "to specify 'initial'."
            )
        if dtype_of(where) != np.bool_:
            raise ValueError(f"where argument must have dtype=bool; got dtype={dtype_of(where)}")

    def _result_dtype(self, *args: Any) -> Any:
        """The dtype of the result for scalars with the dtypes of `args`."""
        return eval_shape(self._func, *(lax.full_like(a, 1, shape=()) for a in args)).dtype


def frompyfunc(func: Callable, /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """A `ufunc` from a function of `nin` scalars that returns `nout` scalars.

    >>> clipped_sum = jnp.frompyfunc(lambda x, y: jnp.minimum(x + y, 10), nin=2, nout=1)
    >>> clipped_sum.accumulate(jnp.array([4, 3, 5, 1]))
    Array([ 4,  7, 10, 10], dtype=int32)
    """
    return ufunc(func, nin, nout, identity=identity)


def _refuse_out(name: str, out: Any) -> None:
    if out is not None:
        raise NotImplementedError(f"out argument of {name}()")


@jit(static_argnames=("self",))
def _call_vectorized(self, *args):
    return vectorize(self._func)(*args)


@jit(static_argnames=("self", "axis", "dtype", "keepdims"))
def _reduce(self, a, axis, dtype, keepdims, initial, where) -> Any:
    fast = self._forms["reduce"]
    if fast is not None:
        return fast(a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)
    a = as_array(a)
    if isinstance(axis, tuple):
        raise NotImplementedError("tuple of axes")
    if initial is None:
        initial = self.identity
    if dtype is None:
        dtype = self._result_dtype(a, a)
    if where is not None:
        where = broadcast_to(where, a.shape)
    kept_shape = (1,) * a.ndim
    if axis is None:
        a, where, axis = a.ravel(), None if where is None else where.ravel(), 0
        shape: tuple[int, ...] = kept_shape if keepdims else ()
    else:
        axis = canonical_axis(axis, a.ndim)
        shape = (*a.shape[:axis], *((1,) if keepdims else ()), *a.shape[axis + 1 :])
    a = jnp.moveaxis(a, axis, 0)
    where = None if where is None else jnp.moveaxis(where, axis, 0)
    if a.shape[0] == 0:
        if initial is None:
            raise ValueError(f"zero-size array to reduction operation {self.__name__} which has no identity")
        return lax.full(shape, initial, dtype)

    def step(i, value):
        combined = self(value, a[i].astype(dtype))
        return combined if where is None else _where(where[i], combined, value)

    start = a[0] if initial is None else initial
    start = broadcast_to(as_array(start).astype(dtype), a.shape[1:])
    return lax.fori_loop(1 if initial is None else 0, a.shape[0], step, start).reshape(shape)


@jit(static_argnames=("self", "axis", "dtype"))
def _accumulate(self, a, axis, dtype):
    fast = self._forms["accumulate"]
    if fast is not None:
        return fast(a, axis=axis, dtype=dtype)
    a = as_array(a)
    if dtype is None:
        dtype = self._result_dtype(a, a)
    if axis is None or isinstance(axis, tuple):
        raise ValueError("accumulate does not allow multiple axes")
    axis = canonical_axis(axis, a.ndim)
    if a.size == 0:
        return lax.full(a.shape, 0, dtype)
    lines = jnp.moveaxis(a, axis, 0).astype(dtype)

    def step(value, x):
        value = self(value, x).astype(dtype)
        return value, value

    _, rest = lax.scan(step, lines[0], lines[1:])
    return jnp.moveaxis(jnp.concatenate([lines[:1], rest]), 0, axis)


def _index_tuple(indices: Any) -> tuple:
    if isinstance(indices, tuple):
        return indices
    if isinstance(indices, list):
        raise TypeError(
            "Using a non-tuple sequence for multidimensional indexing is not allowed; use `arr[array(seq)]` instead of "
            "`arr[seq]`. See https://github.com/jax-ml/jax/issues/4564 for more information."
        )
    return (indices,)


@jit(static_argnames=("self",))
def _at(self, a, indices, *args):
    a, *args = (ensure_arraylike(f"{self.__name__}.at", x) for x in (a, *args))
    fast = self._forms["at"]
    if fast is not None:
        return fast(a, indices, *args)
    indices = _index_tuple(indices)
    dtype = self._result_dtype(a, *args)
    a, *args = (x.astype(dtype) for x in (a, *args))
    shape = lax.broadcast_shapes(*(shape_of(i) for i in indices if not isinstance(i, slice)))
    if not indices:
        return a
    if not shape:
        return a.at[indices].set(self(a.at[indices].get(), *args))
    # One after the other, so that an element is updated twice if its index occurs twice.
    count = math.prod(shape)
    indices = tuple(i if isinstance(i, slice) else broadcast_to(i, shape).reshape(count) for i in indices)
    inner = [x.shape[len(shape) :] for x in args]
    args = [broadcast_to(x, (*shape, *s)).reshape(count, *s) for x, s in zip(args, inner, strict=True)]

    def step(i, a):
        index = tuple(x if isinstance(x, slice) else x[i] for x in indices)
        return a.at[index].set(self(a.at[index].get(), *(x[i] for x in args)))

    return lax.fori_loop(0, count, step, a)


@jit(static_argnames=("self", "axis", "dtype"))
def _reduceat(self, a, indices, axis, dtype):
    fast = self._forms["reduceat"]
    if fast is not None:
        return fast(a, indices, axis=axis, dtype=dtype)
    name = f"{self.__name__}.reduceat"
    a, indices = ensure_arraylike(name, a, indices)
    if a.ndim == 0:
        raise ValueError(f"reduceat: a must have 1 or more dimension, got {a.shape=}")
    if indices.ndim != 1:
        raise ValueError(f"reduceat: indices must be one-dimensional, got {indices.shape=}")
    if axis is None or isinstance(axis, (tuple, list)):
        raise ValueError("reduceat requires a single integer axis.")
    axis = canonical_axis(axis, a.ndim)
    a = a if dtype is None else a.astype(dtype)
    out = jnp.take(a, indices, axis=axis)
    # [stretches], along the axis.
    spread = [1] * axis + [-1] + [1] * (a.ndim - axis - 1)
    ends = jnp.append(indices[1:], a.shape[axis]).reshape(spread)
    starts = indices.reshape(spread)

    def step(i, out):
        inside = (i > starts) & (i < ends)
        return _where(inside, self(out, lax.dynamic_index_in_dim(a, i, axis)), out)

    return lax.fori_loop(0, a.shape[axis], step, out)


@jit(static_argnames=("self",))
def _outer(self, A, B):
    A, B = as_array(A), as_array(B)
    out = vmap(vmap(self, (None, 0)), (0, None))(A.ravel(), B.ravel())
    return out.reshape(*A.shape, *B.shape)
