"""Checks that work in compiled programs."""

from mpijax.checkify import *  # noqa: F403
from mpijax.checkify.errors import JaxException

__all__ = ["JaxException"]
