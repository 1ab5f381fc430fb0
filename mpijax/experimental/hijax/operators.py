"""Python's operators on traced values of types of libraries: `x + y` is `type_of_x._add(x, y)`, and so on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core.abstract import AbstractValue
from mpijax.core.array_api import OPERATORS, Array
from mpijax.core.tracer import Tracer


def follow_types() -> None:
    """From now on programs are looked at for types and operations of libraries, and traced values for operators."""
    if AbstractValue.any_high:
        return
    AbstractValue.any_high = True
    for name in (*OPERATORS, "__len__"):
        setattr(Tracer, name, _of_type(name, vars(Tracer).get(name)))


def _of_type(name: str, own: Callable | None) -> Callable:
    """The operator of a value's type, if that is of a library and has one; else that of arrays."""
    lent = f"_{name.strip('_')}"

    def method(self: Any, *args: Any) -> Any:
        aval = self.aval
        if aval.is_high and hasattr(aval, lent):
            return getattr(aval, lent)(self, *args)
        # The operators of arrays are put into their class when the first of them is used.
        return (own or vars(Array)[name])(self, *args)

    method.__name__ = name
    return method
