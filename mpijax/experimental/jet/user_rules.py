"""Rules that users add to `jet`, with JAX's convention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core.types.typeof import typeof
from mpijax.experimental.jet.polynomials import Polynomial, degree
from mpijax.transforms.zeros import zeros


class ZeroSeries:
    """The value that rules return for the coefficients of a constant result.

    >>> mpijax.experimental.jet.ZeroSeries()
    zero_series
    """

    def __repr__(self) -> str:
        return "zero_series"


zero_series = ZeroSeries()
jet_rules: dict[Any, Callable] = {}
"""Rules of users: primitive -> `(primals_in, series_in, **params) -> (primal_out, series_out)`.

A series has the coefficients of powers, without factorials. Each operand has one series, also if it is zero.
"""


def apply_user_rule(primitive, operands: list[Polynomial], params: dict[str, Any]) -> list[Polynomial]:
    """The results of an operation by the rule in `jet_rules`."""
    order = degree(*operands)
    primals = [u[0] for u in operands]
    series = [u[1:] or [zeros(typeof(u[0]).to_tangent_aval())] * order for u in operands]
    outs, found = jet_rules[primitive](primals, series, **params)
    pairs = zip(outs, found, strict=True) if primitive.multiple_results else [(outs, found)]
    return [[x, *(() if terms is zero_series else terms)] for x, terms in pairs]
