"""Line search: a point on a line that satisfies the strong Wolfe conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import mpijax.numpy as jnp
from mpijax import lax

# Fractions of the slope at the start: the least decrease of the function, and the largest remaining slope.
_FALL, _STEEP = 1e-4, 0.9


def inner(a: Any, b: Any) -> Any:
    """The real part of <a, b>."""
    return jnp.real(jnp.vdot(a, b))


def scaled(number: Any, vector: Any) -> Any:
    """A vector, which may be complex, times a real number."""
    return number.astype(vector.dtype) * vector


class LineSearchResult(NamedTuple):
    """The step, the function and its gradient there, the number of evaluations, whether the search failed, and why: 1
    if it found no bracket, 3 if it found no point in the bracket."""

    step: Any
    value: Any
    gradient: Any
    evaluations: Any
    failed: Any
    status: Any


class _LinePoint(NamedTuple):
    """A point on the line: its distance, the value of the function, its slope along the line, its gradient."""

    at: Any
    value: Any
    slope: Any
    gradient: Any


class _Search(NamedTuple):
    """`low` is the best point so far; once `zooming`, a good point lies between it and `high`."""

    low: _LinePoint
    high: _LinePoint
    trial: Any
    zooming: Any
    done: Any
    evaluations: Any
    limit: Any


def line_search(
    evaluate: Callable, x: Any, direction: Any, value: Any, gradient: Any, previous: Any, maxiter: int
) -> LineSearchResult:
    """Search along `direction` from x.

    Args:
      evaluate: x -> (value, gradient); a complex one is the direction of steepest ascent.
      value, gradient: the function at x.
      previous: the value one step before, from which the first trial follows. If None, the first trial is the whole
        direction.
      maxiter: the largest number of evaluations to find a bracket, and again to find a point in it.
    """
    slope = inner(gradient, direction)
    real = jnp.finfo(x.dtype)
    start = _LinePoint(jnp.zeros((), real.dtype), value, slope, gradient)
    trial = jnp.ones((), real.dtype)
    if previous is not None:
        guess = 2.02 * (value - previous) / slope
        # In 32 bits the estimate that follows a shorter step may be singular.
        shortest = 1e-8 if real.bits < 64 else 0.0
        trial = jnp.where((guess > 0) & (guess < 1), jnp.maximum(guess, shortest), trial).astype(real.dtype)
    no = jnp.zeros((), bool)

    def point_at(at):
        value, gradient = evaluate(x + scaled(at, direction))
        return _LinePoint(at, value, inner(gradient, direction), gradient)

    def advance(s):
        return _advance(s, point_at(s.trial), start, maxiter)

    first = _Search(start, start, trial, no, no, 0, maxiter)
    end = lax.while_loop(lambda s: ~s.done & (s.evaluations < s.limit), advance, first)
    best = end.low
    status = jnp.where(end.done, 0, jnp.where(end.zooming, 3, 1))
    return LineSearchResult(scaled(best.at, direction), best.value, best.gradient, end.evaluations, ~end.done, status)


def _choose(which: Any, a: Any, b: Any) -> Any:
    return type(a)(*(jnp.where(which, x, y) for x, y in zip(a, b, strict=True)))


def _advance(s: _Search, p: _LinePoint, start: _LinePoint, maxiter: int) -> _Search:
    """Update the search with the last evaluated point, as in Nocedal and Wright, algorithms 3.5 and 3.6."""
    high_value = ~(p.value <= start.value + _FALL * p.at * start.slope)
    too_high = high_value | ((p.value >= s.low.value) & (s.zooming | (s.low.at > 0)))
    done = ~too_high & (abs(p.slope) <= -_STEEP * start.slope)
    ahead = jnp.where(s.zooming, p.slope * (s.high.at - s.low.at) >= 0, p.slope >= 0)
    high = _choose(too_high, p, _choose(ahead, s.low, s.high))
    low = _choose(too_high, s.low, p)
    zooming = s.zooming | too_high | ahead
    limit = jnp.where(zooming & ~s.zooming, s.evaluations + 1 + maxiter, s.limit)
    trial = jnp.where(zooming, _between(low, high), 2 * p.at)
    return _Search(low, high, trial, zooming, done, s.evaluations + 1, limit)


def _between(low: _LinePoint, high: _LinePoint) -> Any:
    """The minimum of the cubic through both points and slopes; their midpoint if the minimum is near an end or does not
    exist."""
    width = high.at - low.at
    d = low.slope + high.slope - 3 * (high.value - low.value) / width
    root = d * d - low.slope * high.slope
    turn = jnp.sign(width) * jnp.sqrt(jnp.where(root > 0, root, 0))
    part = 1 - (high.slope + turn - d) / (high.slope - low.slope + 2 * turn)
    usable = (root > 0) & (part > 0.1) & (part < 0.9)
    return low.at + width * jnp.where(usable, part, 0.5)
