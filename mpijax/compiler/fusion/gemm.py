"""Describes operands of matrix products: strided views for BLAS, expressions for loop nests."""

from __future__ import annotations

import numpy as np

from mpijax import lax
from mpijax.compiler.fusion.expr import Expr, Load
from mpijax.compiler.fusion.reader import ElementReader, converted
from mpijax.compiler.graph.nodes import Node, Value
from mpijax.compiler.graph.products import BlasOperand, StridedView, dims_of, matrix_operand
from mpijax.compiler.graph.views import is_view, view_of
from mpijax.core.rules.lowering import ViewKind
from mpijax.core.shapes.index import Lin, LoopVar, linearized, var


def dot_frame(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The loops of a product as a reduction (batch, lhs free, rhs free, contracted), and the reduced axes."""
    d = dims_of(node)
    lhs, rhs = node.inputs[0].shape, node.inputs[1].shape
    kept = [lhs[a] for a in d.lhs_batch] + [lhs[a] for a in d.lhs_free] + [rhs[a] for a in d.rhs_free]
    contracted = [lhs[a] for a in d.lhs_contract]
    return tuple(kept + contracted), tuple(range(len(kept), len(kept) + len(contracted)))


def dot_element(reader: ElementReader, node: Node, index: tuple[Lin, ...]) -> Expr:
    """The product of the two elements that belong to one position of the frame."""
    d = dims_of(node)
    nb, nl, nr = len(d.lhs_batch), len(d.lhs_free), len(d.rhs_free)
    batch, left, right, contracted = (
        index[:nb],
        index[nb : nb + nl],
        index[nb + nl : nb + nl + nr],
        index[nb + nl + nr :],
    )
    lhs_index = _spread(
        len(node.inputs[0].shape), (d.lhs_batch, batch), (d.lhs_free, left), (d.lhs_contract, contracted)
    )
    rhs_index = _spread(
        len(node.inputs[1].shape), (d.rhs_batch, batch), (d.rhs_free, right), (d.rhs_contract, contracted)
    )
    out = node.outputs[0].element
    a = converted(reader.table, reader.element(node.inputs[0], lhs_index), out)
    b = converted(reader.table, reader.element(node.inputs[1], rhs_index), out)
    return reader.table.apply(lax.mul_p if out != np.bool_ else lax.and_p, (a, b), out, {})


def _spread(ndim: int, *parts) -> tuple[Lin, ...]:
    out: list[Lin] = [Lin(0)] * ndim
    for axes, values in parts:
        for a, v in zip(axes, values, strict=True):
            out[a] = v
    return tuple(out)


def strided_view(value: Value, stored) -> StridedView | None:
    """`value` as a strided view of an array in memory; None if it is not one."""
    if value.producer is None or stored(value):
        variables = [LoopVar(d) for d in value.shape]
        position = linearized(tuple(var(v) for v in variables), value.shape)
        return StridedView(value, 0, _strides(position, variables))
    if not is_view(value.producer):
        return None
    variables = [LoopVar(d) for d in value.shape]
    reader = ElementReader(stored)
    expr = reader.element(value, tuple(var(v) for v in variables))
    if not isinstance(expr, Load) or any(type(a) is not LoopVar for a, _ in expr.position.terms):
        return None
    base, position = expr.value, expr.position
    return StridedView(base, position.offset, _strides(position, variables))


def block_in(value: Value, stored) -> StridedView | None:
    """The part of an array in memory that `value` is, if that part is contiguous; else None."""
    view = strided_view(value, stored)
    step = 1
    for n, stride in zip(reversed(value.shape), reversed(view.strides if view is not None else ()), strict=False):
        if n != 1 and stride != step:
            return None
        step *= n
    return view


def _strides(position: Lin, variables) -> tuple[int, ...]:
    found = dict(position.terms)
    return tuple(found.get(v, 0) for v in variables)


def view_base(value: Value, roots) -> Value | None:
    """The array to keep in memory so that BLAS can read `value`: its base if `value` is a usable view of it."""
    v = value
    while v.producer is not None and id(v) not in roots.ids and is_view(v.producer):
        if view_of(v.producer) in (ViewKind.REPEATED, ViewKind.REVERSED):
            return None
        if view_of(v.producer) is ViewKind.REGROUPED and v.producer.inputs[0].shape != v.shape:
            inner = v.producer.inputs[0]
            if inner.producer is not None and id(inner) not in roots.ids:
                return None
        v = v.producer.inputs[0]
    return v


def product_operand(node: Node, k: int, stored) -> BlasOperand | None:
    """Operand `k` of a product as a matrix: rows are its free axes, columns its contracted axes.

    The right operand has the opposite order: contracted × free.
    """
    view = strided_view(node.inputs[k], stored)
    if view is None:
        return None
    d, shape = dims_of(node), node.inputs[k].shape
    if k == 0:
        return matrix_operand(view, shape, d.lhs_batch, d.lhs_free, d.lhs_contract)
    return matrix_operand(view, shape, d.rhs_batch, d.rhs_contract, d.rhs_free)
