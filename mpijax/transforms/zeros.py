"""Symbolic zeros, and sums of tangents."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import provided
from mpijax.core.types.avals import ShapedArray, number_of
from mpijax.core.types.typeof import typeof


class Zero:
    """A tangent or cotangent known to be zero, never computed.

    Rules with `symbolic_zeros` see it as `custom_derivatives.SymbolicZero`, with a type but without a value.

    >>> mpijax.custom_derivatives.SymbolicZero(mpijax.typeof(jnp.zeros(3))).shape
    (3,)
    """

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)
    weak_type = property(lambda self: self.aval.weak_type)

    @staticmethod
    def from_primal_value(x: Any) -> Zero:
        """JAX's name for `of_primal`."""
        return Zero.of_primal(x)

    @staticmethod
    def of_primal(x: Any) -> Zero:
        """The zero tangent of a value."""
        return Zero(typeof(x).to_tangent_aval())

    def __repr__(self) -> str:
        return f"Zero({self.aval})"


def scalar_of_type(value: int, aval: ShapedArray) -> Any:
    """A number with the dtype of `aval`; a Python number if `aval` is weakly typed."""
    return number_of(value, aval.dtype, aval.weak_type)


def as_array(x: Any) -> Any:
    """A Python or NumPy scalar as an array, or as a literal of the program being traced; others unchanged.

    A NumPy array becomes an array, too, if its dtype is not that of its type here (64 bits without jax_enable_x64).
    """
    if not isinstance(x, (bool, int, float, complex, np.generic, np.ndarray)):
        return x
    aval = typeof(x)
    if isinstance(x, np.ndarray) and x.dtype == aval.dtype:
        return x
    return provided.basic.converted(x, aval)


def as_operand(x: Any) -> Any:
    """As `as_array`, but a Python number stays a number. Raises OverflowError for one that its dtype cannot hold."""
    if type(x) in (bool, int, float, complex):
        typeof(x)
        return x
    return as_array(x)


def zeros(aval: Any) -> Any:
    """An array of zeros of the given type, created in the current trace; float0 zeros are NumPy arrays.

    >>> mpijax.interpreters.ad.zeros_like_aval(mpijax.typeof(jnp.ones(2)))
    Array([0., 0.], dtype=float32)
    """
    if aval.is_high:
        return aval.vspace_zero()
    if aval.has_no_tangent:
        return np.zeros(aval.shape, dtypes.float0)
    extended = isinstance(aval.dtype, dtypes.ExtendedDType)
    zero = aval.dtype._rules.zero(aval.dtype) if extended else scalar_of_type(0, aval)
    if aval.shape:
        value = provided.basic.broadcast(zero, aval.shape, (), aval.said_sharding)
    else:
        value = zero
    if aval.vma:
        value = provided.basic.varying(value, tuple(sorted(aval.vma, key=str)))
    return value if aval.split is None else provided.basic.cast_sums(value, aval)


def instantiate(tangent: Any) -> Any:
    """A symbolic zero as an array; other values unchanged.

    >>> mpijax.interpreters.ad.instantiate_zeros(mpijax.interpreters.ad.Zero(mpijax.typeof(jnp.ones(2))))
    Array([0., 0.], dtype=float32)
    """
    return zeros(tangent.aval) if type(tangent) is Zero else tangent


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents, either of which may be a symbolic zero.

    >>> mpijax.interpreters.ad.add_tangents(mpijax.interpreters.ad.Zero(mpijax.typeof(jnp.ones(2))), jnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    if type(x) is Zero:
        return y
    if type(y) is Zero:
        return x
    aval = typeof(x)
    if aval.is_high:
        return aval.vspace_add(x, y)
    if isinstance(aval.dtype, dtypes.ExtendedDType):
        return aval.dtype._rules.add(aval.dtype, x, y)
    return x if aval.has_no_tangent else provided.basic.add_tangents(x, y)
