"""Pytrees."""

from mpijax.tree_util import *  # noqa: F403
