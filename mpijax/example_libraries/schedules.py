"""Step sizes as functions of the number of the iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpijax.numpy as jnp

Schedule = Callable[[Any], Any]


def constant(step_size: float) -> Schedule:
    """The same step size in all iterations.

    >>> mpijax.example_libraries.optimizers.constant(0.1)(7)
    0.1
    """
    return lambda i: step_size


def exponential_decay(step_size: float, decay_steps: int, decay_rate: float) -> Schedule:
    """`step_size * decay_rate ** (i / decay_steps)`.

    >>> mpijax.example_libraries.optimizers.exponential_decay(1.0, decay_steps=10, decay_rate=0.5)(20)
    0.25
    """
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size: float, decay_steps: int, decay_rate: float, staircase: bool = False) -> Schedule:
    """`step_size / (1 + decay_rate * i / decay_steps)`; with `staircase`, `i / decay_steps` is rounded down.

    >>> mpijax.example_libraries.optimizers.inverse_time_decay(1.0, decay_steps=10, decay_rate=0.5)(20)
    0.5
    """

    def schedule(i: Any) -> Any:
        turns = jnp.floor(i / decay_steps) if staircase else i / decay_steps
        return step_size / (1 + decay_rate * turns)

    return schedule


def polynomial_decay(step_size: float, decay_steps: int, final_step_size: float, power: float = 1.0) -> Schedule:
    """From `step_size` to `final_step_size` in `decay_steps` iterations, then constant.

    >>> mpijax.example_libraries.optimizers.polynomial_decay(1.0, decay_steps=10, final_step_size=0.5)(5)
    Array(0.75, dtype=float32, weak_type=True)
    """

    def schedule(i: Any) -> Any:
        rest = (1 - jnp.minimum(i, decay_steps) / decay_steps) ** power
        return rest * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Sequence[int], values: Sequence[float]) -> Schedule:
    """`values[k]` after the iteration has passed k boundaries.

    Raises:
      ValueError: there is not exactly one more value than boundaries, or an argument is not a vector.

    >>> mpijax.example_libraries.optimizers.piecewise_constant([10, 20], [1.0, 0.5, 0.25])(15)
    Array(0.5, dtype=float32)
    """
    edges, steps = jnp.array(boundaries), jnp.array(values)
    if edges.ndim != 1 or steps.ndim != 1:
        raise ValueError(f"boundaries and values must be sequences, got shapes {edges.shape} and {steps.shape}")
    if steps.shape[0] != edges.shape[0] + 1:
        raise ValueError(
            f"boundaries length must be one shorter than values length, got {edges.shape[0]} and {steps.shape[0]}"
        )
    return lambda i: steps[jnp.sum(i > edges)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A schedule unchanged, or the constant schedule of a number.

    Raises:
      TypeError: the argument is neither.

    >>> mpijax.example_libraries.optimizers.make_schedule(0.1)(7)
    0.1
    """
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(f"a step size must be a number or a function of the iteration, got {type(scalar_or_schedule)}")
