"""The table of rules: elementwise lax primitive -> rule(builder, *operands, **params) -> Scalar."""

from __future__ import annotations

from collections.abc import Callable

RULES: dict[str, Callable] = {}
# The rules of transcendental functions for complex operands.
COMPLEX_RULES: dict[str, Callable] = {}


def rule(function: Callable) -> Callable:
    """Register a function under its name; a trailing underscore keeps clear of Python's own words."""
    RULES[function.__name__.rstrip("_")] = function
    return function


def named(name: str) -> Callable[[Callable], Callable]:
    """Register a function under another name."""

    def register(function: Callable) -> Callable:
        RULES[name] = function
        return function

    return register
