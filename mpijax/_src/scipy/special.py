"""Special functions."""

from mpijax.scipy.special import *  # noqa: F403
