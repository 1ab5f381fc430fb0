"""Running programs, and waiting for their side effects."""

from mpijax.interpreters.xla import apply_primitive
from mpijax.scopes import effects_barrier as wait_for_tokens

__all__ = ["apply_primitive", "wait_for_tokens"]
