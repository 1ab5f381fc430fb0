"""The table of rules: elementwise lax primitive -> rule(builder, *operands, **params) -> Scalar."""

from __future__ import annotations

from collections.abc import Callable


class Rules(dict[str, Callable]):
    """Rules by name; `load` imports the module of a rule at its first use."""

    load: Callable[[str], object]

    def __missing__(self, name: str) -> Callable:
        self.load(name)
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found


RULES = Rules()
# The rules of transcendental functions for complex operands.
COMPLEX_RULES = Rules()


def rule(function: Callable) -> Callable:
    """Register a function under its name, without the trailing underscore that avoids a Python builtin."""
    RULES[function.__name__.rstrip("_")] = function
    return function


def named(name: str) -> Callable[[Callable], Callable]:
    """Register a function under another name."""

    def register(function: Callable) -> Callable:
        RULES[name] = function
        return function

    return register
