"""Defines when the body of a jitted function is inlined into the enclosing program."""

from __future__ import annotations

import enum


class Inline(enum.Enum):
    """Values of `jit(inline=...)`. The compiler inlines functions that tracing does not inline.

    >>> mpijax.jit(jnp.sin, inline=mpijax.Inline.JAX_EARLY)(0.0)
    Array(0., dtype=float32, weak_type=True)
    """

    JAX_EARLY = "jax_early"
    JAX_LATE = "jax_late"
    XLA_EARLY = "xla_early"
    XLA_LATE = "xla_late"
    AUTO = "auto"


def while_tracing(inline: bool | Inline) -> bool:
    """Whether tracing records the operations without a call."""
    return inline is Inline.JAX_EARLY if isinstance(inline, Inline) else inline
