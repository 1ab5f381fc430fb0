"""Choice of elements by number or by mask, and of functions by condition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.numpy.util import (
    check_arraylike,
    ensure_arraylike,
    ensure_arraylike_tuple,
    host_value,
    is_integer,
    static,
)
from mpijax.transforms.jit import jit


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    """For each element of `a`, the element at the same position of the choice with that number.

    Args:
      a: integers.
      choices: sequence of arrays, or an array of them; all broadcast against `a`.
      mode: for numbers out of bounds: "raise" (not under `jit`), "wrap" around, or "clip" to the ends.

    Raises:
      ValueError: an element of `a` is out of bounds, with the mode "raise".

    >>> jnp.choose(jnp.array([2, 0, 1]), [jnp.array([1, 2, 3]), jnp.array([10, 20, 30]), jnp.array([100, 200, 300])])
    Array([100,   2,  30], dtype=int32)
    """
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.choose is not supported.")
    a, *choices = ensure_arraylike_tuple("choose", (a, *choices))
    if not is_integer(a.dtype):
        raise ValueError("`a` array must be integer typed")
    if mode == "raise":
        known = static(
            a,
            "The error occurred because jnp.choose was jit-compiled with mode='raise'. Use mode='wrap' or "
            "mode='clip' instead.",
            host_value,
        )
        if ((known < 0) | (known >= len(choices))).any():
            raise ValueError("invalid entry in choice array")
    elif mode == "wrap":
        a = a % len(choices)
    elif mode == "clip":
        a = jnp.clip(a, 0, len(choices) - 1)
    else:
        raise ValueError(f"{mode=} not understood. Must be 'raise', 'wrap', or 'clip'")
    a, *choices = jnp.broadcast_arrays(a, *choices)
    return jnp.array(choices)[(a, *jnp.indices(a.shape, sparse=True))]


def compress(
    condition: Any,
    a: Any,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: Any = 0,
    out: None = None,
) -> Any:
    """The slices of `a` along an axis where `condition` holds. Without an axis, the elements of the flattened array.

    Args:
      condition: bool array with one axis. If it is shorter than the axis of `a`, the remaining slices are dropped.
      size: the length of the result; required if `condition` is traced.
      fill_value: value of the elements beyond the selected ones.

    >>> jnp.compress(jnp.array([True, False, True]), jnp.array([[1, 2, 3], [4, 5, 6]]), axis=1)
    Array([[1, 3],
           [4, 6]], dtype=int32)
    """
    condition, a, fill_value = ensure_arraylike("compress", condition, a, fill_value)
    condition = condition.astype(bool)
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.compress is not supported.")
    if condition.ndim != 1:
        raise ValueError("condition must be a 1D array")
    if axis is None:
        a, axis = a.ravel(), 0
    else:
        a = jnp.moveaxis(a, axis, 0)
    length = a.shape[0]
    condition, beyond = condition[:length], condition[length:]
    a = a[: condition.shape[0]]
    if size is None:
        if beyond.size != 0 and beyond.any():
            raise ValueError("condition contains entries that are out of bounds")
        return jnp.moveaxis(a[condition], 0, axis)
    if not 0 <= size <= a.shape[0]:
        raise ValueError(
            "size must be positive and not greater than the size of the array axis; "
            f"got {size=} for a.shape[axis]={a.shape[0]}"
        )
    mask = jnp.expand_dims(condition, tuple(range(1, a.ndim)))
    a = jnp.where(mask, a, jnp.array(fill_value, dtype=a.dtype))
    return jnp.moveaxis(a[jnp.argsort(condition, stable=True, descending=True)][:size], 0, axis)


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """The elements of the flattened `arr` where `condition` holds. `size`, `fill_value`: see `compress`.

    >>> x = jnp.array([[4, -1], [-3, 2]])
    >>> jnp.extract(x > 0, x)
    Array([4, 2], dtype=int32)
    """
    check_arraylike("extract", condition, arr, fill_value)
    return compress(jnp.ravel(condition), jnp.ravel(arr), size=size, fill_value=fill_value)


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """A function that has different definitions under different conditions.

    Args:
      x: array.
      condlist: conditions with the shape of `x`; if several hold, the last one counts.
      funclist: a number or a function for each condition, and optionally one more for elements where no condition holds
        (default 0). Functions also get `args` and `kw`.

    Returns:
      Array of the shape and dtype of `x`.

    >>> x = jnp.array([-2.0, 0.5, 3.0])
    >>> jnp.piecewise(x, [x < 0, x > 1], [0.0, jnp.sqrt, lambda v: v**2])
    Array([0.       , 0.25     , 1.7320508], dtype=float32)
    """
    x = ensure_arraylike("piecewise", x)
    pieces = list(funclist)
    if len(pieces) == len(condlist):
        pieces = [0, *pieces]
    elif len(pieces) == len(condlist) + 1:
        pieces = [pieces[-1], *pieces[:-1]]
    else:
        n = len(condlist)
        raise ValueError(f"with {n} condition(s), either {n} or {n + 1} functions are expected; got {len(pieces)}")
    constants = {i: piece for i, piece in enumerate(pieces) if not callable(piece)}
    functions = frozenset((i, piece) for i, piece in enumerate(pieces) if callable(piece))
    return _piecewise(x, jnp.asarray(condlist, dtype=bool), constants, functions, *args, **kw)


@jit(static_argnames=["funcs"])
def _piecewise(x, condlist, consts, funcs, *args, **kw) -> Any:
    functions: dict[int, Callable] = dict(funcs)
    dtype = x.dtype

    def branch(i):
        if i in functions:
            return lambda x: functions[i](x, *args, **kw).astype(dtype)
        return lambda x: jnp.array(consts[i], dtype=dtype)

    branches = [branch(i) for i in range(len(condlist) + 1)]
    # The running number of conditions that hold is largest, for the first time, at the last one that holds.
    held = jnp.concatenate([jnp.zeros_like(condlist[:1]), condlist], 0)
    which = jnp.argmax(jnp.cumsum(held, 0), 0)
    return jnp.vectorize(lax.switch, excluded=(1,))(which, branches, x)
