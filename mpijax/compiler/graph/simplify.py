"""Replaces an operation by cheaper equivalent ones, or by a form that later stages support.

There are two tables of rules, keyed by the kind of lowering. `KNOWN` applies before equal operations are merged,
`ADDED` when an operation is added to the graph. A rule returns the results (existing values, or results of other
operations), the operation in another form, or None to leave it unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mpijax.compiler.graph import exact_products, matrix_calls, normalize
from mpijax.compiler.graph.compared_keys import over_words
from mpijax.compiler.graph.conversions import conversion_of, converted
from mpijax.compiler.graph.masks import by_mask
from mpijax.compiler.graph.nodes import Node, Value, is_narrow
from mpijax.compiler.graph.products import dims_of, in_order, use_blas
from mpijax.compiler.graph.quotients import by_shared_divisor
from mpijax.compiler.graph.views import counted_axis, order_of, spread_axes, start_of
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import Source
from mpijax.core.rules.lowering import Elementwise, Library, Native, Reduction, Structural
from mpijax.core.rules.primitive import Primitive
from mpijax.core.types import effects as fx
from mpijax.core.types.avals import ShapedArray
from mpijax.ops.shapes.reshape import broadcast_in_dim_p, squeeze_p, transpose_p


@dataclass(frozen=True, slots=True)
class Op:
    """An operation that is not yet in the graph; avals: the types of its results."""

    primitive: Primitive
    params: dict[str, Any]
    inputs: list[Value]
    avals: list[ShapedArray]
    source: Source
    effects: frozenset[Any] = fx.no_effects

    def node(self, why: str = "") -> Node:
        """The operation as a node. why: the reason, if the compiler adds it."""
        return Node(self.primitive, self.params, self.inputs, self.avals, self.source, self.effects, why)


Outcome = Op | list[Value] | None
Rule = Callable[[Any, Op], Outcome]


def simplified(builder: Any, op: Op, rules: dict[type, tuple[Rule, ...]]) -> Op | list[Value]:
    """The results of an operation, or the operation in its simplified form."""
    for rule in rules.get(type(op.primitive.lower), ()):
        found = rule(builder, op)
        if isinstance(found, list):
            return found
        op = found or op
    return op


# ---------------------------------------------------------------- before equal operations are merged


def _operands(builder: Any, op: Op) -> Outcome:
    inputs = normalize.operands(builder, op.primitive, op.inputs)
    return None if inputs is op.inputs else replace(op, inputs=inputs)


def _count(builder: Any, op: Op) -> Outcome:
    return normalize.known_count(builder, op.primitive, op.params, op.inputs, op.avals)


def _triangle(builder: Any, op: Op) -> Outcome:
    found = matrix_calls.triangular_already(op.primitive, op.inputs)
    return None if found is None else [found]


def _unsymmetrized(builder: Any, op: Op) -> Outcome:
    params, inputs = matrix_calls.unsymmetrized(op.primitive, op.params, op.inputs)
    return None if inputs is op.inputs else replace(op, params=params, inputs=inputs)


def _of_reals(builder: Any, op: Op) -> Outcome:
    """Passes reals to native code that would get them as complex numbers."""
    takes_reals = op.primitive.lower.takes_reals
    if takes_reals is None or not takes_reals(op.params):
        return None
    before = conversion_of(op.inputs[0])
    if before is None:
        return None
    x = before.inputs[0]
    is_half = x.element.kind == "f" and 2 * x.element.itemsize == op.inputs[0].element.itemsize
    return replace(op, inputs=[builder.local(x), *op.inputs[1:]]) if is_half else None


def _keeps_rows(node: Node) -> bool:
    """Whether an operation reads whole rows of its operand, some or all of them."""
    start = start_of(node)
    return start is not None and start[-1:] == (0,) and node.inputs[0].shape[-1] == node.outputs[0].shape[-1]


def _counted(builder: Any, op: Op) -> Outcome:
    """Lets native code make positions itself instead of reading them."""
    counts = op.primitive.lower.counts
    if counts is None:
        return None
    node = op.inputs[-1].producer
    while node is not None and _keeps_rows(node):
        node = node.inputs[0].producer
    if node is None or counted_axis(node) != op.inputs[-1].aval.ndim - 1:
        return None
    params = counts([v.aval for v in op.inputs], op.params)
    return None if params is None else replace(op, params=params, inputs=op.inputs[:-1])


# ---------------------------------------------------------------- when an operation is added


def _wide(builder: Any, op: Op) -> Outcome:
    """Computes sums and products of narrow floats in float32 and rounds once."""
    [aval] = op.avals
    if not is_narrow(aval.dtype):
        return None
    single = np.dtype(np.float32)
    product = isinstance(op.primitive.lower, Library)
    params = {**op.params, "preferred_element_type": single} if product else op.params
    inputs = [converted(builder, v, single, op.source) for v in op.inputs]
    [out] = builder.add(Op(op.primitive, params, inputs, [aval.update(dtype=single)], op.source, op.effects))
    return [converted(builder, out, aval.dtype, op.source)]


def _exact(builder: Any, op: Op) -> Outcome:
    found = exact_products.product(builder, op.node())
    return None if found is None else [found]


def _of_one_type(builder: Any, op: Op) -> Outcome:
    """Converts the operands of a product to the type of its result."""
    return replace(op, inputs=[converted(builder, v, op.avals[0].dtype, op.source) for v in op.inputs])


def _transposed(builder: Any, v: Value, order: tuple[int, ...], source: Source) -> Value:
    aval = v.aval.update(shape=tuple(v.aval.shape[a] for a in order))
    [out] = builder.add(Op(transpose_p, {"permutation": order}, [v], [aval], source))
    return out


def _of_matrices(builder: Any, op: Op) -> Outcome:
    """Transposes the operands of a product that BLAS cannot take as matrices."""
    node = op.node()
    if not use_blas(node):
        return None
    inputs = list(op.inputs)
    contract, batch = (list(axes) for axes in op.params["dimension_numbers"])
    for k, v in enumerate(op.inputs):
        order = in_order(node, k)
        if order is None:
            continue
        inputs[k] = _transposed(builder, v, order, op.source)
        batch[k], contract[k] = (tuple(map(order.index, axes)) for axes in (batch[k], contract[k]))
    if inputs == op.inputs:
        return None
    return replace(op, params={**op.params, "dimension_numbers": (tuple(contract), tuple(batch))}, inputs=inputs)


def _in_one_order(builder: Any, op: Op) -> Outcome:
    """Transposes the second operand of a sum of products, so that its axes are in the order of those of the first."""
    d = dims_of(op.node())
    (left, right), (left_batch, right_batch) = op.params["dimension_numbers"]
    pairs = sorted(zip(left, right, strict=True))
    order = (*right_batch, *(b for _, b in pairs))
    if d.lhs_free or d.rhs_free or order == tuple(range(len(order))):
        return None
    x, y = op.inputs
    batch, contract = tuple(range(len(right_batch))), tuple(range(len(right_batch), len(order)))
    numbers = (tuple(a for a, _ in pairs), contract), (left_batch, batch)
    inputs = [x, _transposed(builder, y, order, op.source)]
    return replace(op, params={**op.params, "dimension_numbers": numbers}, inputs=inputs)


def _reshaped(builder: Any, op: Op) -> Outcome:
    """Replaces a reduction along axes of size 1 by a squeeze."""
    axes = op.params["axes"]
    if any(op.inputs[0].aval.shape[a] != 1 for a in axes):
        return None
    return builder.add(replace(op, primitive=squeeze_p, params={"dimensions": tuple(axes)}))


def _window(builder: Any, op: Op) -> Outcome:
    return normalize.simplified(builder, op.primitive, op.params, op.inputs, op.avals, op.source)


def _broadcast_once(builder: Any, op: Op) -> Outcome:
    """Replaces a broadcast of a broadcast by one."""
    axes = spread_axes(op)
    node = None if axes is None else op.inputs[0].producer
    first = None if node is None else spread_axes(node)
    if axes is None or node is None or first is None:
        return None
    dims = tuple(axes[d] for d in first)
    params = {"shape": op.avals[0].shape, "broadcast_dimensions": dims, "sharding": op.params.get("sharding")}
    return builder.add(replace(op, primitive=broadcast_in_dim_p, params=params, inputs=node.inputs))


def _swapped_product(builder: Any, op: Op) -> Outcome:
    """Replaces `(A B)^T` by `B^T A^T`: the product with its operands exchanged, without a transpose."""
    order = order_of(op)
    node = None if order is None else op.inputs[0].producer
    if node is None or not isinstance(node.primitive.lower, Library):
        return None
    d = dims_of(node)
    nb, nl, nr = len(d.lhs_batch), len(d.lhs_free), len(d.rhs_free)
    swapped = (*range(nb), *range(nb + nl, nb + nl + nr), *range(nb, nb + nl))
    if order != swapped or not (nl or nr):
        return None
    (lc, rc), (lb, rb) = node.params["dimension_numbers"]
    params = {**node.params, "dimension_numbers": ((rc, lc), (rb, lb))}
    return builder.add(replace(op, primitive=node.primitive, params=params, inputs=node.inputs[::-1]))


KNOWN: dict[type, tuple[Rule, ...]] = {
    Elementwise: (_operands, _count, over_words, by_mask, by_shared_divisor, _triangle),
    Native: (_unsymmetrized, _of_reals, _counted),
}
ADDED: dict[type, tuple[Rule, ...]] = {
    Library: (_wide, _exact, _of_one_type, _of_matrices, _in_one_order),
    Reduction: (_wide, _reshaped),
    Structural: (_window, _broadcast_once, _swapped_product),
}
