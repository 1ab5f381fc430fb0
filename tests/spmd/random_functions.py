"""The steps of random programs on global arrays that take functions: loops, branches, derivatives, `vmap`."""

from __future__ import annotations

from collections.abc import Callable

from spmd.random_steps import Known, axis_of, operation, smoothed

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import lax


def same_shape(rng, x: Known) -> Callable:
    """A smooth function that keeps the shape, of one to three operations, and does not grow."""
    axis = axis_of(rng, x)
    choices = [jnp.sin, lambda x: 0.5 * x + 1, lambda x: x / (1 + abs(x).sum())]
    if axis is not None:
        choices += [
            lambda x: 0.5 * (x + jnp.roll(x, 1, axis)),
            lambda x: jnp.cumsum(x, axis) / x.shape[axis],
            lambda x: x - x.mean(axis, keepdims=True),
            lambda x: jnp.sort(x, axis=axis) * 0.9,
            lambda x: 0.5 * jnp.flip(x, axis),
            lambda x: jax.nn.softmax(x, axis=axis),
            lambda x: x * x.max(axis, keepdims=True) / 8,
        ]
        if x.shape[axis] >= 3:
            choices += [lambda x: 0.3 * smoothed(x, axis)] * 2
    chosen = [choices[k] for k in rng.integers(len(choices), size=rng.integers(1, 4))]

    def composed(x):
        for f in chosen:
            x = f(x)
        return x

    return composed


def of_floats(make):
    """An operation that takes floating point numbers only, and a function that keeps their shape."""

    def operation_of(rng, x, program, at):
        return None if x.whole_numbers else (make(rng, x, same_shape(rng, x)), (), 0)

    operation_of.__name__ = make.__name__
    return operation(operation_of)


@of_floats
def fori_loop(rng, x, f):
    return lambda x: lax.fori_loop(0, 3, lambda _, x: f(x), x)


@of_floats
def while_loop(rng, x, f):
    return lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, f(s[1])), (0, x))[1]


@of_floats
def scan(rng, x, f):
    return lambda x: lax.scan(lambda c, _: (f(c), c.sum()), x, None, length=3)[0]


@of_floats
def scan_over(rng, x, f):
    """Over an axis, which is the split one or not."""
    axis = axis_of(rng, x)
    if axis is None:
        return f
    return lambda x: lax.scan(
        lambda c, row: (jnp.tanh(c + row), 2 * c), jnp.zeros_like(jnp.moveaxis(x, axis, 0)[0]), jnp.moveaxis(x, axis, 0)
    )[1]


@of_floats
def cond(rng, x, f):
    # A predicate that rounding does not change.
    return lambda x: lax.cond(jnp.max(x) > -1e9, f, lambda x: 0.5 * x, x)


@of_floats
def nested_jit(rng, x, f):
    return jax.jit(f)


@of_floats
def gradient(rng, x, f):
    # Of cubes: sums of squares have derivatives that cancel where `f` subtracts a mean.
    return jax.grad(lambda x: (jnp.tanh(f(x)) ** 3 + x).sum())


@of_floats
def checkpointed_gradient(rng, x, f):
    return jax.grad(lambda x: jnp.sin(jax.checkpoint(f)(x)).sum())


@of_floats
def tangent(rng, x, f):
    return lambda x: jax.jvp(f, (x,), (jnp.cos(x),))[1]


@of_floats
def vmapped(rng, x, f):
    axis = axis_of(rng, x)
    if axis is None:
        return f
    inner = same_shape(rng, Known(x.shape[:axis] + x.shape[axis + 1 :], 0))
    return jax.vmap(inner, in_axes=axis, out_axes=axis)


@of_floats
def vmapped_gradient(rng, x, f):
    axis = axis_of(rng, x)
    if axis is None:
        return f
    inner = same_shape(rng, Known(x.shape[:axis] + x.shape[axis + 1 :], 0))
    return jax.vmap(jax.grad(lambda x: (inner(x) ** 3).sum()), in_axes=axis)
