"""Linear interpolation of sampled functions."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.util import ensure_arraylike, is_complex, promote_dtypes_inexact
from mpijax.transforms.jit import jit


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Linear interpolation between the points (xp, fp), at x.

    Args:
      x: real array.
      xp, fp: arrays of shape [n]: positions in increasing order, and the values there.
      left, right: values before the first and after the last position. Default: the first and the last value.
        "extrapolate" continues the first and the last line.
      period: period of the function. `xp` then needs no order, and `left` and `right` have no effect.

    Raises:
      ValueError: `x` is complex, or `xp` and `fp` do not have one axis of the same size.

    >>> jnp.interp(jnp.array([0.5, 2.0, 9.0]), jnp.array([0.0, 1.0, 3.0]), jnp.array([0.0, 10.0, 20.0]))
    Array([ 5., 15., 20.], dtype=float32)
    """
    options = {"left": left, "right": right, "period": period}
    # Numbers may be traced; strings and None say how to compute.
    static = tuple(name for name, value in options.items() if value is None or isinstance(value, str))
    return _JITTED[static](x, xp, fp, left, right, period)


class _Jitted(dict):
    """`_interp` jitted for each set of arguments that are not numbers."""

    def __missing__(self, static: tuple[str, ...]) -> Any:
        self[static] = jit(_interp, static_argnames=static)
        return self[static]


_JITTED = _Jitted()


def _extrapolates(name: str, value: Any) -> bool:
    if isinstance(value, str) and value != "extrapolate":
        raise ValueError(f"the only valid string value of `{name}` is 'extrapolate', but got: {value!r}")
    return isinstance(value, str)


def _interp(x, xp, fp, left=None, right=None, period=None):
    x, xp, fp = ensure_arraylike("interp", x, xp, fp)
    if xp.shape != fp.shape or xp.ndim != 1:
        raise ValueError("xp and fp must be one-dimensional arrays of equal size")
    x, xp = promote_dtypes_inexact(x, xp)
    (fp,) = promote_dtypes_inexact(fp)
    before, after = _extrapolates("left", left), _extrapolates("right", right)
    if is_complex(x.dtype):
        raise ValueError("jnp.interp: complex x values not supported.")
    if period is not None:
        if np.ndim(period) != 0:
            raise ValueError(f"period must be a scalar; got {period}")
        period = jnp.abs(period)
        xp, fp = lax.sort_key_val(xp % period, fp)
        x = x % period
        xp = jnp.concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = jnp.concatenate([fp[-1:], fp, fp[:1]])
    i = jnp.clip(jnp.searchsorted(xp, x, side="right"), 1, xp.shape[0] - 1)
    rise, run = fp[i] - fp[i - 1], xp[i] - xp[i - 1]
    beyond = x - xp[i - 1]
    # Where positions are equal, or nearly equal, the function jumps and has no slope.
    jumps = lax.abs(run) <= np.spacing(dtypes.finfo(xp.dtype).eps)
    f = jnp.where(jumps, fp[i - 1], fp[i - 1] + (beyond / jnp.where(jumps, 1, run)) * rise)
    if period is None and not before:
        f = jnp.where(x < xp[0], fp[0] if left is None else left, f)
    if period is None and not after:
        f = jnp.where(x > xp[-1], fp[-1] if right is None else right, f)
    return f
