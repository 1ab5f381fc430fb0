"""Functions with a stack of transformations."""

from mpijax.extend.linear_util import *  # noqa: F403
