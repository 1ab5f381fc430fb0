"""Replaces quotients by values that are the same along the last axis, as in a softmax, by products, as XLA does.

A division takes as long as ten products, and the reciprocal is computed once for each row. The reciprocal of a large
divisor is denormal, so products with it would be zero. Such divisors are scaled first, and the products scaled back.
Quotients by numbers keep the bits of a division, compiled or not (`mpijax.scalar.reciprocal`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax import lax
from mpijax.compiler.graph.views import spread_axes
from mpijax.core.rules.lowering import Elementwise, Meaning
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.scalar.builder import Builder
from mpijax.scalar.expr import Real, where
from mpijax.scalar.types import Scalar

if TYPE_CHECKING:
    from mpijax.compiler.graph.nodes import Value
    from mpijax.compiler.graph.simplify import Op

# Reciprocals of divisors above this part of the largest number are denormal.
_SMALL = 2.0**-64


def _large(x: Real) -> Real:
    return abs(x) > x.const(1 / float(np.finfo(x.s.dtype).tiny))


def _reciprocal(b: Builder, divisor: Scalar) -> Scalar:
    x = Real(b, divisor)
    return (1.0 / where(_large(x), x * _SMALL, x)).s


def _scale(b: Builder, divisor: Scalar) -> Scalar:
    x = Real(b, divisor)
    return where(_large(x), x.const(_SMALL), 1.0).s


def _inner(name: str, lower: Elementwise) -> Primitive:
    never = Unsupported(f"{name} is made after differentiation and batching")
    return Primitive(
        name, type_rule=never, reference=never, lower=lower, jvp=never, transpose=never, batch=never, register=False
    )


# A row computes them once, so an element of it costs no more than a product.
scaled_reciprocal_p = _inner("scaled_reciprocal", Elementwise(_reciprocal))
divisor_scale_p = _inner("divisor_scale", Elementwise(_scale))


def by_shared_divisor(builder: Any, op: Op) -> list[Value] | None:
    """The quotient by values that are the same along the last axis."""
    if op.primitive.lower.meaning is not Meaning.QUOTIENT or op.avals[0].dtype not in (np.float32, np.float64):
        return None
    out, divisor = op.inputs
    if out.aval.shape != op.avals[0].shape or out.aval.ndim != divisor.aval.ndim or not out.aval.shape:
        return None
    length, own = (builder.global_aval(v).shape[-1] for v in (out, divisor))
    spread = None if own == 1 else _spread(builder, divisor)
    if length == 1 or (own != 1 and spread is None):
        return None
    shared = divisor if spread is None else spread.inputs[0]
    for primitive in (scaled_reciprocal_p, divisor_scale_p):
        [factor] = builder.pure(primitive, {}, [shared], [shared.aval], op.source)
        if spread is not None:
            [factor] = builder.pure(spread.primitive, spread.params, [factor], [divisor.aval], op.source)
        [out] = builder.pure(lax.mul_p, {}, [out, factor], op.avals, op.source)
    return [out]


def _spread(builder: Any, v: Value) -> Any:
    """The operation that repeats several values along the last axis of `v`, if there is one."""
    node = v.producer
    axes = None if node is None else spread_axes(node)
    if node is None or not axes:
        return None
    last = v.aval.ndim - 1
    repeats = last not in axes or builder.global_aval(node.inputs[0]).shape[axes.index(last)] == 1
    return node if repeats else None
