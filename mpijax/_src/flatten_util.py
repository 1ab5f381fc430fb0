"""Pytrees as vectors."""

from mpijax.flatten_util import ravel_pytree

__all__ = ["ravel_pytree"]
