"""Operations."""

from mpijax.lax import *  # noqa: F403
