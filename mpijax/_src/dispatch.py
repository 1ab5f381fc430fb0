"""Running programs, and waiting for their side effects."""

from mpijax.interpreters.xla import apply_primitive
from mpijax.scopes import effects_barrier as wait_for_tokens

# Libraries add primitives whose compilation needs the devices. mpijax always has them then.
prim_requires_devices_during_lowering: set = set()

__all__ = ["apply_primitive", "prim_requires_devices_during_lowering", "wait_for_tokens"]
