"""The options."""

from mpijax.core.base.config import *  # noqa: F403
from mpijax.core.base.config import enable_x64

__all__ = ["enable_x64"]
