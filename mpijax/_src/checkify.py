"""Checks that work in compiled programs."""

from mpijax.checkify import *  # noqa: F403
