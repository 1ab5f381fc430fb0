"""Which effects of operations of libraries may occur where, by JAX's names."""

from __future__ import annotations

from typing import Any


class EffectTypes(set):
    """Types of effects."""

    def add_type(self, effect_type: type) -> None:
        """Add one."""
        self.add(effect_type)

    def contains(self, effect: Any) -> bool:
        """Whether the effect is of one of the types."""
        return isinstance(effect, tuple(self))


# Every effect may occur in loops and branches here: nothing asks.
control_flow_allowed_effects = EffectTypes()
