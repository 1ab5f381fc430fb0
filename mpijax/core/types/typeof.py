"""The type of a value: array, tracer, NumPy array, number, or an object of a library."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import provided
from mpijax.core.types.abstract import AbstractValue
from mpijax.core.types.avals import NO_AXES, ShapedArray, ShapeDtypeStruct
from mpijax.core.types.foreign import pytype_aval_mappings, rule_for


def typeof(x: Any) -> ShapedArray:
    """The type of an array, tracer, NumPy array or scalar. Raises TypeError for anything else.

    >>> mpijax.typeof(jnp.zeros((2, 3)))
    ShapedArray(float32[2,3])
    """
    try:
        return x.aval
    except AttributeError:
        pass  # so that a later error does not show this one as its cause
    return _typeof_other(x)


get_aval = typeof


def argument_type(x: Any) -> ShapedArray:
    """The type of an argument of a traced function. Raises ValueError for an object that only converts to an array.

    The program would depend on what `__jax_array__` returns, which may change between two calls.

    >>> from mpijax.core.types.typeof import argument_type
    >>> argument_type(np.float32(1))
    ShapedArray(float32[])
    """
    try:
        return x.aval
    except AttributeError:
        pass
    if hasattr(x, "__jax_array__"):
        raise ValueError(
            "Triggering __jax_array__() during abstractification is no longer supported. To avoid this error, either "
            f"explicitly convert your object of type {type(x).__name__} using jax.numpy.array(), or register it as a "
            "pytree."
        )
    return _typeof_other(x)


def abstractify(x: Any) -> ShapedArray:
    """Like `argument_type`, but also accepts any object with `shape` and `dtype`, because only the type is needed.

    >>> mpijax.api_util.shaped_abstractify(np.zeros((2, 3), np.float32))
    ShapedArray(float32[2,3])
    """
    try:
        return argument_type(x)
    except TypeError:
        shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
        if shape is None or dtype is None:
            raise
        return ShapedArray(
            tuple(shape), dtypes.canonicalize_dtype(dtype), bool(getattr(x, "weak_type", False)),
            sharding=getattr(x, "sharding", None),
        )  # fmt: skip


def _typeof_other(x: Any) -> ShapedArray:
    kind = type(x)
    if kind in (bool, int, float, complex):
        return ShapedArray((), dtypes.scalar_dtype(x) if kind is int else dtypes.dtype(kind), kind is not bool)
    if isinstance(x, (np.ndarray, np.generic)):
        if kind is not np.ndarray and _is_masked(x):
            raise ValueError(
                "numpy masked arrays are not supported as direct inputs to JAX functions: their masks would be lost. "
                "Give the array that arr.filled() returns."
            )
        if x.dtype == dtypes.float0:
            return ShapedArray(x.shape, dtypes.float0)
        dtypes.check_valid_dtype(x.dtype)
        return ShapedArray(x.shape, dtypes.canonicalize_dtype(x.dtype))
    if isinstance(x, ShapeDtypeStruct):
        dtype = dtypes.canonicalize_dtype(x.dtype, allow_extended_dtype=True)
        vma = NO_AXES if x.manual_axis_type is None else x.manual_axis_type.varying
        aval = ShapedArray(x.shape, dtype, x.weak_type, vma, sharding=x.sharding)
        return provided.AbstractRef(aval) if x.is_ref else aval
    if isinstance(x, AbstractValue):
        return x  # type: ignore[return-value]  # types of libraries have what tracing asks of a type
    if isinstance(x, (bool, int, float, complex)):
        return ShapedArray((), dtypes.dtype(_builtin_scalar(kind)), not isinstance(x, bool))
    if hasattr(x, "__jax_array__"):
        return typeof(x.__jax_array__())
    rule = rule_for(pytype_aval_mappings, kind)
    if rule is not None:
        return rule(x)
    raise TypeError(f"Argument '{x}' of type '{kind}' is not a valid JAX type")


def _type_of_array(x: Any) -> ShapedArray:
    return ShapedArray(np.shape(x), dtypes.canonicalize_dtype(x.dtype))


pytype_aval_mappings[np.ndarray] = _type_of_array


def _is_masked(x: Any) -> bool:
    """Whether x is a masked array. Importing numpy.ma takes long; if nobody imported it, no masked array exists."""
    module = sys.modules.get("numpy.ma")
    return module is not None and isinstance(x, module.MaskedArray)


def _builtin_scalar(kind: type) -> type:
    return next(base for base in (bool, int, float, complex) if issubclass(kind, base))
