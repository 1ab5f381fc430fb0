"""Mutable array references: `jax.ref`."""

from mpijax.core.tracing.refs import AbstractRef, Ref, addupdate, empty_ref, free_ref, freeze, get, new_ref, swap
from mpijax.core.tracing.refs import ref_set as set

__all__ = ["AbstractRef", "Ref", "addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set", "swap"]
