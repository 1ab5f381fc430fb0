"""When the body of a jitted function becomes a part of the program around it."""

from __future__ import annotations

import enum


class Inline(enum.Enum):
    """What `jit(inline=...)` may be. Functions that are not inlined while tracing are so by the compiler.

    >>> mpijax.jit(jnp.sin, inline=mpijax.Inline.JAX_EARLY)(0.0)
    Array(0., dtype=float32, weak_type=True)
    """

    JAX_EARLY = "jax_early"
    JAX_LATE = "jax_late"
    XLA_EARLY = "xla_early"
    XLA_LATE = "xla_late"
    AUTO = "auto"


def while_tracing(inline: bool | Inline) -> bool:
    """Whether the operations are written down without a call."""
    return inline is Inline.JAX_EARLY if isinstance(inline, Inline) else inline
