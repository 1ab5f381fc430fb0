"""Hashable communicators and reductions of mpi4py, for static arguments."""

from typing import Any

from mpijax.mpi.arguments import HashableMPIType
from mpijax.mpi.arguments import unwrapped as unpack_hashable

__all__ = ["HashableMPIType", "unpack_hashable", "wrap_as_hashable"]


def wrap_as_hashable(obj: Any) -> HashableMPIType:
    """`obj`, an mpi4py object, with a hash."""
    return obj if isinstance(obj, HashableMPIType) else HashableMPIType(obj)
