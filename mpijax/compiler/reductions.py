"""Reductions as loops: what is combined, over which axes, from which start."""

from __future__ import annotations

import numpy as np

from mpijax.compiler.expr import Expr
from mpijax.compiler.graph import Node
from mpijax.compiler.index import Lin
from mpijax.compiler.reader import Reader
from mpijax.core import dtypes
from mpijax.core.lowering import Library
from mpijax.core.primitive import registry


def frame_of(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape of the loops of a reduction, and which of its axes are reduced."""
    if isinstance(node.primitive.lower, Library):
        from mpijax.compiler.gemm import dot_frame

        return dot_frame(node)
    shape = node.inputs[0].shape
    return shape, tuple(sorted(a % len(shape) for a in node.params["axes"]))


def element_expr(reader: Reader, node: Node, index: tuple[Lin, ...]) -> Expr:
    """What the reduction combines at one position of its frame."""
    if isinstance(node.primitive.lower, Library):
        from mpijax.compiler.gemm import dot_element

        return dot_element(reader, node, index)
    return reader.element(node.inputs[0], index)


def operator_of(node: Node) -> str:
    """add, mul, max, min, and, or, xor, argmax or argmin."""
    return "add" if isinstance(node.primitive.lower, Library) else node.primitive.lower.op


def identity(op: str, dtype: np.dtype):
    """The value that leaves others unchanged."""
    if op in ("add", "or", "xor"):
        return np.zeros((), dtype)[()]
    if op == "mul":
        return np.ones((), dtype)[()]
    if op == "and":
        return np.asarray(True if dtype == np.bool_ else -1).astype(dtype)[()]
    largest = op == "min" or op == "argmin"
    if dtype == np.bool_:
        return np.bool_(largest)
    if dtypes.issubdtype(dtype, np.integer):
        limits = dtypes.iinfo(dtype)
        return dtype.type(limits.max if largest else limits.min)
    return np.asarray(np.inf if largest else -np.inf).astype(dtype)[()]


def combining(op: str):
    """The primitive that combines two partial results."""
    return registry[op]
