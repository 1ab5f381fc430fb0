"""``mpijax.experimental.scheduling_groups``: which operations XLA schedules together. mpijax accepts the hints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["scheduling_group", "xla_metadata_call"]


def scheduling_group(name: str) -> Callable[[Callable], Callable]:
    """A decorator that returns the function: mpijax orders operations by what they read.

    >>> from mpijax.experimental.scheduling_groups import scheduling_group
    >>> scheduling_group("one")(jnp.sin)(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return xla_metadata_call(scheduling_group=name)


def xla_metadata_call(f: Callable | None = None, **meta: Any) -> Callable:
    """The function `f`; without it, a decorator.

    Args:
      meta: ignored, because it only concerns XLA.

    >>> from mpijax.experimental.scheduling_groups import xla_metadata_call
    >>> xla_metadata_call(jnp.cos, inlineable="false")(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return (lambda g: g) if f is None else f
