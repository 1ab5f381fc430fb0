"""Derivatives of primitives."""

from mpijax.interpreters.ad import *  # noqa: F403
from mpijax.transforms.custom_vjp import CustomVJPException

__all__ = ["CustomVJPException"]
