"""How partial results of reductions are combined."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mpijax.compiler.fusion.kernel import Kernel, Reduce
from mpijax.compiler.fusion.reductions import rule_of, zero_has_no_sign
from mpijax.compiler.loops.scope import Scope
from mpijax.scalar.builder import Builder
from mpijax.scalar.types import Scalar

if TYPE_CHECKING:
    from mpijax.compiler.loops.nest import Nest

Rule = Callable[[Builder, Scalar, Scalar], Scalar]


def accumulated(nest: Nest, kernel: Kernel, r: Reduce, acc: Scalar, scope: Scope, lanes: int) -> Scalar:
    """A running value with one more element; products are added without rounding them first, as BLAS does."""
    b = nest.function.builder(lanes)
    if nest.schedule.is_fused_product(r):
        left, right = [nest.vector(e, scope, lanes) for e in r.expr.args]
        return b.fma(left, right, acc)
    return rule(nest, kernel, r)(b, acc, nest.vector(r.expr, scope, lanes))


def rule(nest: Nest, kernel: Kernel, r: Reduce) -> Rule:
    """Combines two partial results."""
    if not _is_any_zero(nest, kernel, r):
        return rule_of(r.op)
    order = "gt" if r.op == "max" else "lt"
    return lambda b, x, y: b.extremum(order, x, y)


def order_of_keys(nest: Nest, kernel: Kernel, r: Reduce) -> str:
    """The order of an extremum of float32 that a pass along rows finds by integers; "" if it does not.

    The intrinsic that treats NaN and the signs of zeros as it should is a chain of dependent instructions.
    """
    if r.dtype != np.float32 or r.op not in ("max", "min") or _is_any_zero(nest, kernel, r):
        return ""
    return "gt" if r.op == "max" else "lt"


def _is_any_zero(nest: Nest, kernel: Kernel, r: Reduce) -> bool:
    """Whether it is an extremum of which the sign of zero does not matter."""
    found = nest.any_zero.get(r.member)
    if found is None:
        found = nest.any_zero[r.member] = r.any_zero or zero_has_no_sign(kernel, r)
    return found
