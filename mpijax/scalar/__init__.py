"""Scalar programs: every elementwise primitive as LLVM IR text, for any number of lanes.

`Builder` emits instructions, `Scalar` names their values, `rule_for` maps the name of a lax primitive to
`rule(builder, *operands, **params) -> Scalar`. Transcendental functions are polynomials of this project:
no table in memory, no call, no branch. So LLVM vectorizes them with the loop around them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from mpijax.scalar.builder import Builder, FunctionText
from mpijax.scalar.registry import COMPLEX_RULES, RULES
from mpijax.scalar.types import Scalar, TypeInfo, info

__all__ = ["Builder", "FunctionText", "Scalar", "TypeInfo", "info", "rule_for"]

# The module of each rule, which is imported at the first use of the rule.
MODULES = {
    "arith": "abs add add_any ceil clamp div floor integer_pow is_finite max min mul mulhi neg nextafter rem round "
    "select_n sign square sub",
    "bessel": "bessel_i0e bessel_i1e bessel_jv",
    "beta": "betaln poch regularized_incomplete_beta",
    "compare": "and bitcast_convert_type clz complex conj convert_element_type copy eq eq_to ge gt imag le le_to lt "
    "lt_to ne not or population_count real reduce_precision shift_left shift_right_arithmetic shift_right_logical xor",
    "dawson": "dawsn",
    "dilogarithm": "spence",
    "exponential": "exp exp2 expm1 logistic",
    "exponential_integral": "exp1 expi expn",
    "gamma": "digamma lgamma",
    "hyperbolic": "acosh asinh atanh cosh sinh tanh",
    "incomplete_gamma": "igamma igammac",
    "incomplete_gamma_slope": "igamma_grad_a random_gamma_grad",
    "inverse_trigonometric": "acos asin atan atan2",
    "logarithm": "log log1p log2",
    "normal": "erfcx log_ndtr ndtri",
    "oscillating": "cosine_integral fresnel_cosine fresnel_sine sine_integral",
    "owens_t": "owens_t",
    "power": "cbrt pow rsqrt sqrt",
    "special": "erf erf_inv erfc",
    "threefry": "threefry2x32",
    "trigonometric": "cos sin tan",
    "zeta": "polygamma zeta",
}
_MODULE_OF = {name: module for module, names in MODULES.items() for name in names.split()}

RULES.load = lambda name: import_module(f"mpijax.scalar.{_MODULE_OF[name]}")
COMPLEX_RULES.load = lambda name: import_module("mpijax.scalar.complex_functions")


def rule_for(name: str) -> Callable:
    """The rule of one primitive; KeyError if the primitive is not elementwise."""
    return RULES[name]
