"""Constructors for elementwise operations defined by a SciPy function: compiled, or called on the host."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.rules import factors
from mpijax.core.rules.lowering import HostCall
from mpijax.core.rules.primitive import Primitive
from mpijax.ops.families import FLOATING, elementwise, wide


def scipy_function(name: str) -> Callable:
    """A function of scipy.special. The import is slow, so it is deferred to the first call."""

    def call(*args):
        return getattr(importlib.import_module("scipy.special"), name)(*args)

    return call


def in_double(function: Callable) -> Callable:
    """A function that receives its arguments in double precision; the result has the first argument's dtype."""

    def call(*args, **params):
        doubles = [np.asarray(a, np.complex128 if a.dtype.kind == "c" else np.float64) for a in args]
        return np.asarray(function(*doubles, **params)).astype(args[0].dtype)

    return call


def compiled(name: str, operands: int, function: Callable, jvp: Any, cost: int, weak: bool = True) -> Primitive:
    """An elementwise primitive of floats, compiled from the rule with its name in `mpijax.scalar`.

    Args:
      name, operands, jvp, weak: as for `hosted`.
      function: its reference, on NumPy arrays that broadcast.
      cost: about half the number of machine instructions for one vector.
    """
    return elementwise(name, *[FLOATING] * operands, reference=function, jvp=jvp, cost=cost, weak=weak)


def hosted(
    name: str, operands: int, function: Callable, jvp: Any, kinds: Any = FLOATING, weak: bool = True
) -> Primitive:
    """An elementwise primitive that calls a NumPy function on the host.

    Args:
      name: of the primitive.
      operands: their number; all have one dtype, which is also the result's.
      function: takes arrays that broadcast.
      jvp: as in `families.elementwise`.
      kinds: accepted dtypes.
      weak: whether weakly typed operands give a weakly typed result.
    """
    lower = HostCall(_broadcast(wide(function)))
    primitive = elementwise(name, *[kinds] * operands, reference=function, lower=lower, jvp=jvp, weak=weak)
    primitive.sharding = factors.elementwise  # ranks call it on their shards
    return primitive


def _broadcast(function: Callable) -> Callable:
    """Broadcasts the arguments, because buffers of programs have the shape of the result."""

    def call(*args, **params):
        return np.asarray(function(*np.broadcast_arrays(*args), **params), order="C")

    return call
