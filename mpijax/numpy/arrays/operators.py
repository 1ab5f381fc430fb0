"""The operators of arrays, for concrete arrays and tracers alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.tracing.out_sharding import with_out_sharding
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.types.array_api import Array
from mpijax.numpy.indexing.take import getitem
from mpijax.numpy.linear_algebra.linear import matmul
from mpijax.numpy.ufuncs import arithmetic, logic

_SCALARS = (int, float, complex, np.generic, np.ndarray, Array)
# Types whose values need no check; filled when they first occur.
_operand_types: set[type] = {bool, int, float, complex, np.ndarray}


def _operand(x: Any) -> Any:
    """The other operand as an array or scalar, or NotImplemented."""
    method = getattr(x, "__jax_array__", None)
    if method is not None:
        x = method()
    if not isinstance(x, _SCALARS):
        return NotImplemented
    if method is None:
        _operand_types.add(type(x))
    return x


def _binary(symbol: str, fun: Callable, *, swapped: bool = False, refused: tuple[type, ...] = ()) -> Callable:
    """The operator `symbol`. Values of the types `refused` raise TypeError at once, so that Python does not try other
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
        ("add", "+", arithmetic.add, sequences),
        ("sub", "-", arithmetic.subtract, ()),
        ("mul", "*", arithmetic.multiply, sequences),
        ("truediv", "/", arithmetic.true_divide, ()),
        ("floordiv", "//", arithmetic.floor_divide, ()),
        ("divmod", "divmod()", arithmetic.divmod, ()),
        ("mod", "%", arithmetic.remainder, ()),
        ("pow", "**", arithmetic.power, ()),
        ("matmul", "@", matmul, ()),
        ("and", "&", logic.bitwise_and, ()),
        ("or", "|", logic.bitwise_or, ()),
        ("xor", "^", logic.bitwise_xor, ()),
        ("lshift", "<<", logic.left_shift, ()),
        ("rshift", ">>", logic.right_shift, ()),
    ):
        table[f"__{name}__"] = _binary(symbol, fun, refused=refused)
        table[f"__r{name}__"] = _binary(symbol, fun, swapped=True, refused=refused)
    for name, symbol, fun, refused in (
        ("eq", "==", logic.equal, containers),
        ("ne", "!=", logic.not_equal, containers),
        ("lt", "<", logic.less, ()),
        ("le", "<=", logic.less_equal, ()),
        ("gt", ">", logic.greater, ()),
        ("ge", ">=", logic.greater_equal, ()),
    ):
        table[f"__{name}__"] = _binary(symbol, fun, refused=refused)
    for name, fun in (
        ("neg", arithmetic.negative),
        ("pos", arithmetic.positive),
        ("abs", arithmetic.absolute),
        ("invert", logic.invert),
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
    rows = range(int(self.shape[0]))
    if isinstance(self, Tracer):
        return (lax.index_in_dim(self, i, keepdims=False) for i in rows)
    if self.aval.leading_split is not None:
        sharding = self.aval.sharding
        spec = sharding.spec.update((None, *sharding.spec[1:]))
        self = with_out_sharding(self, sharding.update(spec=spec), "__iter__")
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


OPERATORS: dict[str, Any] = {
    **_operators(),
    "__getitem__": getitem,
    "__setitem__": _setitem,
    "__iter__": _iter,
    "__contains__": _contains,
    "__round__": _round_operator,
}
