"""Operations of differentiation."""

from mpijax.core.rules.registry import registry
from mpijax.transforms.zeros import Zero

__all__ = ["Zero", "stop_gradient_p"]

stop_gradient_p = registry["stop_gradient"]
