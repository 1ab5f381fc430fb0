"""The options."""

from mpijax.core.config import *  # noqa: F403
from mpijax.core.config import enable_x64

__all__ = ["enable_x64"]
