"""Elementwise operations whose meaning is a SciPy function: compiled ones, and those that the program calls there."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.lowering import HostCall
from mpijax.core.primitive import Primitive
from mpijax.ops.families import FLOATING, elementwise, wide


def scipy_function(name: str) -> Callable:
    """A function of scipy.special, which is slow to import and therefore loaded at the first call."""

    def call(*args):
        return getattr(importlib.import_module("scipy.special"), name)(*args)

    return call


def in_double(function: Callable) -> Callable:
    """A function that gets its arguments in double precision, whatever their own; see `hosted` for results."""

    def call(*args, **params):
        doubles = [np.asarray(a, np.complex128 if a.dtype.kind == "c" else np.float64) for a in args]
        return np.asarray(function(*doubles, **params)).astype(args[0].dtype)

    return call


def compiled(name: str, operands: int, function: Callable, jvp: Any, cost: int, weak: bool = True) -> Primitive:
    """An elementwise primitive of floats with the rule of its name in `mpijax.scalar`.

    Args:
      name, operands, jvp, weak: as of `hosted`.
      function: its reference, of NumPy arrays that broadcast.
      cost: about half the machine instructions for one vector.
    """
    return elementwise(name, *[FLOATING] * operands, reference=function, jvp=jvp, cost=cost, weak=weak)


def hosted(
    name: str, operands: int, function: Callable, jvp: Any, kinds: Any = FLOATING, weak: bool = True
) -> Primitive:
    """An elementwise primitive whose value is a NumPy function's.

    Args:
      name: of the primitive.
      operands: how many; all have one dtype, which is the result's.
      function: of arrays that broadcast.
      jvp: as in `families.elementwise`.
      kinds: dtypes it accepts.
      weak: whether the result's type is weak where the operands' are.
    """
    lower = HostCall(_broadcast(wide(function)))
    return elementwise(name, *[kinds] * operands, reference=function, lower=lower, jvp=jvp, weak=weak)


def _broadcast(function: Callable) -> Callable:
    """For programs, whose buffers have the shape of the result."""

    def call(*args, **params):
        return np.asarray(function(*np.broadcast_arrays(*args), **params), order="C")

    return call
