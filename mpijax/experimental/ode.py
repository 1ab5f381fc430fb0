"""Ordinary differential equations: `odeint`, by the method of Dormand and Prince with adaptive steps.

The gradient solves the adjoint equation backwards in time (Chen et al., arXiv:1806.07366, appendix C), so it does not
store the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax import missing as _missing
from mpijax.core import dtypes
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.flatten_util import ravel_pytree
from mpijax.numpy.util import dtype_of
from mpijax.transforms.custom_gradient import closure_convert
from mpijax.transforms.custom_vjp import custom_vjp
from mpijax.transforms.derivatives import vjp
from mpijax.transforms.vmap import vmap

__all__ = ["odeint"]


class _Limits(NamedTuple):
    """Allowed error of each component: atol + rtol |y|; largest number of steps between two times; longest step."""

    rtol: float
    atol: float
    mxstep: float
    hmax: float


def odeint(
    func: Callable,
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = np.inf,
    hmax: float = np.inf,
) -> Any:
    """Solve dy/dt = func(y, t, *args) from y(t[0]) = y0.

    Args:
      func: (y, t, *args) -> dy/dt, a tree like y. Gradients include the values that it closes over.
      y0: tree of arrays.
      t: ascending times, floats of shape (n,).
      *args: trees of arrays.
      rtol, atol: allowed relative and absolute error of a step.
      mxstep: the largest number of steps between two times. If it needs more, the solution is wrong.
      hmax: longest step.

    Returns:
      y at the times: a tree like y0 with a leading axis of size n.

    Raises:
      TypeError: the elements of `t` are not floats, or a leaf of `args` is not an array.

    >>> mpijax.experimental.ode.odeint(lambda y, t: -y, jnp.array(1.0), jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.3679], dtype=float32)
    """
    for leaf in tree.tree_leaves(args):
        try:
            typeof(leaf)
        except TypeError as error:
            raise TypeError(f"The contents of odeint *args must be arrays or scalars, but got {leaf}.") from error
    t = jnp.asarray(t)
    if not jnp.issubdtype(t.dtype, np.floating):
        raise TypeError(f"t must be an array of floats, but got {t}.")
    func, closed_over = closure_convert(func, y0, t[0], *args)
    y0, unravel = ravel_pytree(y0)
    flat = lambda y, t, *args: ravel_pytree(func(unravel(y), t, *args))[0]
    return vmap(unravel)(_solve(flat, _Limits(rtol, atol, mxstep, hmax), y0, t, (*args, *closed_over)))


# ---------------------------------------------------------------- a step

# Dormand and Prince (1980): when and from which slopes each of the later six slopes is taken.
_TABLEAU = (
    (1 / 5, (1 / 5,)),
    (3 / 10, (3 / 40, 9 / 40)),
    (4 / 5, (44 / 45, -56 / 15, 32 / 9)),
    (8 / 9, (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729)),
    (1.0, (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656)),
    (1.0, (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)),
)
# The fifth-order solution minus the embedded fourth-order one.
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
# The solution in the middle of the step (Shampine 1986), for dense output.
_MIDDLE = (
    6025192743 / 30085553152 / 2,
    0.0,
    51252292925 / 65400821598 / 2,
    -2691868925 / 45128329728 / 2,
    187940372067 / 1594534317056 / 2,
    -1776094331 / 19743644256 / 2,
    11237099 / 235043384 / 2,
)
_SAFETY, _MOST_GROWTH, _MOST_SHRINKING, _ORDER = 0.9, 10.0, 0.2, 5


def _combine(weights: Any, slopes: Any) -> Any:
    return sum(w * k for w, k in zip(weights, slopes, strict=True) if w)


class _OdeState(NamedTuple):
    """The state of the integration: `y` and its slope `f` at time `t`, the size of the next step, and the last step:
    its start and the coefficients of its polynomial in the fraction of the step, (5, n), highest power first."""

    y: Any
    f: Any
    t: Any
    dt: Any
    last_t: Any
    polynomial: Any


def _advance(func: Callable, limits: _Limits, s: _OdeState) -> _OdeState:
    """Try a step, and accept it if its error is small enough. The error determines the size of the next step."""
    dt = s.dt.astype(s.y.dtype)
    slopes = [s.f]
    for when, weights in _TABLEAU:
        y = s.y + dt * _combine(weights, slopes)
        slopes.append(func(y, s.t + s.dt * when))
    ratio = _error_ratio(dt * _combine(_ERROR, slopes), limits, s.y, y)
    taken = _OdeState(y, slopes[-1], s.t + s.dt, s.dt, s.t, _polynomial(s.y, y, slopes, dt))
    best = jnp.where(ratio == 0, _MOST_GROWTH, _SAFETY * jnp.where(ratio == 0, 1, ratio) ** (-1 / _ORDER))
    factor = jnp.clip(best, jnp.where(ratio < 1, 1.0, _MOST_SHRINKING), _MOST_GROWTH)
    new = _OdeState(*(jnp.where(ratio <= 1, a, b) for a, b in zip(taken, s, strict=True)))
    return new._replace(dt=jnp.clip(s.dt * factor.astype(s.dt.dtype), 0, limits.hmax))


def _error_ratio(error: Any, limits: _Limits, y0: Any, y1: Any) -> Any:
    """The root mean square of the errors divided by the allowed errors."""
    allowed = limits.atol + limits.rtol * jnp.maximum(abs(y0), abs(y1))
    return jnp.sqrt(jnp.mean(jnp.square(abs(error) / allowed)))


def _polynomial(y0: Any, y1: Any, slopes: list, dt: Any) -> Any:
    """Coefficients of the quartic with the given values and slopes at both ends and the given value in the middle."""
    rise0, rise1, middle = dt * slopes[0], dt * slopes[-1], y0 + dt * _combine(_MIDDLE, slopes)
    a = 2 * (rise1 - rise0) - 8 * (y0 + y1) + 16 * middle
    b = 5 * rise0 - 3 * rise1 + 18 * y0 + 14 * y1 - 32 * middle
    c = rise1 - 4 * rise0 - 11 * y0 - 5 * y1 + 16 * middle
    return jnp.stack([a, b, c, rise0, y0])


def _first_step(func: Callable, limits: _Limits, t0: Any, y0: Any, f0: Any) -> Any:
    """A safe size of the first step (Hairer, Nørsett and Wanner, II.4)."""
    scale = limits.atol + limits.rtol * abs(y0)
    norm = lambda v: jnp.linalg.norm(v / scale)
    d0, d1 = norm(y0), norm(f0)
    h0 = jnp.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / jnp.where(d1 == 0, 1, d1))
    f1 = func(y0 + h0.astype(y0.dtype) * f0, t0 + h0.astype(t0.dtype))
    d2 = norm(f1 - f0) / h0
    steepest = jnp.maximum(d1, d2)
    flat = steepest <= 1e-15
    h1 = jnp.where(flat, jnp.maximum(1e-6, h0 * 1e-3), (0.01 / jnp.where(flat, 1, steepest)) ** (1 / _ORDER))
    return jnp.clip(jnp.minimum(100 * h0, h1), 0, limits.hmax).astype(t0.dtype)


# ---------------------------------------------------------------- all times, and back


@partial(custom_vjp, nondiff_argnums=(0, 1))
def _solve(func: Callable, limits: _Limits, y0: Any, ts: Any, args: tuple) -> Any:
    """The solution at the times ts, of shape (len(ts), n), for a vector y0 of shape (n,)."""
    slope = lambda y, t: func(y, t, *args)

    def to_next(s, target):
        unfinished = lambda state: (state[1].t < target) & (state[0] < limits.mxstep) & (state[1].dt > 0)
        _, s = lax.while_loop(unfinished, lambda state: (state[0] + 1, _advance(slope, limits, state[1])), (0, s))
        length = s.t - s.last_t
        part = ((target - s.last_t) / jnp.where(length == 0, 1, length)).astype(s.y.dtype)
        return s, jnp.polyval(s.polynomial, part)

    f0 = slope(y0, ts[0])
    polynomial = jnp.zeros((5, *y0.shape), y0.dtype).at[-1].set(y0)
    start = _OdeState(y0, f0, ts[0], _first_step(slope, limits, ts[0], y0, f0), ts[0], polynomial)
    return jnp.concatenate([y0[None], lax.scan(to_next, start, ts[1:])[1]])


def _solve_forward(func, limits, y0, ts, args):
    ys = _solve(func, limits, y0, ts, args)
    return ys, (ys, ts, args)


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(dtype_of(x), np.inexact)


def _solve_backward(func, limits, residuals, g):
    """Integrate from the last time to the first: y, its cotangent, and the cotangents of t and args."""
    ys, ts, args = residuals
    ts, g = jnp.asarray(ts), jnp.asarray(g)
    leaves, structure = tree.tree_flatten(args)
    floats = [x for x in leaves if _is_float(x)]

    def with_floats(values):
        values = iter(values)
        return tree.tree_unflatten(structure, [next(values) if _is_float(x) else x for x in leaves])

    def backwards(state, minus_t, *floats):
        y, y_bar, *_ = state
        f, pull = vjp(lambda y, t, *floats: func(y, t, *with_floats(floats)), y, -minus_t, *floats)
        return (-f, *pull(y_bar))

    def to_previous(carry, i):
        y_bar, t0_bar, floats_bar = carry
        t_bar = jnp.dot(func(ys[i], ts[i], *args), g[i]).real.astype(ts.dtype)
        state = (ys[i], y_bar, t0_bar - t_bar, *floats_bar)
        times = jnp.stack([-ts[i], -ts[i - 1]])
        _, y_bar, t0_bar, *floats_bar = tree.tree_map(
            lambda x: x[1], odeint(backwards, state, times, *floats, **limits._asdict())
        )
        return (y_bar + g[i - 1], t0_bar, floats_bar), t_bar

    start = (g[-1], jnp.zeros((), ts.dtype), [jnp.zeros_like(x) for x in floats])
    (y_bar, t0_bar, floats_bar), ts_bar = lax.scan(to_previous, start, jnp.arange(len(ts) - 1, 0, -1))
    each = iter(floats_bar)
    args_bar = tree.tree_unflatten(structure, [next(each) if _is_float(x) else _no_cotangent(x) for x in leaves])
    return y_bar, jnp.concatenate([t0_bar[None], ts_bar[::-1]]), args_bar


def _no_cotangent(x: Any) -> Any:
    """The cotangent of integers and booleans."""
    return np.zeros(jnp.shape(x), dtypes.float0)


_solve.defvjp(_solve_forward, _solve_backward)


def __getattr__(name: str):
    raise _missing.error(__name__, name)
