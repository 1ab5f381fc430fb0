"""Checks and conversions of arguments: arrays, and axes, sizes and shapes that must be known while tracing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base import errors
from mpijax.core.base.warn import warn_user
from mpijax.core.shapes.dimensions import DimExpr, dimension
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.types.array_api import is_whole
from mpijax.core.types.axes import canonical_axis

FLOAT0 = dtypes.float0


def is_arraylike(x: Any) -> bool:
    """Whether x is an array, a traced value, a NumPy array or a scalar. False for lists, tuples and references."""
    aval = getattr(x, "aval", None)
    if aval is not None:
        return not getattr(aval, "is_ref", False)
    return (
        isinstance(x, np.ndarray)
        or (np.isscalar(x) and not isinstance(x, (str, bytes)))
        or hasattr(x, "__jax_array__")
    )


def check_arraylike(fun_name: str, *args: Any, emit_warning: bool = False) -> None:
    """Raise TypeError (or warn) unless all arguments are arrays or scalars."""
    for position, x in enumerate(args):
        if is_arraylike(x):
            continue
        message = f"{fun_name} requires ndarray or scalar arguments, got {type(x)} at position {position}."
        if not emit_warning:
            raise TypeError(message)
        warn_user(
            f"{message} In a future JAX release this will be an error.",
            DeprecationWarning,
        )
        return


def check_arraylike_or_none(fun_name: str, *args: Any) -> None:
    """As `check_arraylike`, but also accepts None."""
    for position, x in enumerate(args):
        if x is not None and not is_arraylike(x):
            raise TypeError(
                f"{fun_name} requires ndarray, scalar, or None arguments, got {type(x)} at position "
                f"{position}."
            )


def unwrap(x: Any) -> Any:
    """The array of an object with a ``__jax_array__`` method; other values unchanged."""
    method = getattr(x, "__jax_array__", None)
    return x if method is None else method()


def as_array(x: Any) -> Any:
    """An array or scalar as an Array (as a tracer while a Jaxpr is traced)."""
    # An object with `__jax_array__` may have the attributes of an array.
    if getattr(x, "aval", None) is not None and not hasattr(type(x), "__jax_array__"):
        return x
    x = unwrap(x)
    if getattr(x, "aval", None) is not None:
        return x
    if not isinstance(x, (bool, int, float, complex, np.ndarray, np.generic)):
        raise TypeError(f"asarray: expected ArrayLike, got {x} of type {type(x)}.")
    return lax.stage(x)


def ensure_arraylike(fun_name: str, *args: Any) -> Any:
    """Check the arguments and return them as Arrays: one Array for one argument, else a tuple."""
    if len(args) == 1:
        x = args[0]
        if getattr(x, "aval", None) is not None and is_arraylike(x):
            return x
    check_arraylike(fun_name, *args)
    if len(args) == 1:
        return as_array(args[0])
    return tuple(map(as_array, args))


def ensure_arraylike_tuple(fun_name: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """Check the elements of a sequence and return them as a tuple of Arrays."""
    check_arraylike(fun_name, *args)
    return tuple(map(as_array, args))


def check_no_float0s(fun_name: str, *args: Any) -> None:
    """Raise TypeError for arrays of float0, the tangents of integers, which have no arithmetic."""
    if any(getattr(x, "dtype", None) == FLOAT0 for x in args):
        raise TypeError(
            f"Called {fun_name} with a float0 array. float0s do not support any operations by design: they are the "
            "tangents of integer and bool values. No implicit dtype conversion is done. np.zeros_like(arr, "
            "dtype=float) makes a regular array of zeros.\nIf you didn't expect to get a float0 you might have "
            "accidentally taken a gradient with respect to an integer argument."
        )


def check_no_mixed_keys(fun_name: str, *args: Any) -> None:
    """Raise TypeError if the arguments are PRNG keys and numbers together."""
    kinds = [dtypes.dtype(x) for x in args]
    if len(set(kinds)) > 1 and any(isinstance(d, dtypes.ExtendedDType) for d in kinds):
        raise TypeError(
            f"{fun_name} does not accept dtypes {', '.join(map(str, kinds))}. New keys come from jax.random.split and "
            "jax.random.fold_in, numbers from jax.random.bits."
        )


# -- static arguments: axes, sizes, shapes -------------------------------------------------------------------


def static(x: Any, context: str, force: Callable[[Any], Any] | None = None) -> Any:
    """The value of an argument that must be known while tracing, passed through `force`.

    Raises:
        ConcretizationTypeError: the argument is traced. TypeError: `force` refuses it. Both messages contain `context`.
    """
    if isinstance(x, Tracer):
        known = x.concrete()
        if known is None:
            raise errors.ConcretizationTypeError(x, context)
        x = known
    try:
        return x if force is None else force(x)
    except TypeError as error:
        raise TypeError(f"{error}: {context}, got {x!r}") from None


def host_value(x: Any) -> Any:
    """x as a NumPy array; x itself if other ranks have parts of it."""
    return np.asarray(x) if is_whole(x) else x


def static_int(x: Any, context: str) -> int:
    return static(x, context, dimension)


def canonical_axes(axes: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front: a tuple of all axes for None, and of one axis for an int."""
    if axes is None:
        return tuple(range(ndim))
    if isinstance(axes, Sequence):
        axes = tuple(canonical_axis(a, ndim) for a in axes)
        if len(set(axes)) != len(axes):
            raise ValueError(f"duplicate value in 'axis': {axes}")
        return axes
    return (canonical_axis(axes, ndim),)


def index_tuple(x: Any) -> tuple[int, ...]:
    """An int or a sequence of ints, as a tuple."""
    x = static(x, "expected a static index or sequence of indices.")
    try:
        return (operator.index(x),)
    except TypeError:
        if not isinstance(x, Iterable):
            raise
    return tuple(map(operator.index, x))


def optional_axes(axis: Any) -> Any:
    """An ``axis=`` argument as None, an int, or a tuple of ints and axis names."""
    if axis is None or type(axis) is int:
        return axis
    axis = static(axis, "The axis argument must be known statically.")
    try:
        return operator.index(axis)
    except TypeError:
        if not isinstance(axis, Iterable):
            raise
    return tuple(a if isinstance(a, str) else operator.index(a) for a in axis)


def canonical_shape(shape: Any, context: str = "") -> tuple[int, ...]:
    """A shape argument (an int or a sequence of ints) as a tuple of ints."""
    given = shape
    if not isinstance(shape, (tuple, list)) and (isinstance(shape, DimExpr) or np.ndim(shape) == 0):
        shape = (shape,)
    try:
        return tuple(map(dimension, shape))
    except TypeError:
        pass
    raise errors.shape_error(given, context) from None
