"""Merges operations on matrices into native calls that do them too: symmetrizing before, taking a triangle after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax.compiler.graph.normalize import known
from mpijax.compiler.graph.views import order_of, spread_axes
from mpijax.core.rules.lowering import Meaning, Native, meaning_of

if TYPE_CHECKING:
    from mpijax.compiler.graph.nodes import Value

# Larger matrices are symmetrized by a separate kernel, which reads them tile by tile.
LARGEST = 32


def unsymmetrized(primitive, params: dict[str, Any], inputs: list) -> tuple[dict[str, Any], list]:
    """The call on the matrices before symmetrizing, if the native code can symmetrize them itself."""
    name = primitive.lower.symmetrizes
    if not name or inputs[0].aval.shape[-1] > LARGEST:
        return params, inputs
    x = _before_symmetrizing(inputs[0])
    return (params, inputs) if x is None else ({**params, name: True}, [x, *inputs[1:]])


def _before_symmetrizing(v: Value) -> Value | None:
    """x where `v` is (x + x^T) / 2."""
    total = _operands(v, Meaning.QUOTIENT)
    if total is None or total[1].scalar is None or total[1].scalar != 2:
        return None
    parts = _operands(total[0], Meaning.SUM)
    if parts is None:
        return None
    for x, other in (parts, parts[::-1]):
        turned = other.producer
        n = len(x.aval.shape)
        swapped = (*range(n - 2), n - 1, n - 2)
        if turned is not None and order_of(turned) == swapped and turned.inputs[0] is x:
            return x
    return None


def _operands(v: Value, meaning: Meaning) -> list | None:
    node = v.producer
    return None if node is None or meaning_of(node.primitive.lower) is not meaning else node.inputs


def triangular_already(primitive, inputs: list) -> Value | None:
    """The operand of a lower-triangle selection whose operand is already lower triangular; else None."""
    if primitive.lower.meaning is not Meaning.SELECTION or len(inputs) != 3:
        return None
    mask, zero, x = inputs
    node = x.producer
    if node is None or not isinstance(node.primitive.lower, Native) or not node.primitive.lower.triangular:
        return None
    if node.outputs[0] is not x or not _is_zero(zero):
        return None
    triangle = known(_repeated(mask))
    n = x.aval.shape[-1]
    if triangle is None or triangle.shape != (n, n) or x.aval.shape[-2] != n:
        return None
    return x if np.array_equal(triangle, np.tri(n, dtype=bool)) else None


def _repeated(v: Value) -> Value:
    """The operand that `v` broadcasts along leading axes; `v` itself if it is no such broadcast."""
    node = v.producer
    axes = None if node is None else spread_axes(node)
    if node is None or axes is None:
        return v
    n = len(v.aval.shape)
    return node.inputs[0] if axes == tuple(range(n - len(axes), n)) else v


def _is_zero(v: Value) -> bool:
    while v.producer is not None and spread_axes(v.producer) is not None:
        v = v.producer.inputs[0]
    return v.scalar is not None and bool(v.scalar == 0)
