"""Scalar programs: every elementwise primitive as LLVM IR text, written once for any number of lanes.

`Builder` emits instructions, `Scalar` names their values, `rules()` maps the name of a lax primitive to
`rule(builder, *operands, **params) -> Scalar`. Transcendental functions are polynomials of this project:
no table in memory, no call, no branch, so they vectorise with the loop they stand in.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from mpijax.scalar.builder import Builder, FunctionText
from mpijax.scalar.registry import RULES
from mpijax.scalar.types import Scalar, TypeInfo, info

__all__ = ["Builder", "FunctionText", "Scalar", "TypeInfo", "info", "rule_for", "rules"]


# Each registers its rules.
_MODULES = """
    arith bessel beta compare complex_functions dawson dilogarithm exponential exponential_integral gamma hyperbolic
    incomplete_gamma incomplete_gamma_slope inverse_trigonometric logarithm normal oscillating owens_t power special
    threefry trigonometric zeta""".split()


def rules() -> dict[str, Callable]:
    """The table of all rules, by primitive name. The modules that register them are loaded at the first call."""
    if "threefry2x32" not in RULES:  # somebody may have registered a rule of their own first
        for name in _MODULES:
            importlib.import_module(f"mpijax.scalar.{name}")
    return RULES


def rule_for(name: str) -> Callable:
    """The rule of one primitive; KeyError where it is not an elementwise primitive."""
    return rules()[name]
