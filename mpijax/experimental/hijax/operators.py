"""Operators and methods of arrays on traced values of types of libraries: those of the type.

`x + y` is `type_of_x._add(x, y)`, and `x.copy()` calls the method `copy` that the type lends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core.tracing.tracer import Tracer
from mpijax.core.types.abstract import AbstractValue, lent
from mpijax.core.types.array_api import OPERATORS, Array, array_methods


def follow_types() -> None:
    """From now on programs are looked at for types and operations of libraries, and traced values for their methods."""
    if AbstractValue.any_high:
        return
    AbstractValue.any_high = True
    for name in (*OPERATORS, "__len__"):
        setattr(Tracer, name, _operator_of_type(name, vars(Tracer).get(name)))
    for name, own in array_methods().items():
        if not name.startswith("_"):
            setattr(Tracer, name, _attribute_of_type(name, vars(Tracer).get(name, own)))


def _attribute_of_type(name: str, own: Any) -> property:
    """The attribute that a value's type lends, if that is of a library; else that of arrays."""
    return property(lambda self: lent(self, name) if self.aval.is_high else own.__get__(self, type(self)))


def _operator_of_type(name: str, own: Callable | None) -> Callable:
    """The operator of a value's type, if that is of a library and has one; else that of arrays."""
    of_type = f"_{name.strip('_')}"

    def method(self: Any, *args: Any) -> Any:
        aval = self.aval
        if aval.is_high and hasattr(aval, of_type):
            return getattr(aval, of_type)(self, *args)
        # The operators of arrays are put into their class when the first of them is used.
        return (own or vars(Array)[name])(self, *args)

    method.__name__ = name
    return method
